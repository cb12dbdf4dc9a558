"""What the order of labels says: class frequencies by the labels learned last, and how far to trust them.

Labels of a stream often follow one another: the same as before, or by the clock. With N_k(c | l_1 .. l_k) how often
class c came after the labels l_k .. l_1 (decayed), frequencies back off to those of shorter memory,

    M_0(c) = (N_0(c) + 1/n) / (sum N_0 + 1),    M_k(c) = (N_k(c) + M_{k-1}(c)) / (sum N_k + 1),

and the *lift* log M_ORDERS(c) - log M_0(c) is what the order says beyond the classes' frequencies. It enters the
probabilities p of a vote as p'(c) ~ p(c)^POWER exp(TRUST lift(c)), both exponents learned by the log loss of p'; p' is
heard only while its log loss of late is less than that of p.

An event is counted under the labels that were known when it was *predicted*: where labels come late these are not the
ones before it. So a note of each prediction is kept until its event is learned.

Notes
-----
Temporal dependence as something to learn and not only to beat: A. Bifet et al., "Pitfalls in benchmarking data stream
classification and how to avoid them", ECML PKDD 2013. The estimate is interpolated as in text compression.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.kernels import inlined, kernel
from streamsvm.kernels.rows import u

# So many labels are looked back upon, at most, and contexts of each length share so many rows of counts.
ORDERS, CONTEXTS = 3, 256
N_ROWS = 1 + ORDERS * CONTEXTS

# The numbers kept: the exponents; decayed log losses without and with the order; what a count is raised by, and the
# labels learned last, -1 where there are none; where the oldest note is, how many there are, and whether nothing has
# been learned since the newest; the key of the event learned last, -1 where there is none.
POWER, TRUST, PLAIN_LOSS, ORDERED_LOSS, RAISE, RECENT = range(6)
OLDEST, N_NOTES, IS_FRESH, LAST_KEY, N_FIELDS = range(RECENT + ORDERS, RECENT + ORDERS + 5)
# Rows of the scratch: the vote's probabilities and their logarithms, the lift, and the probabilities with it.
PLAIN, LOGS, LIFT, ORDERED, N_SCRATCH = range(5)
# Notes of predictions: first all keys, then ORDERS labels each.
NOTES, NOTE_FIELDS = 1024, 1 + ORDERS

DECAY, LOSS_RATE = 0.999, 0.002
STEP, LEAST_POWER, MOST_POWER, MOST_TRUST, MOST_GRADIENT = 0.01, 0.1, 10.0, 3.0, 5.0
# By so much log loss the order must be better to be heard.
MARGIN = 0.003
LEAST_PROBABILITY = 1e-6
# Counts are scaled back when what they are raised by has grown to this.
LARGE = 1e100

# Where the labels known at the prediction of an event are noted; or now, or nobody knows.
NOW, UNKNOWN = -1, -2


@kernel
def row_key(values, columns, start, end, shared, present):
    """A number that rows of the same entries share. Missing values and zeros do not count, nor columns not seen yet."""
    skip = start if shared else 0
    bits = values.view(np.uint64)
    key = u(14695981039346656037)
    for i in range(start, end):
        column = u(columns[u(i - skip)])
        if values[u(i)] != 0.0 and values[u(i)] == values[u(i)] and present[column] > 0.0:
            key = (key ^ bits[u(i)] ^ (column << u(1))) * u(1099511628211)
            key ^= key >> u(29)
    return float(key >> u(12))


@kernel
def note(order, notes, key):
    """Note that an event is predicted, with the labels known by now."""
    n, oldest = int(order[N_NOTES]), int(order[OLDEST])
    if order[IS_FRESH] > 0.0 and n > 0 and notes[(oldest + n - 1) % NOTES] == key:
        return
    at = (oldest + n) % NOTES
    if n == NOTES:
        order[OLDEST] = (oldest + 1) % NOTES
    else:
        order[N_NOTES] = n + 1
    order[IS_FRESH] = 1.0
    notes[at] = key
    for k in range(ORDERS):
        notes[NOTES + at * ORDERS + k] = order[RECENT + k]


@kernel
def recall(order, notes, key):
    """Where the oldest note of an event is; NOW if no event waits for its label, UNKNOWN if only others do."""
    n, oldest = int(order[N_NOTES]), int(order[OLDEST])
    for i in range(n):
        at = (oldest + i) % NOTES
        if notes[at] == key:
            return at
    return NOW if n == 0 else UNKNOWN


@kernel
def drop(order, notes, at):
    """Drop a note and those before it: labels come in the order of events."""
    n, oldest = int(order[N_NOTES]), int(order[OLDEST])
    n_dropped = (at - oldest) % NOTES + 1
    for i in range(n_dropped):
        slot = (oldest + i) % NOTES
        notes[slot] = 0.0
        for k in range(ORDERS):
            notes[NOTES + slot * ORDERS + k] = 0.0
    order[N_NOTES] = n - n_dropped
    order[OLDEST] = (at + 1) % NOTES if n_dropped < n else 0


@inlined
def context(labels, at, k):
    """The row of counts for the first k of the labels that begin at `at`."""
    mixed = 0
    for i in range(k):
        mixed = (mixed * 1000003 + int(labels[at + i]) + 1) % CONTEXTS
    return 1 + (k - 1) * CONTEXTS + mixed


@kernel
def lift(counts, order, labels, at, n, out):
    """What the order says of n classes, after the labels that begin at `at`; `out` has room for as many more."""
    room = counts.size // N_ROWS
    back_off(counts, 0, n, order[RAISE], True, out)
    for c in range(n):
        out[room + c] = math.log(max(out[c], LEAST_PROBABILITY))
    for k in range(1, ORDERS + 1):
        back_off(counts, context(labels, at, k) * room, n, order[RAISE], False, out)
    for c in range(n):
        out[c] = math.log(max(out[c], LEAST_PROBABILITY)) - out[room + c]


@inlined
def back_off(counts, row, n, one, first, out):
    """Frequencies by one row of counts, in place of those `out` holds; at first there are none."""
    total = one
    for c in range(n):
        total += counts[row + c]
    share = 1.0 / total
    for c in range(n):
        out[c] = (counts[row + c] + one * (1.0 / n if first else out[c])) * share


@kernel
def combine(order, scratch, n):
    """The probabilities with the order, from the vote's and the lift."""
    room = scratch.size // N_SCRATCH
    logs, lifts, out = scratch[LOGS * room :], scratch[LIFT * room :], scratch[ORDERED * room :]
    power, trust = order[POWER], order[TRUST]
    top = -math.inf
    for c in range(n):
        out[c] = power * logs[c] + trust * lifts[c]
        top = max(top, out[c])
    total = 0.0
    for c in range(n):
        out[c] = math.exp(out[c] - top)
        total += out[c]
    share = 1.0 / total
    for c in range(n):
        out[c] *= share


