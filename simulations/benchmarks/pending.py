"""Cost of delayed labels: memory of pending events, and throughput of runs.

A million events of 20 numbers wait in a `DelayedClassifier`, in memory or on disk. Runs read CSV of five numbers;
labels are in the events, or arrive 1,000 events later from another file. Both kinds of runs alternate; medians count.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from simulations.harness import Benchmark, Case, key_of
from simulations.storage import rounded
from simulations.tables import Column, Table, of
from streamsvm import DelayedClassifier, StreamSVMClassifier

WAITING, COLUMNS, LABELLED = 1_000_000, 20, 50_000
RUN, ROUNDS, LATE = 100_000, 5, 1_000
MODELS = ("blend", "cpm")


# Memory -----------------------------------------------------------------------------------------------------------


def memory(on_disk: bool) -> dict[str, float]:
    """Measure memory and time of waiting events, and the time of their labels."""
    rng, names = np.random.default_rng(0), [f"x{j}" for j in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        model = DelayedClassifier(
            StreamSVMClassifier("low"),
            max_pending=2 * WAITING,
            max_pending_bytes=1 << 40,
            pending_dir=folder if on_disk else None,
        )
        model.predict_one(dict(zip(names, rng.normal(size=COLUMNS).tolist(), strict=True)), key="first")
        model.learn_one("first", True)
        before = peak()
        for i in range(WAITING):
            model.predict_one(dict(zip(names, rng.normal(size=COLUMNS).tolist(), strict=True)), key=f"order-{i}")
        used = peak() - before
        began = time.process_time()
        for i in range(LABELLED):
            model.learn_one(f"order-{i}", i % 2 == 0)
        each = (time.process_time() - began) / LABELLED
    return rounded({"bytes": used / WAITING, "us of a label": 1e6 * each})


def memory_alone(on_disk: bool) -> dict[str, float]:
    """Measure in a process of its own, as the peak memory of a process never falls."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(memory, (on_disk,))


def peak() -> float:
    """Return the peak memory of this process in bytes."""
    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# Throughput -------------------------------------------------------------------------------------------------------


def throughput(model: str) -> dict[str, float]:
    """Measure events per CPU second of runs, excluding the time of one event."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        found: dict[str, list[float]] = {"within": [], "joined": []}
        for _ in range(ROUNDS):
            for which, seconds in found.items():
                seconds.append(run(folder, model, which, RUN) - run(folder, model, which, 1))
    within, joined = (RUN / statistics.median(seconds) for seconds in found.values())
    return rounded({"within": within, "joined": joined, "ratio": joined / within})


def write(folder: Path) -> None:
    """Write the events without labels, the labels, and the events with labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RUN, 5)).round(5)
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * X[:, 2] > 0, "up", "down").tolist()
    rows = [f"k{i},{10 * i},{','.join(map(str, row))}" for i, row in enumerate(X.tolist())]
    labels = [f"k{i},{10 * (i + LATE) - 1},{label}" for i, label in enumerate(y)]
    both = [f"{row},{label}" for row, label in zip(rows, y, strict=True)]
    (folder / "joined.csv").write_text("\n".join(["id,t,a,b,c,d,e", *rows]) + "\n")
    (folder / "labels.csv").write_text("\n".join(["id,t,y", *labels]) + "\n")
    (folder / "within.csv").write_text("\n".join(["id,t,a,b,c,d,e,y", *both]) + "\n")


def run(folder: str, model: str, which: str, n: int) -> float:
    """Return the CPU seconds of a run over n events."""
    joining = ["--label-source", "labels.csv", "--join", "id"] if which == "joined" else ["--set", "key=id"]
    command = [sys.executable, "-m", "streamsvm", "run", f"{which}.csv", *joining, "--time", "t", "--label", "y"]
    command += ["--model", model, "--out", "out.csv", "--quiet", "--max-events", str(n)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List the measurements."""
    yield from (Case(key_of("throughput", model), partial(throughput, model)) for model in MODELS)
    yield Case(key_of("memory", "in memory"), partial(memory_alone, False))
    yield Case(key_of("memory", "on disk"), partial(memory_alone, True))


BENCHMARK = Benchmark(
    "pending",
    "Memory of events that wait for labels, and throughput of runs that join labels from another file.",
    cases,
    {
        "pending_memory": Table(
            "waiting events",
            lambda parts: parts[1] if parts[0] == "memory" else None,
            [
                Column("bytes per event", of("bytes"), "{:,.0f}"),
                Column("µs per label", of("us of a label")),
            ],
        ),
        "pending": Table(
            "events per CPU second",
            lambda parts: f"`{parts[1]}`" if parts[0] == "throughput" else None,
            [
                Column("labels in the events", of("within"), "{:,.0f}"),
                Column(f"labels in a separate file, {LATE:,} events later", of("joined"), "{:,.0f}"),
                Column("ratio", of("ratio"), "{:.2f} ×"),
            ],
        ),
    },
    subject="late labels",
)
