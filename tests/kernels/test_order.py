"""What the order of labels says, against a plain oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.kernels import order

N_CLASSES = 5


def fresh():
    fields = np.zeros(order.N_FIELDS)
    fields[[order.POWER, order.RAISE]] = 1.0
    fields[order.RECENT : order.RECENT + order.ORDERS] = -1.0
    notes = np.zeros(order.NOTES * order.NOTE_FIELDS)
    return np.zeros((order.N_ROWS, N_CLASSES)), fields, notes, np.zeros((order.N_SCRATCH, N_CLASSES))


def learn(state, key, label, n=N_CLASSES, proba=None):
    """Predict and learn an event."""
    counts, fields, notes, scratch = state
    proba = np.full(n, 1.0 / n) if proba is None else proba.copy()
    scratch[0, :n] = proba
    order.add_order(counts.reshape(-1), fields, scratch.reshape(-1), n, proba)
    order.note(fields, notes, key)
    order.learn_order(counts.reshape(-1), fields, notes, scratch.reshape(-1), key, n, label)
    return proba


def frequencies(labels, recent, k):
    """Decayed frequencies after k labels, by going through all; contexts that share a row count as one."""
    weights = np.zeros(N_CLASSES)
    padded = [-1] * order.ORDERS + list(labels)

    def row(labels):
        return order.context(np.array(labels, float), 0, k) if k else 0

    for i, label in enumerate(labels):
        before = padded[i : i + order.ORDERS][::-1]
        if row(before) == row(recent):
            weights[label] += order.DECAY ** (len(labels) - i)
    below = frequencies(labels, recent, k - 1) if k else np.full(N_CLASSES, 1.0 / N_CLASSES)
    return (weights + below) / (weights.sum() + 1.0)


@given(st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_lifts_are_those_of_decayed_frequencies(labels):
    state = fresh()
    for i, label in enumerate(labels):
        learn(state, float(i), label)
    counts, fields, _, scratch = state
    recent = fields[order.RECENT : order.RECENT + order.ORDERS]
    assert recent.tolist() == ([-1.0] * order.ORDERS + labels)[: -order.ORDERS - 1 : -1]
    order.lift(counts.reshape(-1), fields, fields, order.RECENT, N_CLASSES, scratch.reshape(-1)[: 2 * N_CLASSES])
    by_hand = np.log(frequencies(labels, recent, order.ORDERS)) - np.log(frequencies(labels, recent, 0))
    np.testing.assert_allclose(scratch[0], by_hand, atol=1e-9)


def test_the_step_is_the_gradient_of_the_log_loss():
    rng = np.random.default_rng(0)
    state = fresh()
    for i in range(300):
        learn(state, float(i), i % 3, proba=rng.dirichlet(np.ones(N_CLASSES)))
    _, fields, _, scratch = state
    fields[order.POWER], fields[order.TRUST] = 1.3, 0.4

    def loss(power, trust, label):
        fields[order.POWER], fields[order.TRUST] = power, trust
        order.combine(fields, scratch.reshape(-1), N_CLASSES)
        return -np.log(scratch[order.ORDERED, label])

    def step(gradient):
        return -order.STEP * float(np.clip(gradient, -order.MOST_GRADIENT, order.MOST_GRADIENT))

    for label in range(N_CLASSES):
        by_power = (loss(1.3 * np.exp(1e-6), 0.4, label) - loss(1.3 * np.exp(-1e-6), 0.4, label)) / 2e-6 / 1.3
        by_trust = (loss(1.3, 0.4 + 1e-6, label) - loss(1.3, 0.4 - 1e-6, label)) / 2e-6
        loss(1.3, 0.4, label)
        order.learn_trust(fields, scratch.reshape(-1), N_CLASSES, label)
        assert np.log(fields[order.POWER] / 1.3) == pytest.approx(step(by_power), abs=1e-7)
        assert fields[order.TRUST] - 0.4 == pytest.approx(step(by_trust), abs=1e-7)


def test_it_is_heard_when_it_is_right_and_no_more_when_it_is_not():
    state = fresh()
    for i in range(1_000):
        proba = learn(state, float(i), i % N_CLASSES)
    assert proba[999 % N_CLASSES] > 0.9
    rng = np.random.default_rng(1)
    for i in range(3_000):
        proba = learn(state, float(i), int(rng.integers(N_CLASSES)))
    np.testing.assert_array_equal(proba, np.full(N_CLASSES, 1.0 / N_CLASSES))


def test_counts_do_not_overflow():
    counts, fields, _, _ = state = fresh()
    for i in range(1_000):
        learn(state, float(i), i % 2)
    before = counts / fields[order.RAISE]
    fields[order.RAISE] *= 0.9999 * order.LARGE
    counts *= 0.9999 * order.LARGE
    learn(state, 0.0, 0)
    assert fields[order.RAISE] == 1.0
    assert counts.max() < 2.0 * before.max()


@given(st.integers(0, 40), st.integers(0, 5), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_notes_are_found_in_the_order_of_events(delay, n_lost, random):
    """Each event finds the note of its own prediction, though some never get a label."""
    _, fields, notes, _ = fresh()
    waiting = []
    for i in range(200):
        fields[order.RECENT] = i % N_CLASSES
        order.note(fields, notes, float(i))
        if random.random() >= 0.1 * n_lost:
            waiting.append(i)
        if waiting and waiting[0] <= i - delay:
            event = waiting.pop(0)
            at = order.recall(fields, notes, float(event))
            assert notes[order.NOTES + at * order.ORDERS] == event % N_CLASSES
            order.drop(fields, notes, float(event))


def test_too_many_notes_push_out_the_oldest():
    _, fields, notes, _ = fresh()
    for i in range(order.NOTES + 10):
        order.note(fields, notes, float(i))
        order.note(fields, notes, float(i))  # the same event again: no second note
        fields[order.N_FRESH] = 0.0  # an event is learned
    assert order.recall(fields, notes, 9.0) == order.UNKNOWN
    assert order.recall(fields, notes, 10.0) >= 0
    order.drop(fields, notes, order.NOTES + 9.0)
    assert order.recall(fields, notes, 11.0) == order.NOW
    assert not notes.any()


def test_keys_do_not_see_zeros_and_missing_values():
    dense, columns = np.array([1.5, 0.0, np.nan, -2.0, -0.0]), np.arange(5)
    sparse, at = np.array([7.0, 1.5, -2.0]), np.array([9, 0, 3])
    seen = np.ones(5)
    key = order.row_key(dense, columns, 0, 5, True, seen)
    assert key == order.row_key(sparse, at, 1, 3, False, seen)
    assert key == float(int(key)) < 2.0**52
    assert key != order.row_key(dense[::-1].copy(), columns, 0, 5, True, seen)
    seen[3] = 0.0
    assert key != order.row_key(dense, columns, 0, 5, True, seen)
