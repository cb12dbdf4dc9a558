"""Rows on their way to a learner: the layout all learners' memory begins with, and running scaling.

A row comes as (column, value) pairs in ascending order of columns, with NaN where a value is missing, and becomes the
*event in hand*: scaled values and the weight rows they belong to, headed by the bias with its 1. Column j owns weight
row j + 1. A row is scaled with the statistics of the events learned before it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import carray, config, types
from numba.extending import intrinsic

from streamsvm.kernels import inlined, kernel

# Indices are unsigned: numba then leaves out its handling of negative ones, and loops over them vectorise.
u = np.uint64

# The layout: counters that change as events are learned, counters that follow from the room there is, the offsets of
# the sections, then a place for the weight rows of the event in hand, and the numbers 0, 1, 2, ... LISTED is 1 + how
# many columns a single event lists, 0 where it does not.
N_CLASSES, ROW_LENGTH = 0, 1
N_CHANGING = 8
SCALING, WINDOW, COUNT_AT, ROWS_AT, LISTED = 8, 9, 10, 11, 12
N_COUNTERS = 20
N_SECTIONS = 32
WORK = N_COUNTERS + N_SECTIONS

# What is asked of a single event: a class to learn it with, or a prediction.
PREDICT = -1

# Sections of every learner: parameters; statistics of the columns; their recent values by arrival, and sorted; the
# values of a single event, and the columns it lists; the scaled values of the event in hand; the probabilities of the
# classes.
PARAMS, STATS, RING, RANKS, ROW, SCALED, PROBA = range(7)

# Parameters of every learner: the number of events learned, what statistics are multiplied by at each value, and the
# largest scaled value.
SEEN, DECAY, LIMIT = 0, 1, 2

# How values are scaled.
NONE, STANDARD, RANK = 0, 1, 2

# The statistics, each an array over the columns: a scaled value is (x - SHIFT) * SCALE; N, S1 and S2 sum 1,
# x - SHIFT and its square, under the decay; PRESENT counts values; SHIFT and SCALE follow the sums when PRESENT
# reaches DUE (negative for indicators, which stay as they are); BORN is how many events came before the column; CENTRED
# is 1 where SHIFT is the mean, 0 where the column is sparse.
SHIFT, SCALE, N, S1, S2, PRESENT, DUE, BORN, CENTRED, N_STATS = range(10)

# Values beyond this would overflow the sum of squares.
LARGEST = 1e100
# Scaled values are cut here, so that a single outlier cannot take over a model.
CLIP = 10.0
# SHIFT and SCALE follow their sums when the count has grown by this share, at the latest after RENEW_MOST values.
RENEW_SHARE = 1.0 / 32.0
RENEW_MOST = 64.0


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
def borrow_at(address, size, dtype):
    """The array at an address."""
    return carray(_pointer(address), (size,), dtype)


if config.DISABLE_JIT:  # to follow the steps in a debugger, or count the lines that tests reach
    borrow = np.asarray


@inlined
def section(arena, layout, i):
    """A section of the arena."""
    return arena[layout[N_COUNTERS + i] : layout[N_COUNTERS + i + 1]]


@inlined
def single_event(arena, layout):
    """The values and columns of the event in section ROW, how many, and whether columns are `shared`, as for `load`.

    It has values for the first ROW_LENGTH columns, or for those it lists: only once, then the list counts no more.
    """
    row = section(arena, layout, ROW)
    if layout[LISTED] == 0:
        return row, layout[layout[COUNT_AT] :], layout[ROW_LENGTH], True
    n = layout[LISTED] - 1
    layout[LISTED] = 0
    return row, row.view(np.int64)[row.size // 2 :], n, False


@inlined
def statistic(arena, layout, i):
    """One of the statistics, over all columns."""
    start = layout[N_COUNTERS + STATS]
    n = (layout[N_COUNTERS + STATS + 1] - start) // N_STATS
    return arena[start + i * n : start + (i + 1) * n]


@inlined
def is_whole(columns, start, end, shared):
    """Whether a row has an entry for each of the first end - start columns."""
    n = end - start
    return shared and (n == 0 or columns[u(n - 1)] == n - 1)


@inlined
def load(arena, layout, values, columns, start, end, shared):
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
    if is_whole(columns, start, end, shared) and layout[SCALING] != RANK:
        return load_whole(arena, layout, values, start, end - start)
    return load_pairs(arena, layout, values, columns, start, end, shared)


@inlined
def load_whole(arena, layout, values, start, n):
    """`load` for a row with an entry in each of the first n columns: missing ones become 0."""
    shift, scale = statistic(arena, layout, SHIFT), statistic(arena, layout, SCALE)
    limit = section(arena, layout, PARAMS)[LIMIT]
    out = section(arena, layout, SCALED)
    layout[ROWS_AT] = layout[COUNT_AT]
    out[0] = 1.0
    bad = 0
    for j in range(n):
        x = values[u(start + j)]
        z = (x - shift[u(j)]) * scale[u(j)]
        z = z if z < limit else limit
        z = z if z > -limit else -limit
        out[u(j + 1)] = z if x == x else 0.0
        bad += abs(x) > LARGEST
    if bad:
        for j in range(n):
            if abs(values[start + j]) > LARGEST:
                return -1 - j
    return n + 1


@kernel
def load_pairs(arena, layout, values, columns, start, end, shared):
    """`load` for any row: missing entries are left out."""
    shift, scale = statistic(arena, layout, SHIFT), statistic(arena, layout, SCALE)
    ranks, window = section(arena, layout, RANKS), layout[WINDOW]
    params, out = section(arena, layout, PARAMS), section(arena, layout, SCALED)
    limit, out_rows = params[LIMIT], layout[WORK:]
    n_ranked = ranks.size // window if layout[SCALING] == RANK else 0
    skip = start if shared else 0
    layout[ROWS_AT] = WORK
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
        if j < n_ranked and is_ranked(arena, layout, j):
            held = int(min(statistic(arena, layout, PRESENT)[j], window))
            z = rank(x, ranks, j * window, held)
        else:
            z = (x - shift[u(j)]) * scale[u(j)]
            z = z if z < limit else limit
            z = z if z > -limit else -limit
        out_rows[u(m)] = j + 1
        out[u(m)] = z
        m += 1
    return m


@inlined
def in_hand(arena, layout):
    """The weight rows and scaled values of the event in hand."""
    return layout[layout[ROWS_AT] :], section(arena, layout, SCALED)


@kernel
def load_all(arena, layout, values, columns, indptr, shared, out_rows, out_values, out_starts):
    """Scale all rows, one behind the other: row i becomes the pairs out_starts[i]:out_starts[i + 1]."""
    arena, layout = borrow(arena), borrow(layout)
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    out_rows, out_values, out_starts = borrow(out_rows), borrow(out_values), borrow(out_starts)
    at = 0
    for i in range(indptr.size - 1):
        m = load_pairs(arena, layout, values, columns, indptr[i], indptr[i + 1], shared)
        rows, scaled = in_hand(arena, layout)
        out_starts[i] = at
        for k in range(m):
            out_rows[at + k] = rows[k]
            out_values[at + k] = scaled[k]
        at += m
    out_starts[indptr.size - 1] = at


@kernel
def is_ranked(arena, layout, j):
    """Whether a column has values to rank among: sparse columns and indicators have none."""
    return statistic(arena, layout, CENTRED)[j] > 0.0


@kernel
def rank(x, ranks, first, held):
    """The mid-rank of x among `held` sorted values, as a share, scaled to mean 0 and variance 1 (if x were uniform)."""
    below = count_below(x, ranks, first, held, False)
    upto = count_below(x, ranks, first, held, True)
    return ((below + upto) / (2.0 * held) - 0.5) * math.sqrt(12.0)


@kernel
def count_below(x, ranks, first, held, inclusive):
    """How many of `held` sorted values are smaller than x (or equal, where inclusive)."""
    low, high = 0, held
    while low < high:
        middle = (low + high) >> 1
        v = ranks[first + middle]
        if v < x or (inclusive and v == x):
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def observe(arena, layout, values, columns, start, end, shared):
    """Take a learned row into the statistics of its columns."""
    section(arena, layout, PARAMS)[SEEN] += 1.0
    if layout[SCALING] != NONE:
        if is_whole(columns, start, end, shared) and layout[SCALING] != RANK:
            observe_whole(arena, layout, values, start, end - start)
        else:
            observe_pairs(arena, layout, values, columns, start, end, shared)


@inlined
def observe_whole(arena, layout, values, start, n):
    """`observe` for a row with an entry in each of the first n columns.

    Two loops of few arrays each, because the compiler vectorises only what it can check for overlaps.
    """
    decay = section(arena, layout, PARAMS)[DECAY]
    shift, count = statistic(arena, layout, SHIFT), statistic(arena, layout, N)
    s1, s2 = statistic(arena, layout, S1), statistic(arena, layout, S2)
    present, due = statistic(arena, layout, PRESENT), statistic(arena, layout, DUE)
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
        s1[u(j)] = s1[u(j)] * factor + delta
        s2[u(j)] = s2[u(j)] * factor + delta * delta
    if ready:
        for j in range(n):
            if values[start + j] == values[start + j] and present[j] >= due[j]:
                renew(arena, layout, j)


@kernel
def observe_pairs(arena, layout, values, columns, start, end, shared):
    """`observe` for any row."""
    decay = section(arena, layout, PARAMS)[DECAY]
    ring, ranks, window = section(arena, layout, RING), section(arena, layout, RANKS), layout[WINDOW]
    shift, count = statistic(arena, layout, SHIFT), statistic(arena, layout, N)
    s1, s2 = statistic(arena, layout, S1), statistic(arena, layout, S2)
    present, due = statistic(arena, layout, PRESENT), statistic(arena, layout, DUE)
    n_ranked = ranks.size // window if layout[SCALING] == RANK else 0
    skip = start if shared else 0
    for i in range(start, end):
        x = values[u(i)]
        if math.isnan(x):
            continue
        j = u(columns[u(i - skip)])
        if due[j] >= 0.0 and columns[u(i - skip)] < n_ranked:
            replace_rank(x, int(present[j]), ring, ranks, columns[u(i - skip)] * window, window)
        delta = x - shift[j]
        count[j] = count[j] * decay + 1.0
        present[j] += 1.0
        s1[j] = s1[j] * decay + delta
        s2[j] = s2[j] * decay + delta * delta
        if present[j] >= due[j]:
            renew(arena, layout, columns[u(i - skip)])


@kernel
def renew(arena, layout, j):
    """Bring SHIFT and SCALE of a column up to its sums.

    A column present in at least half of the events since it appeared is centred and divided by its standard deviation.
    Any other is sparse, and divided by the root mean square of its values, so that absent stays zero; so is one that
    is at times absent and constant otherwise: its presence is all it says, and centring would erase it.
    """
    due = statistic(arena, layout, DUE)
    if due[j] < 0.0:
        return
    shift, scale = statistic(arena, layout, SHIFT), statistic(arena, layout, SCALE)
    s1, s2, n = statistic(arena, layout, S1), statistic(arena, layout, S2), statistic(arena, layout, N)[j]
    present, born = statistic(arena, layout, PRESENT)[j], statistic(arena, layout, BORN)
    seen, centred = section(arena, layout, PARAMS)[SEEN], statistic(arena, layout, CENTRED)
    mean = s1[j] / n
    variance = max(s2[j] / n - mean * mean, 0.0)
    mean += shift[j]
    if present == 1.0:
        born[j] = seen - 1.0
        variance = 0.0
    # Below this the variance is rounding error, coarser where the sums are not about the mean.
    rounding = (1e-14 if shift[j] != 0.0 else 1e-7) * mean
    if variance <= rounding * rounding:
        variance = 0.0
    events = seen - born[j]
    if 2.0 * present < events or (variance == 0.0 and present < events):
        centred[j], new, square = 0.0, 0.0, variance + mean * mean
    else:
        centred[j], new, square = 1.0, mean, variance
    delta = mean - new
    s1[j] = n * delta
    s2[j] = n * (variance + delta * delta)
    shift[j] = new
    scale[j] = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    due[j] = present + min(max(present * RENEW_SHARE, 1.0), RENEW_MOST)


@kernel
def replace_rank(x, index, ring, ranks, first, window):
    """Put x, the index-th value of its column, among the recent values, in place of the oldest where all are taken."""
    slot = first + index % window
    if index < window:
        at, stop = first + index, first + count_below(x, ranks, first, index, True)
    else:
        at = first + count_below(ring[slot], ranks, first, window, False)
        stop = first + count_below(x, ranks, first, window, False)
    ring[slot] = x
    while at > stop:
        ranks[at] = ranks[at - 1]
        at -= 1
    while at < stop - 1:
        ranks[at] = ranks[at + 1]
        at += 1
    ranks[at] = x


@kernel
def observe_rows(arena, layout, values, columns, indptr, shared):
    """Take all rows into the statistics, and bring these fully up to date."""
    arena, layout = borrow(arena), borrow(layout)
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    for i in range(indptr.size - 1):
        observe(arena, layout, values, columns, indptr[i], indptr[i + 1], shared)
    if layout[SCALING] != NONE:
        present = statistic(arena, layout, PRESENT)
        for j in range(present.size):
            if present[j] > 0.0:
                renew(arena, layout, j)
