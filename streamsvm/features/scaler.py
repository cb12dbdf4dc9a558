"""Rows on their way to a learner: the event in hand, and running scaling.

A row comes as (column, value) pairs in ascending order of columns, with NaN where a value is missing, and becomes the
*event in hand*: scaled values and the weight rows they belong to, headed by the bias with its 1. Column j owns weight
row j + 1. A row is scaled with the statistics of the events learned before it.
"""

from __future__ import annotations

import math

from streamsvm.core.access import address_of, columns_at, element_address, state_at, values_at
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import call_pointer, inlined, kernel
from streamsvm.core.signatures import INTEGER
from streamsvm.core.simd import uint
from streamsvm.core.state import Array, Number, Schema, address, i64
from streamsvm.features.sorted_window import (
    count_below,
    count_below_in_four,
    count_upto,
    guess_below,
    is_below,
    next_above,
    replace,
)

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
        "n_pairs": Number("how many pairs the event in hand has", i64),
        "in_order": Number("whether the event in hand has a value for each of the first weight rows", i64),
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
        "own_rows": Array(("weight_rows",), "the weight rows of the event in hand, where not in order", i64),
        "scaled": Array(("weight_rows",), "its scaled values"),
        "entered": Array(("scaled",), "the values of a row that enter the sums"),
    },
)


rows_at = state_at(SCALER)


@inlined
def follow(rows, label, i):
    """Tell what follows events of row i, whose probabilities are at hand: its class, less than 0 for none."""
    call_pointer(rows.follow, (rows.followed, label, i))


@inlined
def is_whole(columns, start, end, shared):
    """Whether a row has an entry for each of the first end - start columns."""
    n = end - start
    return shared and (n == 0 or columns[uint(n - 1)] == n - 1)


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
        x = values[uint(start + j)]
        z = (x - shift[uint(j)]) * scale[uint(j)]
        unusual += (abs(z) > FAR) | (abs(x) > LARGEST)
        z = z if z < limit else limit
        z = z if z > -limit else -limit
        out[uint(j + 1)] = z if x == x else 0.0
    if unusual:
        for j in range(n):
            x = values[uint(start + j)]
            if abs(x) > LARGEST:
                return -1 - j
            if is_far(rows, j, x):
                out[uint(j + 1)] = scaled_outlier(rows, j, x)
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
        call_pointer(rows.find_ranks, row_addresses(rows, by, values, columns, start, end, skip))
    rows.in_order = 0
    out_rows[0] = 0
    out[0] = 1.0
    m = 1
    for i in range(start, end):
        x = values[uint(i)]
        if not abs(x) <= LARGEST:
            if math.isnan(x):
                continue
            return start - i - 1
        j = columns[uint(i - skip)]
        if j < n_ranked and by.centred[j] > 0.0:  # sparse columns and indicators have nothing to rank among
            z = rank(rows, by, j)
        else:
            z = (x - shift[uint(j)]) * scale[uint(j)]
            if abs(z) > FAR and is_far(by, j, x):
                z = scaled_outlier(by, j, x)
            z = z if z < limit else limit
            z = z if z > -limit else -limit
        out_rows[uint(m)] = j + 1
        out[uint(m)] = z
        m += 1
    rows.n_pairs = m
    return m


@inlined
def row_addresses(rows, by, values, columns, start, end, skip):
    """The arguments of `find_ranks` and `take_ranks` for a row."""
    places = element_address(values, start), element_address(columns, start - skip)
    return address_of(rows), address_of(by), places[0], places[1], end - start


def find_ranks(address, statistics, values_address, columns_address, n_entries):
    """How many of the recent values of each column are smaller than that of a row, in `entering`; how many not larger.

    Where one is equal, those not larger are those below the next number. Compiled apart.
    """
    rows, by = rows_at(address), rows_at(statistics)
    values, columns = values_at(values_address, n_entries), columns_at(columns_address, n_entries)
    n_ranked, entering, upto, n = rows.ranks.shape[0], rows.entering, rows.upto, 0
    for i in range(n_entries):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        if by.centred[uint(column)] > 0.0 and x == x:
            ordered, held = rows.ranks[uint(column)], n_ranked_values(by, uint(column))
            if held < rows.window:
                entering[uint(column)] = count_below(ordered, x, held)
                upto[uint(column)] = count_upto(ordered, x, held, entering[uint(column)])
            elif not is_guessed(rows, uint(column), x):
                rows.searched[uint(n)], rows.sought[uint(n)] = column, x
                n += 1
    search(rows, n, entering)
    n_equal = 0
    for k in range(n):
        column, x = rows.searched[uint(k)], rows.sought[uint(k)]
        below = upto[uint(column)] = entering[uint(column)]
        if below == rows.window or rows.ranks[uint(column), uint(below)] != x:
            continue
        if below + 1 == rows.window or rows.ranks[uint(column), uint(below + 1)] != x:
            upto[uint(column)] = below + 1
        else:
            rows.searched[uint(n_equal)], rows.sought[uint(n_equal)] = column, next_above(x)
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
        found[uint(columns[uint(k)])] = count_below(rows.ranks[uint(columns[uint(k)])], sought[uint(k)], rows.window)
        k += 1


