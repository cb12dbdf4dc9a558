"""State of row scaling: the current row, and the running statistics of columns.

A row arrives as (column, value) pairs in ascending column order, with NaN for missing values. Scaling turns it into the
*current row*: scaled values and the weight rows they belong to, starting with the bias, whose value is 1. Column j owns
weight row j + 1. The statistics cover the events learned before the row.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import call_pointer, columns_at, element_address, inlined, state_at, uint, values_at
from streamsvm.core.schema import Array, Number, Schema, address, i64

# Values of `request` besides a class to learn: predict the class (PREDICT), also the probabilities (PROBA), also call
# the callback (CALLBACK).
PREDICT, PROBA, CALLBACK = -1, -2, -3

# Scaling methods.
NONE, STANDARD, RANK = 0, 1, 2

# Larger values would overflow the sum of squares.
LARGEST = 1e100
# Scaled values are clipped at this magnitude, so that a single outlier cannot dominate a model.
CLIP = 10.0
# Once a column has KNOWN values, a value more than FAR standard deviations away is an outlier, see `statistics`.
KNOWN, FAR = 8.0, 60.0
# Beyond this many standard deviations, scaled values decrease with the squared distance. If many values equal the
# anchor, the limit is larger: the fewer the other values, the more standard deviations they are away.
FARTHER = 100.0
# The least share of values that differ from the anchor. A mostly zero column has many ties.
LEAST_UNTIED = 1e-3

# Number of groups of classes in which missing values are counted, a power of two.
GROUPS = 4
# Room for events of a memory that need not grow.
UNLIMITED = 1 << 62
# Largest count that a float64 represents exactly.
MOST_EVENTS = 2.0**53
# The inverse root of the smallest positive float64.
MOST_SCALE = 1e162
# Largest distance between two values, with a margin for means that round beyond LARGEST.
FARTHEST = 2.0 * LARGEST
# Recent values that have not arrived: above all others, so that a search of a whole window finds its end.
ABOVE_ALL = 2.0 * LARGEST

_COUNT = (0.0, MOST_EVENTS)


def _statistic(meaning: str, bounds: tuple[float, float]) -> Array:
    return Array(("scaled",), meaning, saved=True, bounds=bounds)


SCALER = Schema(
    "rows",
    {
        "n_gaps": Number("number of columns of missing values", i64),
        "row_length": Number("number of leading columns for which a single event has values", i64),
        "listed": Number("1 + number of columns listed by a single event, 0 if it lists none", i64),
        "room": Number(
            "number of events that can be learned in this memory", i64, start=float(UNLIMITED), is_address=True
        ),
        "held": address("positive while a thread holds the learner's lock, or after another memory replaced this one"),
        "n_pairs": Number("number of pairs of the current event", i64),
        "in_order": Number("whether the pairs of the current event belong to the first weight rows, in order", i64),
        "n_far": Number("if in order, number of values that are missing or beyond FAR", i64),
        "scaling": Number("scaling method: NONE, STANDARD or RANK", i64),
        "window": Number("number of recent values that ranks refer to", i64),
        "spacing": Number("once the window is full, one of this many values enters it; a power of two", i64, 1),
        "decay": Number("factor applied to the sums at each value", start=1.0),
        "limit": Number("maximum magnitude of scaled values", start=CLIP),
        "learner": address("state of the learner"),
        "drive": address("code of the learner that scales an event and calls `step`, see `driver`"),
        "step": address("code of the learner that predicts and learns the current event"),
        "find_ranks": address("code of `find_ranks`, 0 without ranks"),
        "take_ranks": address("code of `take_ranks`, 0 without ranks"),
        "request": Number("class to learn, or PREDICT, PROBA or CALLBACK", i64),
        "label": Number("class to learn, -1 for none", i64),
        "weight": Number("weight of the event"),
        "needs_proba": Number("whether its probabilities are computed", i64),
        "calls_back": Number("whether the callback is called", i64),
        "at": Number("index of the row in its batch", i64),
        "best": Number("most probable class, -1 if none is known, -2 - i if value i cannot be used", i64),
        "opening": Number("whether missing values of a column have just proved informative", i64),
        "n_shares": Number("number of classes in `proba`", i64),
        "proba": Array(("rows_classes",), "class probabilities, written by the learner", external=True),
        "callback": address("code of the callback that receives probabilities and labels, 0 for none"),
        "callback_memory": address("memory of the callback"),
        "seen": Number("number of events learned", saved=True, bounds=_COUNT),
        "groups": Array((GROUPS,), "number of those events by class modulo GROUPS", saved=True, bounds=_COUNT),
        "shift": _statistic("a scaled value is (x - shift) * scale", (-FARTHEST, FARTHEST)),
        "scale": _statistic("factor of scaled values, see shift", (0.0, MOST_SCALE)),
        "count": _statistic("decayed number of values in the sums", _COUNT),
        "total": _statistic("decayed sum of x - shift", (-FARTHEST * MOST_EVENTS, FARTHEST * MOST_EVENTS)),
        "squares": _statistic("decayed sum of (x - shift)^2", (0.0, FARTHEST * FARTHEST * MOST_EVENTS)),
        "present": _statistic("number of values so far", _COUNT),
        "due": _statistic(
            "value of `present` at which shift and scale are updated, negative for indicators (never)", (-1.0, math.inf)
        ),
        "missing": _statistic("number of explicitly missing values since the first value", _COUNT),
        "last_missing": _statistic("value of `seen` at the last missing value", _COUNT),
        "runs": Array(
            ("scaled", GROUPS), "number of runs of missing values by class modulo GROUPS", saved=True, bounds=_COUNT
        ),
        "gap": _statistic("weight row of the column of missing values, 0 for none, -1 if due", (-1.0, MOST_EVENTS)),
        "born": _statistic("number of events before the first value of the column", _COUNT),
        "centred": _statistic("1 if shift is the mean, 0 if the column is sparse", (0.0, 1.0)),
        "outliers": _statistic(
            "value of `present` at which the decreasing count of outliers reaches 0", (0.0, 2.0 * MOST_EVENTS)
        ),
        "anchor": _statistic("a recent value that others are compared with", (-LARGEST, LARGEST)),
        "ties": _statistic("decayed share of sampled values equal to the anchor", (0.0, 1.0)),
        "narrow": _statistic("count of sampled values near the anchor but not equal to it", _COUNT),
        "longest": _statistic("largest value of `narrow` before a distant value reduced it", _COUNT),
        "began": _statistic("value of `present` at which the recent values of ranks start", _COUNT),
        "ring": Array(("ranked", "window"), "recent values in order of arrival", saved=True, start=ABOVE_ALL),
        "ranks": Array(("ranked", "window"), "recent values in ascending order", saved=True, start=ABOVE_ALL),
        "leaving": Array(("ranked",), "position in `ranks` of the oldest value, -1 if nothing changes", i64),
        "entering": Array(("ranked",), "position in `ranks` of the new value: the number of smaller values", i64),
        "upto": Array(("ranked",), "number of recent values not larger than it", i64),
        "searched": Array(("ranked",), "columns to search", i64),
        "sought": Array(("ranked",), "values to search for"),
        "row": Array(("columns",), "values of a single event"),
        "row_columns": Array(("columns",), "columns listed by a single event", i64),
        "all_rows": Array(("weight_rows",), "the indices 0, 1, 2, ...", i64),
        "own_rows": Array(("weight_rows",), "weight rows of the current event, if not in order", i64),
        "scaled": Array(("weight_rows",), "scaled values of the current event"),
        "entered": Array(("scaled",), "values of a row that enter the sums, NaN for outliers"),
    },
)


rows_at = state_at(SCALER)


@inlined
def call_back(rows, label, i):
    """Call the callback with the class of row i, negative if unlabelled.

    The probabilities of the row are in `proba`.
    """
    call_pointer(rows.callback, (rows.callback_memory, label, i))


@inlined
def current_row(rows):
    """Return weight rows and scaled values of the current row."""
    return rows.all_rows if rows.in_order else rows.own_rows, rows.scaled


@inlined
def row_at(values, columns, indptr, shared, i):
    """Return values and columns of row i.

    If `shared`, the columns of each row are the first ones.
    """
    start = indptr[uint(i)]
    n = indptr[uint(i + 1)] - start
    return values_at(element_address(values, start), n), columns_at(element_address(columns, 0 if shared else start), n)


@inlined
def is_whole(columns):
    """Return whether a row has an entry in each of the first n columns.

    The columns must be in ascending order.
    """
    n = columns.size
    return n == 0 or columns[uint(n - 1)] == n - 1


@inlined
def is_far(rows, j, x):
    """Return whether x is an outlier of column j."""
    distance = abs(x - rows.shift[uint(j)]) * rows.scale[uint(j)]
    return distance > FAR and rows.present[uint(j)] >= KNOWN and rows.scaling != NONE


@inlined
def n_ranked_values(stats, j):
    """Return the number of values of column j since its recent values started."""
    return int(stats.present[j] - stats.began[j])
