"""Prediction sets and rare classes.

Every event is predicted, then learned. River has conformal intervals for regression, but no prediction sets for
classification. `decisions-rare` takes about 15 minutes on one core because of River's forests, `decisions-coverage` one
or two minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors import open_source
from simulations import data, generators
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows, rounded
from simulations.tables import Column, Table, of
from streamsvm import CPMClassifier, StreamSVMClassifier
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.costs import Costs

COVERAGES = (0.8, 0.9, 0.95)
FIRST, WINDOW = 1_000, 500  # calibration events of fixed sets, and window of the minimum coverage
MOST = 20_000

DRIFTING = (
    *("Agrawal sudden", "Agrawal gradual", "RBF incremental", "RBF recurring"),
    *("hyperplane incremental", "SEA sudden", "sine recurring", "mixed gradual"),
)
# Number of events of the frequent class per rare event, and length of the stream.
RATIOS = {20: 5_000, 100: 8_000, 1_000: 20_000}
SKIPPED = 500  # events excluded from averages


# Coverage ---------------------------------------------------------------------------------------------------------


STREAMS: dict[str, Callable[[], Any]] = {
    **{name: partial(data.load_stream, name, MOST) for name in data.STREAMS},
    **{name: partial(generators.load, name, 0, MOST) for name in generators.GENERATORS},
}
SETS: dict[str, Callable[..., NDArray[np.bool_]]] = {
    "sets": lambda proba, codes, wanted: ConformalSets(wanted).run(proba, codes),
    "by class": lambda proba, codes, wanted: ConformalSets(wanted, by_class=True).run(proba, codes),
    "fixed": lambda proba, codes, wanted: fixed(proba, codes, wanted),
}


def coverage(stream: str) -> Rows:
    """Compare prediction sets with fixed ones, from the same probabilities."""
    X, y = STREAMS[stream]()
    model = StreamSVMClassifier()
    _, proba = model.test_then_train(X, y, proba=True)
    codes = np.array([model.classes_.index(label) for label in y])
    return {
        key_of(wanted, kind): of_sets(make(proba, codes, wanted), codes, wanted)
        for wanted in COVERAGES
        for kind, make in SETS.items()
    }


def coverage_cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams: real ones in their order, then generated ones."""
    for name in STREAMS:
        yield Case(name, partial(coverage, name), several=True)


