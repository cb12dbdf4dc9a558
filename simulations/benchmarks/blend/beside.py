"""Comparison of this version with another; runs alternate, the minimum counts."""

from __future__ import annotations

import os
import pickle
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simulations import data
from simulations.benchmarks.blend import head
from simulations.benchmarks.peers import Stream
from simulations.keeping import ROOT, keep, rounded

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

    def tell(self, message: Any) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        pickle.dump(message, self._process.stdin)
        self._process.stdin.flush()

    def ask(self, way: str) -> dict[str, float]:
        """Measure on the last stream that was sent."""
        assert self._process.stdout is not None
        self.tell(way)
        answer: dict[str, float] = pickle.load(self._process.stdout)
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def loaded(streams: list[Stream], digits: bool) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the streams, and images in random order."""
    for stream in streams:
        yield stream.key, *stream.load()
    if digits:
        X, y = data.load_digits("mnist.train")
        order = np.random.default_rng(0).permutation(len(y))[:N_DIGITS]
        yield DIGITS, X[order], y[order].tolist()


def run(streams: list[Stream], checkout: str, rounds: int, keeping: bool) -> None:
    """Measure microseconds per event and accuracies of this and another version."""
    versions = {"now": Version(str(ROOT)), "before": Version(checkout)}
    result: dict[str, Any] = {}
    print(f"{'us per event, ratio to before':34s}" + "".join(f"{way:>18s}" for way in WAYS) + "     points")
    for k, (name, X, y) in enumerate(loaded(streams, keeping)):
        for version in versions.values():
            if k == 0:
                version.tell(asked(head(X, FIRST), y[:FIRST]))
                for way in WAYS:
                    version.ask(way)
            version.tell(asked(X, y))
        result[name] = found = rounded(in_turn(versions, rounds))
        cells = "".join(f"{found[f'now, {w}']:9.2f} ({found[f'now, {w}'] / found[f'before, {w}']:6.3f})" for w in WAYS)
        gain = 100 * (found["now, accuracy"] - found["before, accuracy"])
        print(f"{name:34s}{cells} {gain:+10.2f}", flush=True)
        if keeping:
            keep("blend-beside", result, lines=True)
    for version in versions.values():
        version.close()
    summarise({name: found for name, found in result.items() if name != DIGITS})


def asked(X: Any, y: list[Any]) -> dict[str, Any]:
    """Return the message that sends a stream."""
    first = head(X, SINGLE)
    rows = data.rows_of(dict(enumerate(first.T)) if isinstance(first, np.ndarray) else first)
    return {"X": X, "y": y, "rows": rows}


def in_turn(versions: dict[str, Version], rounds: int) -> dict[str, float]:
    """Return the minimum times over the rounds; the order alternates."""
    found: dict[str, float] = {}
    for i in range(rounds):
        for way in WAYS:
            for name in sorted(versions, reverse=bool(i % 2)):
                answer, key = versions[name].ask(way), f"{name}, {way}"
                found[key] = min(found.get(key, answer["us"]), answer["us"])
                if "accuracy" in answer:
                    found[f"{name}, accuracy"] = answer["accuracy"]
    return found


def summarise(result: dict[str, Any]) -> None:
    """Print medians and ranges over the streams."""
    for way in WAYS:
        shares = [found[f"now, {way}"] / found[f"before, {way}"] for found in result.values()]
        print(f"{way}: {statistics.median(shares):.3f} of before (median; {min(shares):.2f} to {max(shares):.2f})")
    gains = [100 * (found["now, accuracy"] - found["before, accuracy"]) for found in result.values()]
    print(f"accuracy: {statistics.mean(gains):+.3f} points on average, {min(gains):+.2f} to {max(gains):+.2f}")
