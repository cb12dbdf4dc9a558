"""Truncated losses, against other solvers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from streamsvm import IndexedBCD
from streamsvm.batch.indexed_bcd.newton import newton_step
from streamsvm.batch.indexed_bcd.problem import BinaryProblem, HessianSample, evaluate
from streamsvm.batch.matrix import MemoryRows
from streamsvm.models import LinearModel
from tests.choices import each_choice
from tests.learners import with_constants

LOSSES = ["hinge", "squared_hinge"]


def problem(n, d, seed=0, flipped=0.1):
    """Rows of two classes with some wrong labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + 0.5 + 0.5 * rng.normal(size=n) > 0.0, 1, -1)
    return X, np.where(rng.random(n) < flipped, -y, y)


def loss_of(model, X, y):
    """Return the losses of rows before truncation."""
    over = np.maximum(0.0, 1.0 - y * (X @ model.coef_[0] + model.intercept_[0]))
    return over**2 if model.loss == "squared_hinge" else over


def objective_of(model, X, y, weights=1.0):
    """Return the truncated objective of a fitted two-class model."""
    norm = 0.5 * (model.coef_[0] @ model.coef_[0] + model.intercept_[0] ** 2)
    return norm + model.C * np.sum(weights * np.minimum(loss_of(model, X, y), 1.0 + model.s))


def solve_by_cone(X, y, C, squared, bias=True, weights=1.0):
    """Return the optimum of the convex problem by Clarabel."""
    import cvxpy

    w, b = cvxpy.Variable(X.shape[1]), cvxpy.Variable()
    loss = cvxpy.pos(1 - cvxpy.multiply(y, X @ w + (b if bias else 0.0)))
    loss = cvxpy.square(loss) if squared else loss
    objective = 0.5 * (cvxpy.sum_squares(w) + cvxpy.square(b)) + C * cvxpy.sum(cvxpy.multiply(weights, loss))
    return cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver=cvxpy.CLARABEL)


# The convex problem ----------------------------------------------------------------------------------------------


@each_choice(
    ("as_", [np.asarray, scipy.sparse.csr_matrix]),
    ("loss", LOSSES),
    (("n", "d", "C", "bias"), [(200, 8, 1.0, True), (80, 30, 0.1, False), (300, 5, 10.0, True)]),
)
def test_without_truncation_the_objective_is_that_of_a_conic_solver(n, d, C, bias, loss, as_):
    X, y = problem(n, d, seed=n)
    best = solve_by_cone(X, y, C, loss == "squared_hinge", bias)
    model = IndexedBCD(C, np.inf, loss=loss, fit_intercept=bias, tol=1e-5, max_iter=1000).fit(as_(X), y)
    assert model.objective_ == pytest.approx(objective_of(model, X, y), rel=1e-9)
    assert model.objective_ == pytest.approx(best, rel=2e-5)
    assert model.certificate_ <= 1e-5 * model.objective_
    assert best >= (model.objective_ - model.certificate_) * (1 - 1e-7)
    assert bias or model.intercept_[0] == 0.0


def test_wide_data_take_conjugate_gradients():
    rng = np.random.default_rng(0)
    X = scipy.sparse.random(80, 2100, 0.01, format="csr", random_state=0)
    y = np.where(X @ rng.normal(size=2100) > 0.0, 1, -1)
    ours = IndexedBCD(s=np.inf, tol=1e-5).fit(X, y)
    dense = IndexedBCD(s=np.inf, tol=1e-5).fit(X.toarray(), y)
    other = LinearSVC(loss="hinge", tol=1e-8, max_iter=1_000_000).fit(X, y)
    best = 0.5 * (np.sum(other.coef_**2) + other.intercept_[0] ** 2)
    best += np.maximum(0.0, 1.0 - y * other.decision_function(X)).sum()
    assert ours.objective_ == pytest.approx(best, rel=2e-5)
    assert dense.objective_ == pytest.approx(best, rel=2e-5)


# Truncation ------------------------------------------------------------------------------------------------------


