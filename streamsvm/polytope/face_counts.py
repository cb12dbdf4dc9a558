"""Counts of the faces of a class, and the entropy-based assignment of events."""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel, uint


@kernel
def xlogx(x):
    """Return x log x, or its limit 0 at 0."""
    return x * math.log(x) if x > 0.0 else 0.0


@kernel
def assign(state, c, best):
    """Assign an event of class c to a face, and count its best face (Algorithm 2).

    A count increases by `next_count`, which grows each time, so earlier counts decay relative to later ones. With n the
    total count and S the sum of n_i ln n_i over the faces, the entropy is ln n - S / n.

    Parameters
    ----------
    best
        Face with the largest score.

    Returns
    -------
    int
        The assigned face.
    """
    k, own, counts, scores = state.n_faces, state.classes[c], state.counts, state.scores
    first = c * k
    one = own.next_count
    s, after = own.n_log_n, own.count + one
    log_after = math.log(after)
    n_best = counts[first + best] + one
    best_log = xlogx(n_best)
    chosen = best
    if after > one and log_after - (s - state.n_log_n[first + best] + best_log) / after < state.entropy:
        # Counting face i increases the entropy beyond rounding error if it adds less than this to S.
        now = own.log_count - s / own.count
        spare = after * (log_after - now - 1e-12) - s
        top = -math.inf
        for i in range(k):
            j = uint(first + i)
            if scores[j] > top and xlogx(counts[j] + one) - state.n_log_n[j] < spare:
                chosen, top = i, scores[j]
    count_face(state, c, best, n_best, best_log, after, log_after)
    own.next_count = one * state.count_growth
    if one > 1e100:
        rescale_counts(state, c, one)
    return chosen


@inlined
def count_face(state, c, face, n, n_log_n, total, log_total):
    """Set the count of a face, and the totals of its class."""
    own, at = state.classes[c], c * state.n_faces + face
    own.n_log_n += n_log_n - state.n_log_n[at]
    state.counts[at], state.n_log_n[at] = n, n_log_n
    own.count, own.log_count = total, log_total


@kernel
def rescale_counts(state, c, unit):
    """Divide all counts of a class by `unit`; only their ratios matter."""
    k, own, total, n_log_n = state.n_faces, state.classes[c], 0.0, 0.0
    for i in range(c * k, (c + 1) * k):
        state.counts[i] /= unit
        state.n_log_n[i] = xlogx(state.counts[i])
        total += state.counts[i]
        n_log_n += state.n_log_n[i]
    own.count, own.log_count, own.n_log_n = total, math.log(total), n_log_n
    own.next_count /= unit


@inlined
def step_count(state, c):
    """Return the number of the current step of class c, at most `horizon`.

    Steps start at 2: with step 1 the decay 1 - 1/t would erase the weights.
    """
    return min(state.classes[uint(c)].steps + 2.0, state.horizon)
