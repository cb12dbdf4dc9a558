"""Cost of the dashboard: throughput with viewers, and latency of its updates.

    python -m simulations.benchmarks.page                 throughput of blend and cpm, as ratios
    python -m simulations.benchmarks.page latency         from writing an event to a followed file to a viewer
    python -m simulations.benchmarks.page memory          memory of the dashboard after ten million events
    python -m simulations.benchmarks.page hostile         throughput while clients request all points in a loop

Viewers are a separate process that reads all messages without drawing them. Within one run the page is on and off for
three seconds each, in turns. The ratio compares the events per second of all turns of each kind. Wall time is
unreliable if other work shares the machine. Therefore the CPU time of the process, including the threads of the page,
is compared too, and the share of those threads is reported.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from connectors.events import Batch, Origins, Position
from simulations.keeping import keep, rounded
from streamsvm import CPMClassifier, StreamSVMClassifier
from streamsvm.run.page import Page
from streamsvm.run.page.dashboard import DashboardState
from streamsvm.run.page.series import TIERS
from streamsvm.run.page.server import Server, page
from streamsvm.run.runner import Runner, runner_of

MODELS = {"blend": StreamSVMClassifier, "cpm": CPMClassifier}
VIEWERS = 10
ASKING = 16
BATCH = 1024
TURN_S = 3.0


class Rows:
    """A source that repeats one block of a table, at almost no cost."""

    name = identity = "rows"

    def __init__(self, n: int) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(BATCH, 10))
        self._table = {f"x{j}": x[:, j].copy() for j in range(10)}
        self._labels = np.where(x[:, 0] + x[:, 1] * x[:, 2] > 0, "up", "down").tolist()
        self._n, self._at = n, 0

    @property
    def position(self) -> Position:
        return {"event": self._at}

    @property
    def fraction(self) -> float:
        return self._at / self._n

    def seek(self, position: Position) -> None:
        self._at = position["event"]

    def __iter__(self) -> Iterator[Batch]:
        while self._at < self._n:
            n = min(BATCH, self._n - self._at)
            table = self._table if n == BATCH else {name: column[:n] for name, column in self._table.items()}
            origins = Origins({}, {"event": range(self._at, self._at + n)})
            self._at += n
            yield Batch(table, self._labels[:n], origins, self.position)

    def close(self) -> None: ...


def view(port: int, n: int, messages: Any) -> None:
    """Run n viewers that count the messages."""

    def one() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/series.json")
        connection.getresponse().read()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/events")
        answer = connection.getresponse()
        while line := answer.readline():
            with messages.get_lock():
                messages.value += line.startswith(b"data: ")

    threads = [threading.Thread(target=one) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextlib.contextmanager
def viewers(server: Server) -> Iterator[Any]:
    context = multiprocessing.get_context("spawn")
    messages = context.Value("i", 0)
    process = context.Process(target=view, args=(server.port, VIEWERS, messages))
    process.start()
    while server.n_following < VIEWERS:
        time.sleep(0.1)
    try:
        yield messages
    finally:
        process.join(10)
        process.kill()


def ask(port: int, n: int, asking: Any, answers: Any) -> None:
    """Request all points in a loop from n threads while `asking` is set."""

    def one() -> None:
        while True:
            asking.wait()
            with contextlib.suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("GET", "/series.json", headers={"Accept-Encoding": "gzip"})
                status = connection.getresponse().status
                connection.close()
                with answers.get_lock():
                    answers[status != http.HTTPStatus.OK] += 1

    os.nice(10)
    threads = [threading.Thread(target=one, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Turns:
    """An observer that switches the page on and off in turns of a few seconds.

    With `asking` the page is always on, and other clients send requests in turns.
    """

    def __init__(self, page: Page, n_turns: int, turn_s: float = TURN_S, asking: Any = None) -> None:
        self._page, self._left, self._on = page, n_turns, False
        self._turn_s, self._asking = turn_s, asking
        self._began: tuple[float, ...] | None = None
        self._looked = 0.0
        self.turns: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
        self.runner: Runner | None = None

    def __call__(self, report: Any, fraction: float | None) -> None:
        if self._on or self._asking:
            before = time.thread_time()
            self._page(report, fraction)
            self._looked += time.thread_time() - before
        processor, own = time.process_time(), time.thread_time()
        now = float(report.events), time.perf_counter(), processor, processor - own, self._looked
        if self._began is None:
            self._began = now
        elif now[1] - self._began[1] >= self._turn_s:
            self.turns[self._on].append(tuple(new - old for new, old in zip(now, self._began, strict=True)))
            self._began, self._on, self._left = now, not self._on, self._left - 1
            if self._asking:
                (self._asking.set if self._on else self._asking.clear)()
            if not self._left and self.runner is not None:
                self.runner.stop()


def throughput(name: str, n_turns: int) -> dict[str, float]:
    """Compare events per second with page and viewers to those without.

    Returns ratios over all turns, with standard errors.
    """
    one = Page("0")
    observer = Turns(one, 2 * n_turns)
    with viewers(one.server) as messages:
        runner = observer.runner = runner_of(MODELS[name](), Rows(1 << 40), observer=observer)
        runner.run()
        one.close()
    return compared(observer) | {"messages a viewer": messages.value / VIEWERS}


def hostile(name: str, n_turns: int, turn_s: float) -> dict[str, float]:
    """Compare events per second with and without clients that send requests.

    Also counts the responses and the refusals.
    """
    one, context = Page("0"), multiprocessing.get_context("spawn")
    asking, answers = context.Event(), context.Array("i", 2)
    fill(one._dashboard)
    observer = Turns(one, 2 * n_turns, turn_s, asking)
    process = context.Process(target=ask, args=(one.server.port, ASKING, asking, answers), daemon=True)
    process.start()
    time.sleep(2.0)
    try:
        runner = observer.runner = runner_of(MODELS[name](), Rows(1 << 40), observer=observer)
        runner.run()
        one.close()
    finally:
        process.kill()
    return compared(observer) | {"answers": float(answers[0]), "refusals": float(answers[1])}


def compared(observer: Turns) -> dict[str, float]:
    """Compute the ratios between the turns."""
    on, off = (np.array(observer.turns[asked][1:], float) for asked in (True, False))  # the first turn compiles
    draws = np.random.default_rng(0).integers(0, len(off), (2, 2_000, len(off)))
    result = {"events/s without": off[:, 0].sum() / off[:, 1].sum(), "events/s with": on[:, 0].sum() / on[:, 1].sum()}
    for k, clock in ((1, "wall time"), (2, "processor time")):
        result[f"ratio, {clock}"] = _ratio(on, off, k)
        resampled = [_ratio(on[i % len(on)], off[j], k) for i, j in zip(*draws, strict=True)]
        result[f"its standard error, {clock}"] = float(np.std(resampled))
        result[f"ratio of medians, {clock}"] = float(np.median(on[:, 0] / on[:, k]) / np.median(off[:, 0] / off[:, k]))
    others = [each[:, 3].sum() / each[:, 2].sum() for each in (on, off)]
    result["looking, share of the processor's time"] = on[:, 4].sum() / on[:, 2].sum()
    result["serving, share of the processor's time"] = others[0] - others[1]
    return result | {"turns": float(len(off))}


def _ratio(on: Any, off: Any, k: int) -> float:
    return float(on[:, 0].sum() / on[:, k].sum() / (off[:, 0].sum() / off[:, k].sum()))


def fill(board: DashboardState) -> None:
    """Fill a dashboard with as many points as it has after three months."""
    now, n = time.time(), 3_000_000 // 900
    for i in range(n):
        figures = {"time": now + 900.0 * (i - n), "judged": float(i)}
        board._series.add(figures, "one", {f"x{j}": 1.0 for j in range(8)})


def memory(n: int) -> dict[str, float]:
    """Measure the memory of the dashboard after n events, and the size of its responses."""
    board = DashboardState()
    tracemalloc.start()
    runner_of(CPMClassifier(), Rows(BATCH), observer=DashboardState()).run()
    before = tracemalloc.get_traced_memory()[0]
    runner = runner_of(CPMClassifier(), Rows(n), observer=board)
    runner.run()
    after = tracemalloc.get_traced_memory()[0]
    del runner
    whole = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/run/page/*")])
    tracemalloc.stop()
    points = sum(most for _, most in TIERS)
    fill(board)
    return {
        "events": float(n),
        "MB in all": (after - before) / 1e6,
        "MB of the page": sum(stat.size for stat in whole.statistics("filename")) / 1e6,
        "most points": float(points),
        "kB of the page, packed": len(page()[0]) / 1e3,
        "kB of a message": len(board.feed.latest) / 1e3,
        "kB of all points": len(board.series()) / 1e3,
    }


def latency(n: int) -> dict[str, float]:
    """Measure the milliseconds from writing a line to its arrival at a viewer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "in.csv")
        path.write_text("a,b,y\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(2_000)))
        command = [sys.executable, "-m", "streamsvm", "run", str(path), "--at-end", "wait", "--label", "y"]
        command += ["--model", "cpm"]
        with Path(folder, "log").open("w") as log:
            run = subprocess.Popen([*command, "--out", "null:", "--dead-letter", "null:", "--page", "0"], stderr=log)
        try:
            while "the page: " not in (said := Path(folder, "log").read_text()):
                time.sleep(0.1)
            port = int(said.split("the page: ")[1].split()[0].rpartition(":")[2])
            time.sleep(3.0)
            alone, busy = [], []
            for times, every in ((alone, 3.3), (busy, 0.05)):
                times += _arrivals(path, port, n, every)
        finally:
            run.kill()
            run.wait()
    return {
        "an event alone, median ms": 1e3 * statistics.median(alone),
        "an event alone, most ms": 1e3 * max(alone),
        "at 20 events/s, median ms": 1e3 * statistics.median(busy),
        "at 20 events/s, most ms": 1e3 * max(busy),
    }


def _arrivals(path: Path, port: int, n: int, every: float) -> list[float]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    seen: list[tuple[int, float]] = []

    def listen() -> None:
        while line := answer.readline():
            if line.startswith(b"data: "):
                seen.append((json.loads(line[6:])["events"], time.perf_counter()))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    while not seen:
        time.sleep(0.05)
    start, written = seen[-1][0], []
    for i in range(n if every > 1 else 20 * n):
        time.sleep(every * (1 + 0.1 * (i % 3)))
        with path.open("a") as file:
            file.write(f"{i % 7},{i % 3},{i % 2}\n")
        written.append(time.perf_counter())
    time.sleep(3.0)
    found = [next(at for count, at in seen if count > start + i) - when for i, when in enumerate(written)]
    connection.close()
    return found


def main() -> None:
    """Run the selected measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", default="throughput", choices=("throughput", "latency", "memory", "hostile"))
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--turn-s", type=float, default=60.0, help="seconds of a turn, for `hostile`")
    parser.add_argument("--only", choices=tuple(MODELS))
    args = parser.parse_args()
    if args.what == "throughput":
        result = {name: rounded(throughput(name, args.turns)) for name in ([args.only] if args.only else MODELS)}
    elif args.what == "hostile":
        names = [args.only] if args.only else MODELS
        result = {f"hostile-{name}": rounded(hostile(name, args.turns, args.turn_s)) for name in names}
    elif args.what == "memory":
        result = {"memory": rounded(memory(10_000_000))}
    else:
        result = {"latency": rounded(latency(12))}
    print(json.dumps(result, indent=1))
    for name, figures in result.items():
        keep(f"page-{name}", figures)


if __name__ == "__main__":
    main()
