from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.streams import Source
from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.run import RunConfig
from streamsvm.run.config import SINKS
from streamsvm.run.loop import Report, RunLoop
from tests.commands import Command, command, completed, environment, ran_here

Streamsvm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Precompiled kernels, so that test processes do not compile."""
    for model in (StreamSVMClassifier(), BSGDClassifier(), CPMClassifier()):
        model.run_batch([{"warm": 1.0}], [0])


@pytest.fixture
def streamsvm(tmp_path: Path) -> Streamsvm:
    """Run the command line in the test's directory to this exit code.

    It is `completed`, or a new interpreter, where options ask for that.
    """

    def call(*arguments: Any, code: int | None = 0, **options: Any) -> subprocess.CompletedProcess[str]:
        if not options:
            done = ran_here(*arguments, cwd=tmp_path)
        elif "env" not in options:
            done = completed(*arguments, cwd=tmp_path, **options)
        else:
            options = {"cwd": tmp_path, "env": environment(), "timeout": 120, **options}
            done = subprocess.run(command(*arguments), capture_output=True, text=True, encoding="utf-8", **options)
        assert code is None or done.returncode == code, done.stderr
        return done

    return call


@pytest.fixture
def refused(streamsvm: Streamsvm) -> Callable[..., str]:
    """Run the command line, which must fail; return its only message."""

    def call(*arguments: Any, code: int = 2, **options: Any) -> str:
        done = streamsvm(*arguments, code=code, **options)
        (line,) = done.stderr.splitlines()
        assert line.startswith("streamsvm: error: ")
        assert code != 2 or done.stdout == ""
        return line.removeprefix("streamsvm: error: ")

    return call


def runner_of(model: Any, source: Source, **options: Any) -> RunLoop:
    """Build a runner from options of `RunLoop` and `RunConfig`, and sinks by role."""
    sinks = {role: options.pop(role) for role in SINKS if role in options}
    own = {name: options.pop(name) for name in ("checkpoint", "observers", "started") if name in options}
    config = RunConfig(**options, **{role: sink.name for role, sink in sinks.items()})
    return RunLoop(model, source, config, sinks, **own)


def run(model: Any, source: Source, **options: Any) -> Report:
    """Run a model over a source, with the options of `runner_of`."""
    return runner_of(model, source, **options).run()


def restored(fresh: Any, state: Any) -> Any:
    """Return a part of a run with the state of another."""
    fresh.restore(state)
    return fresh


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def without_sync() -> None:
    """Do not wait for the disk; files keep what was written without power failures."""
    os.fsync = lambda _: None


def killed(*arguments: Any, cwd: Path, when: Callable[[], bool]) -> bool:
    """Start a command and kill it on a condition; return whether it was running."""
    with Command(*arguments, cwd=cwd, prepare=without_sync) as process:
        while process.poll() is None and not when():
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        return process.wait() == -signal.SIGKILL


def killed_and_resumed(
    folder: Path, arguments: Callable[[int], Iterable[Any]], is_due: Callable[[Path], bool] = Path.exists
) -> tuple[Path, Path]:
    """Run a command in `plain`, and in `broken` with two kills; return both.

    `arguments` returns those with an interval of checkpoints. A kill comes when a share of `out.csv` is written and the
    directory `is_due`.
    """
    plain, broken = folder / "plain", folder / "broken"
    for place in (plain, broken):
        place.mkdir()
    ran_here(*arguments(1_000_000), cwd=plain, check=True)
    full, dice = (plain / "out.csv").stat().st_size, random.Random(1)
    for share in (dice.uniform(0.02, 0.4), dice.uniform(0.5, 0.9)):
        # A resumed run first truncates the file. Wait for that, so that the kill comes during new events.
        def when(size: float = share * full) -> bool:
            return has_size(broken / "out.csv", size) and is_due(broken)

        is_killed = killed(*arguments(dice.randint(50, 150)), cwd=broken, when=when)
        assert is_killed, "the process was too quick to be killed"
    ran_here(*arguments(5000), cwd=broken, check=True)
    return plain, broken


def has_size(path: Path, size: float) -> bool:
    return path.exists() and path.stat().st_size >= size


def write_stream(path: Path, n: int, *, broken: bool = False, moved: bool = False) -> Path:
    """A CSV stream whose concept (and column b if `moved`) changes halfway.

    Some lines are malformed, and some labels are missing.
    """
    rng = np.random.default_rng(9)
    x = rng.normal(size=(n, 3))
    x[n // 2 :, 1] += moved
    y = np.where(np.arange(n) < n / 2, x[:, 0] > 0, x[:, 1] > 0.3)
    lines = ["a,b,c,site,y"]
    for i, row in enumerate(x):
        label = "" if i % 41 == 7 else ("UP" if y[i] else "DOWN")
        first = "oops" if broken and i % 97 == 5 else f"{row[0]:.6f}"
        lines.append(f"{first},{row[1]:.6f},{row[2]:.6f},s{i % 3},{label}")
    data = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        import gzip

        path.write_bytes(gzip.compress(data.encode()))
    else:
        path.write_text(data)
    return path


def write_joined(folder: Path, X: Any, y: Any, delays: Any, sites: int = 0) -> None:
    """Write events each 10 ms, and labels `delays` later, in two files and in one.

    A delay of NaN is a missing label.
    """
    names = ["id", "t", *"abcdefgh"[: X.shape[1]], *["site"] * bool(sites)]
    rows = [[f"k{i}", 10 * i, *x, *[f"s{i % (sites or 1)}"] * bool(sites)] for i, x in enumerate(X.tolist())]
    delays = np.broadcast_to(delays, len(X)).astype(float)
    late = sorted((10 * i + int(delays[i]), i) for i in range(len(X)) if delays[i] == delays[i])
    write_table(folder / "events.csv", names, rows)
    write_table(folder / "labels.csv", ["id", "t", "y"], ((f"k{i}", t, y[i]) for t, i in late))
    write_table(folder / "both.csv", [*names, "y"], ([*row, label] for row, label in zip(rows, y, strict=True)))


def write_table(path: Path, names: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file whose texts need no quotes."""
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in (names, *rows)))
