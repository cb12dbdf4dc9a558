"""The second vote, against a plain oracle."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.kernels import stack

N_HEADS, N_CLASSES, ROOM = 3, 3, 4


def fresh():
    state = np.zeros(N_HEADS + 1 + stack.N_SHARES)
    state[N_HEADS] = 1.0
    return state, np.zeros((N_HEADS + stack.N_ROWS, ROOM))


def vote(state, scratch, heads, first):
    scratch[:N_HEADS, :N_CLASSES] = np.log(heads)
    proba = np.append(first, np.nan)
    stack.stack(state, scratch.reshape(-1), N_CLASSES, proba)
    return proba[:N_CLASSES]


def pooled(weights, heads, first):
    """A product of powers, scaled to 1."""
    product = np.exp(weights @ np.log([*heads, first]))
    return product / product.sum()


def loss(weights, heads, first, label):
    return -np.log(pooled(weights, heads, first)[label])


def test_it_begins_as_the_first_vote_and_is_a_product_of_powers():
    rng = np.random.default_rng(0)
    state, scratch = fresh()
    heads, first = rng.dirichlet(np.ones(N_CLASSES), N_HEADS), rng.dirichlet(np.ones(N_CLASSES))
    vote(state, scratch, heads, first)
    np.testing.assert_allclose(scratch[N_HEADS + 2, :N_CLASSES], first)
    state[: N_HEADS + 1] = rng.normal(size=N_HEADS + 1)
    np.testing.assert_array_equal(vote(state, scratch, heads, first), first)  # not heard yet
    np.testing.assert_array_equal(stack.first_vote(state, scratch.reshape(-1))[:N_CLASSES], first)
    expected = pooled(state[: N_HEADS + 1], heads, first)
    np.testing.assert_allclose(scratch[N_HEADS + 2, :N_CLASSES], expected)
    state[N_HEADS + 1 + stack.STACKED_RIGHT] = 2.0 * stack.MARGIN
    np.testing.assert_allclose(vote(state, scratch, heads, first), expected)


def test_the_step_is_the_gradient_of_the_log_loss():
    rng = np.random.default_rng(1)
    state, scratch = fresh()
    for label in range(N_CLASSES):
        heads, first = rng.dirichlet(np.ones(N_CLASSES), N_HEADS), rng.dirichlet(np.ones(N_CLASSES))
        weights = state[: N_HEADS + 1] = rng.normal(size=N_HEADS + 1)
        before = weights.copy()
        vote(state, scratch, heads, first)
        stack.learn_stack(state, scratch.reshape(-1), N_CLASSES, label)
        for h, off in enumerate(1e-6 * np.eye(N_HEADS + 1)):
            slope = (loss(before + off, heads, first, label) - loss(before - off, heads, first, label)) / 2e-6
            step = -stack.STEP * np.clip(slope, -stack.MOST_GRADIENT, stack.MOST_GRADIENT)
            assert state[h] - before[h] == pytest.approx(step, abs=1e-7)


def test_heads_that_complete_one_another_are_heard_together():
    """Each head knows one class from the rest; the first vote leans on the wrong ones."""
    rng = np.random.default_rng(2)
    state, scratch = fresh()
    right = []
    for _ in range(4_000):
        label = int(rng.integers(N_CLASSES))
        heads = np.full((N_HEADS, N_CLASSES), 0.1)
        for c in range(N_CLASSES):
            heads[c] = [0.25, 0.25, 0.25]
            heads[c, c] = 0.5 if c == label else 0.05
        heads /= heads.sum(axis=1, keepdims=True)
        first = rng.dirichlet(np.ones(N_CLASSES))
        right.append(vote(state, scratch, heads, first).argmax() == label)
        stack.learn_stack(state, scratch.reshape(-1), N_CLASSES, label)
    assert np.mean(right[:100]) < 0.6
    assert np.mean(right[-1_000:]) > 0.99


def test_noise_is_not_heard():
    rng = np.random.default_rng(3)
    state, scratch = fresh()
    wrong = 0
    for _ in range(4_000):
        label = int(rng.integers(N_CLASSES))
        heads = rng.dirichlet(np.ones(N_CLASSES), N_HEADS)
        first = np.where(np.arange(N_CLASSES) == label, 0.8, 0.1)
        wrong += vote(state, scratch, heads, first).argmax() != label
        stack.learn_stack(state, scratch.reshape(-1), N_CLASSES, label)
    assert wrong == 0
