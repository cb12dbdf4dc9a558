"""Tests of all columns at once: classifier two-sample test and MMD.

MMD is the maximum mean discrepancy.

Both compare windows of a stream with its first events, on the same random features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from simulations.benchmarks.feature_streams import Columns
from streamsvm import CPMClassifier

SIZES = (256, 1_024, 4_096)
"""Sizes of windows in events; a window moves by a quarter of its size."""
FREQUENCIES, DEGREE = 128, 3
SOON = 2_500  # events after a change within which most alarms are


def random_features(X: Columns, reference: int) -> NDArray[np.float64]:
    """Return cosines and sines of random combinations of three columns.

    Columns are standardized by the reference.
    """
    values = np.column_stack(list(X.values()))
    first = values[:reference]
    values = (values - first.mean(axis=0)) / first.std(axis=0)
    rng = np.random.default_rng(5)
    weights = rng.normal(size=(values.shape[1], FREQUENCIES)) / np.sqrt(DEGREE / 1.5)
    for column in weights.T:
        column[rng.permutation(len(column))[DEGREE:]] = 0.0
    angles = values @ weights
    return np.hstack([np.cos(angles), np.sin(angles)])


def windows(values: NDArray[np.float64], ends: NDArray[np.intp], size: int) -> NDArray[np.float64]:
    """Return the sums of the last values up to each of some ends."""
    sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
    found: NDArray[np.float64] = sums[ends] - sums[ends - size]
    return found


def apart(alarms: NDArray[np.intp]) -> list[int]:
    """Return the first of the alarms whose windows may overlap."""
    found: list[int] = []
    for at in np.sort(alarms).tolist():
        if not found or at >= found[-1] + SIZES[-1]:
            found.append(at)
    return found


class Windows:
    """Test of windows against the first events, for a nominal false alarm rate.

    The rate is an upper bound per million events.
    """

    def __init__(self, rate: float, reference: int) -> None:
        self.rate, self.reference, self.n_values = rate, reference, 0

    def first_alarms(self, X: Columns, until: float) -> list[int]:
        """Return event numbers of alarms, at least up to the first one after `until`."""
        n, found = len(next(iter(X.values()))), []
        for last in sorted({n, int(min(until + SOON, n))}):
            features = random_features({name: column[:last] for name, column in X.items()}, self.reference)
            self.n_values += (last - self.reference) * len(X)
            found = self.alarms(features)
            if found and found[-1] > until:
                break
        return found

    def level(self, size: int) -> float:
        """Return the level of a test of a window."""
        return self.rate * 1e-6 * (size // 4) / len(SIZES)

    def alarms(self, features: NDArray[np.float64]) -> list[int]:
        """Return the numbers of events at alarms."""
        raise NotImplementedError


class RandomFeatureMMD(Windows):
    """Hotelling's test of feature means in windows and in the reference.

    It assumes normal means.
    """

    def alarms(self, features: NDArray[np.float64]) -> list[int]:
        """Return the numbers of events at alarms."""
        first = features[: self.reference]
        new = features[self.reference :] - first.mean(axis=0)
        n, width = first.shape
        inverse, found = np.linalg.pinv(np.cov(first.T)), []
        for size in SIZES:
            ends = np.arange(size, len(new) + 1, size // 4)
            means = windows(new, ends, size) / size
            distances = np.sum(means @ inverse * means, axis=1) / (1.0 / size + 1.0 / n)
            limit = (n - 1) * width / (n - width) * stats.f.isf(self.level(size), width, n - width)
            found.append(self.reference + ends[distances > limit])
        return apart(np.concatenate(found))


class LinearTest(Windows):
    """Classifier two-sample test with a linear model.

    The model discriminates events of the stream from random ones of the reference.

    Each row is of the stream or of the reference by a fair coin, and is predicted before it is learned. The number of
    right predictions in a window is binomial if both have the same distribution.
    """

    def alarms(self, features: NDArray[np.float64]) -> list[int]:
        """Return the numbers of events at alarms."""
        n_new, rng = len(features) - self.reference, np.random.default_rng(7)
        is_new = rng.random(2 * n_new) < 0.5
        events = np.cumsum(is_new)
        is_new = is_new[events <= n_new]
        events = self.reference + events[: len(is_new)]
        rows = features[np.where(is_new, events - 1, rng.integers(self.reference, size=len(is_new)))]
        model = CPMClassifier(n_faces=1, scaling="none", l2=0.01, horizon=4_096)
        right, found = np.asarray(model.test_then_train(rows, is_new.tolist())) == is_new, []
        for size in SIZES:
            ends = np.arange(2 * size, len(right) + 1, size // 2)
            limit = stats.binom.isf(self.level(size), 2 * size, 0.5)
            found.append(events[ends[windows(1.0 * right, ends, 2 * size) > limit] - 1])
        return apart(np.concatenate(found))
