"""Rows on their way to a learner: the event in hand, and running scaling.

A row comes as (column, value) pairs in ascending order of columns, with NaN where a value is missing, and becomes the
*event in hand*: scaled values and the weight rows they belong to, headed by the bias with its 1. Column j owns weight
row j + 1. A row is scaled with the statistics of the events learned before it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, config, types
from numba.extending import intrinsic

from streamsvm.kernels import call, inlined, kernel
from streamsvm.kernels.ranks import (
    count_below,
    count_below_in_four,
    count_upto,
    guess_below,
    is_below,
    next_above,
    replace,
)
from streamsvm.kernels.state import Array, Declaration, Number, address, i64

# Indices are unsigned: numba then leaves out its handling of negative ones, and loops over them vectorise.
u = np.uint64

# What is asked of a single event: a class to learn it with, or a prediction; with its probabilities; with these told to
# what follows events; or the same, where nobody takes heed of it.
PREDICT, PROBA, FOLLOW, LOOK = -1, -2, -3, -4

# How values are scaled.
NONE, STANDARD, RANK = 0, 1, 2

# Values beyond this would overflow the sum of squares.
LARGEST = 1e100
# Scaled values are cut here, so that a single outlier cannot take over a model.
CLIP = 10.0
# Nor may it take over what is known of a column: once there are KNOWN values, the next enters the sums as if it were at
# most FAR deviations off, or as many as count as much as all before it together. What came before is never farther off
# than that, and what goes on makes the variance about twice as large each time.
KNOWN, FAR = 64.0, 100.0
# Shift and scale follow their sums when the count has grown by this share, at the latest after RENEW_MOST values.
RENEW_SHARE = 1.0 / 32.0
RENEW_MOST = 64.0

# So many events can be counted in a float64.
MOST_EVENTS = 2.0**53
# The inverse root of the smallest square there is.
MOST_SCALE = 1e162
# Of values from one another; means round beyond the largest value, too.
FARTHEST = 2.0 * LARGEST

_COUNT = (0.0, MOST_EVENTS)


def _statistic(meaning: str, within: tuple[float, float], start: float = 0.0) -> Array:
    return Array(("scaled",), meaning, saved=True, within=within, start=start)


ROWS = Declaration(
    "rows",
    {
        "row_length": Number("how many of the first columns a single event has values for", i64),
        "listed": Number("1 + how many columns a single event lists, 0 where it does not", i64),
        "held": address("more than 0 while a thread has the learner's lock, or another memory took its place"),
        "n_pairs": Number("how many pairs the event in hand has", i64),
        "in_order": Number("whether the event in hand has a value for each of the first weight rows", i64),
        "n_far": Number("in order, how many of these may not enter the sums of their columns as they are", i64),
        "scaling": Number("how values are scaled: NONE, STANDARD or RANK", i64),
        "window": Number("ranks are among so many values", i64),
        "spacing": Number(
            "once there are as many, one in so many of those that come, a power of two, is taken in", i64, 1
        ),
        "decay": Number("what sums are multiplied by at each value", start=1.0),
        "limit": Number("the largest scaled value", start=CLIP),
        "follow": address("what follows the probabilities of events, and their labels: its code, 0 for nothing"),
        "followed": address("its memory"),
        "seen": Number("events learned", saved=True, within=_COUNT),
        "shift": _statistic("a scaled value is (x - shift) * scale", (-FARTHEST, FARTHEST)),
        "scale": _statistic("see shift", (0.0, MOST_SCALE)),
        "count": _statistic("the sum of 1 over the values, under the decay", _COUNT),
        "total": _statistic("the sum of x - shift", (-FARTHEST * MOST_EVENTS, FARTHEST * MOST_EVENTS)),
        "squares": _statistic("the sum of its square", (0.0, FARTHEST * FARTHEST * MOST_EVENTS)),
        "present": _statistic("how many values there were", _COUNT),
        "due": _statistic("shift and scale follow at so many values; negative for indicators: never", (-1.0, math.inf)),
        "born": _statistic("how many events came before the column", _COUNT),
        "centred": _statistic("1 where shift is the mean, 0 where the column is sparse", (0.0, 1.0)),
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
        "own_rows": Array(("weight_rows",), "the weight rows of the event in hand, where not in order", i64),
        "scaled": Array(("weight_rows",), "its scaled values"),
    },
)


@intrinsic
def _pointer(_, address):
    def codegen(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(types.voidptr))

    return types.voidptr(types.intp), codegen


@inlined
def borrow(array):
    """A view that is not reference counted.

    Every compiled function counts the references to its arrays, with atomic operations that cost more than a short
    function does. An entry point holds its arrays as long as it runs, so what it calls may do without.
    """
    return carray(_pointer(array.ctypes.data), array.shape, array.dtype)


@inlined
def packed_values(packed):
    """The values of an event that a call has packed."""
    return carray(_pointer(packed.start), (packed.size >> 3,), np.float64)


if config.DISABLE_JIT:  # to follow the steps in a debugger, or count the lines that tests reach
    borrow = np.asarray

    def packed_values(packed):
        return np.frombuffer(packed) if packed else np.zeros(0)


@inlined
def single_event(rows, packed):
    """The values and columns of a single event, how many, and whether columns are `shared`, as for `load`.

    Parameters
    ----------
    packed
        Its values, of the first columns. Where it is empty, a thread that has the learner's lock has put the event into
        the memory: with values for the first `row_length` columns, or for those it lists, once.

    Returns
    -------
    (values, columns, n, shared)
        n is -1 where a thread has the lock, or the memory is another one now.
    """
    values = packed_values(packed)
    n = values.size
    if n > 0:
        row = rows.row
        if rows.held > 0 or n > row.size:
            return row, rows.all_rows, -1, True
        for j in range(n):
            row[u(j)] = values[u(j)]
        return row, rows.all_rows, n, True
    if rows.listed == 0:
        return rows.row, rows.all_rows, rows.row_length, True
    n = rows.listed - 1
    rows.listed = 0
    return rows.row, rows.row_columns, n, False


@inlined
def is_followed(rows, label):
    """Whether what follows events is told of a single one, by what is asked of it."""
    return rows.follow != 0 and (label >= 0 or label <= FOLLOW)


@inlined
def follow(rows, label, i):
    """Tell what follows events of row i, whose probabilities are at hand: its class, less than 0 for none."""
    call(rows.follow, (rows.followed, label, i))


@inlined
def is_whole(columns, start, end, shared):
    """Whether a row has an entry for each of the first end - start columns."""
    n = end - start
    return shared and (n == 0 or columns[u(n - 1)] == n - 1)


@inlined
def load(rows, values, columns, start, end, shared):
    """Make a row the event in hand.

    Parameters
    ----------
    values, columns
        Entries of all rows; this row's are values[start:end] and columns[start:end], or columns[0:end - start] where
        `shared` says that all rows have the same columns.

    Returns
    -------
    int
        The number of its pairs, or -1 - i where entry i of the row is infinite or larger than LARGEST.
    """
    if is_whole(columns, start, end, shared) and rows.scaling != RANK:
        return load_whole(rows, values, start, end - start)
    return load_pairs(rows, rows, values, columns, start, end, shared)


@inlined
def load_whole(rows, values, start, n):
    """`load` for a row with an entry in each of the first n columns: missing ones become 0."""
    shift, scale, out, limit = rows.shift, rows.scale, rows.scaled, rows.limit
    rows.in_order = 1
    out[0] = 1.0
    unusual = 0
    for j in range(n):
        x = values[u(start + j)]
        z = (x - shift[u(j)]) * scale[u(j)]
        unusual += (abs(z) > FAR) | (abs(x) > LARGEST)
        z = z if z < limit else limit
        z = z if z > -limit else -limit
        out[u(j + 1)] = z if x == x else 0.0
    if unusual:
        for j in range(n):
            if abs(values[start + j]) > LARGEST:
                return -1 - j
    rows.n_far = unusual
    rows.n_pairs = n + 1
    return n + 1


@kernel
def load_pairs(rows, by, values, columns, start, end, shared):
    """`load` for any row: missing entries are left out. Statistics are those of `by`, which sees the same events."""
    shift, scale, out, limit = by.shift, by.scale, rows.scaled, rows.limit
    out_rows = rows.own_rows
    n_ranked = rows.ranks.shape[0] if rows.scaling == RANK else 0
    skip = start if shared else 0
    if n_ranked > 0:
        find_ranks(rows, by, values, columns, start, end, skip)
    rows.in_order = 0
    out_rows[0] = 0
    out[0] = 1.0
    m = 1
    for i in range(start, end):
        x = values[u(i)]
        if not abs(x) <= LARGEST:
            if math.isnan(x):
                continue
            return start - i - 1
        j = columns[u(i - skip)]
        if j < n_ranked and by.centred[j] > 0.0:  # sparse columns and indicators have nothing to rank among
            z = rank(rows, by, j)
        else:
            z = (x - shift[u(j)]) * scale[u(j)]
            z = z if z < limit else limit
            z = z if z > -limit else -limit
        out_rows[u(m)] = j + 1
        out[u(m)] = z
        m += 1
    rows.n_pairs = m
    return m


@kernel
def find_ranks(rows, by, values, columns, start, end, skip):
    """How many of the recent values of each column are smaller than that of a row, in `entering`; how many not larger.

    Where one is equal, those not larger are those below the next number.
    """
    n_ranked, entering, upto, n = rows.ranks.shape[0], rows.entering, rows.upto, 0
    for i in range(start, end):
        x, column = values[u(i)], columns[u(i - skip)]
        if column >= n_ranked:
            break
        if by.centred[u(column)] > 0.0 and x == x:
            ordered, held = rows.ranks[u(column)], int(by.present[u(column)])
            if held < rows.window:
                entering[u(column)] = count_below(ordered, x, held)
                upto[u(column)] = count_upto(ordered, x, held, entering[u(column)])
            elif not is_guessed(rows, u(column), x):
                rows.searched[u(n)], rows.sought[u(n)] = column, x
                n += 1
    search(rows, n, entering)
    n_equal = 0
    for k in range(n):
        column, x = rows.searched[u(k)], rows.sought[u(k)]
        below = upto[u(column)] = entering[u(column)]
        if below == rows.window or rows.ranks[u(column), u(below)] != x:
            continue
        if below + 1 == rows.window or rows.ranks[u(column), u(below + 1)] != x:
            upto[u(column)] = below + 1
        else:
            rows.searched[u(n_equal)], rows.sought[u(n_equal)] = column, next_above(x)
            n_equal += 1
    search(rows, n_equal, upto)


@inlined
def is_guessed(rows, j, x):
    """Whether places are known without a search: where a column has few values, they are often those found last."""
    below, upto, n = rows.entering[j], rows.upto[j], rows.window
    if below == upto:  # it had another value then, perhaps all are
        return False
    values = rows.ranks[j]
    first, last = guess_below(values, x, n, below, upto), guess_below(values, next_above(x), n, below, upto)
    if first < 0 or last < 0:
        return False
    rows.entering[j], rows.upto[j] = first, last
    return True


@inlined
def search(rows, n, found):
    """found[j] = how many of the recent values of column j are smaller than what is sought, for n full columns."""
    columns, sought, k = rows.searched, rows.sought, 0
    while k + 4 <= n:
        count_below_in_four(rows.ranks, columns, sought, k, found)
        k += 4
    while k < n:
        found[u(columns[u(k)])] = count_below(rows.ranks[u(columns[u(k)])], sought[u(k)], rows.window)
        k += 1


@inlined
def in_hand(rows):
    """The weight rows and scaled values of the event in hand."""
    return rows.all_rows if rows.in_order else rows.own_rows, rows.scaled


@kernel
def load_all(rows, values, columns, indptr, shared, out_rows, out_values, out_starts):
    """Scale all rows, one behind the other: row i becomes the pairs out_starts[i]:out_starts[i + 1]."""
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    out_rows, out_values, out_starts = borrow(out_rows), borrow(out_values), borrow(out_starts)
    at = 0
    for i in range(indptr.size - 1):
        m = load_pairs(rows, rows, values, columns, indptr[i], indptr[i + 1], shared)
        event_rows, scaled = in_hand(rows)
        out_starts[i] = at
        for k in range(m):
            out_rows[at + k] = event_rows[k]
            out_values[at + k] = scaled[k]
        at += m
    out_starts[indptr.size - 1] = at


@inlined
def rank(rows, by, j):
    """The mid-rank found among the recent values of column j, scaled to mean 0 and variance 1 (if x were uniform)."""
    held = min(by.present[u(j)], float(rows.window))
    return ((rows.entering[u(j)] + rows.upto[u(j)]) / (2.0 * held) - 0.5) * math.sqrt(12.0)


@inlined
def observe(rows, values, columns, start, end, shared):
    """Take a learned row into the statistics of its columns."""
    if is_whole(columns, start, end, shared) and rows.scaling != RANK:
        rows.n_far = count_far(rows, values, start, end - start)
    observe_in_hand(rows, values, columns, start, end, shared)


@inlined
def count_far(rows, values, start, n):
    """How many entries of a row with one in each of the first n columns may not enter their sums as they are."""
    shift, scale, n_far = rows.shift, rows.scale, 0
    for j in range(n):
        n_far += abs((values[u(start + j)] - shift[u(j)]) * scale[u(j)]) > FAR
    return n_far


@inlined
def observe_in_hand(rows, values, columns, start, end, shared):
    """`observe` for the event in hand."""
    rows.seen += 1.0
    if rows.scaling != NONE:
        whole = is_whole(columns, start, end, shared) and rows.scaling != RANK
        if whole and rows.n_far == 0:
            observe_whole(rows, values, start, end - start)
        else:
            observe_pairs(rows, values, columns, start, end, shared)


@inlined
def bounded(rows, j, delta):
    """A value's distance from the shift of column j, as far as it may enter the sums."""
    if abs(delta) * rows.scale[j] <= FAR or rows.present[j] < KNOWN:
        return delta
    return math.copysign(min(max(math.sqrt(rows.count[j]), FAR) / rows.scale[j], abs(delta)), delta)


