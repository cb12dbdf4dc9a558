"""Accuracy with delayed labels, compared with River's learners.

The label of an event arrives after a fixed number of other events. River's evaluation with a delay measures the default
classifier in a `DelayedClassifier`, and River's logistic regression (on standardised features) and adaptive random
forest of ten trees. Streams have 20,000 events, or 50,000 for a delay of 10,000.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from river import evaluate, metrics

from simulations import data, learners
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, part, slashed
from streamsvm import DelayedClassifier

OURS, LEARNERS = "StreamSVM", ("StreamSVM", "LR", "ARF")
DELAYS = {10: 20_000, 100: 20_000, 1_000: 20_000, 10_000: 50_000}
"""Delays, and the number of events of the stream."""


@lru_cache(maxsize=1)
def load(stream: str, most: int) -> tuple[list[dict[Any, Any]], list[Any]]:
    """Load rows and labels for River."""
    table, labels = data.load_stream(stream, most)
    return data.rows_of(table), labels


def measure(stream: str, delay: int, name: str) -> dict[str, float]:
    """Measure the accuracy of a learner in percent."""
    rows, labels = load(stream, DELAYS[delay])
    model = learners.table()[name].begin(1, [], [])
    events: Any = zip(rows, labels, strict=True)
    if name == OURS:
        model = DelayedClassifier(model)
        events = ((x, y, {"key": i}) for i, (x, y) in enumerate(zip(rows, labels, strict=True)))
    accuracy = evaluate.progressive_val_score(events, model, metrics.Accuracy(), delay=delay)
    return {"accuracy": round(100.0 * accuracy.get(), 2)}


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams with an order, delays of at most half a stream, and learners."""
    for stream in data.STREAMS:
        for delay, most in DELAYS.items():
            if stream != "airlines" and delay <= len(load(stream, most)[1]) // 2:
                for name in LEARNERS:
                    yield Case(key_of(stream, delay, name), partial(measure, stream, delay, name))


def cell(delay: int, rows: Rows) -> str:
    """Format the accuracies of all learners for a delay."""
    return slashed([of("accuracy", delay, name)(rows) for name in LEARNERS], best=max)


BENCHMARK = Benchmark(
    "delays",
    "Accuracy with labels that arrive a fixed number of events late.",
    cases,
    {"delays": Table("stream", part(0), [Column(f"delay {delay:,}", partial(cell, delay)) for delay in DELAYS])},
    subject="late labels",
)
