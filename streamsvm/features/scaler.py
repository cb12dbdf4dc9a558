"""Memory of rows on their way to a learner: the current row, and statistics of columns for running scaling.

A row comes as (column, value) pairs in ascending order of columns, with NaN where a value is missing, and becomes the
*current row*: scaled values and the weight rows they belong to, headed by the bias with its 1. Column j owns weight
row j + 1. A row is scaled with the statistics of the events learned before it.
"""

from __future__ import annotations

import math

from streamsvm.core.access import columns_at, element_address, state_at, values_at
from streamsvm.core.jit import call_pointer, inlined
from streamsvm.core.schema import Array, Number, Schema, address, i64
from streamsvm.core.simd import uint

# What is asked of a single event: a class to learn it with, or a prediction; with its probabilities; with these told to
# what follows events; or the same, where nobody takes heed of it.
PREDICT, PROBA, FOLLOW = -1, -2, -3

# How values are scaled.
NONE, STANDARD, RANK = 0, 1, 2

# Values beyond this would overflow the sum of squares.
LARGEST = 1e100
# Scaled values are cut here, so that a single outlier cannot take over a model.
CLIP = 10.0
# A value more than FAR deviations off is an outlier, once the column has KNOWN values: it does not enter the sums. Each
# adds 1 to a count of outliers, and each other value takes LEAK from it: a share above LEAK / (1 + LEAK) of all values
# makes it grow. When it exceeds half of the values in the sums, but at least FEW_OUTLIERS and at most MANY_OUTLIERS,
# the outliers are the new level of the column, and its statistics restart.
KNOWN, FAR, LEAK = 8.0, 60.0, 1.0 / 6.0
FEW_OUTLIERS, MANY_OUTLIERS = 4.0, 100.0
# Beyond so many deviations, scaled values fall with the square of the distance. Where a share of the values equals the
# anchor, the others are the more deviations off, the fewer they are.
FARTHER = 100.0
# The other way round, outliers have made the sums too wide where other values vary less than a NARROW part of the
# deviation around one of them, the anchor. Of a sample of events, each such value adds 1 to a count and each other one
# takes NOT_NARROW from it; equal values say nothing. From NARROW_MOST on the statistics restart. In columns that change
# slowly values are near one another for long, so that more are asked for: NARROW_TIMES as many as there were before, or
# a share NARROW_SHARE of the values in the sums that are not equal, whichever is less.
NARROW, NOT_NARROW, NARROW_MOST, NARROW_TIMES, NARROW_SHARE = 1.0 / 12.0, 9.0, 16.0, 16.0, 1.0 / 24.0
# Statistics restart with a deviation to begin with, which counts as much as this share of a value.
PRIOR = 0.1
# So do ranks, among as many values or more: among fewer, new ones soon are most.
MANY_RANKED = 500.0
# The decay of the share of ties in that sample: of a column that is zero most of the time, for one.
TIES_RATE, LEAST_UNTIED = 1.0 / 32.0, 1e-3
# All of the first events are in that sample, and one in four later, at random.
ALL_SAMPLED = 64.0
# Shift and scale follow their sums when the count has grown by this share, at the latest after RENEW_MOST values.
RENEW_SHARE = 1.0 / 32.0
RENEW_MOST = 64.0

# Memory that need not grow has room for so many events.
ROOM = 1 << 62
# So many events can be counted in a float64.
MOST_EVENTS = 2.0**53
# The inverse root of the smallest square there is.
MOST_SCALE = 1e162
# Of values from one another; means round beyond the largest value, too.
FARTHEST = 2.0 * LARGEST

_COUNT = (0.0, MOST_EVENTS)


def _statistic(meaning: str, bounds: tuple[float, float], start: float = 0.0) -> Array:
    return Array(("scaled",), meaning, saved=True, bounds=bounds, start=start)


