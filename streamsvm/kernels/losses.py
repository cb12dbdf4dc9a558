"""The losses: which update of the classes' scores follows from each, and which probabilities.

A loss is chosen by its id. The update u is the negative gradient of the loss in the scores f; a step adds it, times the
step's length, to what the scores are made of. Another loss is another branch of `find_update` and
`inverse_temperature`.
"""

from __future__ import annotations

import math

from streamsvm.kernels import inlined
from streamsvm.kernels.exponential import exp_below

# max(0, 1 - f_y + max of the others) (Crammer and Singer), and -log softmax(f)_y.
HINGE, LOG = 0, 1
# The log loss acts on events whose label has less than 1 - LEAST_ERROR of the probability: if it acted on all, each
# would bring a vector, and the memory would be short.
LEAST_ERROR = 0.3
# Probabilities are the softmax of f for the log loss, and of so many f for the hinge.
HINGE_INVERSE_TEMPERATURE = 3.0


@inlined
def best_class(scores, at, n):
    """The class with the largest of n scores, the first of equals."""
    best = 0
    for c in range(1, n):
        if scores[at + c] > scores[at + best]:
            best = c
    return best


@inlined
def softmax_terms(scores, at, n, beta, out, to):
    """out[to + c] = exp(beta * (f_c - the largest)) for n scores; returns their sum: divided by it, a softmax."""
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[to + c] = math.exp(beta * (scores[at + c] - top))
        total += out[to + c]
    return total


@inlined
def fast_softmax_terms(scores, at, n, beta, out, to):
    """`softmax_terms` to single precision."""
    top, total = scores[at + best_class(scores, at, n)], 0.0
    for c in range(n):
        out[to + c] = exp_below(beta * (scores[at + c] - top))
        total += out[to + c]
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
    for c in range(at, at + n):
        update[c] = -update[c] / total if acting else 0.0
    if acting:
        update[at + label] += 1.0
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
