"""Nearest neighbours among the latest events that the trees store.

The score of class c is the logarithm of

    (w_c N_NEAREST / sum(w) + PRIOR / n_classes) / (N_NEAREST + PRIOR),

with w_c the sum of the weights of its events among the N_NEAREST nearest of the last WINDOW events. A weight is the
inverse of the distance between scaled values. Neighbours lead where events of a class lie in small groups that are
scattered or that move, and soon after changes, because an event counts in full as soon as it is learned.

Events are searched in blocks of LANES. The largest closeness in each lane is kept, so that finding and removing the
nearest event visits one event per block.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import (
    LANES,
    first_equal,
    inlined,
    lanes,
    lanes_at,
    larger,
    largest_of,
    put_lanes,
    times_plus,
    uint,
)
from streamsvm.core.math import log_of
from streamsvm.core.schema import f32

# Number of the latest events that are searched, up to a block of LANES, and number of neighbours.
WINDOW, N_NEAREST = 256, 3
# Number of slots for measured events.
MEASURED = WINDOW + LANES
# What each event of age adds to a squared distance, which prefers new events among similar ones, and a distance added
# to all, which limits the weight of equal events.
AGEING, LEAST_DISTANCE = 1e-3, 1e-3
# Number of events of equally frequent classes that are added to the neighbours. Smaller numbers lower the accuracy of
# the vote where neighbours are uninformative, as with noise or few labels.
PRIOR = 3.0
_NONE = -math.inf


@inlined
def measure(state, first):
    """Compute the closeness of the stored events from number `first` on.

    `first` is a multiple of LANES. Closeness is minus the squared distance from the loaded row, minus AGEING times the
    age of the event.

    Returns
    -------
    int
        The number of measured slots; slots without an event are at an infinite distance.
    """
    n, values, closeness, ages, row = state.labels.size, state.values, state.closeness, state.ages, state.row
    at = 0
    for i in range(first, state.n_learned, LANES):
        b, sums = i % n, lanes(f32(0.0))
        for j in range(state.n_columns):
            t = lanes_at(values, (uint(j), uint(b))) - row[uint(j)]
            sums = times_plus(t, t, sums)
        put_lanes(lanes_at(ages, uint(at)) - sums, closeness, uint(at))
        at += LANES
    for i in range(state.n_learned - first, at):
        closeness[uint(i)] = f32(_NONE)
    return at


@inlined
def find_tops(state, n_measured):
    """Find the largest closeness in each lane."""
    tops = lanes(f32(_NONE))
    for b in range(0, n_measured, LANES):
        tops = larger(tops, lanes_at(state.closeness, uint(b)))
    put_lanes(tops, state.tops, uint(0))


@inlined
def remove_closest(state, lane, n_measured):
    """Remove the closest event of a lane and return its slot."""
    closeness, top, second, found = state.closeness, state.tops[uint(lane)], f32(_NONE), lane
    for i in range(lane, n_measured, LANES):
        value = closeness[uint(i)]
        found = i if value == top else found
        second = max(second, value if value < top else f32(_NONE))
    closeness[uint(found)], state.tops[uint(lane)] = f32(_NONE), second
    return found


@inlined
def score_by_neighbours(state, start):
    """Compute the scores of the loaded row from index `start` on."""
    n, scores, labels, total = state.n_classes, state.scores, state.labels, 0.0
    first = max(state.n_learned - WINDOW, 0) // LANES * LANES
    n_measured, n_nearest = measure(state, first), min(N_NEAREST, state.n_learned)
    find_tops(state, n_measured)
    for c in range(n):
        scores[start + c] = 0.0
    for _ in range(n_nearest):
        tops = lanes_at(state.tops, uint(0))
        top = largest_of(tops)
        found = first + remove_closest(state, first_equal(tops, top), n_measured)
        weight = 1.0 / (math.sqrt(-top) + LEAST_DISTANCE)
        scores[start + labels[uint(found % labels.size)]] += weight
        total += weight
    share = n_nearest / total if n_nearest > 0 else 0.0
    for c in range(n):
        scores[start + c] = log_of((share * scores[start + c] + PRIOR / n) / (n_nearest + PRIOR))
