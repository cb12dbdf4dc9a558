"""Accuracy with delayed labels, compared with River's learners.

The label of an event arrives after a fixed number of other events. River's evaluation with a delay measures the default
classifier in a `DelayedClassifier`. It also measures River's logistic regression on standardised features, and its
adaptive random forest of ten trees. Streams have 20,000 events, or 50,000 for a delay of 10,000.

Generated labels that persist, with uninformative features, are also compared with the baselines after 2,000 events:
the last known label, the majority of recent known labels, and of these the one that was right more often so far.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import evaluate, metrics

from simulations import data, learners
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows
from simulations.tables import Column, Table, of, slashed
from streamsvm import DelayedClassifier

OURS, LEARNERS = "StreamSVM", ("StreamSVM", "LR", "ARF")
DELAYS = {10: 20_000, 100: 20_000, 1_000: 20_000, 10_000: 50_000}
"""Delays, and the number of events of the stream."""
PERSISTENT, N_PERSISTENT, FIRST, SEEDS = "persistent", 20_000, 2_000, (1, 2)
CLASSES, SWITCHES, LATE = (2, 5, 20), (0.001, 0.01, 0.03, 0.1, 0.3), (100, 1_000)
"""Numbers of classes, switch rates and delays of generated labels."""
Floats = NDArray[np.float64]


@lru_cache(maxsize=1)
def load(stream: str, most: int) -> tuple[list[dict[Any, Any]], list[Any]]:
    """Load rows and labels for River."""
    table, labels = data.load_stream(stream, most)
    return data.rows_of(table), labels


@lru_cache
def n_events(stream: str, most: int) -> int:
    """Return the number of events of a stream, at most `most`."""
    return len(data.load_stream(stream, most)[1])


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


def baselines(y: NDArray[np.int64], n_classes: int, delay: int) -> tuple[Floats, Floats]:
    """Return what baselines predict for labels that are a delay late.

    Returns
    -------
    right : array of shape (n, 2)
        Whether the last known label, and the most frequent one, are right.
    likelihoods : array of shape (n, 3)
        Probabilities of the label by the last known label, by the frequencies, and if all are equal.
    """
    counts, right, likelihoods = np.full(n_classes, 1.0 / n_classes), np.zeros((len(y), 2)), np.zeros((len(y), 3))
    for i in range(delay + 1, len(y)):
        last = y[i - delay - 1]
        counts *= 0.999
        counts[last] += 1.0
        right[i] = last == y[i], counts.argmax() == y[i]
        likelihoods[i] = last == y[i], counts[y[i]] / counts.sum(), 1.0 / n_classes
    return right, likelihoods


def mixture_loss(likelihoods: Floats) -> float:
    """Return the log loss of the best constant mixture, by expectation maximisation."""
    weights = np.full(likelihoods.shape[1], 1.0 / likelihoods.shape[1])
    for _ in range(100):
        shares = likelihoods * weights
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return float(-np.log(likelihoods @ weights).mean())


def lead(n_classes: int, switches: float, delay: int, seed: int) -> tuple[float, float, float]:
    """Return leads over two baselines in points, and the excess log loss.

    The baselines are the best in hindsight, and the best so far.
    """
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random(N_PERSISTENT) < switches, rng.integers(1, n_classes, N_PERSISTENT), 0)
    y, X = np.cumsum(steps) % n_classes, rng.normal(size=(N_PERSISTENT, 4)).tolist()
    model, found = DelayedClassifier(learners.table()[OURS].begin(1, [], [])), np.full(N_PERSISTENT, 1.0 / n_classes)
    is_right = np.zeros(N_PERSISTENT)
    for i, label in enumerate(y.tolist()):
        proba = model.predict_proba_one(dict(enumerate(X[i])), key=i)
        found[i] = proba.get(label, 0.0) or found[i]  # equal probabilities for a class never seen
        is_right[i] = max(proba, key=lambda c: proba[c], default=None) == label
        if i >= delay:
            model.learn_one(i - delay, int(y[i - delay]))
    right, likelihoods = baselines(y, n_classes, delay)
    known = np.vstack([np.zeros((delay + 1, 2)), right.cumsum(axis=0)])[:N_PERSISTENT]
    so_far = right[np.arange(N_PERSISTENT), known.argmax(axis=1)]
    ours, best = is_right[FIRST:].mean(), right[FIRST:].mean(axis=0).max()
    loss = -np.log(found[FIRST:]).mean() - mixture_loss(likelihoods[FIRST:])
    return 100.0 * (ours - best), 100.0 * (ours - so_far[FIRST:].mean()), float(loss)


def measure_persistent(n_classes: int, switches: float, delay: int) -> dict[str, float]:
    """Measure the mean leads over the baselines on generated labels."""
    leads = zip(*(lead(n_classes, switches, delay, seed) for seed in SEEDS), strict=True)
    over_best, over_so_far, loss = (statistics.fmean(each) for each in leads)
    return {"over_best": round(over_best, 2), "over_so_far": round(over_so_far, 2), "loss": round(loss, 3)}


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams with an order, delays of at most half a stream, and learners."""
    for stream in data.STREAMS:
        for delay, most in DELAYS.items():
            if stream != "airlines" and delay <= n_events(stream, most) // 2:
                for name in LEARNERS:
                    yield Case(key_of(stream, delay, name), partial(measure, stream, delay, name))
    for n_classes in CLASSES:
        for switches in SWITCHES:
            for delay in LATE:
                row = f"{n_classes} classes, {100 * switches:g} % switches"
                measured = partial(measure_persistent, n_classes, switches, delay)
                yield Case(key_of(PERSISTENT, row, delay, OURS), measured)


def cell(delay: int, rows: Rows) -> str:
    """Format the accuracies of all learners for a delay."""
    return slashed([of("accuracy", delay, name)(rows) for name in LEARNERS], best=max)


def leads_cell(delay: int, rows: Rows) -> str:
    """Format the leads over the baselines for a delay."""
    points = slashed([of(name, delay)(rows) for name in ("over_best", "over_so_far")], "{:+.1f}")
    loss = of("loss", delay)(rows)
    return "" if loss is None else f"{points} / {loss:+.3f}"


BENCHMARK = Benchmark(
    "delays",
    "Accuracy with labels that arrive a fixed number of events late.",
    cases,
    {
        "delays": Table(
            "stream",
            lambda parts: None if parts[0] == PERSISTENT else parts[0],
            [Column(f"delay {delay:,}", partial(cell, delay)) for delay in DELAYS],
        ),
        "persistent": Table(
            "generated labels",
            lambda parts: parts[1] if parts[0] == PERSISTENT else None,
            [Column(f"delay {delay:,}", partial(leads_cell, delay)) for delay in LATE],
        ),
    },
    subject="late labels",
    others=LEARNERS[1:],
)
