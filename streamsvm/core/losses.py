"""The losses: which update of the classes' scores follows from each, and which probabilities.

A loss is chosen by its id. The update u is the negative gradient of the loss in the scores f; a step adds it, times the
step's length, to what the scores are made of. Another loss is another branch of `find_update` and
`inverse_temperature`.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined
from streamsvm.core.math import exp_below
from streamsvm.core.simd import uint

# max(0, 1 - f_y + max of the others) (Crammer and Singer), and -log softmax(f)_y.
HINGE, LOG = 0, 1
# The log loss acts on events whose label has less than 1 - LEAST_ERROR of the probability: if it acted on all, each
# would bring a vector, and the memory would be short.
LEAST_ERROR = 0.3
# Of more classes than these only such are pushed down by the log loss as have at least this share.
FEW, LEAST_SHARE = 64, 1.0 / 64.0
# In the vote of an ensemble: the least probability of a class by one head, and by all of them.
LEAST_BY_HEAD, LEAST_BY_VOTE = 0.01, 1e-6
# Probabilities are the softmax of f for the log loss, and of so many f for the hinge.
HINGE_INVERSE_TEMPERATURE = 3.0


@inlined
def best_class(scores, at, n):
    """The class with the largest of n scores, the first of equals."""
    best = 0
    if n > FEW:
        top = largest(scores, at, n)
        while best < n - 1 and scores[uint(at + best)] != top:
            best += 1
        return best
    for c in range(1, n):
        if scores[at + c] > scores[at + best]:
            best = c
    return best


@inlined
def largest(x, first, n):
    """The largest of x[first:first + n], by four chains of comparisons that do not wait for each other."""
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
def sum_of(x, first, n):
    """The sum of x[first:first + n], by four sums that do not wait for each other."""
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
def softmax_terms(scores, at, n, beta, out, to):
    """out[to + c] = exp(beta * (f_c - the largest)) for n scores; returns their sum: divided by it, a softmax.

    Of many classes to single precision.
    """
    if n > FEW:
        return fast_softmax_terms(scores, at, n, beta, out, to)
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[to + c] = math.exp(beta * (scores[at + c] - top))
        total += out[to + c]
    return total


@inlined
def fast_softmax_terms(scores, at, n, beta, out, to):
    """`softmax_terms` to single precision."""
    if n == 2:  # the same in half the steps, and without a branch
        less = scores[uint(at)] - scores[uint(at + 1)]
        term = exp_below(-beta * abs(less))
        out[uint(to)], out[uint(to + 1)] = 1.0 if less >= 0.0 else term, term if less >= 0.0 else 1.0
        return 1.0 + term
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[uint(to + c)] = exp_below(beta * (scores[uint(at + c)] - top))
    if n > FEW:
        return sum_of(out, to, n)
    for c in range(n):
        total += out[uint(to + c)]
    return total


@inlined
def scale_terms(out, at, n, share):
    """Multiply n values."""
    for c in range(at, at + n):
        out[c] *= share


@inlined
def inverse_temperature(loss):
    """How many f the probabilities of a loss are the softmax of."""
    return 1.0 if loss == LOG else HINGE_INVERSE_TEMPERATURE


@inlined
def find_update(scores, update, at, n, label, loss):
    """The update of n classes' scores; returns whether the loss acts on the event."""
    if loss == HINGE:
        return find_hinge_update(scores, update, at, n, label)
    total = softmax_terms(scores, at, n, 1.0, update, at)
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
    """The label up and its strongest rival down, where the margin between them is violated."""
    rival = -1
    for c in range(n):
        update[at + c] = 0.0
        if c != label and (rival < 0 or scores[at + c] > scores[at + rival]):
            rival = c
    if scores[at + label] - scores[at + rival] >= 1.0:
        return False
    update[at + label], update[at + rival] = 1.0, -1.0
    return True
