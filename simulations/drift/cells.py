"""A cell: a run of a learner on a scenario with a seed.

The learner predicts every event, and learns each label when it arrives.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.synthetic import Drift, Scenario
from simulations.harness import Case
from simulations.learners import Learner
from simulations.prequential import Stream, begin, log_loss, predicted, prequential

# Number of points of accuracy over time, each a mean over a part of the events.
POINTS = 100
# A learner has recovered when its accuracy over the last LATEST events is within WITHIN of the previous accuracy.
LATEST, WITHIN = 100, 0.02


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
    def case(self) -> Case:
        """The measurement for the harness."""
        return Case(self.key, partial(measure, self), seconds=self.seconds)

    @property
    def seconds(self) -> float:
        """Estimate of the run time."""
        return min(1e-6 * self.learner.us * self.scenario.events, self.limit)


@lru_cache(maxsize=1)
def stream_of(scenario: Scenario, seed: int) -> Stream:
    """Generate the events of a scenario; the last stream is cached."""
    return Stream.of(list(scenario.draw(seed)))


def measure(cell: Cell) -> dict[str, Any]:
    """Run a cell; returns its record."""
    stream = stream_of(cell.scenario, cell.seed)
    model = begin(cell.learner, stream, cell.seed)
    probas, seconds = prequential(model, stream, cell.limit)
    record: dict[str, Any] = {
        "key": cell.key,
        "scenario": cell.scenario.name,
        "kind": cell.scenario.kind,
        "learner": cell.learner.name,
        "of": cell.learner.of,
        "seed": cell.seed,
        "planned": len(stream.events),
        "events": len(probas),
        "seconds": seconds,
        "us": 1e6 * seconds / max(len(probas), 1),
        "bytes": getattr(model, "_raw_memory_usage", None),
    }
    return record | measures(probas, stream, cell.scenario.drifts)


# Measures -------------------------------------------------------------------------------------------------------------


def measures(probas: NDArray[np.float64], stream: Stream, drifts: Sequence[Drift]) -> dict[str, Any]:
    """Compute all measures over the events that have a true label."""
    codes = {label: c for c, label in enumerate(stream.classes)}
    truth = np.array([codes.get(event.truth, -1) for event in stream.events[: len(probas)]])
    known = truth >= 0
    said = predicted(probas)
    right = (said == truth)[known]
    rows, labels = probas[known], truth[known]
    return {
        "accuracy": float(right.mean()),
        "kappa": kappa(said[known], labels),
        "balanced": balanced(said[known], labels),
        "log_loss": log_loss(rows, labels),
        "average_precision": average_precision(rows, labels),
        "rarest": float(np.bincount(labels)[np.unique(labels)].min() / len(labels)),
        "curve": [float(part.mean()) for part in np.array_split(right, min(POINTS, len(right)))],
        "recovered": recovered(right, drifts) if known.all() else [],
    }


def kappa(codes: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Compute Cohen's kappa."""
    n = int(max(codes.max(), truth.max())) + 2
    by_chance = float(np.bincount(codes + 1, minlength=n) @ np.bincount(truth + 1, minlength=n)) / len(truth) ** 2
    return float(((codes == truth).mean() - by_chance) / (1.0 - by_chance)) if by_chance < 1.0 else 0.0


def balanced(codes: NDArray[np.int64], truth: NDArray[np.int64]) -> float:
    """Compute the balanced accuracy: the mean recall over the classes."""
    return float(np.mean([(codes[truth == c] == c).mean() for c in np.unique(truth)]))


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
        reached = np.flatnonzero(latest >= target)
        found.append(int(reached[0]) + LATEST if len(reached) else following - at)
    return found
