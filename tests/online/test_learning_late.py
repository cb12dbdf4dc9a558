"""The default classifier with late labels."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from tests.learners import NOTES, arrays_of, assert_same_knowledge, knowledge


def learn_late(model, X, y, delay, cut=512, *, first=0, every=1, together=1):
    """Return predictions with labels `delay` events late, in batches of `cut` rows.

    One in `every` events from `first` on is labelled. Their labels arrive `together` at once.
    """
    memories, n = np.zeros((len(y), model.memory_size), np.int64), len(y)
    arrives = [i // together * together + together - 1 + delay for i in range(n)]
    order = [(i, False) for i in range(n)] + [(i, True) for i in range(first, n, every)]
    order.sort(key=lambda at: (arrives[at[0]] if at[1] else at[0], at[1], at[0]))
    predicted = np.zeros(n, np.int64)
    for start in range(0, len(order), cut):
        at, learns = map(np.array, zip(*order[start : start + cut], strict=True))
        labels = [y[i] if learned else None for i, learned in zip(at.tolist(), learns.tolist(), strict=True)]
        codes, _ = model.run_batch(X[at], labels, memories=memories, memory_rows=at + 1)
        predicted[at[~learns]] = codes[~learns]
    return predicted


def test_experts_are_weighed_by_what_they_answered():
    """A concept of 50 events is learnable at once, but not 50 events late."""
    n = 3_000
    X = np.random.default_rng(3).normal(size=(n, 2))
    turning, lasting = (np.arange(n) // 50) % 2 == 1, X[:, 1] > 0.3
    y = (np.where(np.abs(X[:, 0]) > 0.5, (X[:, 0] > 0) ^ turning, lasting)).astype(int).tolist()
    at_once, late = (StreamSVMClassifier(effort="low", label_autocorrelation=False) for _ in range(2))
    at_once.test_then_train(X, y)
    predicted = learn_late(late, X, y, 50)
    classes, tail = np.array(late.classes_), slice(1_000, None)
    right = np.mean(classes[predicted[tail]] == np.array(y)[tail])
    assert at_once.leaders()[0]["accuracy"] > 0.65
    assert late.leaders()[0]["accuracy"] == pytest.approx(right, abs=0.06)


def linear_head(state, h):
    """Return the weights of a head of the linear member."""
    n = state.weights.shape[1] // state.rates.size
    return state.weights[:, h * n : (h + 1) * n].copy()


def test_the_last_linear_head_is_the_average_of_the_one_before_while_labels_come_late():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(1_100, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=len(X)) > 0).astype(int).tolist()
    model, average = StreamSVMClassifier(members=("linear",)), np.zeros((1, 1))
    long_ago = np.zeros((1, model.memory_size), np.int64)  # predicted before anything was learned
    for i in range(len(X)):
        model.run_batch(X[i : i + 1], [y[i]], memories=long_ago, memory_rows=np.array([1]))
        state = model.buffer.parts["1"]
        # It starts from the weights of the last head.
        average = linear_head(state, 3) if state.n_averaged < 2 else average
        if state.n_averaged > 0:
            average = average + max(1.0 / (state.n_averaged + 1.0), 0.001) * (linear_head(state, 2) - average)
    found = state.mean_v * linear_head(state, 2) + state.mean_u * linear_head(state, 3)
    np.testing.assert_allclose(found, average, rtol=1e-9, atol=1e-12)
    model.test_then_train(X, y)
    assert arrays_of(model)["1.n_averaged"] == 0


def test_what_is_learned_late_does_not_depend_on_how_rows_come_nor_on_saving():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int).tolist()
    whole, cut = StreamSVMClassifier(budget=20), StreamSVMClassifier(budget=20)
    expected = learn_late(whole, X, y, 40, cut=2_000)
    np.testing.assert_array_equal(learn_late(cut, X, y, 40, cut=37), expected)
    again = StreamSVMClassifier.from_state(*cut.state())
    assert knowledge(again) == knowledge(cut) == knowledge(whole)
    np.testing.assert_array_equal(learn_late(again, X, y, 40), learn_late(whole, X, y, 40))


def test_many_classes_are_learned_late_by_what_is_remembered():
    X, y = np.random.default_rng(7).normal(size=(1_000, 2)), [i % 100 for i in range(1_000)]
    at_once, by_memory, late_ones, cut_ones = (StreamSVMClassifier(effort="low") for _ in range(4))
    expected, _ = at_once.run_batch(X, y)
    np.testing.assert_array_equal(learn_late(by_memory, X, y, 0, 3_000), expected)
    arrays, of_memories = arrays_of(at_once), ("autocorrelation.accuracies", "autocorrelation.late_")
    for name, value in arrays_of(by_memory).items():
        if name.startswith("autocorrelation.") and not (name in NOTES or name.startswith(of_memories)):
            np.testing.assert_array_equal(arrays[name], value, err_msg=name)
    found = learn_late(late_ones, X, y, 7, 3_000)
    np.testing.assert_array_equal(learn_late(cut_ones, X, y, 7, 113), found)
    assert_same_knowledge(cut_ones, late_ones)
    for predicted in (expected, found):
        assert np.mean(predicted[700:] == y[700:]) > 0.9


LATE_LABELS = [{"delay": 300}, {"delay": 300, "first": 10}, {"delay": 250, "together": 50}, {"delay": 301, "every": 2}]
HOURS, RUNS = [i % 24 for i in range(750)], [i // 25 % 4 for i in range(950)]


# Before labels of predictions arrive; the runs are shorter than the delay, so that the last known label is of another.
@pytest.mark.parametrize(
    ("y", "soon", "late"), [*((HOURS, 450, late) for late in LATE_LABELS), (RUNS, 800, {"delay": 60})]
)
def test_a_season_is_predicted_soon_after_the_first_late_label(y, soon, late):
    X = np.random.default_rng(9).normal(size=(len(y), 2))
    model = StreamSVMClassifier(effort="low")
    predicted = learn_late(model, X, y, **late)
    known = slice(soon, None, late.get("every", 1))
    np.testing.assert_array_equal(np.array(model.classes_)[predicted[known]], y[known])


def test_persistent_late_labels_without_a_season_are_the_last_known_ones():
    """With few changes, some lag agrees more often by chance."""
    rng, n, delay = np.random.default_rng(1), 12_000, 100
    y = np.cumsum(rng.random(n) < 0.01) % 2
    model = StreamSVMClassifier(effort="low")
    predicted = learn_late(model, rng.normal(size=(n, 2)), y.tolist(), delay)
    known = y[2_000 - delay - 1 : -delay - 1]
    right = np.array(model.classes_)[predicted[2_000:]] == y[2_000:]
    assert right.mean() > np.mean(known == y[2_000:]) - 0.005


def test_a_noisy_season_is_judged_by_labels_that_it_would_have_named():
    """It counts although it was unknown at the predictions."""
    rng, n, delay = np.random.default_rng(13), 1_300, 300
    y = np.where(rng.random(n) < 0.2, rng.integers(3, size=n), rng.integers(3, size=100)[np.arange(n) % 100])
    model = StreamSVMClassifier(effort="low")
    predicted = learn_late(model, rng.normal(size=(n, 2)), y.tolist(), delay)
    right = np.array(model.classes_)[predicted] == y
    assert right[900:].mean() > np.mean(y[900:] == y[500:-400]) - 0.03


def test_a_season_that_ends_before_its_labels_arrive_costs_little():
    """Labels follow a season at first, and the features from then on."""
    rng = np.random.default_rng(10)
    X, n = rng.normal(size=(2_000, 2)), 2_000
    y = np.where(np.arange(n) < 300, np.arange(n) % 6, np.where(X[:, 0] > 0.0, 1, 0)).tolist()
    right = []
    for uses in (True, False):
        model = StreamSVMClassifier(effort="low", label_autocorrelation=uses)
        predicted = learn_late(model, X, y, 250)
        right.append(np.sum(np.array(model.classes_)[predicted[600:]] == np.array(y)[600:]))
    assert right[0] > right[1] - 165  # two thirds of the events of a delay
