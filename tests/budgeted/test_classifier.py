"""The budgeted kernel machine as a River classifier."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse

from streamsvm import BSGDClassifier
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import (
    BSGD_SETTINGS,
    accuracy,
    arrays_of,
    blobs,
    check_with_river,
    dicts,
    ring,
    snapshot,
    with_constants,
)


def test_river():
    check_with_river(BSGDClassifier(budget=15))


# Accuracy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"metric": "fixed"},
        {"absorb": 1.0},
        {"learning_rate": None, "l2": 1e-3},
        {"scaling": "rank"},
    ],
    ids=str,
)
def test_learns_classes_that_are_not_linearly_separable(settings):
    X, y = ring(3_000)
    model = BSGDClassifier(**{"budget": 100, **settings})
    model.learn_many(X, y)
    X, y = ring(1_000, seed=1)
    assert np.mean(model.predict_many(X) == y) > 0.95
    assert model.n_support_vectors <= model.budget


def test_learned_metric_drops_irrelevant_features():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(5_000, 20))
    y = (X[:, 0] * X[:, 1] > 0.0).tolist()
    fixed, learned = BSGDClassifier(budget=100, metric="fixed"), BSGDClassifier(budget=100)
    assert accuracy(learned, X, y) > accuracy(fixed, X, y) + 0.1
    relevance = learned.relevance
    assert min(relevance[0], relevance[1]) > 10.0 * max(relevance[j] for j in range(2, 20))
    assert list(relevance.values()) == sorted(relevance.values(), reverse=True)
    assert list(fixed.relevance.items()) == [(j, 1.0) for j in range(20)]


def test_never_more_than_the_budget():
    X, y = blobs(1_000, 3)
    for settings in BSGD_SETTINGS:
        model = BSGDClassifier(**settings)
        for x, label in zip(dicts(X[:300]), y, strict=False):
            model.learn_one(x, label)
            assert model.n_support_vectors <= model.budget


@pytest.mark.parametrize("budget", [1, 3])
def test_tiny_budgets(budget):
    X, y = blobs(300, 3)
    model = BSGDClassifier(budget=budget, merges=11)
    model.learn_many(X, y)
    assert 1 <= model.n_support_vectors <= budget
    assert np.isfinite(model.model.coefs).all()


def test_weights_count():
    X, y = blobs(400, 2)
    heavy, light = BSGDClassifier(), BSGDClassifier()
    heavy.learn_many(X, y, w=np.full(400, 2.0))
    light.learn_many(X, y)
    assert snapshot(heavy) != snapshot(light)
    unweighted = BSGDClassifier(class_weight={0: 0.0})
    unweighted.learn_many(X, y)
    assert set(unweighted.predict_many(X)) == {1}


def test_no_weight_is_too_much():
    X, y = blobs(300, 3)
    for settings in BSGD_SETTINGS:
        model = BSGDClassifier(**settings)
        model.learn_many(X, y, w=np.where(np.arange(300) % 3, 1.0, 1e100))
        assert np.isfinite(model.model.coefs).all()
        assert all(np.isfinite(array).all() for array in model.state()[1].values())


# Equality of all paths --------------------------------------------------------------------------------------------


def test_a_column_met_first_does_not_change_the_prediction():
    X = [{"a": 1.0}, {"a": -1.0}, {"a": 0.9}, {"a": 0.8, "new": 30.0}]
    y = ["up", "down", "up", "up"]
    loop, batch = (BSGDClassifier(scaling="none", gamma=1.0) for _ in range(2))
    expected = []
    for x, label in zip(X, y, strict=True):
        expected.append(loop.predict_proba_one(x).get("up", 0.0))
        loop.learn_one(x, label)
    _, proba = batch.test_then_train(X, y, proba=True)
    assert proba[:, 0].tolist() == expected
    assert expected[3] > 0.5


def test_model_predicts_as_the_learner_does():
    for settings in ({}, {"metric": "fixed"}, {"scaling": "rank"}, {"loss": "log"}):
        for n_classes in (2, 4):
            X, y = blobs(500, n_classes)
            model = BSGDClassifier(budget=40, **settings)
            model.learn_many(X, y)
            assert np.mean(np.array(model.model.predict(X)) == model.predict_many(X)) > 0.995


@each_choice(("settings", [{}, {"metric": "fixed"}, {"learning_rate": None}]), ("n_classes", [2, 4]))
def test_adopts_a_model(settings, n_classes):
    X, y = blobs(500, n_classes)
    first, second = (BSGDClassifier(budget=40, **settings) for _ in range(2))
    first.learn_many(X, y)
    second.adopt(first.model)
    assert (second.predict_many(X) == first.predict_many(X)).mean() > 0.995
    assert second.n_support_vectors == first.n_support_vectors
    second.learn_many(X, y)


def test_refuses_a_model_that_does_not_fit():
    X, y = blobs(500, 3)
    first = BSGDClassifier(budget=40)
    first.learn_many(X, y)
    with raises(ParameterError, parameter="budget"):
        BSGDClassifier(budget=10).adopt(first.model)
    with raises(ParameterError, parameter="metric"):
        BSGDClassifier(metric="fixed").adopt(first.model)
    with raises(ParameterError, parameter="gamma"):
        BSGDClassifier(gamma=7.0).adopt(first.model)


# Unusual streams --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", BSGD_SETTINGS, ids=lambda s: "-".join(map(str, s.values())) or "default")
def test_degenerate_events(settings):
    model = BSGDClassifier(**settings)
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    for i in range(50):
        model.learn_one({"a": 1.0, "b": 5.0}, i % 2)  # duplicates of both classes, constant features
    model.learn_one({}, 0)
    model.learn_one({"a": None, "b": float("nan")}, 1)
    model.learn_one({"a": 1e99, "b": -1e99}, 1)
    model.learn_one({"c": "text"}, 2)
    for i in range(50):
        model.learn_one({"a": 1.0 + i, "b": 5.0, "c": "text"}, i % 3)
    proba = model.predict_proba_one({"a": 3.0})
    assert sum(proba.values()) == pytest.approx(1.0)
    assert np.isfinite(model.model.coefs).all()


def test_huge_values_without_scaling():
    model = BSGDClassifier(budget=5, scaling="none")
    for i in range(60):
        model.learn_one({"a": 10.0 ** (i % 90), "b": -(10.0 ** (i % 7))}, i % 3)
    assert np.isfinite(list(model.predict_proba_one({"a": 1e90}).values())).all()


def test_one_class_only():
    X, _ = blobs(100, 1)
    model = BSGDClassifier()
    model.learn_many(X, ["only"] * 100)
    assert model.predict_proba_one({0: 1.0}) == {model.predict_one({0: 1.0}): 1.0} == {"only": 1.0}
    assert model.n_support_vectors == 0


@pytest.mark.parametrize("metric", ["fixed", "learned"])
def test_very_wide_sparse_rows(metric):
    rng = np.random.default_rng(6)
    X = scipy.sparse.random(300, 30_000, density=0.001, random_state=rng, format="csr")
    y = (np.asarray(X[:, :15_000].sum(axis=1))[:, 0] > np.asarray(X[:, 15_000:].sum(axis=1))[:, 0]).tolist()
    model = BSGDClassifier(budget=40, metric=metric)
    model.test_then_train(X, y)
    assert model.n_support_vectors > 20
    # Single precision, with capacity for at most twice the columns.
    assert arrays_of(model)["vectors"].nbytes <= 4 * 2 * X.shape[1] * 64


# Parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        partial(BSGDClassifier, learning_rate=1.0, l2=0.01),
        partial(with_constants(BSGDClassifier, horizon=100), learning_rate=None),
    ],
    ids=["constant", "pegasos"],
)
def test_coefficients_may_shrink_often(make):
    rng = np.random.default_rng(20)
    X = rng.normal(size=(10_000, 3))
    y = (X**2).sum(axis=1) > 2.3
    model = make()
    right = model.test_then_train(X, y.tolist()) == y
    assert right[5000:].mean() > 0.8
    assert model.model.predict(X[:500]) == model.predict_many(X[:500]).tolist()


def test_a_column_that_was_only_zero_has_no_part_in_the_model():
    model = BSGDClassifier(scaling="none", gamma=1.0, metric="fixed")
    for i in range(40):
        model.learn_one({"a": float(i % 2), "b": 0.0}, i % 2)
    X = np.array([[0.0, 5.0], [1.0, -5.0]])
    rows = [dict(zip(model.model.scaler.names, row, strict=True)) for row in X]
    assert model.model.predict(X) == [model.predict_one(x) for x in rows]
    other = BSGDClassifier(scaling="none", gamma=1.0, metric="fixed")
    other.adopt(model.model)
    assert [other.predict_one(x) for x in rows] == [model.predict_one(x) for x in rows]