@inlined
def current_row(rows):
    """The weight rows and scaled values of the event in hand."""
    return rows.all_rows if rows.in_order else rows.own_rows, rows.scaled


@kernel
def load_all(rows, values, columns, indptr, shared, out_rows, out_values, out_starts):
    """Scale all rows, one behind the other: row i becomes the pairs out_starts[i]:out_starts[i + 1]."""
    at = 0
    for i in range(indptr.size - 1):
        m = load_pairs(rows, rows, values, columns, indptr[i], indptr[i + 1], shared)
        event_rows, scaled = current_row(rows)
        out_starts[i] = at
        for k in range(m):
            out_rows[at + k] = event_rows[k]
            out_values[at + k] = scaled[k]
        at += m
    out_starts[indptr.size - 1] = at


@inlined
def rank(rows, by, j):
    """The mid-rank found among the recent values of column j, scaled to mean 0 and variance 1 (if x were uniform)."""
    held = min(n_ranked_values(by, uint(j)), rows.window)
    if held < 1:
        return 0.0
    return ((rows.entering[uint(j)] + rows.upto[uint(j)]) / (2.0 * held) - 0.5) * math.sqrt(12.0)


@inlined
def n_ranked_values(by, j):
    """How many values of column j have come since the recent ones began."""
    return int(by.present[j] - by.began[j])


@inlined
def observe(rows, values, columns, start, end, shared):
    """Take a learned row into the statistics of its columns."""
    if is_whole(columns, start, end, shared) and rows.scaling != RANK:
        rows.n_far = count_far(rows, values, start, end - start)
    observe_current_row(rows, values, columns, start, end, shared)


@inlined
def count_far(rows, values, start, n):
    """How many entries of a row with one in each of the first n columns are beyond FAR."""
    shift, scale, n_far = rows.shift, rows.scale, 0
    for j in range(n):
        n_far += abs((values[uint(start + j)] - shift[uint(j)]) * scale[uint(j)]) > FAR
    return n_far


@inlined
def observe_current_row(rows, values, columns, start, end, shared):
    """`observe` for the event in hand."""
    rows.seen += 1.0
    if rows.scaling != NONE:
        if is_whole(columns, start, end, shared) and rows.scaling != RANK:
            n = end - start
            if is_watched(rows.seen):
                watch_whole(rows, values, start, n)
            if rows.n_far == 0:
                observe_whole(rows, values, start, n)
            else:
                keep_near(rows, values, start, n)
                observe_whole(rows, rows.entered, 0, n)
        else:
            observe_pairs(rows, values, columns, start, end, shared)


@inlined
def is_watched(seen):
    """Whether the event that is number `seen` is in the sample."""
    return seen <= ALL_SAMPLED or ((int(seen) & 0x3FFFFFFF) * 0x9E3779B1) & 0xC0000000 == 0


@kernel
def watch_whole(rows, values, start, n):
    """Take a row of the sample into the counts of values near the anchors."""
    scale, count, anchor, ties = rows.scale, rows.count, rows.anchor, rows.ties
    narrow, longest, ready = rows.narrow, rows.longest, 0
    for j in range(n):
        x = values[uint(start + j)]
        tied = ties[uint(j)] + TIES_RATE * ((1.0 if x == anchor[uint(j)] else 0.0) - ties[uint(j)])
        ties[uint(j)] = tied if x == x else ties[uint(j)]
    for j in range(n):
        x = values[uint(start + j)]
        distance = abs(x - anchor[uint(j)]) * scale[uint(j)]
        before = narrow[uint(j)]
        k = before + (1.0 if distance < NARROW else -NOT_NARROW)
        k = k if distance > 0.0 else before
        anchor[uint(j)] = x if k < 0.0 else anchor[uint(j)]
        narrow[uint(j)] = k if k > 0.0 else 0.0
        most = min(NARROW_TIMES * longest[uint(j)], NARROW_SHARE * (1.0 - ties[uint(j)]) * count[uint(j)])
        ready += (k > before) & (k >= NARROW_MOST) & (k >= most)
        longest[uint(j)] = max(longest[uint(j)], before if k < before else 0.0)
    if ready:
        for j in range(n):
            x = values[uint(start + j)]
            if x == x and is_narrow(rows, j, x):
                restart_narrow(rows, j, x)


