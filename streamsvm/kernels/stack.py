"""A second vote: heads weighted by what they add to one another, not by how accurate each is alone.

With p_h the probabilities of head h and p_0 those of the first vote, p'(c) ~ exp(sum_h w_h log p_h(c)), where w starts
from the first vote alone and follows the gradient of the log loss. Where labels are clean this is more accurate, where
they are noisy it follows the noise: so it is heard only while it is right more often than the first vote.

Notes
-----
Products of experts with learned exponents, as in data compression: M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005.
"""

from __future__ import annotations

import math

from streamsvm.kernels import inlined, kernel

# Behind the weights of heads and first vote stand the decayed shares of right answers of either vote.
PLAIN_RIGHT, STACKED_RIGHT, N_SHARES = range(3)
# Rows of the scratch: the logarithms of all heads' probabilities and of the first vote's, then the probabilities of
# the first vote and of this one.
N_ROWS = 3

STEP, MOST_WEIGHT, MOST_GRADIENT = 0.01, 10.0, 5.0
RATE, MARGIN = 0.002, 0.002
# A head is never surer than this that a class is not the one.
LEAST = 0.01
LEAST_PROBABILITY = 1e-6


@inlined
def n_inputs(state):
    """Heads, and the first vote."""
    return state.size - N_SHARES


@inlined
def first_vote(state, scratch):
    """The probabilities of the first vote, and what is behind them."""
    inputs = n_inputs(state)
    return scratch[inputs * (scratch.size // (inputs - 1 + N_ROWS)) :]


@inlined
def first_logs(state, scratch):
    """The logarithms of the probabilities of the first vote, and what is behind them."""
    inputs = n_inputs(state)
    return scratch[(inputs - 1) * (scratch.size // (inputs - 1 + N_ROWS)) :]


@kernel
def stack(state, scratch, n, proba):
    """Let the second vote speak where it is heard; `scratch` has the logarithms of the heads' probabilities."""
    inputs = n_inputs(state)
    room = scratch.size // (inputs - 1 + N_ROWS)
    first, plain, stacked = (inputs - 1) * room, inputs * room, (inputs + 1) * room
    for c in range(n):
        scratch[plain + c] = proba[c]
        scratch[first + c] = math.log(max(proba[c], LEAST_PROBABILITY))
        scratch[stacked + c] = 0.0
    for h in range(inputs):
        weight = state[h]
        for c in range(n):
            scratch[stacked + c] += weight * scratch[h * room + c]
    top, total = -math.inf, 0.0
    for c in range(n):
        top = max(top, scratch[stacked + c])
    for c in range(n):
        scratch[stacked + c] = math.exp(scratch[stacked + c] - top)
        total += scratch[stacked + c]
    share = 1.0 / total
    for c in range(n):
        scratch[stacked + c] *= share
    if is_heard(state):
        for c in range(n):
            proba[c] = scratch[stacked + c]


@inlined
def is_heard(state):
    """Whether the second vote is right more often, of late."""
    shares = n_inputs(state)
    return state[shares + STACKED_RIGHT] > state[shares + PLAIN_RIGHT] + MARGIN


@kernel
def learn_stack(state, scratch, n, label):
    """A step of the weights by the gradient of the log loss, and who of the votes is right."""
    inputs = n_inputs(state)
    room = scratch.size // (inputs - 1 + N_ROWS)
    plain, stacked = inputs * room, (inputs + 1) * room
    best, best_stacked = 0, 0
    for c in range(1, n):
        best = c if scratch[plain + c] > scratch[plain + best] else best
        best_stacked = c if scratch[stacked + c] > scratch[stacked + best_stacked] else best_stacked
    state[inputs + PLAIN_RIGHT] += RATE * ((1.0 if best == label else 0.0) - state[inputs + PLAIN_RIGHT])
    state[inputs + STACKED_RIGHT] += RATE * ((1.0 if best_stacked == label else 0.0) - state[inputs + STACKED_RIGHT])
    for h in range(inputs):
        at = h * room
        gradient = scratch[at + label]
        for c in range(n):
            gradient -= scratch[stacked + c] * scratch[at + c]
        gradient = min(max(gradient, -MOST_GRADIENT), MOST_GRADIENT)
        state[h] = min(max(state[h] + STEP * gradient, -MOST_WEIGHT), MOST_WEIGHT)
