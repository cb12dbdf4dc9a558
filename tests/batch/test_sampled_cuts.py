"""Sampled cutting planes, against other solvers and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise
from sklearn.svm import SVC

from simulations.papers.linear_time import LinearTime
from streamsvm import SampledCuts
from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel
from streamsvm.batch.sampled_cuts.losses import most_violated
from streamsvm.models import KernelExpansion
from tests.choices import each_choice
from tests.learners import blobs

# Data and other solvers ------------------------------------------------------------------------------------------


def board(n, k=4, seed=0):
    """A noisy checkerboard of k x k cells in the unit square."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2)) * k
    y = np.floor(x).sum(axis=1).astype(int) % 2
    return (x + rng.normal(0.0, 0.08, x.shape)) / k, y


def solve_by_cone(K, y, C, cost, weights):
    """Return the minimum of |f|^2 / (2 C) + mean loss, computed by Clarabel.

    Each output is f = sum a_i k(x_i, .).
    """
    import cvxpy

    n, n_classes = len(y), len(cost)
    root = np.linalg.cholesky(K + 1e-10 * np.trace(K) / n * np.eye(n))
    n_outputs = 1 if n_classes == 2 else n_classes
    B = cvxpy.Variable((n, n_outputs))
    F = root @ B
    losses = []
    for i in range(n):
        terms = [0.0]
        for other in range(n_classes):
            if other != y[i]:
                behind = F[i, 0] * (1 if other == 1 else -1) if n_outputs == 1 else F[i, other] - F[i, y[i]]
                terms.append(cost[y[i], other] + behind)
        losses.append(cvxpy.maximum(*terms))
    objective = cvxpy.sum_squares(B) / (2 * C) + weights @ cvxpy.hstack(losses)
    problem = cvxpy.Problem(cvxpy.Minimize(objective))
    problem.solve(solver=cvxpy.CLARABEL)
    return problem.value


def objective_of(model, X, y, weights=None):
    """Return the objective of a fitted model for rows, in double precision."""
    model_ = model.model_
    K = pairwise.rbf_kernel(model_.vectors * np.sqrt(model_.relevance), gamma=model_.gamma)
    coefs = model_.coefs[1:] if len(model_.classes) == 2 else model_.coefs
    square = np.einsum("ci,ij,cj->", coefs, K, coefs)
    scores = model_.decision_function(X).T
    scores = scores / 2.0 if len(model_.classes) == 2 else scores
    cost = 1.0 - np.eye(len(model_.classes)) if model.cost is None else np.asarray(model.cost, float)
    codes = np.searchsorted(model.classes_, y)
    losses = most_violated(scores, codes, cost).losses
    return square / (2.0 * model.C_) + np.average(losses, weights=weights)


# The parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 30])
def test_scores_are_sums_of_kernel_values(d):
    rng = np.random.default_rng(d)
    X, V, coefs = rng.random((300, d)) + 7.0, rng.random((40, d)) + 7.0, rng.normal(size=(40, 3))
    kernel = GaussianKernel(0.7, X.mean(axis=0))
    owners = np.sort(rng.integers(5, size=40))
    out = np.zeros((5, 3, 300), np.float32)
    rows, vectors = kernel.prepare(X), kernel.prepare(V)
    kernel.add_scores(vectors, rows, coefs.astype(np.float32), owners, out)
    K = pairwise.rbf_kernel(X, V, gamma=0.7)
    expected = np.stack([(K[:, owners == t] @ coefs[owners == t]).T for t in range(5)])
    np.testing.assert_allclose(out, expected, atol=2e-5 * np.abs(K).max() * 10)
    np.testing.assert_allclose(kernel.decide(vectors, coefs.astype(np.float32), rows), expected.sum(0), rtol=1e-3)
    np.testing.assert_allclose(kernel.restore(rows), X, rtol=1e-6)


COSTS = {
    "binary": np.array([[0.0, 1.0], [3.0, 0.0]]),
    "classes": 1.0 - np.eye(3),
    "costs": np.array([[0.0, 1.0, 2.0], [0.5, 0.0, 0.0], [4.0, 1.0, 0.0]]),
}


# The solver ------------------------------------------------------------------------------------------------------


@each_choice(("cost", list(COSTS.values())), ("weights", [np.ones(40), np.arange(40.0) % 3]))
def test_few_rows_have_the_objective_of_a_conic_solver(cost, weights):
    X, y = blobs(40, len(cost), seed=1)
    best = solve_by_cone(pairwise.rbf_kernel(X, gamma=0.2), y, 30.0, cost, weights / weights.sum())
    model = SampledCuts(30.0, gamma=0.2, cost=cost, tol=1e-3, max_iter=3000).fit(X, y, sample_weight=weights)
    assert best - 1e-5 <= model.objective_ <= best + 1e-3
    assert model.objective_ - model.certificate_ <= best + 1e-5
    assert model.objective_ == pytest.approx(objective_of(model, X, y, weights), rel=1e-4)
    assert model.objective_error_ == 0.0