def fixed(proba: NDArray[Any], codes: NDArray[Any], wanted: float) -> NDArray[np.bool_]:
    """Compute split conformal sets with the threshold of the first events.

    The most probable class is always in the set.
    """
    own = proba[np.arange(len(codes)), codes][: min(FIRST, len(codes) // 4)]
    least = np.quantile(own, 1.0 - min(wanted * (1.0 + 1.0 / len(own)), 1.0), method="lower")
    members = (proba >= least) & (proba > 0.0)
    members[np.arange(len(codes)), proba.argmax(axis=1)] = True
    return members


def of_sets(members: NDArray[np.bool_], codes: NDArray[Any], wanted: float) -> dict[str, float]:
    """Compute coverage, mean size, minimum coverage of a window, and that of a class.

    The first events are excluded. A class counts if it has at least 100 events.
    """
    start = min(FIRST, len(codes) // 4)
    hits = members[np.arange(len(codes)), codes][start:].astype(float)
    windows = np.convolve(hits, np.ones(WINDOW) / WINDOW, "valid") if len(hits) >= WINDOW else np.array([hits.mean()])
    own = codes[start:]
    of_class = [hits[own == c].mean() for c in np.unique(own) if (own == c).sum() >= 100]
    least = {"least of a class": min(of_class)} if of_class else {}
    sizes = members[start:].sum(axis=1)
    return rounded({"coverage": hits.mean(), "size": sizes.mean(), "least": windows.min()} | least)


# Rare classes -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def thinned(name: str, ratio: int) -> tuple[list[dict[Any, Any]], list[int]]:
    """Return a stream whose rarer class is reduced to one event per `ratio` others."""
    n = RATIOS[ratio]
    rng, rows, labels = np.random.default_rng(ratio), [], []
    slug = name.lower().replace(" ", "-")
    rare: Any = None
    for batch in open_source(f"synthetic:{slug}?n={3 * n}&seed=1"):
        if rare is None:
            names, counts = np.unique(np.array(batch.labels), return_counts=True)
            rare, share = names[counts.argmin()], float(counts.min() / counts.sum())
        for x, y in zip(batch.rows(), batch.labels, strict=True):
            if y != rare or rng.random() < (1.0 - share) / share / ratio:
                rows.append(x)
                labels.append(int(y == rare))
    return rows[:n], labels[:n]


def peers() -> dict[str, Callable[[], Any]]:
    """Return factories of the compared classifiers."""
    from river import forest, imblearn, linear_model, preprocessing

    even = {0: 0.5, 1: 0.5}

    def arf() -> Any:
        return forest.ARFClassifier(n_models=10, seed=1)

    return {
        "StreamSVM": StreamSVMClassifier,
        "CPM": CPMClassifier,
        "LogisticRegression": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "ARF": arf,
        "ARF undersampled": lambda: imblearn.RandomUnderSampler(arf(), desired_dist=even, seed=1),
        "ARF oversampled": lambda: imblearn.RandomOverSampler(arf(), desired_dist=even, seed=1),
    }


def probabilities(model: Any, rows: list[dict[Any, Any]], y: list[int]) -> NDArray[np.float64]:
    """Return the prequential probabilities of the rare class."""
    if hasattr(model, "test_then_train"):
        _, proba = model.test_then_train(rows, y, proba=True)
        return proba[:, model.classes_.index(1)]
    found = np.zeros(len(y))
    for i, (x, label) in enumerate(zip(rows, y, strict=True)):
        found[i] = model.predict_proba_one(x).get(1, 0.0)
        model.learn_one(x, label)
    return found


def rare(stream: str, ratio: int, peer: str) -> dict[str, float]:
    """Compute average precision, log loss, and the cost of optimal decisions.

    The cost of a miss is the ratio of the classes; it is relative to always predicting one class, whichever is cheaper.
    """
    from sklearn import metrics

    rows, y = thinned(stream, ratio)
    start = time.perf_counter()
    p = probabilities(peers()[peer](), rows, y)
    us = 1e6 * (time.perf_counter() - start) / len(y)
    truth, proba = np.array(y), np.column_stack([1.0 - p, p])
    costs = Costs([[0.0, 1.0], [float(ratio), 0.0]]).run(proba, truth, [0, 1])[1][SKIPPED:]
    own, said = truth[SKIPPED:], p[SKIPPED:]
    found = {
        "average precision": metrics.average_precision_score(own, said),
        "log loss": metrics.log_loss(own, np.clip(said, 1e-6, 1.0 - 1e-6)),
        "cost": costs.sum() / min(ratio * own.sum(), (1 - own).sum()),
        "us": us,
    }
    return rounded(found) | {"events": len(y), "rare": int(truth.sum())}


def rare_cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all streams, ratios and learners."""
    for ratio in RATIOS:
        for name in DRIFTING:
            for peer in peers():
                yield Case(key_of(name, f"1:{ratio}", peer), partial(rare, name, ratio, peer))


# Tables -----------------------------------------------------------------------------------------------------------


def spread(rows: Rows) -> str:
    """Format mean, minimum and maximum of the coverage."""
    found = [row["coverage"] for row in rows.values()]
    return f"{np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})"


COVERAGE = Benchmark(
    "decisions-coverage",
    "Coverage and size of prediction sets, and of fixed conformal sets from the same probabilities.",
    coverage_cases,
    {
        "coverage": Table(
            "target, sets",
            lambda parts: f"{float(parts[1]):g}, {parts[2]}",
            [
                Column("coverage", spread),
                Column(f"minimum of a window of {WINDOW}", of("least", how=min), "{:.3f}"),
                Column("mean size", of("size"), "{:.2f}"),
                Column("minimum of a class", of("least of a class", how=min), "{:.3f}"),
            ],
        )
    },
)


def _rare_table(measure: str, form: str, best: Callable[..., float]) -> Table:
    return Table(
        measure,
        lambda parts: parts[1],
        [Column(peer, of(measure, peer), form, best) for peer in peers()],
    )


RARE = Benchmark(
    "decisions-rare",
    "Average precision, cost of decisions and log loss with a rare class, compared with River.",
    rare_cases,
    {
        "rare": _rare_table("average precision", "{:.3f}", max),
        "rare_cost": _rare_table("cost", "{:.3f}", min),
        "rare_loss": _rare_table("log loss", "{:.4f}", min),
    },
    others=[peer for peer in peers() if peer not in ("StreamSVM", "CPM")],
    packages=("river", "numpy", "numba", "scikit-learn"),
)