@kernel
def add_order(counts, order, scratch, n, proba):
    """Let the order into the probabilities of n classes, where it is heard; the vote's are in the scratch already."""
    room = scratch.size // N_SCRATCH
    for c in range(n):
        scratch[LOGS * room + c] = math.log(max(scratch[c], LEAST_PROBABILITY))
    lift(counts, order, order, RECENT, n, scratch[LIFT * room :])
    combine(order, scratch, n)
    if is_heard(order):
        for c in range(n):
            proba[c] = scratch[ORDERED * room + c]


@inlined
def is_heard(order):
    """Whether the order makes predictions better, of late."""
    return order[ORDERED_LOSS] < order[PLAIN_LOSS] - MARGIN


@kernel
def learn_order(counts, order, notes, scratch, key, n, label):
    """Learn the label of an event predicted among n classes."""
    at = recall(order, notes, key)
    if at < 0 and key == order[LAST_KEY] and label == order[RECENT]:
        return  # learned once more, as ensembles do that weigh events by repeating them: it does not follow itself
    if n >= 2 and label < n and at != UNKNOWN:
        room = scratch.size // N_SCRATCH
        if at >= 0 and not same_labels(order, notes, at):
            lift(counts, order, notes, NOTES + at * ORDERS, n, scratch[LIFT * room :])
            combine(order, scratch, n)
        learn_trust(order, scratch, n, label)
    if at == NOW:
        count_label(counts, order, order, RECENT, label, ORDERS)
    else:
        count_label(counts, order, notes, NOTES + at * ORDERS, label, ORDERS if at >= 0 else 0)
    if at >= 0:
        drop(order, notes, at)
    for k in range(ORDERS - 1, 0, -1):
        order[RECENT + k] = order[RECENT + k - 1]
    order[RECENT], order[IS_FRESH], order[LAST_KEY] = label, 0.0, key


@inlined
def same_labels(order, notes, at):
    """Whether the labels of a note are those of now."""
    same = True
    for k in range(ORDERS):
        same &= notes[NOTES + at * ORDERS + k] == order[RECENT + k]
    return same


@kernel
def learn_trust(order, scratch, n, label):
    """A step of the exponents by the gradient of the log loss, and the losses that decide who is heard."""
    room = scratch.size // N_SCRATCH
    plain, logs = scratch[PLAIN * room :], scratch[LOGS * room :]
    lifts, ordered = scratch[LIFT * room :], scratch[ORDERED * room :]
    by_power, by_trust = logs[label], lifts[label]
    for c in range(n):
        by_power -= ordered[c] * logs[c]
        by_trust -= ordered[c] * lifts[c]
    order[PLAIN_LOSS] -= LOSS_RATE * (math.log(max(plain[label], LEAST_PROBABILITY)) + order[PLAIN_LOSS])
    order[ORDERED_LOSS] -= LOSS_RATE * (math.log(max(ordered[label], LEAST_PROBABILITY)) + order[ORDERED_LOSS])
    by_power = min(max(by_power, -MOST_GRADIENT), MOST_GRADIENT)
    by_trust = min(max(by_trust, -MOST_GRADIENT), MOST_GRADIENT)
    order[POWER] = min(max(order[POWER] * math.exp(STEP * by_power), LEAST_POWER), MOST_POWER)
    order[TRUST] = min(max(order[TRUST] + STEP * by_trust, 0.0), MOST_TRUST)


@kernel
def count_label(counts, order, labels, at, label, orders):
    """Count a label, under up to `orders` of the labels that begin at `at`. Raising by ever more decays the rest."""
    room = counts.size // N_ROWS
    counts[label] += order[RAISE]
    for k in range(1, orders + 1):
        counts[context(labels, at, k) * room + label] += order[RAISE]
    order[RAISE] /= DECAY
    if order[RAISE] > LARGE:
        for i in range(counts.size):
            counts[i] /= order[RAISE]
        order[RAISE] = 1.0
