"""Losses: the update of the class scores for each loss, and its probabilities.

A loss is selected by its id. The update u is the negative gradient of the loss with respect to the scores f. A step
adds u times the step size to the parameters behind the scores. A new loss needs a branch in `find_update` and in
`inverse_temperature`.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, uint
from streamsvm.core.math import exp_below

# Hinge loss max(0, 1 - f_y + max of the other scores) (Crammer and Singer), and log loss -log softmax(f)_y.
HINGE, LOG = 0, 1
# The log loss is active only if the label's probability is below 1 - LEAST_ERROR. Otherwise every event would add a
# support vector, and the budget would cover a short time.
LEAST_ERROR = 0.3
# With more than FEW classes, the log loss lowers only the scores of classes with at least this probability.
FEW, LEAST_SHARE = 64, 1.0 / 64.0
# Lower bounds of class probabilities in the vote of an ensemble: by one head, and by the whole vote.
LEAST_BY_HEAD, LEAST_BY_VOTE = 0.01, 1e-6
# Inverse temperature of the softmax for the hinge loss; it is 1 for the log loss.
HINGE_INVERSE_TEMPERATURE = 3.0


@inlined
def best_class(scores, at, n):
    """Return the class with the largest of n scores, the first one if there are ties."""
    best = 0
    if n > FEW:
        top = slice_max(scores, at, n)
        while best < n - 1 and scores[uint(at + best)] != top:
            best += 1
        return best
    for c in range(1, n):
        if scores[at + c] > scores[at + best]:
            best = c
    return best


@inlined
def slice_max(x, first, n):
    """Return the maximum of x[first:first + n] by four chains of comparisons.

    The chains are independent, so their latencies overlap.
    """
    a = b = c = d = x[uint(first)]
    i, end = first, first + n
    while i + 4 <= end:
        w, x_, y, z = x[uint(i)], x[uint(i + 1)], x[uint(i + 2)], x[uint(i + 3)]
        a, b = w if w > a else a, x_ if x_ > b else b
        c, d = y if y > c else c, z if z > d else d
        i += 4
    while i < end:
        w = x[uint(i)]
        a = w if w > a else a
        i += 1
    a, c = b if b > a else a, d if d > c else c
    return c if c > a else a


@inlined
def slice_sum(x, first, n):
    """Return the sum of x[first:first + n] by four partial sums.

    The sums are independent, so their latencies overlap.
    """
    a = b = c = d = 0.0
    i, end = first, first + n
    while i + 4 <= end:
        a, b, c, d = a + x[uint(i)], b + x[uint(i + 1)], c + x[uint(i + 2)], d + x[uint(i + 3)]
        i += 4
    while i < end:
        a += x[uint(i)]
        i += 1
    return (a + b) + (c + d)


@inlined
def softmax_terms(scores, at, n, out, to):
    """Write exp(f_c - max f) for n scores to `out` and return their sum.

    Scores start at index `at`, terms at index `to`. Dividing the terms by the sum gives the softmax. For more than FEW
    classes the precision is single.
    """
    if n > FEW:
        return fast_softmax_terms(scores, at, n, 1.0, out, to)
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[to + c] = math.exp(scores[at + c] - top)
        total += out[to + c]
    return total


@inlined
def fast_softmax_terms(scores, at, n, beta, out, to):
    """Compute `softmax_terms` of beta * f in single precision."""
    if n == 2:  # half the operations, and no branch
        less = scores[uint(at)] - scores[uint(at + 1)]
        term = exp_below(-beta * abs(less))
        out[uint(to)], out[uint(to + 1)] = 1.0 if less >= 0.0 else term, term if less >= 0.0 else 1.0
        return 1.0 + term
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[uint(to + c)] = exp_below(beta * (scores[uint(at + c)] - top))
    if n > FEW:
        return slice_sum(out, to, n)
    for c in range(n):
        total += out[uint(to + c)]
    return total


@inlined
def scale_terms(out, at, n, share):
    """Multiply n values by `share` in place."""
    for c in range(at, at + n):
        out[c] *= share


@inlined
def inverse_temperature(loss):
    """Return the inverse temperature of the probabilities of a loss."""
    return 1.0 if loss == LOG else HINGE_INVERSE_TEMPERATURE


@inlined
def find_update(scores, update, at, n, label, loss):
    """Write the update of n class scores; return whether the loss is active."""
    if loss == HINGE:
        return find_hinge_update(scores, update, at, n, label)
    total = softmax_terms(scores, at, n, update, at)
    acting = 1.0 - update[at + label] / total > LEAST_ERROR
    least = LEAST_SHARE * total if n > FEW else 0.0
    own = update[at + label]
    for c in range(at, at + n):
        update[c] = -update[c] / total if acting and update[c] >= least else 0.0
    if acting:
        update[at + label] = 1.0 - own / total
    return acting


@inlined
def find_hinge_update(scores, update, at, n, label):
    """Write the update of the hinge loss; return whether the margin is violated.

    The update is 1 for the label, -1 for its strongest rival and 0 for other classes.
    """
    rival = -1
    for c in range(n):
        update[at + c] = 0.0
        if c != label and (rival < 0 or scores[at + c] > scores[at + rival]):
            rival = c
    if scores[at + label] - scores[at + rival] >= 1.0:
        return False
    update[at + label], update[at + rival] = 1.0, -1.0
    return True