@inlined
def observe_whole(rows, values, start, n):
    """`observe` for a row with an entry in each of the first n columns.

    Two loops of few arrays each, because the compiler vectorises only what it can check for overlaps.
    """
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    ready = 0
    for j in range(n):
        x = values[u(start + j)]
        here = 1.0 if x == x else 0.0
        count[u(j)] = count[u(j)] * (decay if x == x else 1.0) + here
        p = present[u(j)] + here
        present[u(j)] = p
        ready += p >= due[u(j)]
    for j in range(n):
        x = values[u(start + j)]
        delta = x - shift[u(j)] if x == x else 0.0
        factor = decay if x == x else 1.0
        total[u(j)] = total[u(j)] * factor + delta
        squares[u(j)] = squares[u(j)] * factor + delta * delta
    if ready:
        for j in range(n):
            if values[start + j] == values[start + j] and present[j] >= due[j]:
                renew(rows, j)


@kernel
def observe_pairs(rows, values, columns, start, end, shared):
    """`observe` for any row."""
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    skip = start if shared else 0
    if rows.scaling == RANK:
        observe_ranks(rows, rows, values, columns, start, end, shared)
    for i in range(start, end):
        x = values[u(i)]
        if math.isnan(x):
            continue
        column = columns[u(i - skip)]
        j = u(column)
        distance = x - shift[j]
        delta = bounded(rows, j, distance)
        count[j] = count[j] * decay + 1.0
        present[j] += 1.0
        total[j] = total[j] * decay + delta
        squares[j] = squares[j] * decay + delta * delta
        if present[j] >= due[j] or delta != distance:
            renew(rows, column)


