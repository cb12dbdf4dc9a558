"""Accuracy of each learner with outliers and changes of units."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.features.rows import BadRows
from tests.choices import each_choice
from tests.errors import raises

LEARNERS = [
    (CPMClassifier, {}),
    (BSGDClassifier, {}),
    (StreamSVMClassifier, {"effort": "low"}),
    (StreamSVMClassifier, {}),
]
RNG = np.random.default_rng(0)
X = RNG.normal(3.0, 2.0, (3_000, 5))
Y = (X.sum(axis=1) > 15.0).astype(int)


@functools.cache
def plain_accuracy(make: Any, settings: str) -> float:
    """Return the accuracy without outliers."""
    return accuracy(make, json.loads(settings), X)


def accuracy(make: Any, settings: dict[str, Any], rows: Any) -> float:
    """Return the accuracy over the last 1,000 events."""
    return float(np.mean(np.asarray(make(**settings).test_then_train(rows, Y.tolist()))[-1_000:] == Y[-1_000:]))


@pytest.mark.parametrize(("make", "settings"), LEARNERS, ids=["cpm", "bsgd", "low", "default"])
class TestAccuracy:
    @each_choice(
        ("columns", [1, 5]),
        (("row", "burst", "size"), [(1, 1, 1e12), (5, 1, 1e3), (50, 1, 1e6), (200, 10, 1e9), (900, 50, 1e6)]),
    )
    def test_returns_within_1000_events(
        self, make: Any, settings: dict[str, Any], row: int, burst: int, size: float, columns: int
    ) -> None:
        spoilt = X.copy()
        spoilt[row - 1 : row - 1 + burst, :columns] = size
        assert accuracy(make, settings, spoilt) > plain_accuracy(make, json.dumps(settings)) - 0.02

    def test_with_sentinels_is_as_with_missing_values(self, make: Any, settings: dict[str, Any]) -> None:
        cells = RNG.random(X.shape) < 0.03
        missing, sentinels = (accuracy(make, settings, np.where(cells, x, X)) for x in (np.nan, -99_999.0))
        assert sentinels > missing - 0.02

    @each_choice(("factor", [1e-3, 1e3]), ("end", [1_500, 3_000]))
    def test_follows_other_units_and_the_way_back(
        self, make: Any, settings: dict[str, Any], end: int, factor: float
    ) -> None:
        other = X.copy()
        other[800:end] *= factor
        assert accuracy(make, settings, other) > plain_accuracy(make, json.dumps(settings)) - 0.02

    @pytest.mark.parametrize("value", [np.inf, -np.inf, 1e308])
    def test_infinite_and_too_large_values_are_refused_in_every_form(
        self, make: Any, settings: dict[str, Any], value: float
    ) -> None:
        rows = X[:3].copy()
        rows[1, 2] = value
        events = [dict(enumerate(row)) for row in rows.tolist()]
        with np.errstate(over="ignore"):
            single = rows.astype(np.float32)
        model = make(**settings)
        for given in (rows, single, events, pd.DataFrame(rows), pd.DataFrame(single)):
            for act in (model.predict_many, lambda rows: model.learn_many(rows, [0, 1, 0])):
                with raises(BadRows, named="feature 2") as bad:
                    act(given)
                assert list(bad.value.rows) == [1]
        for act in (model.predict_one, lambda event: model.learn_one(event, 1)):
            with raises(ValueError, named="feature 2"):
                act(events[1])
        assert model.classes_ == []