SCALER = Schema(
    "rows",
    {
        "row_length": Number("how many of the first columns a single event has values for", i64),
        "listed": Number("1 + how many columns a single event lists, 0 where it does not", i64),
        "room": Number("so many events can be learned in this memory", i64, start=float(ROOM), is_address=True),
        "held": address("more than 0 while a thread has the learner's lock, or another memory took its place"),
        "n_pairs": Number("how many pairs the current event has", i64),
        "in_order": Number("whether the current event has a value for each of the first weight rows", i64),
        "n_far": Number("in order, how many of these are beyond FAR", i64),
        "scaling": Number("how values are scaled: NONE, STANDARD or RANK", i64),
        "window": Number("ranks are among so many values", i64),
        "spacing": Number(
            "once there are as many, one in so many of those that come, a power of two, is taken in", i64, 1
        ),
        "decay": Number("what sums are multiplied by at each value", start=1.0),
        "limit": Number("the largest scaled value", start=CLIP),
        "learner": address("the state of the learner"),
        "drive": address("the learner's function that scales an event and calls `step`, see `driver`"),
        "step": address("the learner's function that predicts and learns the current event"),
        "find_ranks": address("the function `find_ranks`, 0 without ranks"),
        "take_ranks": address("the function `take_ranks`, 0 without ranks"),
        "asked": Number("the class to learn, or PREDICT, PROBA or FOLLOW", i64),
        "label": Number("the class to learn, -1 for none", i64),
        "weight": Number("the weight of the event"),
        "answering": Number("whether to predict the event", i64),
        "telling": Number("whether to compute its probabilities", i64),
        "following": Number("whether to call the callback", i64),
        "at": Number("the number of the row in its batch", i64),
        "best": Number("the most probable class, -1 if none is known, -2 - i if value i cannot be used", i64),
        "n_shares": Number("the number of classes in `proba`", i64),
        "proba": Array(("rows_classes",), "the probabilities of classes", external=True),
        "follow": address("what follows the probabilities of events, and their labels: its code, 0 for nothing"),
        "followed": address("its memory"),
        "seen": Number("events learned", saved=True, bounds=_COUNT),
        "shift": _statistic("a scaled value is (x - shift) * scale", (-FARTHEST, FARTHEST)),
        "scale": _statistic("see shift", (0.0, MOST_SCALE)),
        "count": _statistic("the sum of 1 over the values, under the decay", _COUNT),
        "total": _statistic("the sum of x - shift", (-FARTHEST * MOST_EVENTS, FARTHEST * MOST_EVENTS)),
        "squares": _statistic("the sum of its square", (0.0, FARTHEST * FARTHEST * MOST_EVENTS)),
        "present": _statistic("how many values there were", _COUNT),
        "due": _statistic("shift and scale follow at so many values; negative for indicators: never", (-1.0, math.inf)),
        "born": _statistic("how many events came before the column", _COUNT),
        "centred": _statistic("1 where shift is the mean, 0 where the column is sparse", (0.0, 1.0)),
        "outliers": _statistic("at so many values the count of outliers is 0 again", (0.0, 2.0 * MOST_EVENTS)),
        "anchor": _statistic("a recent value", (-LARGEST, LARGEST)),
        "ties": _statistic("the decayed share of sampled values equal to the anchor", (0.0, 1.0)),
        "narrow": _statistic("the count of sampled values that are near the anchor and differ from it", _COUNT),
        "longest": _statistic("the largest count of them that other values have ended", _COUNT),
        "began": _statistic("how many values came before the recent values that ranks are among", _COUNT),
        "ring": Array(("ranked", "window"), "recent values by arrival", saved=True),
        "ranks": Array(("ranked", "window"), "recent values, sorted", saved=True),
        "leaving": Array(("ranked",), "where among them the oldest value stands, -1 where nothing changes", i64),
        "entering": Array(("ranked",), "before which the new one comes to stand", i64),
        "upto": Array(("ranked",), "how many are not larger than it", i64),
        "searched": Array(("ranked",), "columns in which a place is looked for", i64),
        "sought": Array(("ranked",), "of these values"),
        "row": Array(("columns",), "the values of a single event"),
        "row_columns": Array(("columns",), "the columns it lists", i64),
        "all_rows": Array(("weight_rows",), "0, 1, 2, ...", i64),
        "own_rows": Array(("weight_rows",), "the weight rows of the current event, where not in order", i64),
        "scaled": Array(("weight_rows",), "its scaled values"),
        "entered": Array(("scaled",), "the values of a row that enter the sums"),
    },
)


rows_at = state_at(SCALER)


@inlined
def follow(rows, label, i):
    """Tell what follows events of row i, whose probabilities are known: its class, less than 0 for none."""
    call_pointer(rows.follow, (rows.followed, label, i))


@inlined
def current_row(rows):
    """The weight rows and scaled values of the current row."""
    return rows.all_rows if rows.in_order else rows.own_rows, rows.scaled


@inlined
def row_at(values, columns, indptr, shared, i):
    """The values and columns of row i of several: all rows have the first columns where `shared`."""
    start = indptr[uint(i)]
    n = indptr[uint(i + 1)] - start
    return values_at(element_address(values, start), n), columns_at(element_address(columns, 0 if shared else start), n)


@inlined
def is_whole(columns):
    """Whether a row has an entry for each of the first columns, given that these are in ascending order."""
    n = columns.size
    return n == 0 or columns[uint(n - 1)] == n - 1


@inlined
def is_far(rows, j, x):
    """Whether x is an outlier of column j."""
    distance = abs(x - rows.shift[uint(j)]) * rows.scale[uint(j)]
    return distance > FAR and rows.present[uint(j)] >= KNOWN and rows.scaling != NONE


@inlined
def n_ranked_values(by, j):
    """How many values of column j have come since the recent ones began."""
    return int(by.present[j] - by.began[j])
