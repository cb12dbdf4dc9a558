"""The stacked vote against a reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.core.state import State
from streamsvm.ensemble import stacked_vote as stacking
from streamsvm.online.calibration import MOST_SURPRISE

N_HEADS, N_CLASSES, CAPACITY = 3, 3, 4


def fresh():
    state = State(stacking.STACK, {"inputs": N_HEADS + 1, "classes": CAPACITY})
    state.weights[N_HEADS] = 1.0
    return state


def vote(state, heads, first):
    state.logs[:N_HEADS, :N_CLASSES] = np.log(heads)
    proba = np.append(first, np.nan)
    stacking.stack(state, N_CLASSES, proba)
    return proba[:N_CLASSES]


def pooled(weights, heads, first):
    """Return a normalized product of powers."""
    product = np.exp(weights @ np.log([*heads, first]))
    return product / product.sum()


def loss(weights, heads, first, label):
    return -np.log(pooled(weights, heads, first)[label])


def test_it_begins_as_the_first_vote_and_is_a_product_of_powers():
    rng = np.random.default_rng(0)
    state = fresh()
    heads, first = rng.dirichlet(np.ones(N_CLASSES), N_HEADS), rng.dirichlet(np.ones(N_CLASSES))
    vote(state, heads, first)
    np.testing.assert_allclose(state.stacked[:N_CLASSES], first, rtol=1e-5)
    state.weights[:] = rng.normal(size=N_HEADS + 1)
    np.testing.assert_array_equal(vote(state, heads, first), first)  # not used yet
    np.testing.assert_array_equal(state.plain[:N_CLASSES], first)
    expected = pooled(state.weights, heads, first)
    np.testing.assert_allclose(state.stacked[:N_CLASSES], expected, rtol=1e-5)
    state.advantage = 2.0 * stacking.MARGIN
    np.testing.assert_allclose(vote(state, heads, first), expected, rtol=1e-5)


def test_the_step_is_the_gradient_of_the_log_loss():
    rng = np.random.default_rng(1)
    state = fresh()
    for label in range(N_CLASSES):
        heads, first = rng.dirichlet(np.ones(N_CLASSES), N_HEADS), rng.dirichlet(np.ones(N_CLASSES))
        before = rng.normal(size=N_HEADS + 1)
        state.weights[:] = before
        vote(state, heads, first)
        stacking.learn_stack(state, N_CLASSES, label)
        for h, off in enumerate(1e-6 * np.eye(N_HEADS + 1)):
            slope = (loss(before + off, heads, first, label) - loss(before - off, heads, first, label)) / 2e-6
            step = -stacking.STEP * np.clip(slope, -MOST_SURPRISE, MOST_SURPRISE)
            assert state.weights[h] - before[h] == pytest.approx(step, abs=1e-7)


def test_heads_that_complete_one_another_are_heard_together():
    """Each head separates one class from the rest. The first vote prefers the wrong ones."""
    rng = np.random.default_rng(2)
    state = fresh()
    right = []
    for _ in range(4_000):
        label = int(rng.integers(N_CLASSES))
        heads = np.full((N_HEADS, N_CLASSES), 0.1)
        for c in range(N_CLASSES):
            heads[c] = [0.25, 0.25, 0.25]
            heads[c, c] = 0.5 if c == label else 0.05
        heads /= heads.sum(axis=1, keepdims=True)
        first = rng.dirichlet(np.ones(N_CLASSES))
        right.append(vote(state, heads, first).argmax() == label)
        stacking.learn_stack(state, N_CLASSES, label)
    assert np.mean(right[:100]) < 0.6
    assert np.mean(right[-1_000:]) > 0.99


def test_noise_is_not_heard():
    rng = np.random.default_rng(3)
    state = fresh()
    wrong = 0
    for _ in range(4_000):
        label = int(rng.integers(N_CLASSES))
        heads = rng.dirichlet(np.ones(N_CLASSES), N_HEADS)
        first = np.where(np.arange(N_CLASSES) == label, 0.8, 0.1)
        wrong += vote(state, heads, first).argmax() != label
        stacking.learn_stack(state, N_CLASSES, label)
    assert wrong == 0
