"""Growing forest as a member, compared with plain Python, and where it gains."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

import streamsvm
from streamsvm import StreamSVMClassifier
from streamsvm.ensemble.forest import FOREST, LEAST_GAIN, PER_NODE, SAMPLE, SPLIT, STORED, TRIED, draw, draw_bits
from streamsvm.ensemble.members import members_of
from streamsvm.ensemble.trees import MOST_COLUMNS
from streamsvm.models.saved import from_state
from tests.learners import arrays_of

f32 = np.float32


def cells(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy events whose class is random by cell of two columns of three."""
    rng = np.random.default_rng(0)
    grid, rng = rng.integers(n_classes, size=(8, 8)), np.random.default_rng(seed)
    X = rng.uniform(0.0, 8.0, (n, 3))
    y = grid[X[:, 0].astype(int), X[:, 1].astype(int)]
    return X, np.where(rng.random(n) < 0.05, rng.integers(n_classes, size=n), y)


@dataclass
class Node:
    events: list[int] = field(default_factory=list)
    split: tuple[int, f32] | None = None
    children: tuple[Node, ...] = ()


class Oracle:
    """Trees over all events, which are lists of events."""

    def __init__(self, X: np.ndarray, y: np.ndarray, n_classes: int) -> None:
        self.X, self.y, self.n_classes, self.rng = X, y, n_classes, np.zeros(1, np.uint64)
        self.roots, self.n_nodes = [Node() for _ in range(FOREST)], [1] * FOREST

    def learn(self, i: int) -> None:
        for t, node in enumerate(self.roots):
            while node.split is not None:
                node = node.children[int(self.X[i, node.split[0]] > node.split[1])]
            node.events.append(i)
            n, n_same = len(node.events), np.sum(self.y[node.events] == self.y[i])
            room = self.n_nodes[t] + 2 <= (i + 1) // PER_NODE
            due = n % SPLIT == 0 and n_same < n if n <= SAMPLE else n % SAMPLE == 0 and 4 * n_same < 3 * n
            if due and room:
                self.divide(t, node)

    def divide(self, t: int, node: Node) -> None:
        counts = np.bincount(self.y[node.events], minlength=self.n_classes)
        signs = np.array([1 if int(draw(self.rng, 2)) == 0 else -1 for _ in counts])
        most, second = np.argsort(-counts, kind="stable")[:2]
        signs[second] = -signs[most]
        sample = node.events[:: -(-len(node.events) // SAMPLE)]
        n, best, groups = len(sample), LEAST_GAIN, signs[self.y[sample]]
        for _ in range(TRIED):
            bits = int(draw_bits(self.rng))
            j, a, b = ((bits >> 16 * k & 65535) * m >> 16 for k, m in enumerate((self.X.shape[1], n, n)))
            low, high = sorted((self.X[sample[a], j], self.X[sample[b], j]))
            if low == high:
                continue
            threshold = low + f32(bits >> 48) / f32(65536.0) * (high - low)
            threshold = threshold if threshold < high else low
            is_above = self.X[sample, j] > threshold
            parts = [groups[is_above], groups[~is_above]]
            gain = sum(part.sum() ** 2 / len(part) for part in parts) - groups.sum() ** 2 / n
            if gain > best:
                best, node.split = gain, (int(j), threshold)
        if node.split is not None:
            j, threshold = node.split
            parts = [[i for i in node.events if (self.X[i, j] > threshold) == side] for side in (False, True)]
            node.children, node.events = tuple(map(Node, parts)), []
            self.n_nodes[t] += 2


def nodes_of(state: dict[str, np.ndarray], t: int) -> Node:
    """Return the root of tree t of a saved forest."""
    splits, thresholds = (state[f"1.{name}"].reshape(FOREST, -1)[t] for name in ("splits", "thresholds"))

    def node(k: int) -> Node:
        if splits[k] < 0:
            return Node()
        child, column = divmod(int(splits[k]), MOST_COLUMNS)
        return Node(split=(column, thresholds[k]), children=(node(child), node(child + 1)))

    return node(0)


def assert_same_splits(a: Node, b: Node) -> None:
    assert a.split == b.split
    for mine, theirs in zip(a.children, b.children, strict=True):
        assert_same_splits(mine, theirs)


def forest() -> StreamSVMClassifier:
    return StreamSVMClassifier(members=("forest",), label_autocorrelation=False)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_trees_grow_like_those_of_plain_python(n_classes):
    X, y = cells(900, n_classes)
    model = forest()
    model.test_then_train(X, y)
    state = arrays_of(model)
    oracle = Oracle(state["1.values"][: len(X), : X.shape[1]], state["1.labels"][: len(X)], n_classes)
    for i in range(len(X)):
        oracle.learn(i)
    for t in range(FOREST):
        assert oracle.n_nodes[t] == state["1.n_nodes"][t] > 50
        assert_same_splits(oracle.roots[t], nodes_of(state, t))


@pytest.fixture
def old() -> StreamSVMClassifier:
    """Return a forest that has replaced events, and whose concept has changed."""
    model = forest()
    for seed in range(2):
        X, y = cells(STORED - 1_000, 3, seed)
        model.test_then_train(X, (y + seed) % 3)
    return model


def test_a_restored_forest_continues_bit_for_bit(old, tmp_path):
    # Its lists of events are made again from the stored events and the splits.
    old.save(tmp_path / "model.npz")
    copy = streamsvm.load(tmp_path / "model.npz")
    X, y = cells(3_000, 3, seed=2)
    np.testing.assert_array_equal(old.test_then_train(X, y), copy.test_then_train(X, y))
    for name, array in arrays_of(old).items():
        np.testing.assert_array_equal(array, arrays_of(copy)[name])


def test_forest_learns_a_class_that_depends_on_many_cells():
    X, y = cells(6_000, 2)
    right = {}
    for members in (("forest",), ("trees",)):
        model = StreamSVMClassifier(members=members, label_autocorrelation=False)
        right[members] = np.mean((np.array(model.test_then_train(X, y)) == y)[3_000:])
    assert right["forest",] > right["trees",]
    assert right["forest",] > 0.9


def test_memory_that_grows_with_the_events_changes_nothing():
    X, y = cells(STORED + 2_000, 3)
    whole, parts = forest(), forest()
    expected = whole.test_then_train(X, y)
    found = [parts.test_then_train(X[i : i + 700], y[i : i + 700]) for i in range(0, len(X), 700)]
    np.testing.assert_array_equal(np.concatenate(found), expected)


def test_single_events_equal_rows_while_memory_grows():
    X, y = cells(1_100, 3)
    rows, singly = forest(), forest()
    expected, found = rows.test_then_train(X, y), []
    for x, label in zip(X.tolist(), y.tolist(), strict=True):
        found.append(singly.predict_one(dict(enumerate(x))))
        singly.learn_one(dict(enumerate(x)), label)
    assert found == list(expected)


@pytest.mark.parametrize("labels", [[0], [0, 1, 0, 1]])
def test_a_forest_without_columns_is_restored(labels):
    model = forest()
    for label in labels:
        model.learn_one({}, label)
    copy = from_state(*model.state())
    for one in (model, copy):
        one.learn_one({"a": 1.0}, 0)
    assert copy.predict_proba_one({"a": 1.0}) == model.predict_proba_one({"a": 1.0})


def test_parents_of_second_nodes_are_not_trusted(old):
    header, arrays = old.state()
    parents = arrays["1.parents"].copy()
    parents[:, 2::2] = STORED
    copy = from_state(header, arrays | {"1.parents": parents})
    X, y = cells(2_000, 3, seed=2)
    np.testing.assert_array_equal(old.test_then_train(X, y), copy.test_then_train(X, y))


def test_a_leaf_that_no_split_divides_is_not_visited_at_every_event():
    # In a full store, equal rows keep the number of events of a leaf at a multiple of SAMPLE.
    X, y = np.ones((STORED + 200, 2)), np.arange(STORED + 200) % 10
    model = forest()
    model.test_then_train(X[:STORED], y[:STORED])
    drawn, n_visits = members_of(model._state)[0].rng, 0
    for x, label in zip(X[STORED:].tolist(), y[STORED:].tolist(), strict=True):
        before = int(drawn[0])
        model.learn_one(dict(enumerate(x)), label)
        n_visits += int(drawn[0]) != before
    assert n_visits == 200 // SAMPLE


def test_equal_rows_at_the_start_do_not_prevent_divisions_of_balanced_classes():
    X, y = cells(2_000, 2)
    X[:200], y[:200] = 1.0, np.arange(200) % 2
    model = forest()
    right = np.array(model.test_then_train(X, y)) == y
    assert np.mean(right[1_000:]) > 0.7
