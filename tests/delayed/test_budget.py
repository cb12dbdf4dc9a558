"""Selection of labels to request."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamsvm import CPMClassifier, LabelBudget
from streamsvm.parameters import ParameterError
from tests.errors import raises


def scores(n: int, seed: int = 0) -> np.ndarray:
    """Most predictions are certain; one in four is not."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.25, rng.uniform(0.5, 0.7, n), rng.uniform(0.9, 1.0, n))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_the_budget_is_kept_to(share: float) -> None:
    budget = LabelBudget(share)
    asked = np.cumsum(budget.wants_many(scores(5_000)))
    assert (asked <= share * np.arange(1, 5_001) + 21).all()
    assert asked[-1] == pytest.approx(share * 5_000, rel=0.05, abs=20)
    assert (budget.n_asked, budget.n_seen) == (asked[-1], 5_000)


def test_labels_of_uncertain_events_and_a_few_certain_ones_are_requested() -> None:
    given = scores(8_000)
    asked = LabelBudget(0.1).wants_many(given)
    uncertain = given < 0.8
    assert asked[uncertain].mean() > 0.25
    assert 0.01 < asked[~uncertain].mean() < 0.06


def test_batches_and_saving_do_not_change_requests() -> None:
    given, budget = scores(1_000), LabelBudget(0.2, seed=5)
    given[::50] = np.nan
    expected = LabelBudget(0.2, seed=5).wants_many(given)
    found = [budget.wants(score) for score in given[:100].tolist()]
    budget = LabelBudget.from_state(json.loads(json.dumps(budget.state())))
    assert [*found, *budget.wants_many(given[100:])] == expected.tolist()
    assert not np.array_equal(LabelBudget(0.2, seed=6).wants_many(given), expected)


def test_drift_is_noticed_where_predictions_are_sure() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(6_000, 2))
    y = (X[:, 0] > 0) ^ (np.arange(6_000) >= 3_000)
    model, budget, right = CPMClassifier(), LabelBudget(0.1), []
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        event = dict(enumerate(x))
        shares = model.predict_proba_one(event)
        right.append(max(shares, key=shares.__getitem__, default=None) is label)
        if budget.wants(max(shares.values(), default=0.0)):
            model.learn_one(event, label)
    assert np.mean(right[2_000:3_000]) > 0.95
    assert np.mean(right[3_000:3_050]) < 0.3
    assert np.mean(right[4_500:]) > 0.95


@pytest.mark.parametrize(("share", "seed"), [(0.0, 0), (1.5, 0), (0.1, -1)])
def test_an_invalid_budget_is_refused(share: float, seed: int) -> None:
    with raises(ParameterError, parameter="seed" if seed else "share"):
        LabelBudget(share, seed)


@pytest.mark.parametrize("change", [{"n_asked": 5}, {"threshold": 0.0}, {"share": 2.0}])
def test_an_invalid_state_is_refused(change: dict[str, float]) -> None:
    with raises(ValueError):
        LabelBudget.from_state(LabelBudget(0.1).state() | change)
