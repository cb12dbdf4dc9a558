"""The filter of the linear member, compared with numpy, and where it gains."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from streamsvm.ensemble import linear
from streamsvm.ensemble.linear import LEAST_CURVATURE, MOST_FILTERED, PRIOR, WALK
from streamsvm.ensemble.members import MEMBERS
from streamsvm.features.scaler import UNLIMITED
from streamsvm.online.scaling import new_rows
from tests.learners import arrays_of, interpreted

step = interpreted(linear.step)


def follow(weights, covariance, x, label, weight):
    """Make a step of the filter in place."""
    powers = np.exp(x @ weights)
    p = powers / powers.sum()
    gain = covariance @ x
    curvature = LEAST_CURVATURE + np.sum(p * p * (1.0 - p))
    scale = weight / (1.0 + weight * curvature * (x @ gain))
    weights += scale * np.outer(gain, np.eye(len(p))[label] - p)
    covariance -= scale * curvature * np.outer(gain, gain)
    covariance += np.diag(np.where(np.diag(covariance) < PRIOR, WALK, 0.0))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5, 40])
def test_the_filter_follows_the_equations(n_classes, is_sparse):
    rng = np.random.default_rng(n_classes)
    n_columns, capacity = 6, n_classes + 1
    state = MEMBERS["linear"](100).new_state(n_columns, capacity, new_rows(n_columns, None), UNLIMITED)
    state.n_classes = n_classes
    weights, covariance = np.zeros((n_columns + 1, n_classes)), np.eye(n_columns + 1) * PRIOR
    for _ in range(60):
        x = np.append(1.0, rng.normal(size=n_columns))
        x[1:] *= rng.random(n_columns) < 0.5 if is_sparse else 1.0
        rows = np.flatnonzero(x)
        label, weight = int(rng.integers(n_classes)), float(rng.choice([0.5, 1.0, 100.0]))
        state.scores[:] = x @ state.weights
        step(state, (rows, x[rows], len(rows)), (), label, weight)
        follow(weights, covariance, x, label, weight)
    np.testing.assert_allclose(state.weights[:, :n_classes], weights, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state.covariance, covariance, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(state.covariance, state.covariance.T)


@pytest.mark.parametrize("variance", [PRIOR, -1e-9])
@pytest.mark.parametrize("weight", [5e-324, 1e-300, 1e100])
def test_extreme_weights_leave_the_filter_finite(weight, variance):
    # A negative variance this small passes the check of saved models.
    state = MEMBERS["linear"](100).new_state(64, 2, new_rows(64, None), UNLIMITED)
    np.fill_diagonal(state.covariance, variance)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x = np.append(1.0, rng.choice([-10.0, 10.0], 64))
        state.scores[:] = x @ state.weights
        step(state, (np.arange(65), x, 65), (), int(rng.integers(2)), weight)
    assert np.isfinite(state.weights).all()
    MEMBERS["linear"](100).check_restored(state)


def linear_stream(n_columns, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1_000, n_columns)) * 10.0 ** rng.integers(-3, 3, n_columns)
    return X, (X / X.std(axis=0) @ rng.normal(size=n_columns) > 0.0).astype(int)


def test_the_filter_is_the_best_head_for_noisy_linear_concepts():
    accuracies = Counter[str]()
    for seed in range(5):
        X, y = linear_stream(10, seed)
        model = StreamSVMClassifier(members=("linear",), label_autocorrelation=False)
        model.learn_many(X, np.where(np.random.default_rng(seed).random(len(y)) < 0.1, 1 - y, y))
        accuracies.update({head["head"]: head["accuracy"] for head in model.leaders()})
    assert accuracies.most_common(1)[0][0] == "filter"


@pytest.mark.parametrize("n_columns", [MOST_FILTERED, MOST_FILTERED + 1])
def test_with_more_columns_there_is_no_filter(n_columns):
    X, y = linear_stream(n_columns)
    model = StreamSVMClassifier(members=("linear",))
    model.learn_many(X, y)
    variances = np.diag(arrays_of(model)["1.covariance"])[1:]
    assert np.all(variances == PRIOR) == (n_columns > MOST_FILTERED)


def test_columns_of_zeros_do_not_end_the_filter():
    X, y = linear_stream(10)
    wide, narrow = StreamSVMClassifier(members=("linear",)), StreamSVMClassifier(members=("linear",))
    wide.learn_many(np.hstack([X, np.zeros((len(X), 90))]), y)
    narrow.learn_many(X, y)
    covariance = arrays_of(narrow)["1.covariance"][:11, :11]
    np.testing.assert_array_equal(arrays_of(wide)["1.covariance"][:11, :11], covariance)


def test_the_weights_of_a_new_column_have_the_initial_variance():
    X, y = linear_stream(3)
    model = StreamSVMClassifier(members=("linear",))
    for row, label in zip(X[:500].tolist(), y[:500].tolist(), strict=True):
        model.learn_one(dict(zip("abc", row, strict=True)), label)
    model.learn_one({"a": 0.0, "b": 0.0, "c": 0.0, "new": 1.0}, 1)
    variances = np.diag(arrays_of(model)["1.covariance"])
    assert variances[1:4].max() < 0.1 * PRIOR
    assert variances[4] > 0.5 * PRIOR
