"""A cell: a run of a learner on a scenario with a seed.

The learner predicts every event, and learns each label when it arrives.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.synthetic import Drift, Event, Scenario
from simulations.keeping import machine
from simulations.learners import Learner

# Number of points of accuracy over time, each a mean over a part of the events.
POINTS = 100
# Lower bound of probabilities in the log loss.
LEAST = 1e-3
# A learner has recovered when its accuracy over the last LATEST events is within WITHIN of the previous accuracy.
LATEST, WITHIN = 100, 0.02
PACKAGES = ("streamsvm", "river", "numpy", "numba", "scikit-learn", "capymoa")


@dataclass(frozen=True)
class Cell:
    """A run of a learner on a scenario with a seed, for at most `limit` seconds."""

    scenario: Scenario
    learner: Learner
    seed: int
    limit: float = math.inf

    @cached_property
    def key(self) -> str:
        """Hash of the events and the learner."""
        seen = hashlib.sha256(repr((self.scenario, self.learner.described, self.seed)).encode())
        return seen.hexdigest()[:16]

    @property
    def seconds(self) -> float:
        """Estimate of the run time."""
        return min(1e-6 * self.learner.us * self.scenario.events, self.limit)


@dataclass(frozen=True)
class Stream:
    """The events of a scenario, with its features and classes."""

    events: list[Event]
    features: list[str]
    classes: list[Hashable]


@lru_cache(maxsize=1)
def stream_of(scenario: Scenario, seed: int) -> Stream:
    """Generate the events of a scenario; the last stream is cached."""
    events = list(scenario.draw(seed))
    features = dict.fromkeys(name for event in events for name in event.x)
    classes = dict.fromkeys(label for event in events for label in (event.truth, event.y) if label is not None)
    return Stream(events, list(features), list(classes))


def measure(cell: Cell) -> dict[str, Any]:
    """Run a cell; returns a record for `simulations.drift.store`, also for a failure."""
    record: dict[str, Any] = {
        "key": cell.key,
        "scenario": cell.scenario.name,
        "kind": cell.scenario.kind,
        "learner": cell.learner.name,
        "of": cell.learner.of,
        "seed": cell.seed,
        "planned": cell.scenario.events,
        "versions": json.dumps(_versions()),
        "machine": json.dumps(machine()),
    }
    try:
        stream = stream_of(cell.scenario, cell.seed)
        _warm(cell, stream)
        model = cell.learner.begin(cell.seed, stream.features, stream.classes)
        probas, seconds = prequential(model, stream, cell.limit)
    except Exception as error:  # a failing learner must not stop the other runs
        return record | {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
    record |= {"events": len(probas), "seconds": seconds, "us": 1e6 * seconds / max(len(probas), 1)}
    record["bytes"] = getattr(model, "_raw_memory_usage", None)
    return record | measures(probas, stream, cell.scenario.drifts)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _warm(cell: Cell, stream: Stream) -> None:
    """Compile and import before the measurement."""
    model = cell.learner.begin(cell.seed, stream.features, stream.classes)
    for event in stream.events[:20]:
        model.predict_proba_one(event.x)
        if event.y is not None:
            model.learn_one(event.x, event.y)


def prequential(model: Any, stream: Stream, limit: float = math.inf) -> tuple[NDArray[np.float64], float]:
    """Predict and learn the events, up to the time limit.

    Returns the class probabilities of each event, and the CPU seconds.
    """
    predict, learn = model.predict_proba_one, model.learn_one
    coming: dict[int, list[Event]] = {}
    probas: list[dict[Hashable, float]] = []
    begun, end = time.process_time(), time.monotonic() + limit
    for i, event in enumerate(stream.events):
        probas.append(predict(event.x))
        if event.y is not None:
            coming.setdefault(i + event.delay, []).append(event)
        for due in coming.pop(i, ()):
            learn(due.x, due.y)
        if i % 16 == 0 and time.monotonic() > end:
            break
    seconds = time.process_time() - begun
    return _columns(probas, stream.classes), seconds


def _columns(probas: list[dict[Hashable, float]], classes: Sequence[Hashable]) -> NDArray[np.float64]:
    """Normalise probabilities to rows that sum to 1, or to 0 for an empty prediction."""
    rows = np.array([[proba.get(label, 0.0) for label in classes] for proba in probas], float)
    rows = np.where(np.isfinite(rows), np.maximum(rows, 0.0), 0.0)
    totals = rows.sum(axis=1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)


# Measures -------------------------------------------------------------------------------------------------------------


def measures(probas: NDArray[np.float64], stream: Stream, drifts: Sequence[Drift]) -> dict[str, Any]:
    """Compute all measures over the events that have a true label."""
    codes = {label: c for c, label in enumerate(stream.classes)}
    truth = np.array([codes.get(event.truth, -1) for event in stream.events[: len(probas)]])
    known = truth >= 0
    said = np.where(probas.any(axis=1), probas.argmax(axis=1), -1)
    right = (said == truth)[known]
    rows, labels = probas[known], truth[known]
    of_label = rows[np.arange(len(labels)), labels]
    return {
        "accuracy": float(right.mean()),
        "kappa": kappa(said[known], labels),
        "balanced": balanced(said[known], labels),
        "log_loss": -float(np.log(np.maximum(of_label, LEAST)).mean()),
        "average_precision": average_precision(rows, labels),
        "rarest": float(np.bincount(labels)[np.unique(labels)].min() / len(labels)),
        "curve": [float(part.mean()) for part in np.array_split(right, min(POINTS, len(right)))],
        "recovered": recovered(right, drifts) if known.all() else [],
    }


def kappa(said: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Compute Cohen's kappa."""
    n = int(max(said.max(), truth.max())) + 2
    by_chance = float(np.bincount(said + 1, minlength=n) @ np.bincount(truth + 1, minlength=n)) / len(truth) ** 2
    return float(((said == truth).mean() - by_chance) / (1.0 - by_chance)) if by_chance < 1.0 else 0.0


def balanced(said: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Compute the balanced accuracy: the mean recall over the classes."""
    return float(np.mean([(said[truth == c] == c).mean() for c in np.unique(truth)]))


def average_precision(probas: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Compute the average precision of the rarest class."""
    from sklearn.metrics import average_precision_score

    present = np.unique(truth)
    rarest = present[np.bincount(truth)[present].argmin()]
    return float(average_precision_score(truth == rarest, probas[:, rarest]))


def recovered(right: NDArray[np.bool_], drifts: Sequence[Drift]) -> list[int | None]:
    """Return the number of events until the accuracy recovers after each drift.

    The accuracy has recovered when that of the last LATEST events is within WITHIN of a target. The target is the lower
    of two accuracies: over the second half of the events before the drift, and over the second half of those until the
    next drift. If it never recovers, the number is that of all events until the next drift. None if the previous or
    next drift is fewer than 2 * LATEST events away.
    """
    found: list[int | None] = []
    n = len(right)
    sums = np.concatenate([[0], np.cumsum(right)])
    positions = [drift.at for drift in drifts]
    for k, at in enumerate(positions):
        last = positions[k - 1] if k else 0
        following = positions[k + 1] if k + 1 < len(positions) else n
        if at - last < 2 * LATEST or following - at < 2 * LATEST or following > n:
            found.append(None)
            continue
        target = min(right[(last + at) // 2 : at].mean(), right[(at + following) // 2 : following].mean()) - WITHIN
        latest = (sums[at + LATEST : following + 1] - sums[at : following + 1 - LATEST]) / LATEST
        there = np.flatnonzero(latest >= target)
        found.append(int(there[0]) + LATEST if len(there) else following - at)
    return found