@kernel
def renew(rows, j):
    """Bring shift and scale of a column up to its sums.

    A column present in at least half of the events since it appeared is centred and divided by its standard deviation.
    Any other is sparse, and divided by the root mean square of its values, so that absent stays zero; so is one that
    is at times absent and constant otherwise: its presence is all it says, and centring would erase it.
    """
    if rows.due[j] < 0.0:
        return
    n, present, shift = rows.count[j], rows.present[j], rows.shift[j]
    mean = rows.total[j] / n
    variance = max(rows.squares[j] / n - mean * mean, 0.0)
    mean += shift
    if present == 1.0:
        rows.born[j] = rows.seen - 1.0
        variance = 0.0
    # Below this the variance is rounding error, coarser where the sums are not about the mean.
    rounding = (1e-14 if shift != 0.0 else 1e-7) * mean
    if variance <= rounding * rounding:
        variance = 0.0
    events = rows.seen - rows.born[j]
    if 2.0 * present < events or (variance == 0.0 and present < events):
        rows.centred[j], new, square = 0.0, 0.0, variance + mean * mean
    else:
        rows.centred[j], new, square = 1.0, mean, variance
    delta = mean - new
    rows.total[j] = n * delta
    rows.squares[j] = n * (variance + delta * delta)
    rows.shift[j] = new
    rows.scale[j] = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    rows.due[j] = present + min(max(present * RENEW_SHARE, 1.0), RENEW_MOST)


