"""Prequential evaluation through River's interface, with labels on arrival."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.synthetic import Event
from simulations.learners import Learner

# Lower bound of probabilities in the log loss.
LEAST = 1e-3


@dataclass(frozen=True)
class Stream:
    """The events of a stream, with its features and classes."""

    events: Sequence[Event]
    features: list[str]
    classes: list[Hashable]

    @classmethod
    def of(cls, events: Sequence[Event]) -> Stream:
        """Collect the features and classes of events."""
        features = dict.fromkeys(name for event in events for name in event.x)
        classes = dict.fromkeys(label for event in events for label in (event.truth, event.y) if label is not None)
        return cls(events, list(features), list(classes))


def begin(learner: Learner, stream: Stream, seed: int, n_warm: int = 20) -> Any:
    """Create a learner for a stream, after another one has compiled and imported."""
    first = learner.begin(seed, stream.features, stream.classes)
    for event in stream.events[:n_warm]:
        first.predict_proba_one(event.x)
        if event.y is not None:
            first.learn_one(event.x, event.y)
    return learner.begin(seed, stream.features, stream.classes)


def prequential(model: Any, stream: Stream, limit: float = math.inf) -> tuple[NDArray[np.float64], float]:
    """Predict and learn the events, up to a limit of wall seconds.

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


def _columns(probas: Iterable[dict[Hashable, float]], classes: Sequence[Hashable]) -> NDArray[np.float64]:
    """Normalise probabilities to rows that sum to 1, or to 0 for an empty prediction."""
    rows = np.array([[proba.get(label, 0.0) for label in classes] for proba in probas], float)
    rows = np.where(np.isfinite(rows), np.maximum(rows, 0.0), 0.0)
    totals = rows.sum(axis=1, keepdims=True)
    return np.divide(rows, totals, out=np.zeros_like(rows), where=totals > 0)


def predicted(probas: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the most probable class of each event, -1 for an empty prediction."""
    return np.where(probas.any(axis=1), probas.argmax(axis=1), -1)


def log_loss(probas: NDArray[np.float64], truth: NDArray[np.int64], least: float = LEAST) -> float:
    """Compute the mean log loss; probabilities below `least` count as `least`."""
    return -float(np.log(np.maximum(probas[np.arange(len(truth)), truth], least)).mean())


def calibration_error(confidence: NDArray[Any], right: NDArray[Any], n_bins: int = 15) -> float:
    """Compute the expected calibration error, over bins of confidence."""
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, right - confidence, n_bins)
    return float(np.abs(gaps).sum() / len(right))


def evaluated(learner: Learner, stream: Stream, seed: int, least: float = LEAST) -> dict[str, float]:
    """Run a learner on a stream.

    Returns accuracy and calibration error in percent, log loss, and CPU microseconds per event.
    """
    probas, seconds = prequential(begin(learner, stream, seed), stream)
    codes = {label: c for c, label in enumerate(stream.classes)}
    truth = np.array([codes[event.truth] for event in stream.events])
    right = predicted(probas) == truth
    return {
        "accuracy": 100.0 * float(right.mean()),
        "log loss": log_loss(probas, truth, least),
        "ECE": 100.0 * calibration_error(probas.max(axis=1), right),
        "us": 1e6 * seconds / len(truth),
    }
