"""Accuracy with costly labels: requested by `LabelBudget`, at random, and all.

The default classifier runs on the first 20,000 events. An event is predicted, and learned at once if its label is
requested; all predictions count. Random requests have the same number of labels. Results are means over three seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.data import STREAMS, load_stream, rows_of
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, part, slashed
from streamsvm import LabelBudget, StreamSVMClassifier

EVENTS, SEEDS = 20_000, 3
SHARES, ALL = (0.01, 0.05, 0.1, 0.3), "all"


def asking(rows: list[dict[Any, Any]], labels: list[Any], budget: LabelBudget) -> tuple[float, int]:
    """Measure the accuracy and the number of requested labels."""
    model, right = StreamSVMClassifier(), 0
    for x, y in zip(rows, labels, strict=True):
        shares = model.predict_proba_one(x)
        best = max(shares, key=shares.__getitem__, default=None)
        right += best is not None and best == y
        if budget.wants(shares.get(best, 0.0)):
            model.learn_one(x, y)
    return right / len(labels), budget.n_asked


def given(table: Any, labels: list[Any], which: NDArray[np.bool_]) -> float:
    """Measure the accuracy with the labels of some events."""
    known = [label if is_known else None for label, is_known in zip(labels, which.tolist(), strict=True)]
    predicted = StreamSVMClassifier().test_then_train(table, known)
    return float(np.mean([one is not None and one == label for one, label in zip(predicted, labels, strict=True)]))


def measure(stream: str, share: float) -> dict[str, float]:
    """Measure accuracies and the share of requested labels, in percent."""
    table, labels = load_stream(stream, EVENTS)
    rows, n, found = rows_of(table), len(labels), []
    for seed in range(SEEDS):
        accuracy, asked = asking(rows, labels, LabelBudget(share, seed))
        at_random = np.isin(np.arange(n), np.random.default_rng(seed).choice(n, asked, replace=False))
        found.append((accuracy, given(table, labels, at_random), asked / n))
    accuracy, at_random, asked = (round(100.0 * float(mean), 2) for mean in np.mean(found, axis=0))
    return {"asked": asked, "budget": accuracy, "random": at_random}


def with_all(stream: str) -> dict[str, float]:
    """Measure the accuracy with all labels, in percent."""
    table, labels = load_stream(stream, EVENTS)
    return {"accuracy": round(100.0 * given(table, labels, np.ones(len(labels), bool)), 2)}


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams with an order, and all shares of labels."""
    for stream in STREAMS:
        if stream != "airlines":
            yield from (Case(key_of(stream, share), partial(measure, stream, share)) for share in SHARES)
            yield Case(key_of(stream, ALL), partial(with_all, stream))


def cell(share: float, rows: Rows) -> str:
    """Format mean accuracies over streams with requested and random labels."""
    return slashed([of(which, share)(rows) for which in ("budget", "random")], best=max)


BENCHMARK = Benchmark(
    "label-budget",
    "Accuracy with labels that `LabelBudget` requests, the same number at random, and all.",
    cases,
    {
        "label_budget": Table(
            "stream",
            part(0),
            [
                *(Column(f"{100.0 * share:g} %", partial(cell, share)) for share in SHARES),
                Column(ALL, of("accuracy", ALL)),
            ],
            last="mean",
        )
    },
)
