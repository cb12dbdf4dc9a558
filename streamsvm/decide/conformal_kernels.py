"""Conformal prediction sets with a coverage guarantee under any drift.

The score of a label is s = -log p, at most MOST. The logarithm is interpolated linearly between powers of two. This is
fast to compute and to invert, keeps the order, and makes scores at most 0.06 larger. NaN counts as probability 0. The
set of an event contains the labels with a score of at most

    q = sum_k w_k q_k + MOST (D / SLACK)^3

Each tracker q_k follows the quantile of the true label's score by the gradient of the pinball loss, with its own
learning rate (quantile tracking). The weights w_k follow the recent pinball losses, and a small share of weight is
redistributed evenly (aggregation for drift of unknown rate).

The debt D is the number of misses minus the allowed number. If it reaches SLACK, the set contains all labels; at -SLACK
it contains none. So the number of misses differs from the allowed number by at most SLACK + 1 from the start of the
stream. Over any part of it, it differs by at most 2 (SLACK + 1). With coverage by class, each class has its own
threshold, which only its own events update.

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

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, StateType, inlined, jit_fma, kernel, state_at, uint
from streamsvm.core.math import exp_below, log_of
from streamsvm.core.schema import Array, Number, Schema, address, i64, records
from streamsvm.features.scaler import MOST_EVENTS

# Maximum score, and debt at which the set contains all labels.
MOST, SLACK = 10.0, 50.0
# The bits of a float64, as an integer, are its logarithm in these units, linear between powers of two.
BITS_OF_ONE, UNIT = 1023 << 52, math.log(2.0) / (1 << 52)
# Learning rates of the trackers; the first steps are larger.
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
N_RATES = len(RATES)  # a constant at compile time
FIRST_STEP, FIRST_POWER = 1.0, 0.6
FIRST_LABELS = (FIRST_STEP / RATES[0]) ** (1.0 / FIRST_POWER) + 1.0
# Learning rate of the weights, maximum loss in units of the decayed mean loss, redistributed share of weight, and decay
# of the mean loss.
WEIGHT_RATE, MOST_LOSS, DEALT, LOSS_RATE = 0.1, 2.0, 0.001, 0.01

_DEBT = (-SLACK - 1.0, SLACK + 1.0)

SETS = Schema(
    "sets",
    {
        "miss": Number("allowed share of misses", start=0.1),
        "by_class": Number("whether each class has its own threshold", i64),
        "n_groups": Number("number of thresholds", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "n_known": Number("number of classes with a label so far", i64, saved=True, bounds=(0.0, MOST_EVENTS)),
        "groups": records(
            ("groups",),
            "thresholds",
            seen=Number("number of labels used", saved=True, bounds=(0.0, MOST_EVENTS)),
            debt=Number("debt: number of misses minus the allowed number", saved=True, bounds=_DEBT),
            loss=Number("decayed mean loss", saved=True, bounds=(0.0, MOST)),
            total=Number("sum of the weights of the trackers", saved=True, bounds=(1e-3, 1.001)),
            tracked=Number("weighted mean of the trackers", saved=True, bounds=(0.0, 2.0 * MOST)),
            least=Number("minimum probability of a class in the set", saved=True, bounds=(0.0, math.exp(3.0 * MOST))),
        ),
        "trackers": Array(("groups", "rates"), "trackers of each threshold", saved=True, bounds=(0.0, MOST)),
        "weights": Array(("groups", "rates"), "weights of the trackers", saved=True, bounds=(0.0, 1.0)),
        "rates": Array(("rates",), "learning rates of the trackers"),
    },
)

COVERING = Schema(
    "covering",
    {
        "proba": Array(("rows", "classes"), "probabilities of all classes for each row", external=True),
        "labels": Array(("rows",), "class of each row, -1 if unknown", i64, external=True),
        "members": Array(("rows", "classes"), "whether a class is in the set", np.bool_, external=True),
        "sets": address("state of the thresholds"),
        "next": address("next state to update, 0 for none"),
    },
)

sets_at, covering_at = state_at(SETS), state_at(COVERING)


@inlined
def probable(p):
    """Return a probability, with 0 for NaN and negative values."""
    return p if p > 0.0 else 0.0


@inlined
def score(p):
    """Return the score of a label with probability p."""
    return min((BITS_OF_ONE - np.float64(p).view(np.int64)) * UNIT, MOST) if p > 0.0 else MOST


@inlined
def probability(s):
    """Return the probability with score s."""
    return np.int64(BITS_OF_ONE - np.int64(s * (1.0 / UNIT))).view(np.float64)


@inlined
def slope(above, miss):
    """Return the slope of the pinball loss.

    `above` is the score minus the threshold, and `miss` the allowed share of misses.
    """
    return 1.0 - miss if above > 0.0 else -miss


@inlined
def worth(eighth):
    """Return about exp(-loss), the factor of a weight, for a loss of 8 * eighth.

    The error grows with the loss: 0.100 instead of 0.135 for a loss of 2.
    """
    part = 1.0 - eighth
    part *= part
    part *= part
    return part * part


@kernel
def begin_groups(state, n):
    """Create thresholds up to n, at the value for calibrated probabilities."""
    first = min(-math.log(state.miss), MOST)
    for g in range(state.n_groups, n):
        for k in range(N_RATES):
            state.trackers[g, k], state.weights[g, k] = first, 1.0 / N_RATES
        state.groups[g].total = 1.0
        set_threshold(state.groups[g], first)
    state.n_groups = max(state.n_groups, n)


@inlined
def set_threshold(group, tracked):
    """Set the minimum probability of a class in the set from trackers and debt."""
    part = group.debt * (1.0 / SLACK)
    q = tracked + MOST * (part * part * part)
    group.tracked = tracked
    # Scores are at most MOST, so the set contains all labels from this threshold on.
    group.least = 0.0 if q >= MOST else probability(q)


@inlined
def predict_set(state, covering, i):
    """Predict the set of row i.

    It contains the most probable class and all classes above their threshold. It is empty if no class is known.
    """
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
    """Update the threshold of a label with its probability p.

    Losses are in units of the mean loss of earlier events, and the new weights apply from the next event on. Thus the
    computation does not wait for the loss of this event.
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
def cover_row(state, covering, i, label):
    """Predict the set of row i, then update the threshold with its label.

    The first label of a class updates nothing, because no set can contain it. Classes are numbered in order of arrival.
    """
    predict_set(state, covering, i)
    if 0 <= label < state.n_known:
        learn(state, probable(covering.proba[uint(i), uint(label)]), label)
    state.n_known = max(state.n_known, label + 1)


@kernel
def run_sets(state, covering):
    """Predict the sets of rows in order, and update the thresholds with their labels."""
    for i in range(covering.labels.size):
        cover_row(state, covering, i, covering.labels[i])


def update_sets(address, label, row):
    """Update all sets of a learner after a single event.

    The learner calls this as a callback, so it is compiled separately. The probabilities are in the learner's memory.
    """
    while address != 0:
        covering = covering_at(address)
        cover_row(sets_at(covering.sets), covering, 0, label)
        address = covering.next


_SETS, _COVERING = StateType(SETS.name), StateType(COVERING.name)

ENTRY_POINTS = {
    "begin_groups": EntryPoint(begin_groups, (_SETS, INTEGER)),
    "run_sets": EntryPoint(run_sets, (_SETS, _COVERING)),
    "update_sets": EntryPoint(update_sets, (INTEGER,) * 3),
}
