"""Shares of the faces of a class, and the choice of a face by their entropy."""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.simd import uint


@kernel
def xlogx(x):
    """x log x, and its limit 0 at 0."""
    return x * math.log(x) if x > 0.0 else 0.0


@kernel
def assign(state, c, best, previous):
    """The face a positive of class c is assigned to (Algorithm 2), and its own choice `best` counted.

    A count weighs `next_count`, which grows each time, so that earlier counts decay against it. `previous` is the face
    this positive was counted under before, -1 if never (a stream repeats nothing): that count moves. With S the sum of
    n ln n over the faces the entropy is ln n - S / n.
    """
    k, own, counts, scores = state.n_faces, state.classes[c], state.counts, state.scores
    first = c * k
    one = own.next_count
    if previous >= 0:
        n = max(counts[first + previous] - one, 0.0)
        total = own.count - one
        count_face(state, c, previous, n, xlogx(n), total, math.log(total) if total > 0.0 else 0.0)
    s, after = own.n_log_n, own.count + one
    log_after = math.log(after)
    n_best = counts[first + best] + one
    best_log = xlogx(n_best)
    chosen = best
    if after > one and log_after - (s - state.n_log_n[first + best] + best_log) / after < state.entropy:
        # Raising face i raises the entropy, by more than rounding, if it adds less than this to S.
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
    """Set the count of a face, and of its class."""
    own, at = state.classes[c], c * state.n_faces + face
    own.n_log_n += n_log_n - state.n_log_n[at]
    state.counts[at], state.n_log_n[at] = n, n_log_n
    own.count, own.log_count = total, log_total


@kernel
def rescale_counts(state, c, unit):
    """Divide all counts of a class by `unit`: only their shares matter."""
    k, own, total, s = state.n_faces, state.classes[c], 0.0, 0.0
    for i in range(c * k, (c + 1) * k):
        state.counts[i] /= unit
        state.n_log_n[i] = xlogx(state.counts[i])
        total += state.counts[i]
        s += state.n_log_n[i]
    own.count, own.log_count, own.n_log_n = total, math.log(total), s
    own.next_count /= unit


@inlined
def step_count(state, c):
    """The number of the step class c makes now: it begins at 2, because at 1 all would be lost."""
    return min(state.classes[uint(c)].steps + 2.0, state.horizon)
