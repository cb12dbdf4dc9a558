"""Labels of earlier equal rows: a reference implementation, and streams."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import DelayedClassifier, StreamSVMClassifier
from streamsvm.ensemble import delayed_votes, repeats
from streamsvm.features.scaler import UNLIMITED
from tests.learners import interpreted

N_CLASSES = 3
add_repeats, find_labels, learn_weights, store_label = (
    interpreted(kernel)
    for kernel in (repeats.add_repeats, repeats.find_labels, repeats.learn_weights, repeats.store_label)
)
# Products of hashes overflow, as in compiled code.
pytestmark = pytest.mark.filterwarnings("ignore:overflow")
EVENTS = st.lists(st.tuples(st.integers(1, 8), st.integers(0, N_CLASSES - 1)), max_size=60)


def fresh():
    state = repeats.new_repeats(N_CLASSES, UNLIMITED)
    state.n_buckets = repeats.BUCKETS
    return state


def labels_of(state, key):
    state.last = 0.0  # the row learned last has none
    labels = find_labels(state, key)
    return [label for i in range(repeats.LABELS) if (label := delayed_votes.answer_in.py_func(labels, i)) >= 0]


@settings(max_examples=20)
@given(EVENTS)
def test_the_last_labels_of_the_rows_learned_last_are_known(events):
    state, known, last = fresh(), {}, None
    for key, label in events:
        key = float(key << 40)  # a few buckets, so that some are full
        store_label(state, key, label, repeats.FIRST_EVENTS)
        known[key] = [label, *known.pop(key, [])[key == last :]][: repeats.LABELS]
        last = key
    buckets = {}
    for key in known:
        buckets.setdefault(int(repeats.bucket_of.py_func(key, repeats.BUCKETS)), []).append(key)
    for keys in buckets.values():
        assert [labels_of(state, key) for key in keys[-repeats.WAYS :]] == [known[k] for k in keys[-repeats.WAYS :]]
        assert not any(labels_of(state, key) for key in keys[: -repeats.WAYS])


def test_the_table_grows_with_repeated_rows():
    state = repeats.new_repeats(N_CLASSES, UNLIMITED)
    for key in range(1, 2_000):
        store_label(state, float(key), 0, repeats.FIRST_EVENTS)
    assert np.count_nonzero(state.keys) <= repeats.FIRST_BUCKETS * repeats.WAYS
    for key in [*range(1, 801)] * 2:
        for _ in range(2):
            state.last = 0.0
            store_label(state, float(key), 0, repeats.FIRST_EVENTS)
    assert state.n_buckets == repeats.BUCKETS
    assert np.mean([bool(labels_of(state, float(key))) for key in range(1, 801)]) > 0.95


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=repeats.LABELS), max_size=20), st.data())
def test_probabilities_are_posterior_means_and_weights_posterior_probabilities(rows, data):
    state, strengths = fresh(), np.array(repeats.STRENGTHS)
    first = np.array(repeats.FIRST_WEIGHTS)
    weights = first.copy()
    for places in rows:
        p = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=N_CLASSES, max_size=N_CLASSES)))
        p /= p.sum()
        state.n_found, state.places[: len(places)] = len(places), places
        counts = np.bincount(places, minlength=N_CLASSES)
        means = (counts + strengths[:, None] * p) / (len(places) + strengths[:, None])
        means = np.vstack([means, p])
        proba, state.before[:] = np.empty(N_CLASSES), p
        add_repeats(state, N_CLASSES, N_CLASSES, proba)
        np.testing.assert_allclose(proba, weights @ means, rtol=1e-9)
        assert proba.sum() == pytest.approx(1.0)
        label = data.draw(st.integers(0, N_CLASSES - 1))
        learn_weights(state, label)
        state.accuracies[:] = 0.0
        weights *= means[:, label]
        weights = (1.0 - repeats.SWITCH) * weights / weights.sum() + repeats.SWITCH * first
        np.testing.assert_allclose(state.weights, weights, rtol=1e-9)


def repeated_rows(n, n_rows=300, noise=0.0, seed=0):
    """Return rows of codes, each with a label that other rows say nothing about."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.integers(0, 2, (n_rows, 24)).astype(float), rng.integers(0, N_CLASSES, n_rows)
    at = rng.integers(0, n_rows, n)
    flipped = rng.random(n) < noise
    return rows[at], np.where(flipped, rng.integers(0, N_CLASSES, n), labels[at])


@pytest.mark.parametrize("effort", ["low", "normal"])
def test_labels_that_only_equal_rows_tell_are_predicted(effort):
    X, y = repeated_rows(4_000)
    predicted = StreamSVMClassifier(effort=effort).test_then_train(X, y)
    assert np.mean(np.asarray(predicted[2_500:]) == y[2_500:]) > 0.99


def test_probabilities_follow_the_noise_of_the_labels():
    X, y = repeated_rows(6_000, n_rows=100, noise=1.0)
    _, proba = StreamSVMClassifier(effort="low").test_then_train(X, y, proba=True)
    assert -np.log(proba[np.arange(3_000, 6_000), y[3_000:]]).mean() < np.log(N_CLASSES) + 0.02


