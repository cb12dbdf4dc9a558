"""Windows with outliers: the solution, and predictions for outliers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.features.rows import EncodedRows
from streamsvm.refit.refitted_model import RefittedModel
from streamsvm.refit.solvers import SOLVERS
from streamsvm.refit.tasks import Solution, Task
from streamsvm.refit.window_rows import WindowRows
from tests.choices import each_choice

N, D = 1_000, 4
RNG = np.random.default_rng(0)
X, LATER = RNG.normal(3.0, 2.0, (2, N, D))
Y, Y_LATER = ((rows.sum(axis=1) > 12.0).astype(int) for rows in (X, LATER))


def encoded(rows: NDArray[np.float64]) -> EncodedRows:
    return EncodedRows(rows.reshape(-1).copy(), np.arange(D), np.arange(0, rows.size + 1, D), True)


def solved(name: str, rows: NDArray[np.float64]) -> Any:
    window = WindowRows(encoded(rows), Y, np.ones(N), np.full(N, np.nan), np.arange(N))
    solver = SOLVERS[name]()
    return solver._fit(Task(window, D), solver._first())


def accuracy(model: Any) -> float:
    codes = np.array(model.classes)[model.decision_function(LATER).argmax(axis=1)]
    return float(np.mean(codes == Y_LATER))


def spoilt(kind: str) -> NDArray[np.float64]:
    rows = X.copy()
    if kind == "a spike":
        rows[50, 0] = 1e12
    elif kind == "a burst":
        rows[:40] = 1e6
    elif kind == "sentinels":
        rows[RNG.random(rows.shape) < 0.02] = -9_999.0
    else:
        rows[: N // 2] *= 1e3
    return rows


@each_choice(
    ("solver", ["newton", "bcd", "cuts"]),
    (("kind", "lost"), [("a spike", 0.02), ("a burst", 0.02), ("sentinels", 0.02), ("other units before", 0.15)]),
)
def test_a_window_with_outliers_is_solved(solver: str, kind: str, lost: float) -> None:
    assert accuracy(solved(solver, spoilt(kind))) > accuracy(solved(solver, X)) - lost


@pytest.mark.parametrize("solver", ["newton", "cuts"])
def test_an_outlier_counts_almost_as_missing_for_a_solved_model(solver: str) -> None:
    model = solved(solver, X)
    same = np.repeat(LATER[:1], 3, axis=0)
    same[:, 1] = [np.nan, 1e9, -1e9]
    scores = model.decision_function(same)
    np.testing.assert_allclose(scores[1:], scores[[0, 0]], atol=1e-3)
    proba = np.zeros((3, 2))
    RefittedModel(Solution(model, {}), 1).evaluate(encoded(same), np.ones(3, np.int64), proba)
    np.testing.assert_allclose(proba[1:], proba[[0, 0]], atol=1e-3)


@pytest.mark.parametrize("make", [CPMClassifier, BSGDClassifier])
def test_the_model_of_a_learner_answers_as_the_learner_does(make: Any) -> None:
    learner = make()
    learner.learn_many(X, Y.tolist())
    rows = LATER[:50].copy()
    rows[:, 0] *= np.geomspace(1.0, 1e6, 50)
    own = learner.predict_many(rows)
    model = learner.model
    assert [model.classes[c] for c in model.decision_function(rows[:, model.scaler.names]).argmax(axis=1)] == list(own)
