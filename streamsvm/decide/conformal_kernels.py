"""Sets of labels that cover the true one as often as is wanted, whatever the stream does.

The score of a label is s = -log p, at most MOST, where the logarithm is straight between powers of two: that is at most
.06 more, in the same order, and takes no time either way; p is 0 where it is no number. The set of an event has the
labels whose score is at most

    q = sum_k w_k q_k + MOST (D / SLACK)^3

Each tracker q_k follows the quantile of the true label's score at a rate of its own, by the gradient of the pinball
loss; their weights follow that loss of late, with a share that is dealt out anew (quantile tracking, and aggregation
for unknown rates of drift). D is the debt: misses so far less those that were allowed. Where it comes to SLACK all
labels are in the set, at -SLACK none, so that over any stretch of the stream, whatever comes, misses differ from those
allowed by at most 2 (SLACK + 1), and by SLACK + 1 counted from the beginning. By class there is one threshold for each,
which its own events move.

Notes
-----
I. Gibbs and E. Candès, "Adaptive conformal inference under distribution shift", 2021, and "Conformal inference for
online prediction with arbitrary distribution shifts", 2022 (the experts); A. Angelopoulos, E. Candès and R. Tibshirani,
"Conformal PID control for time series prediction", 2023 (tracking in the space of scores, equations 3 and 4; the debt,
equation 5); A. Angelopoulos, R. Barber and S. Bates, "Online conformal prediction with decaying step sizes", 2024 (the
first steps).
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.access import StateType, state_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, jit_fma, kernel
from streamsvm.core.math import exp_below, log_of
from streamsvm.core.schema import Array, Number, Schema, address, i64, records
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.features.scaler import MOST_EVENTS

# The largest score, and how far misses may be from what is allowed.
MOST, SLACK = 10.0, 50.0
# The bits of a float64 are its logarithm, straight between powers of two, in such units.
BITS_OF_ONE, UNIT = 1023 << 52, math.log(2.0) / (1 << 52)
# The steps of the trackers; the first ones are longer.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
N_RATES = len(RATES)  # known when loops over them are compiled
FIRST_STEP, FIRST_POWER = 1.0, 0.6
FIRST_LABELS = (FIRST_STEP / RATES[0]) ** (1.0 / FIRST_POWER) + 1.0
# How fast weights follow the losses, which are in units of their decayed mean, and what is dealt out anew.
WEIGHT_RATE, MOST_LOSS, DEALT, LOSS_RATE = 0.1, 2.0, 0.001, 0.01

_DEBT = (-SLACK - 1.0, SLACK + 1.0)

SETS = Schema(
    "sets",
    {
        "miss": Number("the share of events whose label may be missing", start=0.1),
        "by_class": Number("whether each class has a threshold of its own", i64),
        "n_groups": Number("how many thresholds there are", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_known": Number("classes of which there was a label", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "groups": records(
            ("groups",),
            "the thresholds",
            seen=Number("labels they rest on", saved=True, bounds=(0.0, MOST_EVENTS)),
            debt=Number("misses less those allowed", saved=True, bounds=_DEBT),
            loss=Number("the decayed mean loss", saved=True, bounds=(0.0, MOST)),
            total=Number("the sum of the weights of its trackers", saved=True, bounds=(1e-3, 1.001)),
            tracked=Number("what the trackers say together", saved=True, bounds=(0.0, 2.0 * MOST)),
            least=Number("the least probability that is in the set", saved=True, bounds=(0.0, math.exp(3.0 * MOST))),
        ),
        "trackers": Array(("groups", "rates"), "their thresholds", saved=True, bounds=(0.0, MOST)),
        "weights": Array(("groups", "rates"), "their weights", saved=True, bounds=(0.0, 1.0)),
        "rates": Array(("rates",), "their steps"),
    },
)

COVERING = Schema(
    "covering",
    {
        "proba": Array(("asked", "classes"), "the probabilities of all classes, row by row", external=True),
        "labels": Array(("asked",), "the class of each row that is known by now, -1 for others", i64, external=True),
        "members": Array(("asked", "classes"), "whether a class is in the set", np.bool_, external=True),
        "sets": address("of what follows events, the thresholds"),
        "next": address("what follows them next, 0 for nothing"),
    },
)

sets_at, covering_at = state_at(SETS), state_at(COVERING)


@inlined
def probable(p):
    """A probability; 0 for what is none."""
    return p if p > 0.0 else 0.0


@inlined
def score(p):
    """The score of a label that has this probability."""
    return min((BITS_OF_ONE - np.float64(p).view(np.int64)) * UNIT, MOST) if p > 0.0 else MOST


@inlined
def probability(s):
    """That which has score s."""
    return np.int64(BITS_OF_ONE - np.int64(s * (1.0 / UNIT))).view(np.float64)


@inlined
def slope(above, miss):
    """That of the pinball loss of a threshold that a score is so far above, where this share may be missing."""
    return 1.0 - miss if above > 0.0 else -miss


@inlined
def worth(eighth):
    """What a weight is multiplied by for a loss of so many eighths: exp(-loss), less precise if large (.100 at 2)."""
    part = 1.0 - eighth
    part *= part
    part *= part
    return part * part


@kernel
def begin_groups(state, n):
    """See that there are n thresholds: a new one begins where calibrated probabilities would have it."""
    first = min(-math.log(state.miss), MOST)
    for g in range(state.n_groups, n):
        for k in range(N_RATES):
            state.trackers[g, k], state.weights[g, k] = first, 1.0 / N_RATES
        state.groups[g].total = 1.0
        set_threshold(state.groups[g], first)
    state.n_groups = max(state.n_groups, n)


@inlined
def set_threshold(group, tracked):
    """Set how probable a label in the set is at least, by what trackers say together, and what the debt adds."""
    part = group.debt * (1.0 / SLACK)
    q = tracked + MOST * (part * part * part)
    group.tracked = tracked
    # Scores end at MOST: a threshold from there on has all labels in the set, however improbable.
    group.least = 0.0 if q >= MOST else probability(q)


@inlined
def fill(state, covering, i):
    """The set of row i: the most probable class, and all that are probable enough; none where nothing is known."""
    proba, members, best, top = covering.proba, covering.members, 0, 0.0
    groups, by_class, n_known = state.groups, state.by_class > 0, state.n_known
    for c in range(proba.shape[1]):
        p = probable(proba[uint(i), uint(c)])
        is_known = (c < n_known) | (p > 0.0)
        members[uint(i), uint(c)] = is_known & (p >= groups[uint(c if by_class else 0)].least)
        best, top = c if p > top else best, p if p > top else top
    if proba.shape[1] > 0:
        members[uint(i), uint(best)] |= top > 0.0


@jit_fma
def learn(state, p, label):
    """Take a label, and what its probability was, into its threshold.

    Nothing waits for this event's loss: weights follow it from the next event on, in units of the losses before it.
    """
    g = uint(label if state.by_class > 0 else 0)
    group, trackers, weights, rates, miss = state.groups[g], state.trackers, state.weights, state.rates, state.miss
    s = score(p)
    above, rate, share = s - group.tracked, WEIGHT_RATE / 8.0 / max(group.loss, 1e-6), (1.0 - DEALT) / group.total
    group.seen += 1.0
    group.debt += (1.0 if p < group.least else 0.0) - miss
    group.loss += max(LOSS_RATE, 1.0 / group.seen) * (above * slope(above, miss) - group.loss)
    first = FIRST_STEP * exp_below(-FIRST_POWER * log_of(group.seen)) if group.seen < FIRST_LABELS else 0.0
    total, tracked = 0.0, 0.0
    for k in range(N_RATES):
        tracker = trackers[g, uint(k)]
        weight, above = share * weights[g, uint(k)] + DEALT / N_RATES, s - tracker
        way = slope(above, miss)
        tracker = min(max(tracker + max(rates[uint(k)], first) * way, 0.0), MOST)
        tracked += weight * tracker
        weight *= worth(min(rate * (above * way), MOST_LOSS / 8.0))
        total += weight
        trackers[g, uint(k)], weights[g, uint(k)] = tracker, weight
    group.total = total
    set_threshold(group, tracked)


@inlined
def take_row(state, covering, i, label):
    """The set of row i, before its label is taken.

    The first label of a class, which could be in no set, moves nothing. Classes are numbered as their labels come.
    """
    fill(state, covering, i)
    if 0 <= label < state.n_known:
        learn(state, probable(covering.proba[uint(i), uint(label)]), label)
    state.n_known = max(state.n_known, label + 1)


@kernel
def run_sets(state, covering):
    """The set of each row, one after the other."""
    for i in range(covering.labels.size):
        take_row(state, covering, i, covering.labels[i])


def follow_sets(address, label, row):
    """All sets that follow a learner, by the probabilities where it leaves those of a single event; compiled apart."""
    while address != 0:
        covering = covering_at(address)
        take_row(sets_at(covering.sets), covering, 0, label)
        address = covering.next


_SETS, _COVERING = StateType(SETS.name), StateType(COVERING.name)

ENTRY_POINTS = {
    "begin_groups": EntryPoint(begin_groups, (_SETS, INTEGER)),
    "run_sets": EntryPoint(run_sets, (_SETS, _COVERING)),
    "follow_sets": EntryPoint(follow_sets, (INTEGER,) * 3),
}
