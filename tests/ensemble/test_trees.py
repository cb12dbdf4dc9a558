"""Boosted trees as a member, compared with numpy, and where they gain."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from streamsvm.ensemble import trees
from streamsvm.ensemble.trees import DEPTH, EDGES, EVERY, EVERY_EARLY, FIRST, LEAVES, PENALTY, RATE, SAMPLE, TREES, draw
from tests.learners import arrays_of

f32 = np.float32


class Oracle:
    """The trees of at most STORED events, with all outputs computed from the trees."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes, self.rng, self.n_built = n_classes, np.zeros(1, np.uint64), 0
        self.trees: list[tuple[list[int], list[float], np.ndarray]] = []

    def draw(self, n: int) -> int:
        return int(draw(self.rng, n))

    def outputs(self, X: np.ndarray) -> np.ndarray:
        total = np.zeros((len(X), self.n_classes))
        for columns, thresholds, leaves in self.trees:
            total += leaves[self.leaf(X, columns, thresholds)]
        return total

    def leaf(self, X: np.ndarray, columns: list[int], thresholds: list[float]) -> np.ndarray:
        found = np.zeros(len(X), int)
        for j, threshold in zip(columns, thresholds, strict=True):
            found = 2 * found + (X[:, j] > threshold)
        return found

    def build(self, X: np.ndarray, y: np.ndarray) -> None:
        if self.n_built >= TREES:
            self.trees.pop(0)
        n, m = self.n_classes, min(len(X), SAMPLE)
        direction = np.array([1.0 if self.draw(2) == 0 else -1.0 for _ in range(n)])
        c = self.draw(n)
        direction[(c + 1 + self.draw(n - 1)) % n] = -direction[c]
        sample = np.array([self.draw(len(X)) for _ in range(m)])
        exponentials = np.exp(self.outputs(X[sample]))
        proba = exponentials / exponentials.sum(axis=1, keepdims=True)
        gradients = np.eye(n)[y[sample]] - proba
        slopes = gradients @ direction
        edges = {}
        for j in range(min(X.shape[1], trees.TRIED)):
            edges[j] = np.sort([X[sample[self.draw(m)], j] for _ in range(EDGES)])
        columns, thresholds = [], []
        for _ in range(DEPTH):
            leaf = self.leaf(X[sample], columns, thresholds)
            gains = {(j, e): self.gain(leaf, X[sample, j] > x, slopes) for j in edges for e, x in enumerate(edges[j])}
            j, e = max(gains, key=lambda pair: gains[pair])
            columns.append(j)
            thresholds.append(edges[j][e])
        leaf, leaves = self.leaf(X[sample], columns, thresholds), np.zeros((LEAVES, n))
        for k in range(LEAVES):
            of_leaf = leaf == k
            curvature = (proba[of_leaf] * (1.0 - proba[of_leaf])).sum(axis=0)
            leaves[k] = RATE * (n - 1) / n * gradients[of_leaf].sum(axis=0) / (curvature + PENALTY / 4.0)
        self.trees.append((columns, thresholds, leaves))
        self.n_built += 1

    def gain(self, leaf: np.ndarray, is_above: np.ndarray, slopes: np.ndarray) -> float:
        cells = 2 * leaf + is_above
        sums, counts = np.bincount(cells, slopes, 2 * LEAVES), np.bincount(cells, minlength=2 * LEAVES)
        return float((sums**2 / (counts + PENALTY)).sum())


def stripes(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return events whose class depends on two columns out of four, in stripes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 4))
    y = (np.floor(3.0 * (X[:, 0] + 1.0)) + (X[:, 1] > 0.2)).astype(int) % n_classes
    return X, np.where(rng.random(n) < 0.1, rng.integers(n_classes, size=n), y)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_equal_those_of_plain_numpy(n_classes):
    X, y = stripes(700, n_classes)
    model = StreamSVMClassifier(members=("trees",), label_autocorrelation=False)
    model.test_then_train(X, y)
    state = arrays_of(model)
    values, labels = state["1.values"].T[: len(X), :4], state["1.labels"][: len(X)]
    oracle = Oracle(n_classes)
    for n in range(FIRST, len(X) + 1, EVERY_EARLY):
        oracle.build(values[:n], labels[:n])
    assert oracle.n_built == state["1.n_built"] > 5
    for t, (columns, thresholds, leaves) in enumerate(oracle.trees):
        assert state["1.columns"][t].tolist() == columns
        np.testing.assert_array_equal(state["1.thresholds"][t], np.array(thresholds, f32))
        found = state["1.leaves"].reshape(-1, LEAVES, state["1.outputs"].shape[1])[t, :, :n_classes]
        np.testing.assert_allclose(found, leaves, rtol=1e-3, atol=1e-5)
    outputs = state["1.outputs"][: len(X), :n_classes]
    np.testing.assert_allclose(outputs, oracle.outputs(values), rtol=1e-3, atol=1e-4)


def test_outputs_stay_the_sums_of_the_trees_while_events_and_trees_are_replaced():
    X, y = stripes(TREES * EVERY_EARLY + 8 * EVERY, 2)
    model = StreamSVMClassifier(members=("trees",), label_autocorrelation=False)
    model.test_then_train(X, y)
    state, oracle = arrays_of(model), Oracle(2)
    assert state["1.n_built"] > TREES
    leaves = state["1.leaves"].reshape(TREES, LEAVES, -1)[:, :, :2]
    oracle.trees = list(zip(state["1.columns"].tolist(), state["1.thresholds"].tolist(), leaves, strict=True))
    np.testing.assert_allclose(state["1.outputs"][:, :2], oracle.outputs(state["1.values"].T), atol=1e-3)


@pytest.mark.parametrize("member", ["trees", "naive-bayes"])
def test_members_that_do_not_take_many_classes_cost_no_accuracy(member):
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.integers(2, size=400), rng.integers(100, size=2_000)])
    X = rng.normal(size=(len(y), 3)) + 5.0 * np.random.default_rng(1).normal(size=(100, 3))[y]
    right = []
    for members in (("linear", member), ("linear",)):
        model = StreamSVMClassifier(members=members, label_autocorrelation=False)
        right.append(np.mean(np.array(model.test_then_train(X, y)) == y))
    assert abs(right[0] - right[1]) < 0.005
