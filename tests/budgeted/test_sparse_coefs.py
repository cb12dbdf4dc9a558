"""Support vectors with sparse coefficients for very many classes, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import BSGDClassifier
from streamsvm.budgeted import sparse_coefs
from streamsvm.budgeted import vectors as support
from streamsvm.budgeted.support import class_coefs
from tests.budgeted.test_kernels import gram, learner_with, maintain

MANY = 2 * sparse_coefs.MAX_SPARSE_COEFS


def pair(n, settings, n_said=5):
    """Equal vectors and coefficients for few classes, and for the same classes among many unused ones."""
    rng = np.random.default_rng(n)
    vectors, coefs = rng.normal(size=(n, 3)), rng.normal(size=(n_said, n)) * (rng.random((n_said, n)) < 0.6)
    coefs[0, :] += 0.1
    among = np.zeros((MANY, n))
    among[np.arange(n_said) * 7 + 3] = coefs
    few, many = (learner_with(vectors, held, **settings) for held in (coefs, among))
    assert sparse_coefs.is_sparse(many._state)
    assert not sparse_coefs.is_sparse(few._state)
    return few, many


SETTINGS = {
    "merge": {},
    "merge several": {"merges": 4},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_classes_that_nothing_is_said_about_change_nothing_of_maintenance(settings):
    few, many = pair(12, settings)
    while few.n_support_vectors > 4:
        for model in (few, many):
            maintain(model)
        n = few.n_support_vectors
        assert many.n_support_vectors == n
        np.testing.assert_allclose(many._state.vectors[:, :n], few._state.vectors[:, :n], rtol=1e-5, atol=1e-6)
        found = class_coefs(many._state)[0]
        np.testing.assert_allclose(found[3::7][:5], class_coefs(few._state)[0], rtol=1e-4, atol=1e-6)
        assert np.count_nonzero(found.any(axis=1)) <= 5


def stream(n, n_classes, seed=0):
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.normal(size=(n_classes, 4))
    which = rng.integers(n_classes, size=n)
    return centres[which] + rng.normal(size=(n, 4)), which.tolist()


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": "log", "learning_rate": 0.5},
        {"heads": (("hinge", 1.0), ("log", 0.5))},
    ],
)
def test_scores_are_the_expansion_in_plain_numpy(settings):
    X, y = stream(900, 150)
    model = BSGDClassifier(budget=60, absorb=0.9, scaling="none", **settings)
    model.learn_many(X, y)
    state, held = model._state, model.model
    model.run_rows(model.encode(X[:1]), predict=False, score=True)
    expected = held.coefs @ gram(np.sqrt(held.relevance) * held.vectors, np.sqrt(held.relevance) * X[:1], held.gamma)
    head, n = int(state.heads.weight.argmax()), len(held.classes)
    found = state.split("scores")[head, :n]
    np.testing.assert_allclose(found, expected[:, 0] + held.biases, rtol=1e-3, atol=1e-4)


def test_a_vector_says_most_about_the_classes_that_keep_their_seats():
    _, many = pair(3, {})
    state = many._state
    before = np.abs(class_coefs(state)[0, :, 0])
    taken = int(state.taken[0])
    for c in range(MANY):
        e = sparse_coefs.find_sparse_coef(state, 0, c)
        if before[c] == 0.0:
            state.coefs[e, 0] = 1e-3 * (1 + c)
    after = class_coefs(state)[0, :, 0]
    assert state.taken[0] == sparse_coefs.MAX_SPARSE_COEFS
    assert np.count_nonzero(after) == sparse_coefs.MAX_SPARSE_COEFS
    assert (np.abs(after)[before > 0.2] > 0.2).all()
    assert taken < sparse_coefs.MAX_SPARSE_COEFS
    assert np.flatnonzero(after)[-1] == MANY - 1  # the latest always has a coefficient


def test_vectors_are_seated_when_one_class_too_many_comes():
    X, y = stream(400, sparse_coefs.MAX_SPARSE_COEFS)
    model = BSGDClassifier(budget=50, heads=(("hinge", 1.0), ("log", 0.5)), scaling="none")
    model.learn_many(X, y)
    state = model._state
    assert state.n_classes == sparse_coefs.MAX_SPARSE_COEFS
    assert not sparse_coefs.is_sparse(state)
    before = class_coefs(state)
    model._code("new")
    support.open_classes(model._state, sparse_coefs.MAX_SPARSE_COEFS + 1)
    assert sparse_coefs.is_sparse(model._state)
    np.testing.assert_array_equal(class_coefs(model._state)[:, :-1], before)
    assert not class_coefs(model._state)[:, -1].any()


def test_sizes_are_those_of_the_seats_taken():
    X, y = stream(600, 2 * sparse_coefs.MAX_SPARSE_COEFS)
    model = BSGDClassifier(budget=30, absorb=0.7, heads=(("hinge", 1.0), ("log", 0.5)), scaling="none")
    for start in range(0, 600, 100):
        model.learn_many(X[start : start + 100], y[start : start + 100])
        state = model._state
        held = state.squares.copy()
        support.measure_all(state)
        np.testing.assert_array_equal(state.squares, held)
        n = model.n_support_vectors
        np.testing.assert_allclose(held[:, :n], (class_coefs(state) ** 2).sum(axis=1), rtol=1e-4)
        assert not held[:, n:].any()
    assert sparse_coefs.is_sparse(state)


def test_two_classes_become_very_many_at_once():
    """For example for a member that was inactive meanwhile."""
    X, y = stream(100, 2)
    model = BSGDClassifier(budget=20, scaling="none")
    model.learn_many(X, y)
    for c in range(2, MANY):
        model._code(c)
    model._grow()
    held = model._state.split("coefs")[0, 1, : model.n_support_vectors].copy()
    support.open_classes(model._state, MANY)
    assert sparse_coefs.is_sparse(model._state)
    found = class_coefs(model._state)[0]
    np.testing.assert_array_equal(found[:2], [-held, held])
    assert not found[2:].any()
    kept = model._state.squares.copy()
    support.measure_all(model._state)
    np.testing.assert_array_equal(model._state.squares, kept)