@kernel
def watch(rows, j, x):
    """`watch_whole` for a value of column j."""
    rows.ties[j] += TIES_RATE * ((1.0 if x == rows.anchor[j] else 0.0) - rows.ties[j])
    distance = abs(x - rows.anchor[j]) * rows.scale[j]
    if distance > 0.0:
        if distance < NARROW:
            rows.narrow[j] += 1.0
        else:
            rows.longest[j] = max(rows.longest[j], rows.narrow[j])
            rows.narrow[j] -= NOT_NARROW
        if rows.narrow[j] < 0.0:
            rows.anchor[j], rows.narrow[j] = x, 0.0
    if is_narrow(rows, j, x):
        restart_narrow(rows, j, x)


@kernel
def is_narrow(rows, j, x):
    """Whether the sums of a column are far too wide for its values, of which x is the latest."""
    most = min(NARROW_TIMES * rows.longest[j], NARROW_SHARE * (1.0 - rows.ties[j]) * rows.count[j])
    return rows.narrow[j] >= max(most, NARROW_MOST) and x != rows.anchor[j]


@kernel
def restart_narrow(rows, j, x):
    """Forget the statistics of a column whose sums are too wide for its values; twice as many are needed next time."""
    rows.longest[j] = max(rows.longest[j], 2.0 * rows.narrow[j] / NARROW_TIMES)
    restart(rows, j, rows.anchor[j], abs(x - rows.anchor[j]) / NARROW)


@inlined
def is_far(rows, j, x):
    """Whether x is an outlier of column j."""
    distance = abs(x - rows.shift[uint(j)]) * rows.scale[uint(j)]
    return distance > FAR and rows.present[uint(j)] >= KNOWN and rows.scaling != NONE


@kernel
def scaled_outlier(rows, j, x):
    """What an outlier of column j is scaled to: the farther off, the nearer to 0, as if it were missing."""
    z = (x - rows.shift[uint(j)]) * rows.scale[uint(j)]
    share = min(FARTHER / (abs(z) * math.sqrt(max(1.0 - rows.ties[uint(j)], LEAST_UNTIED))), 1.0)
    return math.copysign(CLIP * share * share, z)


@kernel
def keep_near(rows, values, start, n):
    """Leave in `entered` what enters the sums of a row with an entry in each of the first n columns, else NaN."""
    for j in range(n):
        x = values[uint(start + j)]
        if is_far(rows, j, x) and is_outlier(rows, j, x):
            rows.present[uint(j)] += 1.0
            x = math.nan
        rows.entered[uint(j)] = x


@kernel
def is_outlier(rows, j, x):
    """Count an outlier of column j; False where outliers are so many that its statistics restart at x."""
    untied = max(1.0 - rows.ties[j], LEAST_UNTIED)
    step = 1.0 / (LEAK * untied)
    rows.outliers[j] = max(rows.outliers[j], rows.present[j]) + step + 1.0
    many = min(max(0.5 * untied * rows.count[j], FEW_OUTLIERS), MANY_OUTLIERS)
    if rows.outliers[j] - rows.present[j] - 1.0 < many * step:
        return True
    restart(rows, j, x, abs(x - rows.shift[j]))
    return False


@kernel
def restart(rows, j, shift, deviation):
    """Forget the statistics of column j, but for a value and a deviation to begin with."""
    rows.count[j], rows.shift[j], rows.total[j] = PRIOR, shift, 0.0
    rows.squares[j] = PRIOR * deviation * deviation
    rows.outliers[j] = rows.narrow[j] = 0.0
    if rows.present[j] - rows.began[j] >= MANY_RANKED:
        rows.began[j] = rows.present[j] + 1.0  # the value at hand, which is among the recent ones already
    renew(rows, j)