def test_the_most_frequent_label_is_predicted_if_rows_say_nothing():
    rng, n = np.random.default_rng(0), 8_000
    X, y = rng.integers(0, 5, (n, 1)).astype(float), np.minimum(rng.zipf(1.5, n) - 1, 39)
    predicted = np.asarray(StreamSVMClassifier(effort="low", label_autocorrelation=False).test_then_train(X, y))
    assert np.mean(predicted[2_000:] == y[2_000:]) > np.mean(y[2_000:] == 0) - 0.002


def test_changed_labels_of_rows_are_learned():
    X, y = repeated_rows(6_000)
    y[3_000:] = (y[3_000:] + 1) % N_CLASSES
    predicted = np.asarray(StreamSVMClassifier(effort="low").test_then_train(X, y))
    assert np.mean(predicted[5_000:] == y[5_000:]) > 0.97


def test_repeated_learning_of_an_event_is_one_label():
    X, y = repeated_rows(1_000)
    once, often = StreamSVMClassifier(effort="low"), StreamSVMClassifier(effort="low")
    once.learn_many(X, y)
    often.learn_many(np.repeat(X, 5, axis=0), np.repeat(y, 5))
    _, proba = often.test_then_train(X[:200], (y[:200] + 1) % N_CLASSES, proba=True)
    assert proba.max(axis=1).min() < 0.999  # rows learned five times in a row are not evidence of five rows


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_rows_in_runs_have_the_probabilities_of_their_labels(share):
    """Labels that differ from the last one of a run are not its frequent ones."""
    rng, state = np.random.default_rng(0), np.arange(6_000) // 20 % 3
    for X, label in ((np.ones((6_000, 1)), 0), (np.eye(3)[state], state == 1)):
        y = (rng.random(6_000) < share) ^ label
        _, proba = StreamSVMClassifier(effort="low", label_autocorrelation=False).test_then_train(X, y, proba=True)
        loss = -np.log(proba[np.arange(1_500, 6_000), y[1_500:].astype(int)]).mean()
        assert loss < -share * np.log(share) - (1.0 - share) * np.log(1.0 - share) + 0.02


def test_labels_of_the_first_row_of_a_run_are_not_those_of_the_others():
    """In batches, the whole run is predicted before its first row is learned."""
    state = np.repeat(np.random.default_rng(0).integers(0, 24, 1_000), 20)[:6_000]
    y, model, losses = np.diff(state, prepend=-1) == 0, StreamSVMClassifier(effort="low"), []
    for at in range(0, 6_000, 100):
        rows, labels = state[at : at + 100, None].astype(float), y[at : at + 100]
        if at >= 1_000:
            losses.append(-np.log(np.asarray(model.predict_proba_many(rows))[np.arange(100), labels.astype(int)]))
        model.learn_many(rows, labels)
    assert np.mean(losses) < 0.25


def test_single_events_batches_and_labels_without_delay_give_equal_results():
    X, y = repeated_rows(1_500, noise=0.1)
    rows = [dict(enumerate(row)) for row in X.tolist()]
    batch, single, joined = StreamSVMClassifier(), StreamSVMClassifier(), DelayedClassifier(StreamSVMClassifier())
    expected, events, labels = batch.test_then_train(X, y), [], []
    for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        events.append(single.predict_one(x))
        single.learn_one(x, label)
        labels.append(joined.predict_one(x, key=i))
        joined.learn_one(i, label)
    assert events == list(expected)
    assert labels == list(expected)


def test_late_labels_do_not_depend_on_other_predictions():
    """The table may have a row at its prediction and none when its label comes."""
    X, y = repeated_rows(4_000, n_rows=2_500, noise=0.2)
    rows, results = [dict(enumerate(row)) for row in X.tolist()], []
    for others in ([], rows[::-1]):
        model, proba = DelayedClassifier(StreamSVMClassifier(effort="low", label_autocorrelation=False)), []
        for i, x in enumerate(rows):
            proba.append(model.predict_proba_one(x, key=i))
            if others:
                model.predict_proba_one(others[i])
            if i >= 1_000:
                model.learn_one(i - 1_000, int(y[i - 1_000]))
        results.append(proba)
    assert results[0] == results[1]


def test_late_labels_of_equal_rows_are_used():
    X, y = repeated_rows(4_000)
    rows, model, right = [dict(enumerate(row)) for row in X.tolist()], DelayedClassifier(StreamSVMClassifier()), []
    for i, x in enumerate(rows):
        right.append(model.predict_one(x, key=i) == y[i])
        if i >= 100:
            model.learn_one(i - 100, int(y[i - 100]))
    assert np.mean(right[3_000:]) > 0.97


def test_late_labels_of_equal_rows_are_counted_by_class_with_many_classes():
    """The labels known at the prediction are voted on by name when its label arrives."""
    rng, n = np.random.default_rng(0), 2_400
    x, y = rng.integers(0, 50, n).tolist(), rng.integers(0, 80, n).tolist()
    model, counted, unnamed = DelayedClassifier(StreamSVMClassifier(effort="low")), 0, 0
    for i in range(n):
        model.predict_one({"a": f"row {x[i]}"}, key=i)
        if i >= 100:
            model.learn_one(i - 100, y[i - 100])
            state = model.model.buffer
            found = state.repeats.places[: state.repeats.n_found]
            counted += state.autocorrelation.n_named > 0 and len(found)
            unnamed += state.autocorrelation.n_named > 0 and np.sum(found >= state.autocorrelation.n_named)
    assert counted > 1_000
    assert unnamed == 0
