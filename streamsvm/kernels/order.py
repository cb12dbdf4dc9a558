"""What the order of labels says: class frequencies by the labels learned last, and how far to trust them.

Labels of a stream often follow one another: the same as before, or by the clock. With N_k(c | l_1 .. l_k) how often
class c came after the labels l_k .. l_1 (decayed), frequencies back off to those of shorter memory,

    M_0(c) = (N_0(c) + 1/n) / (sum N_0 + 1),    M_k(c) = (N_k(c) + M_{k-1}(c)) / (sum N_k + 1),

and the *lift* log M_ORDERS(c) - log M_0(c) is what the order says beyond the classes' frequencies. It enters the
probabilities p of a vote as p'(c) ~ p(c)^POWER exp(TRUST lift(c)), both exponents learned by the log loss of p'; p' is
heard only while its log loss of late is less than that of p.

An event is counted under the labels that were known when it was last *predicted*: where labels come late these are not
the ones before it. So a note of each prediction is kept until its event is learned, or one predicted after it: labels
come in the order of events. An event without a note was not predicted, and follows the labels of now, unless its note
may have been lost: pushed out by others, passed over, or made before its columns were seen.

Events are told apart by their rows alone. Where a note waits when another of an equal row is learned, either that event
was predicted again, or an equal one waits for its own label, and then notes go by in the order they were made. What
becomes of such a note tells: in the first case it is passed over, in the second an event is learned by it though its
row was not predicted since the last label.

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
# labels learned last, -1 where there are none; where the oldest note is, how many there are, and how many of them
# were made since an event was learned; the key of the event learned last, -1 where there is none; how many
# events may yet be learned whose notes are lost; the decayed share of equal rows that were events of their own.
POWER, TRUST, PLAIN_LOSS, ORDERED_LOSS, RAISE, RECENT = range(6)
OLDEST, N_NOTES, N_FRESH, LAST_KEY, N_LOST, DISTINCT, N_FIELDS = range(RECENT + ORDERS, RECENT + ORDERS + 7)
# Rows of the scratch: the vote's probabilities and their logarithms, the lift, and the probabilities with it.
PLAIN, LOGS, LIFT, ORDERED, N_SCRATCH = range(5)
# Notes of predictions: first all keys, then ORDERS labels each, then whether each waited when its row was learned.
NOTES, NOTE_FIELDS = 1024, 2 + ORDERS
LEFT = NOTES * (1 + ORDERS)

DECAY, LOSS_RATE = 0.999, 0.002
STEP, LEAST_POWER, MOST_POWER, MOST_TRUST, MOST_GRADIENT = 0.01, 0.1, 10.0, 3.0, 5.0
# How fast it shows whether equal rows are events of their own.
DISTINCT_RATE = 1.0 / 16.0
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
    n, oldest, n_fresh = int(order[N_NOTES]), int(order[OLDEST]), order[N_FRESH]
    if n_fresh > 0.0 and n > 0 and notes[(oldest + n - 1) % NOTES] == key:
        return
    order[N_FRESH] = min(n_fresh + 1.0, NOTES)
    at = (oldest + n) % NOTES
    if n == NOTES:
        order[OLDEST] = (oldest + 1) % NOTES
        if n_fresh < NOTES:
            order[N_LOST] += 1.0
    else:
        order[N_NOTES] = n + 1
    notes[at], notes[LEFT + at] = key, 0.0
    for k in range(ORDERS):
        notes[NOTES + at * ORDERS + k] = order[RECENT + k]


@kernel
def recall(order, notes, key):
    """Where the note an event goes by is; NOW if it was not predicted, or since the last label; UNKNOWN if perhaps."""
    n = order[N_NOTES]
    first = find(order, notes, key, False)
    if first < 0:
        return UNKNOWN if n > 0.0 and order[N_LOST] > 0.0 and order[N_FRESH] < NOTES else NOW
    return first if order[DISTINCT] > 0.5 else find(order, notes, key, True)


@inlined
def find(order, notes, key, newest):
    """Where the oldest or the newest note of an event is, -1 if there is none."""
    n, oldest = int(order[N_NOTES]), int(order[OLDEST])
    for i in range(n):
        at = (oldest + (n - 1 - i if newest else i)) % NOTES
        if notes[at] == key:
            return at
    return -1


@kernel
def drop(order, notes, key):
    """Drop the oldest note of an event that is learned and those before it: labels come in the order of events.

    Those that were left by an equal row before say whether such rows are events of their own.
    """
    n, oldest, at = int(order[N_NOTES]), int(order[OLDEST]), find(order, notes, key, False)
    is_fresh = (find(order, notes, key, True) - oldest) % NOTES >= n - order[N_FRESH]
    n_dropped = (at - oldest) % NOTES + 1
    for i in range(n):
        slot = (oldest + i) % NOTES
        if i >= n_dropped:
            if notes[slot] == key:
                notes[LEFT + slot] = 1.0
            continue
        if notes[LEFT + slot] > 0.0 and not (slot == at and is_fresh):
            order[DISTINCT] += DISTINCT_RATE * ((1.0 if slot == at else 0.0) - order[DISTINCT])
        notes[slot] = notes[LEFT + slot] = 0.0
        for k in range(ORDERS):
            notes[NOTES + slot * ORDERS + k] = 0.0
    order[N_LOST] = n - 1
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
    is_spent = at < 0 or (order[DISTINCT] <= 0.5 and order[N_FRESH] == 0.0)
    if is_spent and key == order[LAST_KEY] and label == order[RECENT]:
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
        drop(order, notes, key)
    elif at == UNKNOWN:
        order[N_LOST] -= 1.0
    for k in range(ORDERS - 1, 0, -1):
        order[RECENT + k] = order[RECENT + k - 1]
    order[RECENT], order[N_FRESH], order[LAST_KEY] = label, 0.0, key


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
