"""Models of batch solvers on unscaled values, in learners that scale online."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.batch import SampledCuts, SmoothedNewton
from streamsvm.models import KernelExpansion, Polytopes, Scaler
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import snapshot

SCALINGS = ("standard", "decayed")
ALL_SCALINGS = ("none", *SCALINGS)


def board(scale, shift, n=2_000):
    """A checkerboard, in columns of any units."""
    Z = np.random.default_rng(0).uniform(0.0, 3.0, (n, 2))
    return Z * scale + shift, np.where(np.floor(Z).sum(axis=1) % 2 == 0, "even", "odd")


def line(scale, shift, n=2_000):
    Z = np.random.default_rng(1).normal(size=(n, 3))
    return Z * scale + shift, np.where(Z @ [1.0, -2.0, 0.5] > 0.3, "above", "below")


def halves(model, X, y):
    """Return the accuracies in the first and second half of training."""
    return np.mean(np.reshape(np.asarray(model.test_then_train(X, y)) == y, (2, -1)), axis=1)


@pytest.fixture(scope="module")
def fitted_board():
    return SampledCuts(1e3, gamma=4.0, max_iter=40, random_state=0).fit(*board(1.0, 0.0)).reduced(150)


@each_choice(("class_weight", [None, "balanced"]), ("scaling", ALL_SCALINGS))
def test_a_reduced_expansion_is_adopted_and_learned_on(scaling, class_weight, fitted_board):
    X, y = board(1.0, 0.0)
    small = fitted_board.model_
    model = BSGDClassifier(scaling=scaling, class_weight=class_weight)
    model.adopt(small)
    assert np.mean(model.predict_many(X) == np.array(small.predict(X))) > 0.99
    assert (halves(model, X, y) > np.mean(np.array(small.predict(X)) == y) - 0.06).all()


def test_a_model_of_another_kind_is_refused(fitted_board):
    expansion, polytopes = fitted_board.model_, SmoothedNewton().fit(*board(1.0, 0.0)).model_.polytopes()
    for model, other, expected in (
        (CPMClassifier(), expansion, Polytopes),
        (BSGDClassifier(), polytopes, KernelExpansion),
    ):
        for given in (other, fitted_board, None):
            with raises(TypeError, parameter="model", named=expected.__name__):
                model.adopt(given)


def in_units(fitted, scale, shift):
    """Return an equal expansion for columns in other units, through its metric."""
    unit = fitted.model_
    vectors, relevance = unit.vectors * scale + shift, np.power(scale, -2.0)
    return KernelExpansion(
        unit.classes, vectors, unit.coefs, unit.biases, unit.gamma, relevance, Scaler.identity([0, 1])
    )


@each_choice(("scaling", SCALINGS), ("scale", [300.0, 1e-2]))
def test_an_expansion_of_raw_columns_is_mapped_with_its_metric(scale, scaling, fitted_board, tmp_path):
    scale, shift = [1.0, scale], [5.0, scale]
    X, y = board(scale, shift)
    raw = in_units(fitted_board, scale, shift)
    model = BSGDClassifier(scaling=scaling)
    model.adopt(raw)
    assert np.mean(model.predict_many(X) == np.array(raw.predict(X))) > 0.99
    model.save(tmp_path / "model.svm")
    again = BSGDClassifier.load(tmp_path / "model.svm")
    assert halves(model, X, y).min() > 0.88
    again.test_then_train(X, y)
    assert snapshot(again) == snapshot(model)


@pytest.mark.parametrize("scale", [[1.0, 0.1], [1.0, 300.0]], ids=["too far for single precision", "other scales"])
def test_a_learner_without_scaling_refuses_models_of_columns_of_any_scale(scale, fitted_board):
    expansion, polytopes = BSGDClassifier(scaling="none"), CPMClassifier(n_faces=1, scaling="none")
    X, y = line([*scale, 1.0], 0.0)
    for model, solved in (
        (expansion, in_units(fitted_board, scale, [5.0, -50.0])),
        (polytopes, SmoothedNewton().fit(X, y).model_.polytopes()),
    ):
        with raises(ParameterError, parameter="scaling"):
            model.adopt(solved)


@each_choice(
    ("class_weight", [None, "balanced"]),
    ("scaling", SCALINGS),
    (("scale", "shift"), [(1.0, 0.0), ([1.0, 100.0, 1e4], [5.0, -50.0, 1e5])]),
)
def test_a_linear_model_is_adopted_and_learned_on(scale, shift, scaling, class_weight):
    X, y = line(scale, shift)
    solved = SmoothedNewton().fit(X, y)
    model = CPMClassifier(n_faces=1, scaling=scaling, class_weight=class_weight)
    model.adopt(solved.model_.polytopes())
    np.testing.assert_array_equal(model.predict_many(X), solved.predict(X))
    assert halves(model, X, y).min() > 0.98


def test_a_learners_own_statistics_are_used_where_it_has_learned():
    X, y = line([1.0, 100.0, 1e4], [5.0, -50.0, 1e5])
    solved = SmoothedNewton().fit(X, y).model_.polytopes()
    plain = Polytopes(solved.classes, solved.faces, solved.biases, Scaler.identity([0, 1, 2]))
    model = CPMClassifier(n_faces=1)
    before = snapshot(model)
    with raises(ParameterError, parameter="scaling"):
        model.adopt(plain)
    assert snapshot(model) == before
    model.learn_many(X[:200], y[:200])
    own = model.model.scaler
    model.adopt(plain)
    np.testing.assert_allclose(model.model.scaler.shift, own.shift)
    np.testing.assert_array_equal(model.predict_many(X), plain.predict(X))


@pytest.mark.parametrize("make", [BSGDClassifier, lambda scaling: CPMClassifier(n_faces=1, scaling=scaling)])
def test_a_model_without_ranks_is_not_adopted_with_ranks(make):
    X, y = line(1.0, 0.0, 300)
    expansion = KernelExpansion(
        ["a", "b"], X[:5], np.ones((2, 5)), np.zeros(2), 1.0, np.ones(3), Scaler.identity([0, 1, 2])
    )
    model = make(scaling="rank")
    with raises(ParameterError, parameter="scaling"):
        model.adopt(expansion if isinstance(model, BSGDClassifier) else SmoothedNewton().fit(X, y).model_.polytopes())


def test_a_fixed_metric_or_gamma_cannot_represent_other_scales():
    X, _ = board([1.0, 1e4], 0.0, 50)
    raw = KernelExpansion(
        ["a", "b"], X, np.ones((2, 50)), np.zeros(2), 1.0, np.array([1.0, 1e-8]), Scaler.identity([0, 1])
    )
    with raises(ParameterError, parameter="metric"):
        BSGDClassifier(metric="fixed").adopt(raw)
    wide = KernelExpansion(["a", "b"], X, np.ones((2, 50)), np.zeros(2), 1.0, np.ones(2), Scaler.identity([0, 1]))
    with raises(ParameterError, parameter="gamma"):
        BSGDClassifier(gamma=1.0).adopt(wide)


def test_mapping_is_exact():
    rng = np.random.default_rng(2)
    X, scaler = rng.normal(size=(50, 3)), Scaler([0, 1, 2], np.zeros(3, bool), *rng.uniform(0.5, 2.0, (3, 3)))
    identity = Scaler.identity([0, 1, 2])
    polytopes = Polytopes(["a", "b"], rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 4)), identity)
    expansion = KernelExpansion(
        ["a", "b"], X[:9], rng.normal(size=(2, 9)), rng.normal(size=2), 0.3, rng.uniform(0.1, 2.0, 3), identity
    )
    assert math.isinf(scaler.limit)
    for model in (polytopes, expansion):
        scaled, expected = model.scaled_by(scaler), model.decision_function(X)
        np.testing.assert_allclose(scaled.decision_function(X), expected, atol=1e-12)
        np.testing.assert_allclose(scaled.scaled_by(identity).decision_function(X), expected, atol=1e-12)
