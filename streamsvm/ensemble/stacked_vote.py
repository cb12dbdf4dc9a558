"""Stacked vote: a product of experts whose exponents are trained by logistic regression.

With p_h the probabilities of expert h and p_0 the probabilities of the expert vote, the stacked vote is
p'(c) ~ exp(sum_h w_h log p_h(c)). The weights w start at the expert vote alone and follow the gradient of the log loss.
The stacked vote is more accurate with clean labels but fits label noise, so it is used only while it has the higher
recent accuracy.

Notes
-----
Products of experts with learned exponents, as in data compression: M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, view
from streamsvm.core.losses import LEAST_BY_VOTE, fast_softmax_terms, scale_terms
from streamsvm.core.math import logs_of
from streamsvm.core.schema import Array, Number, Schema
from streamsvm.online.calibration import surprise
from streamsvm.online.voting import next_advantage

STEP, MOST_WEIGHT = 0.01, 10.0
RATE, MARGIN = 0.002, 0.002
# Share of its advantage that the stacked vote loses with each late label.
FORGOTTEN = 0.02

STACK = Schema(
    "stack",
    {
        "advantage": Number(
            "decayed accuracy of the stacked vote minus that of the expert vote", saved=True, bounds=(-1.0, 1.0)
        ),
        "others": Number(
            "number of equally likely classes that the last class stands for; its probability is their sum, its "
            "logarithm that of one",
            start=1.0,
        ),
        "weights": Array(
            ("inputs",),
            "weights of the experts; the last is that of the expert vote",
            saved=True,
            bounds=(-MOST_WEIGHT, MOST_WEIGHT),
        ),
        "logs": Array(("inputs", "classes"), "log probabilities of the current event by expert"),
        "plain": Array(("classes",), "probabilities of the expert vote"),
        "stacked": Array(("classes",), "probabilities of the stacked vote"),
    },
)


@view
def first_logs(state):
    """Log probabilities of the expert vote."""
    return state.logs[state.weights.size - 1]


@kernel
def stack(state, n, proba):
    """Compute the stacked vote from `logs`; write it to `proba` if it is used."""
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
    """Whether the stacked vote has the higher recent accuracy."""
    return state.advantage > MARGIN


@kernel
def learn_stack(state, n, label):
    """Update the weights by a gradient step of the log loss, and the advantage."""
    n_named = n - 1 if state.others > 1.0 else n
    weights, logs, stacked = state.weights, state.logs, state.stacked
    state.advantage = next_advantage(state.advantage, RATE, stacked, state.plain, n_named, label)
    for h in range(weights.size):
        weight = weights[h] + STEP * surprise(logs[h], stacked, n, label)
        weights[h] = min(max(weight, -MOST_WEIGHT), MOST_WEIGHT)


@inlined
def forget_stack(state):
    """Reduce the advantage of the stacked vote, after a late label."""
    state.advantage -= FORGOTTEN * max(state.advantage, 0.0)
