"""A second vote: experts weighted by what they add to one another, not by how accurate each is alone.

With p_h the probabilities of expert h and p_0 those of the first vote, p'(c) ~ exp(sum_h w_h log p_h(c)), where w
starts from the first vote alone and follows the gradient of the log loss. Where labels are clean this is more accurate,
where they are noisy it follows the noise: so it is heard only while it is right more often than the first vote.

Notes
-----
Products of experts with learned exponents, as in data compression: M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, view
from streamsvm.core.losses import LEAST_BY_VOTE, best_class, fast_softmax_terms, scale_terms
from streamsvm.core.math import logs_of
from streamsvm.core.schema import Array, Number, Schema
from streamsvm.online.calibration import surprise

STEP, MOST_WEIGHT = 0.01, 10.0
RATE, MARGIN = 0.002, 0.002
# So much of what it was ahead is gone with each label that comes late.
FORGOTTEN = 0.02

_SHARE = (0.0, 1.0)

STACK = Schema(
    "stack",
    {
        "plain_right": Number("the decayed share of right answers of the first vote", saved=True, bounds=_SHARE),
        "stacked_right": Number("that of the second", saved=True, bounds=_SHARE),
        "others": Number(
            "for how many classes the last one stands, equally likely: its probability is that of all, its logarithm "
            "that of one",
            start=1.0,
        ),
        "weights": Array(
            ("inputs",),
            "of the experts, and of the first vote, the last",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "logs": Array(("inputs", "classes"), "the logarithms of their probabilities for the current event"),
        "plain": Array(("classes",), "the probabilities of the first vote"),
        "stacked": Array(("classes",), "those of the second"),
    },
)


@view
def first_logs(state):
    """The logarithms of the probabilities of the first vote."""
    return state.logs[state.weights.size - 1]


@kernel
def stack(state, n, proba):
    """Let the second vote speak where it is heard; the logarithms of the experts' probabilities are known."""
    weights, logs, plain, stacked = state.weights, state.logs, state.plain, state.stacked
    for c in range(n):
        plain[c] = proba[c]
        stacked[c] = 0.0
    logs_of(proba, n, state.others, LEAST_BY_VOTE, first_logs(state))
    for h in range(weights.size):
        weight = weights[h]
        for c in range(n):
            stacked[c] += weight * logs[h, c]
    if state.others > 1.0:
        stacked[n - 1] += math.log(state.others)
    total = fast_softmax_terms(stacked, 0, n, 1.0, stacked, 0)
    scale_terms(stacked, 0, n, 1.0 / total)
    if is_used(state):
        for c in range(n):
            proba[c] = stacked[c]


@inlined
def is_used(state):
    """Whether the second vote is right more often, of late."""
    return state.stacked_right > state.plain_right + MARGIN


@kernel
def learn_stack(state, n, label):
    """A step of the weights by the gradient of the log loss, and who of the votes is right."""
    n_named = n - 1 if state.others > 1.0 else n
    weights, logs, stacked = state.weights, state.logs, state.stacked
    right = 1.0 if best_class(state.plain, 0, n_named) == label else 0.0
    state.plain_right += RATE * (right - state.plain_right)
    right = 1.0 if best_class(stacked, 0, n_named) == label else 0.0
    state.stacked_right += RATE * (right - state.stacked_right)
    for h in range(weights.size):
        weight = weights[h] + STEP * surprise(logs[h], stacked, n, label)
        weights[h] = min(max(weight, -MOST_WEIGHT), MOST_WEIGHT)


@inlined
def forget_stack(state):
    """Let go of what the second vote was ahead."""
    state.stacked_right -= FORGOTTEN * max(state.stacked_right - state.plain_right, 0.0)
