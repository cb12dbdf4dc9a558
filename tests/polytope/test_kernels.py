"""Step of the convex polytope machine, against a slow reference."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import CPMClassifier
from streamsvm.polytope import kernels
from tests.choices import each_choice
from tests.learners import arrays_of, assert_same_knowledge, changed, with_constants


class Polytope:
    """Faces of a class, with the bias first, and the assignments of positives."""

    def __init__(self, k: int, d: int) -> None:
        self.W = np.zeros((k, d + 1))
        self.steps = 0
        self.learned = 0
        self.choices: list[int] = []  # faces, the latest last

    def scores(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        # Column by column, so that equal faces have bit-identical scores.
        return functools.reduce(np.add, (value * self.W[:, j] for j, value in enumerate(x)))


def entropy(counts: np.ndarray[Any, Any]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class Twin:
    """Algorithms 1 and 2 with W itself, and entropies from all assignments.

    W is shrunk at each step.
    """

    def __init__(
        self,
        n_faces: int = 4,
        l2: float = 0.01,
        horizon: float = 3_000,
        entropy: float = 0.5,
        memory: float = 1_000,
        class_weight: Any = None,
    ) -> None:
        self.k, self.l2, self.horizon = n_faces, l2, horizon
        self.least_entropy = entropy * math.log(n_faces)
        self.keep = 1.0 - 1.0 / memory if memory > 1 else 1e-6
        self.class_weight = class_weight
        self.polytopes: dict[Any, Polytope] = {}
        self.seen = 0

    def learn(self, row: np.ndarray[Any, Any], label: Any, weight: float = 1.0) -> None:
        """Perform one step."""
        x = np.concatenate([[1.0], np.nan_to_num(row)])
        own = self.polytopes.setdefault(label, Polytope(self.k, len(row)))
        first = next(iter(self.polytopes.values()))
        if own.learned == 0 and len(self.polytopes) > 2:
            own.steps = first.steps
        self.seen += 1
        own.learned += 1
        if self.class_weight == "balanced":
            weight *= self.seen / (len(self.polytopes) * own.learned)
        elif self.class_weight is not None:
            weight *= self.class_weight.get(label, 1.0)
        several, tops = len(self.polytopes) > 2, {id(p): p.scores(x).max() for p in self.polytopes.values()}
        rivals = {i for i, top in tops.items() if i != id(own) and top > tops[id(own)] - 1.0}
        for polytope in self.polytopes.values():
            scores = polytope.scores(x)
            t = min(polytope.steps + 2, self.horizon)
            step = weight / (self.l2 * t)
            if polytope is own:
                if rivals if several else scores.max() < 1.0:
                    polytope.W[self.assign(polytope, scores)] += step * x
            elif not several:
                polytope.W[scores > -1.0] -= step * x
            elif id(polytope) in rivals:
                polytope.W[scores == scores.max()] -= step / len(rivals) * x
            polytope.W *= 1.0 - 1.0 / t
            polytope.steps += 1

    def counts(self, polytope: Polytope) -> np.ndarray[Any, Any]:
        """Return decayed numbers of positives by face, in units of the next one."""
        counts = np.zeros(self.k)
        for age, face in enumerate(reversed(polytope.choices), start=1):
            counts[face] += self.keep**age
        return counts

    def assign(self, polytope: Polytope, scores: np.ndarray[Any, Any]) -> int:
        best = int(scores.argmax())
        if self.least_entropy == 0.0:
            return best
        counts, chosen = self.counts(polytope), best
        raised = counts + np.eye(self.k)
        if polytope.choices and entropy(raised[best]) < self.least_entropy:
            better = [k for k in range(self.k) if entropy(raised[k]) > entropy(counts) + 1e-12]
            chosen = max(better, key=lambda k: scores[k], default=best)
        polytope.choices.append(best)
        return chosen

    def faces(self) -> np.ndarray[Any, Any]:
        return np.array([polytope.W for polytope in self.polytopes.values()])


def assert_like_twin(model: CPMClassifier, twin: Twin) -> None:
    learned = model.model
    assert learned.classes == list(twin.polytopes)
    faces = np.concatenate([learned.biases[:, :, None], learned.faces], axis=2)
    np.testing.assert_allclose(faces, twin.faces(), rtol=1e-9, atol=1e-9)


def stream(n: int, seed: int, n_classes: int = 3, d: int = 4) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Classes of two clusters each, which need several faces; the last comes late."""
    rng = np.random.default_rng(seed)
    centres = 2.0 * rng.normal(size=(n_classes, 2, d))
    y = rng.integers(0, n_classes, n)
    y[: n // 3] %= n_classes - 1
    return centres[y, rng.integers(0, 2, n)] + rng.normal(size=(n, d)), y


def model_with(memory: int = 1_000, **params: Any) -> CPMClassifier:
    return with_constants(CPMClassifier, memory=memory)(scaling="none", **params)


def assert_learns_like_twin(
    n: int = 300, seed: int = 0, weights: Any = None, n_classes: int = 3, **params: Any
) -> None:
    X, y = stream(n, seed, n_classes)
    model, twin = model_with(**params), Twin(**params)
    for start in range(0, n, 50):
        part = slice(start, start + 50)
        model.learn_many(X[part], y[part], None if weights is None else weights[part])
        for i in range(start, start + 50):
            twin.learn(X[i], y[i], 1.0 if weights is None else weights[i])
        assert_like_twin(model, twin)


@pytest.mark.parametrize(
    "params",
    [
        pytest.param({}, id="as by default"),
        pytest.param({"memory": 1}, id="no memory"),
        pytest.param({"horizon": 2, "l2": 0.5}, id="shortest horizon"),
        pytest.param({"class_weight": {1: 3.0, 2: 0.0}}, id="class weights"),
        pytest.param({"n": 200, "n_classes": 120, "n_faces": 1}, id="many classes"),
        pytest.param({"weights": np.random.default_rng(1).uniform(0.1, 5.0, 300)}, id="weights of events"),
    ],
)
def test_learning_is_that_of_the_twin(params):
    assert_learns_like_twin(**params)


@settings(max_examples=12)
@given(
    n_faces=st.integers(1, 9),
    l2=st.floats(1e-4, 10.0),
    horizon=st.integers(2, 400),
    entropy=st.floats(0.0, 0.99),
    memory=st.integers(2, 300),
    class_weight=st.sampled_from([None, "balanced"]),
    seed=st.integers(0, 1_000),
)
def test_learning_equals_the_reference_for_all_settings(seed, **params):
    assert_learns_like_twin(n=100, seed=seed, **params)


def test_an_event_of_weight_zero_is_not_learned():
    X, y = stream(200, 2)
    weights = np.where(np.arange(200) % 3 == 0, 0.0, 1.0)
    with_zeros, without = CPMClassifier(), CPMClassifier()
    with_zeros.learn_many(X, y, weights)
    without.learn_many(X[weights > 0], y[weights > 0])
    assert_same_knowledge(with_zeros, without)


def test_the_entropy_leads_many_passes_out_of_poor_optima():
    rng = np.random.default_rng(12)
    X = rng.uniform(-1, 1, size=(2000, 2))
    y = np.abs(X[:, 0]) + np.abs(X[:, 1]) < 0.8

    def accuracy(entropy, seed):
        model = CPMClassifier(n_faces=8, l2=1e-5, horizon=10**9, entropy=entropy)
        drawn = np.random.default_rng(seed).integers(0, len(X), 400_000)
        model.learn_many(X[drawn], y[drawn])
        return np.mean(model.predict_many(X) == y)

    even, plain = ([accuracy(entropy, seed) for seed in range(4)] for entropy in (0.8, 0.0))
    assert np.mean(even) > 0.96
    assert np.mean(plain) < np.mean(even) - 0.03


# Optimisations ---------------------------------------------------------------------------------------------------


def test_scalars_stay_in_range_on_a_long_stream():
    X, y = stream(1_000, 9)
    params = {"horizon": 3, "l2": 1.0}
    model, twin = CPMClassifier(scaling="none", **params), Twin(**params)
    model.learn_many(X, y)
    for row, label in zip(X, y, strict=True):
        for polytope in twin.polytopes.values():
            polytope.choices = polytope.choices[-20_000:]
        twin.learn(row, label)
    assert (arrays_of(model)["classes.scale"] >= kernels.SMALLEST).all()
    assert_like_twin(model, twin)


def test_counts_remain_in_range_on_a_long_stream():
    rng = np.random.default_rng(10)
    X, y = rng.normal(size=(5_000, 2)), rng.integers(0, 2, 5_000)
    model = model_with(memory=2, entropy=0.6, horizon=50, l2=1.0)  # the next count doubles each time
    model.learn_many(X, y)
    found = arrays_of(model)
    assert all(np.isfinite(array).all() for array in found.values())
    assert (found["classes.next_count"] <= 1e101).all()
    np.testing.assert_allclose(found["counts"].sum(axis=1), found["classes.count"], rtol=1e-9)


@each_choice(("k", [1, 2, 3, 4, 5, 8, 11, 17, 200]), ("d", range(7)))
def test_scores_are_products_and_the_largest_is_found(k, d):
    """Covers all remainders of unrolled loops."""
    rng = np.random.default_rng(100 * k + d)
    model = CPMClassifier(n_faces=k, scaling="none")
    X = rng.normal(size=(60, d))
    model.learn_many(X, rng.integers(0, 3, 60))
    model = changed(model, {"calibration.gain": 0.0})  # disables the noise estimate
    x = rng.normal(size=(1, d))
    _, proba = model.test_then_train(x, [None], proba=True)
    beta = float(arrays_of(model)["inverse_temperature"])
    f = beta * (model.model.decision_function(x)[0] if d else model.model.biases.max(axis=1))
    np.testing.assert_allclose(proba[0], np.exp(f) / np.exp(f).sum(), rtol=1e-6)


# The objective ---------------------------------------------------------------------------------------------------


def test_long_training_reaches_the_minimum_of_the_objective():
    """With a face per class, it is a linear SVM, which scikit-learn also solves."""
    svm = pytest.importorskip("sklearn.svm")
    rng = np.random.default_rng(13)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=200) > 0.0
    l2 = 0.05
    model = CPMClassifier(n_faces=1, l2=l2, scaling="none", horizon=10**9)
    drawn = rng.integers(0, len(X), 400_000)
    model.learn_many(X[drawn], y[drawn])

    def objective(w: np.ndarray[Any, Any]) -> float:
        margins = np.where(y, 1.0, -1.0) * (X @ w[1:] + w[0])
        return float(l2 / 2.0 * w @ w + np.maximum(0.0, 1.0 - margins).mean())

    c = model.classes_.index(True)
    learned = np.concatenate([model.model.biases[c], model.model.faces[c, 0]])
    solver = svm.LinearSVC(C=1.0 / (l2 * 200), loss="hinge", tol=1e-8, max_iter=10**6, fit_intercept=False)
    best = solver.fit(np.column_stack([np.ones(200), X]), y).coef_[0]  # the bias is penalised as well
    assert objective(learned) <= 1.002 * objective(best)