def test_few_rows_without_settings_are_learned_as_well_as_by_svc_and_better_where_rows_held_out_say_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 8))
    y = X[:, 0] + rng.normal(size=800) > 0.0  # nearly linear, with many errors
    X_test = rng.normal(size=(4000, 8))
    noisy = SampledCuts().fit(X, y)
    assert noisy.C_ <= 800.0
    assert noisy.score(X_test, X_test[:, 0] > 0.0) > SVC().fit(X, y).score(X_test, X_test[:, 0] > 0.0) - 0.01
    X, y = board(800)
    X_test, y_test = board(4000, seed=1)
    fine = SampledCuts().fit(X, y)
    assert fine.C_ > 800.0
    assert fine.score(X_test, y_test) > SVC().fit(X, y).score(X_test, y_test) + 0.1


def test_samples_follow_the_weights():
    X, y = board(1500)
    weights = np.where(X[:, 0] < 0.5, 1.0, 0.0)
    model = SampledCuts(1e3, gamma=20.0, sample_size=100, max_iter=40).fit(X, y, sample_weight=weights)
    assert (X[model.support_, 0] < 0.5).all()
    heavy = SampledCuts(1e3, gamma=20.0, sample_size=100, max_iter=40, class_weight={0: 1.0, 1: 5.0}).fit(X, y)
    assert heavy.predict(X).mean() > y.mean() + 0.03


def test_the_estimate_of_the_objective_covers_the_truth():
    X, y = board(800)
    errors = []
    for seed in range(20):
        model = SampledCuts(800.0, gamma=20.0, sample_size=100, max_iter=12, random_state=seed).fit(X, y)
        errors.append((model.objective_ - objective_of(model, X, y)) / model.objective_error_)
    errors = np.array(errors)
    # 95 % within 1.96 standard errors: fewer than 16 of 20 occur with a probability of 0.3 %.
    assert np.count_nonzero(np.abs(errors) <= 1.96) > 15
    assert abs(errors.mean()) < 3.0 / np.sqrt(20)


def test_many_vectors_are_measured_by_a_sample_of_them(monkeypatch):
    monkeypatch.setattr("streamsvm.batch.sampled_cuts.losses.MEASURED", 500)
    X, y = board(3000)
    model = SampledCuts(6e3, gamma=20.0, sample_size=200, max_iter=20).fit(X, y)
    assert len(model.support_) > 1000
    assert abs(model.objective_ - objective_of(model, X, y)) < 4.0 * model.objective_error_


def test_linear_time_knows_its_objective_and_ends_by_tol():
    X, y = board(1000)
    model = LinearTime(1e3, gamma=20.0, sample_size=100, tol=5e-3).fit(X, y)
    assert model.objective_ == pytest.approx(objective_of(model, X, y), rel=1e-3)
    assert model.certificate_ < 0.05
    assert model.n_iter_ < model.max_iter
    exact = LinearTime(1e3, gamma=20.0, sample_size=1000, tol=5e-3, max_iter=3000).fit(X, y)
    assert model.objective_ < exact.objective_ + 0.02
    with pytest.warns(ConvergenceWarning):
        LinearTime(1e3, gamma=20.0, sample_size=100, max_iter=3).fit(X, y)


def test_the_accuracy_is_near_svc():
    X, y = board(6000)
    test, truth = board(3000, seed=1)
    cuts = SampledCuts(5e3, gamma=20.0, sample_size=200, max_iter=60).fit(X, y)
    svc = SVC(C=1.0, gamma=20.0).fit(X[:3000], y[:3000])
    assert cuts.score(test, truth) > svc.score(test, truth) - 0.01


def test_it_does_not_end_while_the_cuts_tell_of_no_loss_and_rows_have_one():
    X, y = board(1000)
    make = lambda: SampledCuts(1e9, gamma=20.0, sample_size=100, max_iter=100, tol=0.1)  # noqa: E731
    assert make().fit(X, y).n_iter_ == 100
    assert make().fit(X, X[:, 0] > 0.5).n_iter_ < 60


# The fitted model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_learned_model_is_plain_arrays(tmp_path, n_classes):
    X, y = blobs(1000, n_classes)
    model = SampledCuts(500.0, 0.2, sample_size=100, max_iter=30).fit(X, y)
    model.model_.save(tmp_path / "model")
    loaded = KernelExpansion.load(tmp_path / "model")
    scores = loaded.decision_function(X)
    mine = model.decision_function(X)
    np.testing.assert_allclose(scores[:, 1] if n_classes == 2 else scores, mine, atol=1e-3 * np.abs(mine).max())
    assert np.mean(loaded.predict(X) == model.predict(X)) > 0.995


def test_a_projection_is_the_nearest_function_on_its_landmarks():
    X, y = blobs(600, 3)
    model = SampledCuts(300.0, gamma=0.1, sample_size=100, max_iter=30).fit(X, y)
    small = model.reduced(10)
    assert len(small.vectors_) == small.dual_coef_.shape[1] == 10
    marks = X[small.support_]
    # The remainder is orthogonal to all landmarks.
    np.testing.assert_allclose(small.decision_function(marks), model.decision_function(marks), atol=5e-3)
    np.testing.assert_array_equal(model.reduced(1000).dual_coef_, model.dual_coef_)
