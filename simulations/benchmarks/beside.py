"""Comparison of this version with another checkout, in alternating runs.

The minimum over the runs counts.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from simulations import data
from simulations.benchmarks.streams import STREAMS, seed_of
from simulations.harness import Benchmark, Case
from simulations.storage import ROOT, Rows, rounded
from simulations.tables import Column, Table, of, part

WAYS = ("rows", "events")
# Images, in addition to the streams.
DIGITS, N_DIGITS = "MNIST", 20_000
# Number of single events, and of events that compile the code before the measurement.
SINGLE, FIRST = 3_000, 200


class Version:
    """A process with the package of a checkout."""

    def __init__(self, checkout: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("timed.py"))],
            env=os.environ | {"PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        # Compile all measured code on numbers.
        X = np.random.default_rng(0).normal(size=(FIRST, 3))
        self.tell(message(X, (X[:, 0] > 0).tolist()))
        for way in WAYS:
            self.ask(way)

    def tell(self, sent: Any) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        pickle.dump(sent, self._process.stdin)
        self._process.stdin.flush()

    def ask(self, way: str) -> dict[str, float]:
        """Measure on the last stream that was sent."""
        assert self._process.stdout is not None
        self.tell(way)
        answer: dict[str, float] = pickle.load(self._process.stdout)
        return answer


@lru_cache
def version(checkout: str) -> Version:
    """Return the process of a checkout; it ends with this one."""
    return Version(checkout)


def message(X: Any, y: list[Any]) -> dict[str, Any]:
    """Return the message that sends a stream."""
    first = {name: column[:SINGLE] for name, column in X.items()} if isinstance(X, dict) else X[:SINGLE]
    rows = data.rows_of(dict(enumerate(first.T)) if isinstance(first, np.ndarray) else first)
    return {"X": X, "y": y, "rows": rows}


def digits() -> tuple[Any, list[Any]]:
    """Load images in random order."""
    X, y = data.load_digits("mnist.train")
    order = np.random.default_rng(0).permutation(len(y))[:N_DIGITS]
    return X[order], y[order].tolist()


def measure(name: str, checkout: str, rounds: int) -> dict[str, float]:
    """Return the minimum microseconds per event over rounds in alternating order."""
    versions = {"now": version(str(ROOT)), "before": version(checkout)}
    sent = message(*(digits() if name == DIGITS else STREAMS[name]()))
    for each in versions.values():
        each.tell(sent)
    found: dict[str, float] = {}
    for i in range(rounds):
        for way in WAYS:
            for which in sorted(versions, reverse=bool(i % 2)):
                answer, key = versions[which].ask(way), f"{which}, {way}"
                found[key] = min(found.get(key, answer["us"]), answer["us"])
                if "accuracy" in answer:
                    found[f"{which}, accuracy"] = 100.0 * answer["accuracy"]
    return rounded(found)


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """List all streams of the first seed, and images."""
    for name in (*STREAMS, DIGITS):
        if not seed_of(name):
            yield Case(name, partial(measure, name, options.checkout, options.rounds))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the other version."""
    parser.add_argument("--checkout", required=True, help="folder of the other version")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (3)")


def compared(way: str, rows: Rows) -> float:
    """Return the median over streams of this version's time relative to the other's."""
    return statistics.median(row[f"now, {way}"] / row[f"before, {way}"] for row in rows.values())


def points(rows: Rows) -> float:
    """Return the gain in accuracy, the mean over the streams."""
    return statistics.fmean(row["now, accuracy"] - row["before, accuracy"] for row in rows.values())


BENCHMARK = Benchmark(
    "beside",
    "Time per event and accuracy of this version compared with another checkout, in batches and single events.",
    cases,
    {
        "beside": Table(
            "µs per event",
            part(0),
            [
                *(Column(way, of(f"now, {way}"), "{:.2f}") for way in WAYS),
                *(Column(f"{way}, ratio to before", partial(compared, way), "{:.3f}") for way in WAYS),
                Column("points", points, "{:+.2f}"),
            ],
            last="all",
        )
    },
    arguments=arguments,
    is_of_the_user=True,
)
