"""Combined vote: a mixture of four votes of the experts.

The *plain* vote weighs experts by their recent accuracy. The *pooled* vote is a weighted sum of the experts'
probabilities. Its weights follow the likelihoods (online expectation maximisation). It favours experts with good
probabilities, even if others are as accurate. Two *stacked* votes are products of experts whose exponents are trained
by logistic regression, with a large and a small step size. With p_h the probabilities of expert h and p_0 those of the
plain vote, a stacked vote is p'(c) ~ exp(sum_h w_h log p_h(c)). The exponents w start at the plain vote alone and
follow the gradient of the log loss.

The probabilities of the votes are mixed. The weights of the mixture are posterior probabilities under a small
probability of a switch (fixed share). The log loss of the mixture is therefore close to that of the best vote. While a
vote has a higher recent accuracy than the mixture, its class takes the largest probability.

With late labels, likelihoods are those of predictions that are a delay old, and all labels of a delay judge about the
same votes. They count as FEW_LATE independent labels: the likelihoods of the votes are raised to the power
FEW_LATE / delay. A vote must have been more accurate than the mixture by LATE_ADVANTAGE.

Notes
-----
Products of experts with learned exponents, as in data compression: M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005. Fixed share: M. Herbster and M. Warmuth, "Tracking the best expert", Machine Learning
32, 1998.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, view
from streamsvm.core.losses import LEAST_BY_VOTE, best_class, fast_softmax_terms, scale_terms, slice_sum
from streamsvm.core.math import exp_below, logs_of
from streamsvm.core.schema import Array, Number, Schema, i64
from streamsvm.core.state import State
from streamsvm.ensemble.label_baselines import (
    POSITIVE_SHARE,
    learn_accuracies,
    most_accurate,
    put_ahead,
    update_shares,
)
from streamsvm.features.scaler import MOST_EVENTS
from streamsvm.online.calibration import surprise

# Answers: one per vote, then the mixture.
PLAIN, POOLED, STACKED = range(3)
STEPS, MOST_EXPONENT = (0.01, 0.001), 10.0
VOTES = MIXTURE = STACKED + len(STEPS)
# Rate of the weights of the pooled vote, and the sum of their lower bounds.
POOL_RATE, LEAST_POOLED = 0.03, 1e-5
# Number of labels over which the accuracies average, and the number of errors they start with.
WINDOW, CAUTION = 3000.0, 30.0
# With late labels, a delay has FEW_LATE independent labels, and a vote replaces the mixture by this gain in accuracy.
FEW_LATE, LATE_ADVANTAGE = 5.0, 0.003
_SHARE = (0.0, 1.0)

COMBINATION = Schema(
    "combination",
    {
        "shares": Array((VOTES,), "weights of the votes", start=1.0 / VOTES, saved=True, bounds=POSITIVE_SHARE),
        "exponents": Array(
            (len(STEPS), "inputs"),
            "exponents of the experts in the stacked votes; the last is that of the plain vote",
            saved=True,
            bounds=(-MOST_EXPONENT, MOST_EXPONENT),
        ),
        "weights": Array(
            ("experts",), "weights of the experts in the pooled vote", saved=True, bounds=(0.001 * LEAST_POOLED, 1.0)
        ),
        "accuracies": Array((VOTES + 1,), "decayed accuracies of the answers", saved=True, bounds=_SHARE),
        "n_learned": Number("number of labels learned", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "advantage": Number(
            "least gain in accuracy for a vote to replace the mixture", start=1.0 / WINDOW, saved=True, bounds=_SHARE
        ),
        "others": Number(
            "number of equally likely classes that the last class stands for; its probability is their sum, its "
            "logarithm that of one",
            start=1.0,
        ),
        "logs": Array(("inputs", "classes"), "log probabilities of the current event by expert"),
        "plain": Array(("classes",), "probabilities of the plain vote before the correction for noise"),
        "probas": Array((VOTES, "classes"), "probabilities of the votes"),
        "answers": Array((VOTES + 1,), "most probable classes of the votes and of the mixture", i64),
        "by_experts": Array(("experts",), "probabilities that the experts gave to the label"),
        "by_votes": Array((VOTES,), "probabilities that the votes gave to the label"),
    },
)


def new_combination(n_experts: int, n_classes: int) -> State:
    """Create a state with equal weights; stacked votes start at the plain vote."""
    state = State(COMBINATION, {"experts": n_experts, "inputs": n_experts + 1, "classes": n_classes})
    state.exponents[:, -1] = 1.0
    state.weights[:] = 1.0 / n_experts
    return state


@view
def plain_logs(state):
    """Log probabilities of the plain vote."""
    return state.logs[state.weights.size]


@kernel
def keep_plain(state, n, proba):
    """Store the plain vote before it is corrected for noise."""
    for c in range(n):
        state.plain[c] = proba[c]
    logs_of(proba, n, state.others, LEAST_BY_VOTE, plain_logs(state))


@kernel
def combine(state, n, proba):
    """Replace the plain vote `proba` by the mixture of all votes.

    `proba` may be corrected for noise. The logarithms of all probabilities and the pooled vote must be known.
    """
    probas, shares, answers = state.probas, state.shares, state.answers
    n_named = n - 1 if state.others > 1.0 else n
    stack(state, n)
    for c in range(n):
        probas[PLAIN, c] = proba[c]
        proba[c] = 0.0
    for j in range(VOTES):
        answers[j] = best_class(probas[j], 0, n_named)
        for c in range(n):
            proba[c] += shares[j] * probas[j, c]
    scale_terms(proba, 0, n, 1.0 / slice_sum(proba, 0, n))  # the pooled vote is a sum in single precision
    answers[MIXTURE] = best_class(proba, 0, n_named)
    best = most_accurate(state.accuracies, answers, VOTES, MIXTURE, state.advantage)
    put_ahead(proba, answers[best], answers[MIXTURE])


@inlined
def stack(state, n):
    """Compute the stacked votes."""
    logs = state.logs
    for s in range(len(STEPS)):
        stacked, exponents = state.probas[STACKED + s], state.exponents[s]
        for c in range(n):
            stacked[c] = 0.0
        for h in range(exponents.size):
            exponent = exponents[h]
            for c in range(n):
                stacked[c] += exponent * logs[h, c]
        if state.others > 1.0:
            stacked[n - 1] += math.log(state.others)
        total = fast_softmax_terms(stacked, 0, n, 1.0, stacked, 0)
        scale_terms(stacked, 0, n, 1.0 / total)


@kernel
def learn_combination(state, n, label):
    """Update the exponents, the weights of the experts and the shares of the votes."""
    logs = state.logs
    for s in range(len(STEPS)):
        stacked, exponents = state.probas[STACKED + s], state.exponents[s]
        for h in range(exponents.size):
            exponent = exponents[h] + STEPS[s] * surprise(logs[h], stacked, n, label)
            exponents[h] = min(max(exponent, -MOST_EXPONENT), MOST_EXPONENT)
    for h in range(state.weights.size):
        state.by_experts[h] = exp_below(logs[h, label])
    for j in range(VOTES):
        state.by_votes[j] = state.probas[j, label]
    judge_votes(state, label, 1.0 / WINDOW)


@kernel
def judge_votes(state, label, advantage):
    """Update accuracies of the answers, and weights of experts and votes.

    The probabilities of the label by experts and votes must be known. `advantage` is the least gain in accuracy for a
    vote to replace the mixture.
    """
    state.n_learned += 1
    state.advantage = advantage
    rate = max(1.0 / WINDOW, 1.0 / (state.n_learned + CAUTION))
    learn_accuracies(state.accuracies, state.answers, label, rate)
    weights, by_experts, total = state.weights, state.by_experts, 0.0
    update_shares(state.shares, state.by_votes)
    for h in range(weights.size):
        total += weights[h] * by_experts[h]
    for h in range(weights.size):
        weights[h] += POOL_RATE * (weights[h] * by_experts[h] / total - weights[h])
        weights[h] = (1.0 - LEAST_POOLED) * weights[h] + LEAST_POOLED / weights.size
