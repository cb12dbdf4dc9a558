"""The combined vote against a reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.ensemble import combined_vote
from streamsvm.ensemble.combined_vote import MIXTURE, PLAIN, POOLED, STACKED, STEPS, VOTES
from streamsvm.online.calibration import MOST_SURPRISE
from tests.learners import interpreted

combine, keep_plain, learn_combination = map(
    interpreted, (combined_vote.combine, combined_vote.keep_plain, combined_vote.learn_combination)
)
N_HEADS, N_CLASSES, CAPACITY = 3, 3, 4


def fresh():
    return combined_vote.new_combination(N_HEADS, CAPACITY)


def vote(state, heads, first):
    state.logs[:N_HEADS, :N_CLASSES] = np.log(heads)
    state.probas[POOLED, :N_CLASSES] = state.weights @ heads
    proba = np.append(first, np.nan)
    keep_plain(state, N_CLASSES, proba)
    combine(state, N_CLASSES, proba)
    return proba[:N_CLASSES]


def product(exponents, heads, first):
    """Return a normalized product of powers."""
    powers = np.exp(exponents @ np.log([*heads, first]))
    return powers / powers.sum()


def loss(exponents, heads, first, label):
    return -np.log(product(exponents, heads, first)[label])


def drawn(rng):
    return rng.dirichlet(np.ones(N_CLASSES), N_HEADS), rng.dirichlet(np.ones(N_CLASSES))


def test_the_stacked_vote_begins_as_the_plain_vote_and_is_a_product_of_powers():
    rng = np.random.default_rng(0)
    state = fresh()
    heads, first = drawn(rng)
    vote(state, heads, first)
    np.testing.assert_allclose(state.probas[STACKED, :N_CLASSES], first, rtol=1e-5)
    state.exponents[:] = rng.normal(size=(len(STEPS), N_HEADS + 1))
    vote(state, heads, first)
    np.testing.assert_array_equal(state.probas[PLAIN, :N_CLASSES], first)
    for s in range(len(STEPS)):
        expected = product(state.exponents[s], heads, first)
        np.testing.assert_allclose(state.probas[STACKED + s, :N_CLASSES], expected, rtol=1e-5)


def test_the_probabilities_are_the_mixture_of_the_votes():
    rng = np.random.default_rng(4)
    state = fresh()
    state.exponents[:] = rng.normal(size=(len(STEPS), N_HEADS + 1))
    state.weights[:] = rng.dirichlet(np.ones(N_HEADS))
    state.shares[:] = rng.dirichlet(np.ones(VOTES))
    heads, first = drawn(rng)
    stacked = [product(exponents, heads, first) for exponents in state.exponents]
    expected = state.shares @ [first, state.weights @ heads, *stacked]
    np.testing.assert_allclose(vote(state, heads, first), expected, rtol=1e-5)


def test_the_step_of_the_exponents_is_the_gradient_of_the_log_loss():
    rng = np.random.default_rng(1)
    state = fresh()
    for label in range(N_CLASSES):
        heads, first = drawn(rng)
        before = rng.normal(size=(len(STEPS), N_HEADS + 1))
        state.exponents[:] = before
        vote(state, heads, first)
        learn_combination(state, N_CLASSES, label)
        for s, size in enumerate(STEPS):
            for h, off in enumerate(1e-6 * np.eye(N_HEADS + 1)):
                slope = (loss(before[s] + off, heads, first, label) - loss(before[s] - off, heads, first, label)) / 2e-6
                step = -size * np.clip(slope, -MOST_SURPRISE, MOST_SURPRISE)
                assert state.exponents[s, h] - before[s, h] == pytest.approx(step, abs=1e-7)


def test_the_weights_of_the_pool_move_towards_the_posterior():
    rng = np.random.default_rng(5)
    state = fresh()
    heads, first = drawn(rng)
    before = state.weights.copy()
    vote(state, heads, first)
    learn_combination(state, N_CLASSES, 1)
    posterior = before * heads[:, 1] / (before @ heads[:, 1])
    moved = before + combined_vote.POOL_RATE * (posterior - before)
    np.testing.assert_allclose(state.weights, moved, atol=2 * combined_vote.LEAST_POOLED)
    assert state.weights.sum() == pytest.approx(1.0)


def test_the_class_of_the_plain_vote_leads_while_it_is_more_accurate():
    state = fresh()
    heads = np.tile([0.7, 0.2, 0.1], (N_HEADS, 1))
    state.shares[:] = [0.1, 0.9, 0.0, 0.0]
    first = np.array([0.3, 0.4, 0.3])
    assert vote(state, heads, first).argmax() == 0
    state.accuracies[[PLAIN, MIXTURE]] = 0.9, 0.8
    proba = vote(state, heads, first)
    assert proba.argmax() == 1
    assert proba.sum() == pytest.approx(1.0)
