"""Votes with many classes.

Classes that an expert or the previous labels make likely are voted on by name. All other classes are voted on together,
as if they were equally likely, in the last of the classes voted on. Its probability is the total of these classes, its
logarithm the log probability of one of them. The cost of an event thus depends on the number of likely classes.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.losses import LEAST_BY_HEAD, best_class, fast_softmax_terms, slice_sum
from streamsvm.core.math import exp_below, log_of
from streamsvm.ensemble.blend import LEAST_LOG, LEAST_NAMED
from streamsvm.ensemble.combined_vote import POOLED
from streamsvm.ensemble.delayed_votes import REPEATED, answer_in
from streamsvm.ensemble.label_baselines import context, likely_at, n_others, season_label
from streamsvm.ensemble.notes import LAGS
from streamsvm.ensemble.repeats import LABELS
from streamsvm.online.batch import late_at


@inlined
def n_voted(state):
    """Return the number of classes voted on, with all unnamed classes counted as one."""
    named = state.autocorrelation.n_named
    return min(named + 1, state.n_classes) if named > 0 else state.n_classes


@inlined
def place_of(state, label):
    """Return the position of a class among the classes voted on."""
    if state.autocorrelation.n_named == 0 or label >= state.n_classes:
        return label
    return state.place[label] if state.place[label] >= 0 else state.autocorrelation.n_named


@inlined
def class_at(state, place):
    """Return the class at a position among the classes voted on; -1 stays -1."""
    return state.autocorrelation.named[place] if state.autocorrelation.n_named > 0 and place >= 0 else place


@inlined
def best_named(state):
    """Return the most probable class, or -1 if there is none."""
    labels = state.autocorrelation
    if labels.n_named > 0:
        return labels.named[best_class(state.votes, 0, labels.n_named)]
    return best_class(state.proba, 0, state.n_classes) if state.n_classes > 0 else -1


@inlined
def name_class(state, c):
    """Add class c to the named classes."""
    labels = state.autocorrelation
    if state.place[uint(c)] < 0:
        state.place[uint(c)] = labels.n_named
        labels.named[labels.n_named] = c
        labels.n_named += 1


@inlined
def name_repeats(state, found):
    """Add the labels of equal rows to the named classes."""
    for i in range(LABELS):
        if 0 <= answer_in(found, i) < state.n_classes:
            name_class(state, answer_in(found, i))


@kernel
def name_classes(state, block, batch, k):
    """Choose the named classes for row k of the block.

    The unrestricted vote on all classes remains in `proba`.
    """
    n, place, logs, proba = state.n_classes, state.place, state.combination.logs, state.proba
    for c in range(n):
        proba[uint(c)] = 0.0
    labels = state.autocorrelation
    for i in range(labels.n_named):
        place[labels.named[i]] = -1
    labels.n_named, labels.n_classes = 0, n
    capacity, scores = state.proba.size, block.scores[k]
    for h in range(state.experts.size):
        expert = state.experts[h]
        expert.best = best_class(scores, h * capacity, n)
        terms = logs[h]
        expert.total = fast_softmax_terms(scores, h * capacity, n, expert.inverse_temperature, terms, 0)
        name_class(state, expert.best)
        share, least = expert.weight / expert.total, LEAST_NAMED * expert.total
        for c in range(n):
            proba[uint(c)] += share * terms[uint(c)]
        for c in range(n):
            if terms[uint(c)] >= least:
                name_class(state, c)
    late = late_at(batch, block.first + k)
    name_repeats(state, state.repeats.found)
    name_repeats(state, batch.memories[late, REPEATED] if block.rows[k].late > 0 else 0)
    if state.uses_autocorrelation:
        for c in (labels.recent[0], season_label(labels, labels.n_learned, labels.waiting)):
            if c >= 0:
                name_class(state, c)
    for lag in range(1, LAGS + 1 if state.uses_autocorrelation else 1):
        row = context(labels.recent, lag)
        least = likely_at(labels, row, n)
        for c in range(n):
            if labels.counts[uint(row), uint(c)] >= least:
                name_class(state, c)


@kernel
def vote_on_named(state, block, k):
    """Compute the vote on the named classes and, last, on all other classes together."""
    labels, n, votes = state.autocorrelation, n_voted(state), state.votes
    m, named, others = labels.n_named, labels.named, n_others(labels, n)
    capacity, scores, logs = state.proba.size, block.scores[k], state.combination.logs
    pooled, weights = state.combination.probas[POOLED], state.combination.weights
    for c in range(n):
        votes[c] = pooled[c] = 0.0
    for h in range(state.experts.size):
        expert, at, rest = state.experts[h], h * capacity, 1.0
        weight, beta, top = expert.weight, expert.inverse_temperature, scores[h * capacity + expert.best]
        less = log_of(expert.total)
        for c in range(m):
            log = beta * (scores[at + named[c]] - top) - less
            p = exp_below(log)
            rest -= p
            votes[c] += weight * p
            pooled[c] += weights[h] * p
            logs[h, c] = max(log, LEAST_LOG)
        if m < n:
            rest = max(rest, 0.0)
            votes[m] += weight * rest
            pooled[m] += weights[h] * rest
            logs[h, m] = log_of(max(rest / others, LEAST_BY_HEAD))


@kernel
def spread_votes(state):
    """Write the probabilities of all classes to `proba`.

    Unnamed classes share their total as in the unrestricted vote.
    """
    m, n, proba, votes = state.autocorrelation.n_named, state.n_classes, state.proba, state.votes
    for i in range(m):
        proba[state.autocorrelation.named[i]] = 0.0
    others = slice_sum(proba, 0, n)
    share = votes[m] / others if m < n and others > 0.0 else 0.0
    for c in range(n):
        proba[uint(c)] *= share
    for i in range(m):
        proba[state.autocorrelation.named[i]] = votes[i]
