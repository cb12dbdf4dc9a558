"""Combined vote: a mixture of three votes of the experts.

The *plain* vote weighs experts by their recent accuracy. The *stacked* vote is a product of experts whose exponents are
trained by logistic regression: with p_h the probabilities of expert h and p_0 those of the plain vote, it is
p'(c) ~ exp(sum_h w_h log p_h(c)). The weights w start at the plain vote alone and follow the gradient of the log loss.
The *pooled* vote is a weighted sum of the experts' probabilities whose weights follow their likelihoods (online
expectation maximisation). It favours experts with good probabilities, even if others are as accurate.

The probabilities of the three votes are mixed. The weights of the mixture are posterior probabilities under a small
probability of a switch (fixed share), so the log loss of the mixture is close to that of the best of the three. While
the plain vote has the higher recent accuracy, its class takes the largest probability of the mixture.

Notes
-----
Products of experts with learned exponents, as in data compression: M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005. Fixed share: M. Herbster and M. Warmuth, "Tracking the best expert", Machine Learning
32, 1998.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, view
from streamsvm.core.losses import LEAST_BY_VOTE, best_class, fast_softmax_terms, scale_terms
from streamsvm.core.math import exp_below, logs_of
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.ensemble.label_baselines import follow_shares, lead
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import surprise

PLAIN, STACKED, POOLED = range(3)
VOTES = 3
STEP, MOST_EXPONENT = 0.001, 10.0
# Rate of the weights of the pooled vote, and the sum of their lower bounds.
POOL_RATE, LEAST_POOLED = 0.03, 1e-5
# Number of labels over which the accuracies of the plain vote and the mixture average, and initial number of errors.
WINDOW, CAUTION = 3000.0, 30.0
# Share of their weight that the stacked and the pooled vote lose with each late label.
FORGOTTEN = 0.02

COMBINATION = Schema(
    "combination",
    {
        "shares": Array(
            ("kinds",),
            "weights of the plain, stacked and pooled vote",
            start=1.0 / VOTES,
            saved=True,
            bounds=(0.0, 1.0),
        ),
        "exponents": Array(
            ("inputs",),
            "exponents of the experts in the stacked vote; the last is that of the plain vote",
            saved=True,
            bounds=(-MOST_EXPONENT, MOST_EXPONENT),
        ),
        "weights": Array(("experts",), "weights of the experts in the pooled vote", saved=True, bounds=(0.0, 1.0)),
        "plain_accuracy": Number("decayed accuracy of the plain vote", saved=True, bounds=(0.0, 1.0)),
        "mixture_accuracy": Number("decayed accuracy of the mixture", saved=True, bounds=(0.0, 1.0)),
        "n_learned": Number("number of labels learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "plain_answer": Number("most probable class of the plain vote", i64),
        "mixture_answer": Number("most probable class of the mixture", i64),
        "others": Number(
            "number of equally likely classes that the last class stands for; its probability is their sum, its "
            "logarithm that of one",
            start=1.0,
        ),
        "logs": Array(("inputs", "classes"), "log probabilities of the current event by expert"),
        "votes": Array(("kinds", "classes"), "probabilities of the three votes"),
    },
)


@view
def plain_logs(state):
    """Log probabilities of the plain vote."""
    return state.logs[state.exponents.size - 1]


@kernel
def combine(state, n, proba):
    """Replace the plain vote `proba` by the mixture.

    The logarithms of the experts' probabilities and the pooled vote must be known.
    """
    exponents, logs, votes, shares = state.exponents, state.logs, state.votes, state.shares
    stacked = votes[STACKED]
    for c in range(n):
        votes[PLAIN, c] = proba[c]
        stacked[c] = 0.0
    logs_of(proba, n, state.others, LEAST_BY_VOTE, plain_logs(state))
    for h in range(exponents.size):
        exponent = exponents[h]
        for c in range(n):
            stacked[c] += exponent * logs[h, c]
    if state.others > 1.0:
        stacked[n - 1] += math.log(state.others)
    total = fast_softmax_terms(stacked, 0, n, 1.0, stacked, 0)
    scale_terms(stacked, 0, n, 1.0 / total)
    for c in range(n):
        proba[c] = shares[PLAIN] * proba[c] + shares[STACKED] * stacked[c] + shares[POOLED] * votes[POOLED, c]
    n_named = n - 1 if state.others > 1.0 else n
    state.plain_answer, state.mixture_answer = best_class(votes[PLAIN], 0, n_named), best_class(proba, 0, n_named)
    if state.plain_accuracy > state.mixture_accuracy + 1.0 / WINDOW:
        lead(proba, state.plain_answer, state.mixture_answer)


@kernel
def learn_combination(state, n, label):
    """Update the exponents, the weights of the experts and the shares of the votes."""
    exponents, weights, logs, stacked = state.exponents, state.weights, state.logs, state.votes[STACKED]
    for h in range(exponents.size):
        exponent = exponents[h] + STEP * surprise(logs[h], stacked, n, label)
        exponents[h] = min(max(exponent, -MOST_EXPONENT), MOST_EXPONENT)
    state.n_learned += 1
    rate = max(1.0 / WINDOW, 1.0 / (state.n_learned + CAUTION))
    state.plain_accuracy += rate * ((1.0 if state.plain_answer == label else 0.0) - state.plain_accuracy)
    state.mixture_accuracy += rate * ((1.0 if state.mixture_answer == label else 0.0) - state.mixture_accuracy)
    follow_shares(state.shares, state.votes, label)
    total = 0.0
    for h in range(weights.size):
        total += weights[h] * exp_below(logs[h, label])
    for h in range(weights.size):
        posterior = weights[h] * exp_below(logs[h, label]) / total
        weights[h] += POOL_RATE * (posterior - weights[h])
        weights[h] = (1.0 - LEAST_POOLED) * weights[h] + LEAST_POOLED / weights.size


@inlined
def forget_combination(state):
    """Reduce the shares of the stacked and the pooled vote, after a late label."""
    state.shares[PLAIN] += FORGOTTEN * (1.0 - state.shares[PLAIN])
    for j in range(STACKED, VOTES):
        state.shares[j] *= 1.0 - FORGOTTEN
