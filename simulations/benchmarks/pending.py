"""Cost of delayed labels: memory, checkpoints, and throughput.

    python -m simulations.benchmarks.pending              all
    python -m simulations.benchmarks.pending memory       ten million waiting events of 20 numbers
    python -m simulations.benchmarks.pending disk         the same events on disk
    python -m simulations.benchmarks.pending checkpoint   time of checkpoints with a million waiting events
    python -m simulations.benchmarks.pending throughput   runs with labels 1,000 events later, and in the events

Runs with and without a join alternate. Results are medians of CPU time and wall time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.events import LateLabels
from simulations.keeping import keep, kept
from streamsvm import StreamSVMClassifier
from streamsvm.delayed.join import Events, Join
from streamsvm.delayed.models import OwnModel
from streamsvm.delayed.store import Store

COLUMNS, CHUNK = 20, 2_048
MANY, ANSWERED, SAVED, RUN, ROUNDS = 10_000_000, 100_000, 1_000_000, 100_000, 5


class Waiting:
    """Events of 20 numbers that wait for labels."""

    def __init__(self, folder: Path | None = None) -> None:
        self._rng = np.random.default_rng(0)
        store = Store(most=1 << 60, most_bytes=1 << 60, n_origins=2, folder=folder)
        self.join = Join(store, OwnModel(StreamSVMClassifier("low")))
        self._n = 0
        self.add(1_000, answered=True)

    def add(self, n: int, *, answered: bool = False) -> None:
        """Add n events, with or without labels."""
        for start in range(self._n, self._n + n, CHUNK):
            m = min(CHUNK, self._n + n - start)
            X = self._rng.normal(size=(m, COLUMNS))
            keys = [f"order-{i}" for i in range(start, start + m)]
            features = {f"x{j}": X[:, j] for j in range(COLUMNS)}
            events = Events(features, keys, np.arange(start, start + m), np.zeros((m, 2), np.int64))
            labels = (X[:, 0] > 0).tolist() if answered else []
            times = [start + m] * len(labels)
            late = LateLabels(labels, [], times, np.full(len(labels), m))
            self.join.step(events, late, keys if answered else [])
        self._n += n

    def answer(self, n: int) -> float:
        """Label n random events; returns the CPU seconds per label."""
        chosen = self._rng.choice(self._n - 1_000, n, replace=False) + 1_000
        began, none = time.process_time(), np.zeros(0, np.int64)
        for start in range(0, n, CHUNK):
            keys = [f"order-{i}" for i in chosen[start : start + CHUNK].tolist()]
            late = LateLabels([True] * len(keys), [], [self._n] * len(keys), np.zeros(len(keys), np.int64))
            self.join.step(Events([], [], none, np.zeros((0, 2), np.int64)), late, keys)
        return (time.process_time() - began) / n


def memory(folder: Path | None = None) -> dict[str, float]:
    """Measure memory and time of ten million waiting events.

    The memory is the store's own count, and that of the process.
    """
    waiting = Waiting(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    waiting.add(MANY)
    seconds = time.process_time() - began
    peak, store = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, waiting.join.store
    found = {
        "events": store.n_waiting,
        "bytes an event": round(store.n_bytes / store.n_waiting, 1),
        "store GB": round(store.n_bytes / 1e9, 3),
        "process GB": round(peak * 1024 / 1e9, 3),
        "process before GB": round(before * 1024 / 1e9, 3),
        "us an event": round(1e6 * seconds / MANY, 2),
    }
    return found | {"us a label": round(1e6 * waiting.answer(ANSWERED), 2)}


def disk() -> dict[str, float]:
    """Measure memory and time of ten million events that wait on disk."""
    with tempfile.TemporaryDirectory() as folder:
        return memory(Path(folder))


def checkpoint() -> dict[str, float]:
    """Measure the CPU seconds of a checkpoint with a million waiting events.

    5,000 events are new since the last checkpoint.
    """
    waiting, seconds = Waiting(), []
    with tempfile.TemporaryDirectory() as folder:
        waiting.add(SAVED)
        for _ in range(ROUNDS + 1):
            began = time.process_time()
            _, arrays = waiting.join.store.state(Path(folder))
            np.savez(Path(folder) / "checkpoint", **arrays)
            seconds.append(time.process_time() - began)
            waiting.add(5_000)
    return {"events": SAVED, "first s": round(seconds[0], 3), "next s": round(statistics.median(seconds[1:]), 3)}


def throughput() -> dict[str, dict[str, float]]:
    """Time runs over CSV of five numbers, minus the run of a single event."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))
        for model in ("blend", "cpm"):
            plain, late = _run(folder, model, "both.csv"), _run(folder, model, "events.csv")
            rounds = [(plain(RUN) - plain(1), late(RUN) - late(1)) for _ in range(ROUNDS)]
            within, joined = np.median(np.array(rounds), axis=0)
            figures = {"within events, s": within[0], "joined, s": joined[0], "ratio": within[0] / joined[0]}
            figures["ratio of time that passes"] = within[1] / joined[1]
            found[model] = {name: round(float(figure), 3) for name, figure in figures.items()}
    return found


def _write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RUN, 5)).round(5)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, "up", "down").tolist()
    rows = [f"k{i},{10 * i},{','.join(map(str, row))}" for i, row in enumerate(X.tolist())]
    labels = [f"k{i},{10 * (i + 1_000) - 1},{label}" for i, label in enumerate(y)]
    (folder / "events.csv").write_text("\n".join(["id,t,a,b,c,d,e", *rows]) + "\n")
    (folder / "labels.csv").write_text("\n".join(["id,t,y", *labels]) + "\n")
    both = [f"{row},{label}" for row, label in zip(rows, y, strict=True)]
    (folder / "both.csv").write_text("\n".join(["id,t,a,b,c,d,e,y", *both]) + "\n")


def _run(folder: str, model: str, source: str) -> Callable[[int], NDArray[np.float64]]:
    """Return a function that times a run over n events, in CPU and wall seconds."""
    joining = ("--label-source", "labels.csv", "--join", "id") if source == "events.csv" else ("--set", "key=id")
    asked = [sys.executable, "-m", "streamsvm", "run", source, *joining, "--time", "t", "--label", "y"]
    asked += ["--model", model, "--out", "out.csv", "--quiet"]

    def run(n: int) -> NDArray[np.float64]:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([*asked, "--max-events", str(n)], cwd=folder, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return np.array([used, time.perf_counter() - began])

    return run


def table() -> str:
    """Return the table of the stored throughput, in events per CPU second."""
    rows = ["| | labels in the events | labels in a separate file, 1,000 events later | ratio |", "|---|---|---|---|"]
    for model, found in kept("pending")["throughput"].items():
        within, joined = (f"{RUN / found[name]:,.0f}" for name in ("within events, s", "joined, s"))
        rows.append(f"| `{model}` | {within} | {joined} | {found['ratio']:.2f} × |")
    return "\n".join(rows)


PARTS: dict[str, Callable[[], Any]] = {
    "memory": memory,
    "disk": disk,
    "checkpoint": checkpoint,
    "throughput": throughput,
}


def main() -> None:
    """Measure, and store each part at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    for part in parser.parse_args().parts:
        found = PARTS[part]()
        keep("pending", kept("pending") | {part: found}, lines=True)
        print(part, found, flush=True)


if __name__ == "__main__":
    main()
