"""Probabilities of an ensemble: weighted vote of the experts, with corrections."""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.losses import FEW, LEAST_BY_VOTE, best_class, scale_terms
from streamsvm.core.math import exp32, exp_below, log32, log_of, logs_of
from streamsvm.core.schema import f32
from streamsvm.ensemble.blend import LEAST_LOG, LEAST_VOTE, padded
from streamsvm.ensemble.combined_vote import POOLED, combine, keep_plain
from streamsvm.ensemble.delayed_votes import answer_in
from streamsvm.ensemble.label_autocorrelation import add_autocorrelation
from streamsvm.ensemble.label_baselines import n_answers, n_others
from streamsvm.ensemble.many_classes import n_voted, name_classes, place_of, spread_votes, vote_on_named
from streamsvm.ensemble.repeats import LABELS, add_repeats, find_labels
from streamsvm.online.calibration import allow_for_noise


@kernel
def find_proba(state, block, batch, k):
    """Compute the probabilities of all classes from the scores of row k of the block."""
    n, proba = state.n_classes, state.proba
    if n == 0:
        return
    state.repeats.found = find_labels(state.repeats, block.rows[k].key)
    if n > FEW:
        name_classes(state, block, batch, k)
        vote_on_named(state, block, k)
        proba = state.votes
    else:
        vote_on_all(state, block, k)
    settle_votes(state, n_voted(state), proba)
    if n > FEW:
        spread_votes(state)


@inlined
def vote_on_all(state, block, k):
    """Compute the vote for at most FEW classes: a weighted mean of softmax outputs.

    The pooled vote and the log probabilities of each expert are computed as well.
    """
    n, proba, experts, logs = state.n_classes, state.proba, state.experts, state.combination.logs
    if state.n_softened != n:
        soften(state, block, k)
    terms, powers, totals, total_logs = state.terms[k], state.powers[k], state.totals[k], state.total_logs[k]
    pooled, weights = state.combination.probas[POOLED], state.combination.weights
    for c in range(n):
        proba[c] = pooled[c] = 0.0
    for h in range(experts.size):
        experts[h].best = state.bests[k, h]
        weight, less = experts[h].weight, total_logs[uint(h)]
        share = weight / totals[uint(h)] if weight > LEAST_VOTE else 0.0
        of_pool = weights[h] / totals[uint(h)]
        for c in range(n):
            proba[c] += share * powers[uint(h * n + c)]
            pooled[c] += of_pool * powers[uint(h * n + c)]
            logs[h, c] = max(float(terms[uint(h * n + c)] - less), LEAST_LOG)


@inlined
def soften(state, block, first):
    """Compute the softmax terms of all experts and their sums, from row `first` on.

    All rows are computed together, because the loops over experts then vectorise.
    """
    n, n_experts, rows = state.n_classes, state.experts.size, range(first, block.n_rows)
    terms, powers, totals, total_logs = state.terms, state.powers, state.totals, state.total_logs
    state.n_softened = n
    for k in rows:
        find_terms(state, block, k)
    for k in rows:
        for j in range(padded(n_experts * n)):
            powers[uint(k), uint(j)] = exp32(terms[uint(k), uint(j)])
    for k in rows:
        for h in range(n_experts):
            total = f32(0.0)
            for c in range(n):
                total += powers[uint(k), uint(h * n + c)]
            totals[uint(k), uint(h)] = total
    for k in rows:
        for h in range(padded(n_experts)):
            total_logs[uint(k), uint(h)] = log32(totals[uint(k), uint(h)])


@inlined
def find_terms(state, block, k):
    """Compute each expert's best class for row k, and its softmax exponents.

    An exponent is beta times (score - best score).
    """
    n, capacity, experts, scores = state.n_classes, state.proba.size, state.experts, block.scores[k]
    terms, bests = state.terms[k], state.bests[k]
    for h in range(experts.size):
        at, beta = h * capacity, experts[h].inverse_temperature
        bests[uint(h)] = best_class(scores, at, n)
        top = scores[at + bests[uint(h)]]
        for c in range(n):
            terms[uint(h * n + c)] = f32(beta * (scores[at + c] - top))


@inlined
def settle_votes(state, n, proba):
    """Apply all corrections to the vote on n classes."""
    others = n_others(state.autocorrelation, n)
    sharpen_votes(state, n, others, proba)
    place_repeats(state)
    if n < 2:
        return
    state.combination.others = others
    keep_plain(state.combination, n, proba)
    allow_for_noise(state.calibration, n, others, proba)
    combine(state.combination, n, proba)
    for c in range(n):
        state.repeats.before[c] = proba[c]
    if state.repeats.n_found > 0:
        add_repeats(state.repeats, n, n_answers(state.autocorrelation, n), proba)
    if state.uses_autocorrelation:
        logs_of(proba, n, others, LEAST_BY_VOTE, state.autocorrelation.logs)
        add_autocorrelation(state.autocorrelation, n, proba)


@inlined
def place_repeats(state):
    """Find the positions of the labels of equal rows among the classes voted on."""
    repeats, n = state.repeats, 0
    for i in range(LABELS):
        label = answer_in(repeats.found, i)
        if 0 <= label < state.n_classes:
            repeats.places[n] = place_of(state, label)
            n += 1
    repeats.n_found = n


@inlined
def sharpen_votes(state, n, others, proba):
    """Raise the probabilities of the vote to the power `inverse_temperature`."""
    total, beta = 0.0, state.inverse_temperature
    proba[n - 1] /= others
    for c in range(n):
        proba[c] = exp_below(beta * log_of(min(max(proba[c], LEAST_BY_VOTE), 1.0)))
        if c == n - 1:
            proba[c] *= others
        total += proba[c]
    scale_terms(proba, 0, n, 1.0 / total)