@each_choice(("loss", LOSSES), ("s", [0.0, 0.25, 1.0, 3.0]))
def test_no_round_raises_the_truncated_objective(s, loss):
    X, y = problem(600, 8, flipped=0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = with_constants(IndexedBCD, n_pilot=100)(s=s, loss=loss).fit(X, y)
    objectives = np.array([step.objective for step in model.history_])
    assert len(objectives) > 1
    assert np.all(np.diff(objectives) <= 0.0)
    assert model.objective_ == pytest.approx(objective_of(model, X, y), rel=1e-9)
    assert model.n_outliers_[0] == np.sum(loss_of(model, X, y) > 1.0 + s)


@pytest.mark.parametrize("loss", LOSSES)
def test_it_ends_at_the_convex_optimum_of_its_own_inliers(loss):
    X, y = problem(600, 8, flipped=0.2)
    model = IndexedBCD(loss=loss).fit(X, y)
    inside = loss_of(model, X, y) <= 2.0
    best = solve_by_cone(X[inside], y[inside], 1.0, loss == "squared_hinge") + 2.0 * np.sum(~inside)
    assert model.certificate_ <= 1e-3 * model.objective_
    assert -1e-6 * best <= model.objective_ - best <= model.certificate_ * (1 + 1e-6)


@pytest.mark.parametrize("s", [0.0, 0.25])
def test_rounds_do_not_stay_by_a_convex_solution_that_many_wrong_labels_have_made_useless(s):
    rng = np.random.default_rng(0)
    X = rng.random((4000, 5))
    truth = X[:, 0] - X[:, 1] + 0.5 * X[:, 2] + 0.25 * rng.normal(size=4000) > 0.65
    y = truth ^ (rng.random(4000) < 0.3)
    convex, truncated = (IndexedBCD(s=s).fit(X, y).predict(X) for s in (np.inf, s))
    assert np.mean(convex) < 0.05
    assert np.mean(truncated != truth) < 0.7 * np.mean(convex != truth)


# The parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("ceiling", [1.5, np.inf])
def test_a_pass_has_the_gradient_and_the_hessian_of_the_smoothed_loss(squared, ceiling):
    X, y = problem(60, 4)
    rng = np.random.default_rng(2)
    w, eps = rng.normal(size=5), 0.3
    binary = BinaryProblem(y.astype(float), rng.random(60), squared, ceiling, 1.0)

    def value(point):
        u = 1.0 - y * (X @ point[:4] + point[4])
        over = np.maximum(0.0, u)
        smooth = over**2 if squared else np.where(over < eps, over**2 / (2.0 * eps), over - 0.5 * eps)
        inside = (over**2 if squared else over) <= ceiling
        return float(binary.c @ np.where(inside, smooth, ceiling))

    point = evaluate(MemoryRows(X), binary, w, eps, hessian=HessianSample(X.shape[1], np.inf, rng))
    steps = 1e-6 * np.eye(5)
    slopes = [(value(w + h) - value(w - h)) / 2e-6 for h in steps]
    np.testing.assert_allclose(-point.v, slopes, rtol=1e-5, atol=1e-6)
    gradients = [[evaluate(MemoryRows(X), binary, w + t * h, eps).v for h in steps] for t in (1, -1)]
    bends = (np.array(gradients[1]) - np.array(gradients[0])) / 2e-6
    np.testing.assert_allclose(np.tril(point.hessian), np.tril(bends), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
def test_a_step_minimises_the_quadratic_model(dense, monkeypatch):
    if not dense:
        monkeypatch.setattr("streamsvm.batch.indexed_bcd.problem.LARGEST_BOUNDED_SYSTEM", 0)
    X, y = problem(60, 4)
    binary = BinaryProblem(y.astype(float), np.ones(60), True, np.inf, 1.0)
    point = evaluate(MemoryRows(X), binary, np.ones(5), hessian=HessianSample(4, np.inf, np.random.default_rng(0)))
    part = np.append(X, np.ones((60, 1)), axis=1)[1.0 - y * point.z > 0.0]
    best = np.linalg.solve(np.eye(5) + 2.0 * part.T @ part, point.v - point.w)
    np.testing.assert_allclose(newton_step(point, binary), best, atol=1e-9 if dense else 0.05)


# Protocol --------------------------------------------------------------------------------------------------------


def test_a_model_to_start_from_saves_rounds(tmp_path):
    X, y = problem(3000, 10)
    cold = with_constants(IndexedBCD, n_pilot=100)().fit(X, y)
    cold.model_.save(tmp_path / "model")
    warm = IndexedBCD(init=LinearModel.load(tmp_path / "model")).fit(X, y)
    assert warm.n_iter_ < cold.n_iter_
    assert warm.objective_ <= cold.objective_
