"""The smoothed Newton solver, against other solvers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import scipy.sparse

from streamsvm import CPMClassifier, SmoothedNewton
from streamsvm.batch.matrix import as_matrix
from streamsvm.batch.smoothed_newton import kernels
from streamsvm.models import LinearModel
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises

# Data and other solvers ------------------------------------------------------------------------------------------


def problem(n, d, seed=0, density=1.0):
    """Rows of two overlapping classes, as an array."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    truth = np.where(np.arange(d) < max(2, d // 5), rng.normal(size=d), 0.0)
    return X, np.where(X @ truth + 0.3 + rng.normal(size=n) > 0.0, 1, -1)


def solve_by_cone(X, y, l2, l1, weights=None):
    """Return objective and coefficients of Clarabel."""
    import cvxpy

    n, d = X.shape
    w, b = cvxpy.Variable(d), cvxpy.Variable()
    c = np.full(n, 1.0 / n) if weights is None else weights / weights.sum()
    objective = 0.5 * l2 * cvxpy.sum_squares(w) + l1 * cvxpy.norm1(w) + c @ cvxpy.pos(1 - cvxpy.multiply(y, X @ w + b))
    task = cvxpy.Problem(cvxpy.Minimize(objective))
    task.solve(solver=cvxpy.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return task.value, w.value


def objective_of(model, X, y, weights=None):
    """Return the unsmoothed objective of a fitted two-class model."""
    w, b = model.coef_[0], model.intercept_[0]
    hinge = np.average(np.maximum(0.0, 1.0 - y * (X @ w + b)), weights=weights)
    return 0.5 * model.l2 * (w @ w) + model.l1 * np.abs(w).sum() + hinge


# The mathematics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1.0, 0.05])
def test_gradient_and_hessian_are_those_of_the_smoothed_hinge(eps):
    X, y = problem(40, 6)
    rng = np.random.default_rng(1)
    w, b, c = rng.normal(size=6), 0.3, rng.random(40) / 40.0
    codes = (y > 0).astype(np.int64)
    matrix = as_matrix(X)

    def margins(point):
        return kernels.Margins(X @ point[:6], float(point[6]), codes, 1, c, eps)

    def gradient(point):
        r = np.empty((1, 40))
        kernels.fill_dual_point(margins(point), r[0])
        return -np.append(matrix.adjoint(r)[0], r.sum())

    def value(point):
        return kernels.along(margins(point), np.zeros(40), 0.0, 0.0)[0]

    point, h = np.append(w, b), 1e-6
    steps = h * np.eye(7)
    slopes = [(value(point + step) - value(point - step)) / (2 * h) for step in steps]
    np.testing.assert_allclose(gradient(point), slopes, rtol=1e-6, atol=1e-9)
    shares, weights = np.empty(40), np.empty(40)
    kernels.hinge_slopes(margins(point), shares)
    kernels.hessian_weights(margins(point), shares, weights)
    bends = [(gradient(point + step) - gradient(point - step)) / (2 * h) for step in steps]
    for view in (X, scipy.sparse.csr_matrix(X)):
        hessian = np.tril(as_matrix(view).gram(np.arange(40), weights, np.arange(6)))
        np.testing.assert_allclose(hessian, np.tril(bends), rtol=1e-5, atol=1e-7)
    at = kernels.along(margins(point), X @ steps[0, :6] / h, 0.0, 0.0)
    np.testing.assert_allclose(at[:2], (value(point), slopes[0]), rtol=1e-6)
    np.testing.assert_allclose(at[2], bends[0][0], rtol=1e-5)
    np.testing.assert_allclose(kernels.bias_derivatives(margins(point)), (slopes[6], bends[6][6]), rtol=1e-5)


@each_choice(
    ("as_", [np.asarray, scipy.sparse.csr_matrix]),
    (("l2", "l1"), [(0.01, 0.0), (0.001, 0.01), (0.0, 0.02), (1e-5, 0.0)]),
    (("n", "d", "density"), [(200, 10, 1.0), (60, 100, 0.3), (300, 30, 0.2)]),
)
def test_objective_and_support_are_those_of_a_conic_solver(n, d, density, l2, l1, as_):
    X, y = problem(n, d, seed=n, density=density)
    best, w = solve_by_cone(X, y, l2, l1)
    model = SmoothedNewton(l2, l1, tol=2e-7).fit(as_(X), y)
    assert model.objective_ == pytest.approx(objective_of(model, X, y), rel=1e-9)
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    assert model.certificate_ <= 2e-7 * model.objective_
    assert best >= (model.objective_ - model.certificate_) * (1 - 1e-7)
    if l1 > 0.0:
        np.testing.assert_array_equal(model.coef_[0] != 0.0, np.abs(w) > 1e-5)


def test_the_certificate_bounds_the_distance_to_the_optimum_all_along():
    X, y = problem(300, 20)
    best, _ = solve_by_cone(X, y, 0.001, 0.003)
    model = SmoothedNewton(0.001, 0.003, tol=1e-6).fit(X, y)
    for step in model.history_:
        assert -1e-9 <= step.objective - best <= step.certificate + 1e-9
    assert [step.seconds for step in model.history_] == sorted(step.seconds for step in model.history_)
    assert len(model.history_) == model.n_iter_


@pytest.mark.parametrize(("as_", "l1"), [(np.asarray, 0.0), (scipy.sparse.csr_matrix, 0.003)], ids=["dense", "sparse"])
def test_many_classes_are_one_against_the_rest(as_, l1):
    X, _ = problem(300, 12)
    y = np.array(["a", "b", "c", "d"])[np.argmax(X[:, :4] + 0.3 * X[:, 4:8], axis=1)]
    model = SmoothedNewton(0.001, l1, tol=1e-7).fit(as_(X), y)
    assert model.decision_function(as_(X)).shape == (300, 4)
    assert model.score(as_(X), y) > 0.85
    for c, label in enumerate("abcd"):
        one = SmoothedNewton(0.001, l1, tol=1e-7).fit(X, y == label)
        np.testing.assert_allclose(model.coef_[c], one.coef_[0], atol=2e-4)


@pytest.mark.parametrize("l1", [0.0, 1e-3])
def test_large_and_wide_data_take_other_ways_to_the_same_solution(l1, monkeypatch):
    from streamsvm.batch.smoothed_newton import problem as one_problem
    from streamsvm.batch.smoothed_newton import quadratic

    X, y = problem(1500, 40, density=0.3)
    expected = SmoothedNewton(1e-3, l1, tol=1e-6).fit(X, y)
    monkeypatch.setattr(quadratic, "LARGEST_SYSTEM", 10)  # conjugate gradients
    monkeypatch.setattr(one_problem, "LARGEST_L1_SYSTEM", 30)  # some of the columns at a time
    for view in (X, scipy.sparse.csr_matrix(X)):
        model = SmoothedNewton(1e-3, l1, tol=1e-6).fit(view, y)
        assert model.objective_ == pytest.approx(expected.objective_, rel=1e-6)
    monkeypatch.setattr(one_problem, "ROWS_PER_COLUMN", 20)  # a sampled Hessian
    model = SmoothedNewton(1e-3, l1, tol=1e-3).fit(X, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-3)


@each_choice(("dtype", [np.float32, np.float64]), ("form", ["C", "F", "strided", "csr", "csr64", "duplicates", "csc"]))
def test_forms_of_input_agree(form, dtype):
    X, y = problem(150, 7, density=0.5)
    X = X.astype(dtype)
    expected = SmoothedNewton(0.01, 0.001, tol=1e-8).fit(X.astype(float), y)
    sparse = scipy.sparse.csr_matrix(X)
    if form == "csr64":
        sparse.indices, sparse.indptr = sparse.indices.astype(np.int64), sparse.indptr.astype(np.int64)
    twice = scipy.sparse.csr_matrix(
        (np.repeat(sparse.data / 2, 2), np.repeat(sparse.indices, 2), 2 * sparse.indptr), X.shape
    )
    view = {
        "C": X,
        "F": np.asfortranarray(X),
        "strided": np.repeat(X, 2, axis=1)[:, ::2],
        "csr": sparse,
        "csr64": sparse,
        "duplicates": twice,
        "csc": sparse.tocsc(),
    }[form]
    model = SmoothedNewton(0.01, 0.001, tol=1e-8).fit(view, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    assert model.coef_.dtype == np.float64


# Degenerate data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1e-8, 1e-4, 1e4])
def test_columns_in_other_units_give_the_same_solution(unit):
    X, y = problem(200, 8)
    expected = SmoothedNewton(0.0, 0.01, tol=1e-5).fit(X, y)
    model = SmoothedNewton(0.0, 0.01 * unit, tol=1e-5).fit(unit * X, y)
    assert model.certificate_ <= 1e-5 * model.objective_
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-5)
    np.testing.assert_array_equal(model.coef_ != 0.0, expected.coef_ != 0.0)


def test_bad_weights_are_refused():
    X, y = problem(10, 3)
    with raises(ValueError, named="sample_weight"):
        SmoothedNewton().fit(X, y, sample_weight=np.linspace(-1.0, 1.0, 10))
    with raises(ParameterError, parameter="class_weight"):
        SmoothedNewton(class_weight={1: -1.0}).fit(X, y)


# Warm starts, paths and estimators -------------------------------------------------------------------------------


def test_a_model_to_start_from_saves_iterations():
    X, y = problem(400, 15)
    model = SmoothedNewton(0.01, tol=1e-5).fit(X, y)
    started = SmoothedNewton(0.01, tol=1e-5, init=model.model_).fit(X, y)
    assert started.n_iter_ < model.n_iter_
    assert started.certificate_ <= 1e-5 * started.objective_
    assert started.objective_ == pytest.approx(model.objective_, rel=2e-5)
    with raises(ParameterError, parameter="init"):
        SmoothedNewton(init=model.model_).fit(X[:, :4], y)
    with raises(TypeError, parameter="init"):
        SmoothedNewton(init=model.coef_).fit(X, y)


def test_the_learned_model_is_plain_arrays_that_online_learners_adopt(tmp_path):
    X, y = problem(200, 5)
    labels = np.where(y > 0, "up", "down")
    estimator = SmoothedNewton(0.01).fit(X, labels)
    model = estimator.model_
    assert model.predict(X) == estimator.predict(X).tolist()
    np.testing.assert_allclose(model.decision_function(X)[:, 1], estimator.decision_function(X))
    model.save(tmp_path / "model.safetensors")
    loaded = LinearModel.load(tmp_path / "model.safetensors")
    assert loaded.predict(X) == model.predict(X)
    assert loaded.classes == ["down", "up"]
    learner = CPMClassifier(n_faces=1)
    learner.adopt(model.polytopes())
    assert learner.predict_many(X).tolist() == estimator.predict(X).tolist()
    with raises(ValueError, named=(2, 3)):
        LinearModel(["a", "b"], np.zeros((2, 3)), np.zeros(1), model.scaler)


def test_the_interpreter_is_free_while_it_runs():
    X, y = problem(60_000, 30)
    estimator = SmoothedNewton(1e-5, tol=1e-3)
    estimator.fit(X[:30_000], y[:30_000])  # compiles
    fitting, n_turns = threading.Thread(target=lambda: [estimator.fit(X, y) for _ in range(3)]), 0
    fitting.start()
    while fitting.is_alive():
        time.sleep(0.001)
        n_turns += 1
    assert n_turns > 20
