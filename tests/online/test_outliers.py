"""Accuracy of each learner with outliers and changes of units."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from tests.choices import each_choice

RNG = np.random.default_rng(0)
X = RNG.normal(3.0, 2.0, (3_000, 5))
Y = (X.sum(axis=1) > 15.0).astype(int)


def accuracy(make: Any, rows: Any) -> float:
    """Return the accuracy over the last 1,000 events."""
    return float(np.mean(np.asarray(make().test_then_train(rows, Y.tolist()))[-1_000:] == Y[-1_000:]))


@functools.cache
def plain_accuracy(make: Any) -> float:
    """Return the accuracy without outliers."""
    return accuracy(make, X)


@pytest.mark.parametrize("make", [CPMClassifier, BSGDClassifier, StreamSVMClassifier])
class TestAccuracy:
    @each_choice(
        ("columns", [1, 5]),
        (("row", "burst", "size"), [(1, 1, 1e12), (5, 1, 1e3), (50, 1, 1e6), (200, 10, 1e9), (900, 50, 1e6)]),
    )
    def test_returns_within_1000_events(self, make: Any, row: int, burst: int, size: float, columns: int) -> None:
        spoilt = X.copy()
        spoilt[row - 1 : row - 1 + burst, :columns] = size
        assert accuracy(make, spoilt) > plain_accuracy(make) - 0.02

    def test_with_sentinels_is_as_with_missing_values(self, make: Any) -> None:
        cells = RNG.random(X.shape) < 0.03
        missing, sentinels = (accuracy(make, np.where(cells, x, X)) for x in (np.nan, -99_999.0))
        assert sentinels > missing - 0.02

    @each_choice(("factor", [1e-3, 1e3]), ("end", [1_500, 3_000]))
    def test_follows_other_units_and_the_way_back(self, make: Any, end: int, factor: float) -> None:
        other = X.copy()
        other[800:end] *= factor
        assert accuracy(make, other) > plain_accuracy(make) - 0.02