@inlined
def observe_whole(rows, values, start, n):
    """Take a row with an entry in each of the first n columns into their sums.

    Two loops of few arrays each, because the compiler vectorises only what it can check for overlaps.
    """
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    ready = 0
    for j in range(n):
        x = values[uint(start + j)]
        here = 1.0 if x == x else 0.0
        count[uint(j)] = count[uint(j)] * (decay if x == x else 1.0) + here
        p = present[uint(j)] + here
        present[uint(j)] = p
        ready += p >= due[uint(j)]
    for j in range(n):
        x = values[uint(start + j)]
        delta = x - shift[uint(j)] if x == x else 0.0
        factor = decay if x == x else 1.0
        total[uint(j)] = total[uint(j)] * factor + delta
        squares[uint(j)] = squares[uint(j)] * factor + delta * delta
    if ready:
        for j in range(n):
            if values[start + j] == values[start + j] and present[j] >= due[j]:
                renew(rows, j)


@kernel
def observe_pairs(rows, values, columns, start, end, shared):
    """`observe` for any row."""
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    skip, is_sample = start if shared else 0, is_watched(rows.seen)
    if rows.scaling == RANK:
        observe_ranks(rows, rows, values, columns, start, end, skip)
    for i in range(start, end):
        x = values[uint(i)]
        if math.isnan(x):
            continue
        column = columns[uint(i - skip)]
        j = uint(column)
        if is_sample:
            watch(rows, column, x)
        if is_far(rows, j, x) and is_outlier(rows, column, x):
            present[j] += 1.0
            continue
        delta = x - shift[j]
        count[j] = count[j] * decay + 1.0
        present[j] += 1.0
        total[j] = total[j] * decay + delta
        squares[j] = squares[j] * decay + delta * delta
        if present[j] >= due[j]:
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
    rows.due[j] = present + min(max(n * RENEW_SHARE, 1.0), RENEW_MOST)


@inlined
def observe_ranks(rows, by, values, columns, start, end, skip):
    """Take a learned row into the recent values, before it is taken into the statistics of `by`."""
    call_pointer(rows.take_ranks, row_addresses(rows, by, values, columns, start, end, skip))


def take_ranks(address, statistics, values_address, columns_address, n_entries):
    """`observe_ranks`, compiled apart."""
    rows, by = rows_at(address), rows_at(statistics)
    values, columns = values_at(values_address, n_entries), columns_at(columns_address, n_entries)
    n_ranked, leaving = rows.ranks.shape[0], rows.leaving
    find_places(rows, by, values, columns, n_entries)
    for i in range(n_entries):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        j = uint(column)
        if x == x and by.due[j] >= 0.0 and leaving[j] >= 0:
            replace(rows.ranks[j], leaving[j], rows.entering[j], x)


@kernel
def find_places(rows, by, values, columns, n_entries):
    """Where each value of a row takes the place of the oldest of the recent values of its column, if it is another."""
    n_ranked, window, spacing, n = rows.ranks.shape[0], rows.window, rows.spacing, 0
    for i in range(n_entries):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        if not (x == x and by.due[uint(column)] >= 0.0):
            continue
        j = uint(column)
        index = n_ranked_values(by, j)
        after = index - window
        if after > 0 and after & (spacing - 1) != 0:
            rows.leaving[j] = -1
            continue
        ordered, slot = rows.ranks[j], uint(index if after < 0 else after // spacing % window)
        oldest = rows.ring[j, slot]
        rows.ring[j, slot] = x
        held = min(index, window)
        if index >= window and oldest == x:
            rows.leaving[j] = -1
            continue
        if index < window:
            rows.leaving[j] = index
        else:
            rows.searched[uint(n)], rows.sought[uint(n)] = column, oldest
            n += 1
        if not is_below(ordered, x, held, rows.entering[j]):  # else the row has been ranked just now
            rows.entering[j] = count_below(ordered, x, held)
    search(rows, n, rows.leaving)


@kernel
def observe_rows(rows, values, columns, indptr, shared):
    """Take all rows into the statistics, and bring these fully up to date."""
    for i in range(indptr.size - 1):
        observe(rows, values, columns, indptr[i], indptr[i + 1], shared)
    if rows.scaling != NONE:
        for j in range(rows.present.size):
            if rows.present[j] > 0.0:
                renew(rows, j)


ENTRY_POINTS = {
    "find_ranks": EntryPoint(find_ranks, (INTEGER,) * 5),
    "take_ranks": EntryPoint(take_ranks, (INTEGER,) * 5),
}
