"""Sets of labels that cover the true one as often as is wanted, whatever the stream does.

The score of a label is s = -log p, at most MOST. The set of an event has the labels whose score is at most a threshold

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
from numba import types

from streamsvm.kernels import call, inlined, kernel
from streamsvm.kernels.access import StateType, state_at
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.exponential import exp_below
from streamsvm.kernels.rows import MOST_EVENTS, u
from streamsvm.kernels.state import Array, Declaration, Number, address, i64, records

# The largest score, and how far misses may be from what is allowed.
MOST, SLACK = 10.0, 50.0
# The steps of the trackers; the first ones are longer.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
N_RATES = len(RATES)  # known when loops over them are compiled
FIRST_STEP, FIRST_POWER = 1.0, 0.6
FIRST_LABELS = (FIRST_STEP / RATES[0]) ** (1.0 / FIRST_POWER) + 1.0
# How fast weights follow the losses, which are in units of their decayed mean, and what is dealt out anew.
WEIGHT_RATE, MOST_LOSS, DEALT, LOSS_RATE = 0.1, 2.0, 0.001, 0.01

_DEBT = (-SLACK - 1.0, SLACK + 1.0)

SETS = Declaration(
    "sets",
    {
        "miss": Number("the share of events whose label may be missing", start=0.1),
        "by_class": Number("whether each class has a threshold of its own", i64),
        "n_groups": Number("how many thresholds there are", i64, saved=True, within=(0.0, MOST_EVENTS)),
        "n_known": Number("classes of which there was a label", i64, saved=True, within=(0.0, MOST_EVENTS)),
        "groups": records(
            ("groups",),
            "the thresholds",
            seen=Number("labels they rest on", saved=True, within=(0.0, MOST_EVENTS)),
            debt=Number("misses less those allowed", saved=True, within=_DEBT),
            loss=Number("the decayed mean loss", saved=True, within=(0.0, MOST)),
            threshold=Number("the largest score that is in the set", saved=True, within=(-2.0 * MOST, 3.0 * MOST)),
            least=Number("the probability that has that score", saved=True, within=(0.0, math.exp(3.0 * MOST))),
        ),
        "trackers": Array(("groups", "rates"), "their thresholds", saved=True, within=(0.0, MOST)),
        "weights": Array(("groups", "rates"), "their weights", saved=True, within=(0.0, 1.0)),
        "rates": Array(("rates",), "their steps"),
    },
)

COVERING = Declaration(
    "covering",
    {
        "proba": Array(("asked", "classes"), "the probabilities of all classes, row by row", lent=True),
        "labels": Array(("asked",), "the class of each row that is known by now, -1 for others", i64, lent=True),
        "members": Array(
            ("answered", "classes"), "whether a class is in the set; no rows where nobody asks", np.bool_, lent=True
        ),
        "sets": address("of what follows events, the thresholds"),
        "next": address("what follows them next, 0 for nothing"),
    },
)

sets_at, covering_at = state_at(SETS), state_at(COVERING)


@inlined
def score(p):
    """The score of a label that has this probability."""
    return min(-math.log(p), MOST) if p > 0.0 else MOST


@inlined
def pinball(above, miss):
    """The loss of a threshold that a score is so far above, where this share may be missing."""
    return max(above * (1.0 - miss), -above * miss)


@inlined
def worth(loss):
    """What a weight is multiplied by for a loss: exp(-loss), the less precisely the larger that is (.100 for .135)."""
    part = 1.0 - loss / 8.0
    part *= part
    part *= part
    return part * part


@inlined
def combined(state, g):
    """What the trackers say together."""
    mixed, weights, trackers = 0.0, state.weights, state.trackers
    for k in range(N_RATES):
        mixed += weights[u(g), u(k)] * trackers[u(g), u(k)]
    return mixed


@kernel
def begin_groups(state, n):
    """See that there are n thresholds: a new one begins where calibrated probabilities would have it."""
    for g in range(state.n_groups, n):
        for k in range(N_RATES):
            state.trackers[g, k], state.weights[g, k] = -math.log(state.miss), 1.0 / N_RATES
        set_threshold(state, g)
    state.n_groups = max(state.n_groups, n)


@inlined
def set_threshold(state, g):
    """Work out up to which score labels are in the set."""
    group = state.groups[g]
    group.threshold = combined(state, g) + MOST * (group.debt / SLACK) ** 3
    # Scores end at MOST: a threshold from there on has all labels in the set, however improbable.
    q = group.threshold
    group.least = 0.0 if q >= MOST else exp_below(-q) if q > 0.0 else math.exp(-q)


@inlined
def has(state, proba, i, c):
    """Whether class c, if it is known, is in the set of row i."""
    is_known = c < state.n_known or proba[i, c] > 0.0
    return is_known and proba[i, c] >= state.groups[c if state.by_class > 0 else 0].least


@inlined
def fill(state, proba, i, members, to):
    """The set of row i: the most probable class, and all that are probable enough; none where nothing is known."""
    best = 0
    for c in range(1, proba.shape[1]):
        if proba[i, c] > proba[i, best]:
            best = c
    for c in range(proba.shape[1]):
        members[to, c] = proba[i, best] > 0.0 and (c == best or has(state, proba, i, c))


@kernel
def learn(state, proba, i, label):
    """Take the label of row i into its threshold."""
    g = u(label if state.by_class > 0 else 0)
    group, trackers, weights, rates, miss = state.groups[g], state.trackers, state.weights, state.rates, state.miss
    s, missed, total = score(proba[i, label]), not has(state, proba, i, label), 0.0
    group.seen += 1.0
    group.debt += (1.0 if missed else 0.0) - miss
    loss = pinball(s - combined(state, g), miss)
    group.loss += max(LOSS_RATE, 1.0 / group.seen) * (loss - group.loss)
    rate = WEIGHT_RATE / max(group.loss, 1e-6)
    for k in range(N_RATES):
        weights[g, u(k)] *= worth(min(rate * pinball(s - trackers[g, u(k)], miss), MOST_LOSS))
        total += weights[g, u(k)]
    first = FIRST_STEP * exp_below(-FIRST_POWER * math.log(group.seen)) if group.seen < FIRST_LABELS else 0.0
    share = (1.0 - DEALT) / total
    for k in range(N_RATES):
        step, tracker = max(rates[u(k)], first), trackers[g, u(k)]
        tracker += step * (1.0 - miss) if s > tracker else -step * miss
        trackers[g, u(k)] = min(max(tracker, 0.0), MOST)
        weights[g, u(k)] = share * weights[g, u(k)] + DEALT / N_RATES
    set_threshold(state, g)


@inlined
def take_row(state, covering, i, label, to):
    """The set of row i, where there is a row for it, before its label is taken.

    The first label of a class, which could be in no set, moves nothing. Classes are numbered as their labels come.
    """
    if to < covering.members.shape[0]:
        fill(state, covering.proba, i, covering.members, to)
    if 0 <= label < state.n_known:
        learn(state, covering.proba, i, label)
    state.n_known = max(state.n_known, label + 1)


@kernel
def run_sets(state, covering):
    """The set of each row, one after the other."""
    for i in range(covering.labels.size):
        take_row(state, covering, i, covering.labels[i], i)


def follow_sets(address, label, to):
    """All sets that follow a learner, by the probabilities where it leaves those of an event; compiled apart."""
    while address != 0:
        covering = covering_at(address)
        take_row(sets_at(covering.sets), covering, 0, label, to)
        address = covering.next


@kernel
def tell(run, address, label):
    """Have sets follow a single event, by the address of `follow_sets`, and that of the first."""
    call(run, (address, label, 0))


_SETS, _COVERING = StateType(SETS.name), StateType(COVERING.name)

ENTRIES = {
    "begin_groups": Entry(begin_groups, (_SETS, types.int64)),
    "run_sets": Entry(run_sets, (_SETS, _COVERING)),
    "tell": Entry(tell, (types.int64,) * 3),
    "follow_sets": Entry(follow_sets, (types.int64,) * 3),
}