@kernel
def observe_ranks(rows, by, values, columns, start, end, shared):
    """Take a learned row into the recent values, before it is taken into the statistics of `by`."""
    n_ranked, leaving, skip = rows.ranks.shape[0], rows.leaving, start if shared else 0
    find_places(rows, by, values, columns, start, end, skip)
    for i in range(start, end):
        x, column = values[u(i)], columns[u(i - skip)]
        if column >= n_ranked:
            break
        j = u(column)
        if x == x and by.due[j] >= 0.0 and leaving[j] >= 0:
            replace(rows.ranks[j], leaving[j], rows.entering[j], x)


@kernel
def find_places(rows, by, values, columns, start, end, skip):
    """Where each value of a row takes the place of the oldest of the recent values of its column, if it is another."""
    n_ranked, window, spacing, n = rows.ranks.shape[0], rows.window, rows.spacing, 0
    for i in range(start, end):
        x, column = values[u(i)], columns[u(i - skip)]
        if column >= n_ranked:
            break
        if not (x == x and by.due[u(column)] >= 0.0):
            continue
        j = u(column)
        index = int(by.present[j])
        after = index - window
        if after > 0 and after & (spacing - 1) != 0:
            rows.leaving[j] = -1
            continue
        ordered, slot = rows.ranks[j], u(index if after < 0 else after // spacing % window)
        oldest = rows.ring[j, slot]
        rows.ring[j, slot] = x
        held = min(index, window)
        if index >= window and oldest == x:
            rows.leaving[j] = -1
            continue
        if index < window:
            rows.leaving[j] = index
        else:
            rows.searched[u(n)], rows.sought[u(n)] = column, oldest
            n += 1
        if not is_below(ordered, x, held, rows.entering[j]):  # else the row has been ranked just now
            rows.entering[j] = count_below(ordered, x, held)
    search(rows, n, rows.leaving)


@kernel
def observe_rows(rows, values, columns, indptr, shared):
    """Take all rows into the statistics, and bring these fully up to date."""
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    for i in range(indptr.size - 1):
        observe(rows, values, columns, indptr[i], indptr[i + 1], shared)
    if rows.scaling != NONE:
        for j in range(rows.present.size):
            if rows.present[j] > 0.0:
                renew(rows, j)
