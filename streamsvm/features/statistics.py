"""Running statistics of columns, from which shift and scale follow."""

from __future__ import annotations

import math

from streamsvm.core.jit import element_address, inlined, kernel, uint, values_at
from streamsvm.features.ranks import observe_ranks
from streamsvm.features.scaler import FAR, GROUPS, LEAST_UNTIED, NONE, RANK, is_far, is_whole, row_at

# Outliers do not enter the sums. An outlier adds 1 to a count and any other value subtracts LEAK. The count grows if
# more than LEAK / (1 + LEAK) of the values are outliers. Its limit is half the number of values in the sums, bounded by
# FEW_OUTLIERS and MANY_OUTLIERS. Beyond it, the outliers are the new level of the column and its statistics restart.
LEAK, FEW_OUTLIERS, MANY_OUTLIERS = 1.0 / 6.0, 4.0, 100.0
# Conversely, outliers have inflated the sums if values vary by less than NARROW standard deviations around a recent
# value, the anchor. In a sample of events, such a value adds 1 to a count and any other subtracts NOT_NARROW; equal
# values are ignored. The statistics restart at a count of NARROW_MOST. Slowly changing columns have long runs of close
# values and need more: NARROW_TIMES the longest earlier count, or the share NARROW_SHARE of the unequal values in the
# sums, whichever is smaller.
NARROW, NOT_NARROW, NARROW_MOST, NARROW_TIMES, NARROW_SHARE = 1.0 / 12.0, 9.0, 16.0, 16.0, 1.0 / 24.0
# Restarted statistics begin with an initial standard deviation that weighs as much as this fraction of a value.
PRIOR = 0.1
# Ranks restart, too, if they refer to at least this many values; fewer values are soon replaced.
MANY_RANKED = 500.0
# Decay rate of the share of ties in the sample.
TIES_RATE = 1.0 / 32.0
# The sample contains the first ALL_SAMPLED events, and a pseudorandom quarter of the later ones.
ALL_SAMPLED = 64.0
# Shift and scale are updated each time the count has grown by this share, at the latest after RENEW_MOST values.
RENEW_SHARE = 1.0 / 32.0
RENEW_MOST = 64.0
# Missing values get a column if runs of them begin more or less often in a group of classes, by the square root of
# RUNS_EVIDENCE standard deviations. Only the first value of a run counts, because an outage of a sensor covers many
# similar labels if labels are autocorrelated. The limit is high because the test is repeated.
RUNS_EVIDENCE, TEST_EVERY = 25.0, 8


@inlined
def observe(rows, values, columns):
    """Add a learned row to the statistics of its columns."""
    if is_whole(columns) and rows.scaling != RANK:
        rows.n_far = count_far(rows, values)
    observe_current_row(rows, values, columns)


@inlined
def count_far(rows, values):
    """Count entries that are missing or beyond FAR, in a row of the first n columns."""
    shift, scale, n_far = rows.shift, rows.scale, 0
    for j in range(values.size):
        n_far += not abs((values[uint(j)] - shift[uint(j)]) * scale[uint(j)]) <= FAR
    return n_far


@inlined
def observe_current_row(rows, values, columns):
    """Implement `observe` for the current row, for which `load` has set `n_far`."""
    rows.seen += 1.0
    if rows.scaling == NONE:
        return
    rows.groups[uint(rows.label & (GROUPS - 1))] += 1.0
    if not is_whole(columns) or rows.scaling == RANK:
        observe_pairs(rows, values, columns)
        return
    if is_watched(rows.seen):
        watch_whole(rows, values)
    if rows.n_far == 0:
        observe_whole(rows, values)
    else:
        keep_near(rows, values)
        observe_whole(rows, values_at(element_address(rows.entered, 0), values.size))


@inlined
def is_watched(seen):
    """Return whether event number `seen` belongs to the sample."""
    return seen <= ALL_SAMPLED or ((int(seen) & 0x3FFFFFFF) * 0x9E3779B1) & 0xC0000000 == 0


@kernel
def watch_whole(rows, values):
    """Update the counts of values near the anchors with a sampled row."""
    scale, count, anchor, ties = rows.scale, rows.count, rows.anchor, rows.ties
    narrow, longest, n, ready = rows.narrow, rows.longest, values.size, 0
    for j in range(n):
        x = values[uint(j)]
        tied = ties[uint(j)] + TIES_RATE * ((1.0 if x == anchor[uint(j)] else 0.0) - ties[uint(j)])
        ties[uint(j)] = tied if x == x else ties[uint(j)]
    for j in range(n):
        x = values[uint(j)]
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
            x = values[uint(j)]
            if x == x and is_narrow(rows, j, x):
                restart_narrow(rows, j, x)


@kernel
def watch(rows, j, x):
    """Implement `watch_whole` for one value of column j."""
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
    """Return whether the sums of column j are far too wide for its values.

    The latest value is x.
    """
    most = min(NARROW_TIMES * rows.longest[j], NARROW_SHARE * (1.0 - rows.ties[j]) * rows.count[j])
    return rows.narrow[j] >= max(most, NARROW_MOST) and x != rows.anchor[j]


@kernel
def restart_narrow(rows, j, x):
    """Restart the statistics of a column if its sums are too wide.

    The next restart needs a count twice as large.
    """
    rows.longest[j] = max(rows.longest[j], 2.0 * rows.narrow[j] / NARROW_TIMES)
    restart(rows, j, rows.anchor[j], abs(x - rows.anchor[j]) / NARROW)


@kernel
def keep_near(rows, values):
    """Copy a row to `entered`, with NaN in place of outliers; count missing values.

    The row has an entry in each of the first n columns.
    """
    for j in range(values.size):
        x = values[uint(j)]
        if x != x:
            count_missing(rows, j)
        elif is_far(rows, j, x) and count_outlier(rows, j, x):
            rows.present[uint(j)] += 1.0
            x = math.nan
        rows.entered[uint(j)] = x


@inlined
def count_missing(rows, j):
    """Count a missing value of column j, unless it precedes the first value."""
    if rows.present[uint(j)] > 0.0:
        rows.missing[uint(j)] += 1.0
        runs, at, k = rows.runs, uint(j), uint(rows.label & (GROUPS - 1))
        begins = 1.0 if rows.last_missing[at] != rows.seen - 1.0 else 0.0  # a branch would be hard to predict
        rows.last_missing[at] = rows.seen
        n = runs[at, k] + begins
        runs[at, k] = n
        if int(n) & (TEST_EVERY - 1) == 0 and begins > 0.0 and rows.gap[at] <= 0.0:
            test_runs(rows, j)


@kernel
def test_runs(rows, j):
    """Ask for a column of the missing values of column j if they are informative."""
    runs, groups, n, events = rows.runs[j], rows.groups, 0.0, 0.0
    for k in range(GROUPS):
        n += runs[k]
        events += groups[k]
    since = min(rows.seen - rows.born[j], events)
    for k in range(GROUPS):
        if is_uneven(n, since, runs[k], groups[k] / events):
            rows.gap[j], rows.opening = -1.0, 1


@inlined
def is_uneven(runs, n, found, share):
    """Return whether a group of classes has too many or too few of the runs.

    It has `found` of the runs, and this share of n events.
    """
    variance = runs * max(1.0 - runs / n, 0.0) * share * (1.0 - share)
    distance = found - runs * share
    return distance * distance > RUNS_EVIDENCE * max(variance, 1.0)


@kernel
def count_outlier(rows, j, x):
    """Count an outlier of column j; return False if the statistics restart at x."""
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
    """Restart the statistics of column j from a value and a standard deviation."""
    rows.count[j], rows.shift[j], rows.total[j] = PRIOR, shift, 0.0
    rows.squares[j] = PRIOR * deviation * deviation
    rows.outliers[j] = rows.narrow[j] = 0.0
    if rows.present[j] - rows.began[j] >= MANY_RANKED:
        rows.began[j] = rows.present[j] + 1.0  # the window already contains the current value
    renew(rows, j)


@inlined
def observe_whole(rows, values):
    """Add a row with an entry in each of the first n columns to the sums.

    Two loops over few arrays each: the compiler vectorises a loop only if it can check its arrays for overlap.
    """
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    n, ready = values.size, 0
    for j in range(n):
        x = values[uint(j)]
        here = 1.0 if x == x else 0.0
        count[uint(j)] = count[uint(j)] * (decay if x == x else 1.0) + here
        p = present[uint(j)] + here
        present[uint(j)] = p
        ready += p >= due[uint(j)]
    for j in range(n):
        x = values[uint(j)]
        delta = x - shift[uint(j)] if x == x else 0.0
        factor = decay if x == x else 1.0
        total[uint(j)] = total[uint(j)] * factor + delta
        squares[uint(j)] = squares[uint(j)] * factor + delta * delta
    if ready:
        for j in range(n):
            if values[uint(j)] == values[uint(j)] and present[j] >= due[j]:
                renew(rows, j)


@kernel
def observe_pairs(rows, values, columns):
    """Implement `observe` for any row."""
    decay, shift, count, total, squares = rows.decay, rows.shift, rows.count, rows.total, rows.squares
    present, due = rows.present, rows.due
    is_sample = is_watched(rows.seen)
    if rows.scaling == RANK:
        observe_ranks(rows, rows, values, columns)
    for i in range(values.size):
        x, column = values[uint(i)], columns[uint(i)]
        if math.isnan(x):
            count_missing(rows, column)
            continue
        j = uint(column)
        if is_sample:
            watch(rows, column, x)
        if is_far(rows, j, x) and count_outlier(rows, column, x):
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
    """Update shift and scale of column j from its sums.

    A column present in at least half of the events since its first value is centred and divided by its standard
    deviation. Events in which its value is explicitly missing do not count here. Any other column is sparse: it is
    divided by the root mean square of its values, so that absent means 0. A column with gaps of any kind and constant
    values is also sparse, because centring would erase its presence.
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
    # A smaller variance is rounding error, which is larger if the sums are not centred.
    rounding = (1e-14 if shift != 0.0 else 1e-7) * mean
    if variance <= rounding * rounding:
        variance = 0.0
    events = rows.seen - rows.born[j]
    if 2.0 * present < events - rows.missing[j] or (variance == 0.0 and present < events):
        rows.centred[j], new, square = 0.0, 0.0, variance + mean * mean
    else:
        rows.centred[j], new, square = 1.0, mean, variance
    delta = mean - new
    rows.total[j] = n * delta
    rows.squares[j] = n * (variance + delta * delta)
    rows.shift[j] = new
    rows.scale[j] = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    rows.due[j] = present + min(max(n * RENEW_SHARE, 1.0), RENEW_MOST)


@kernel
def observe_rows(rows, values, columns, indptr, shared):
    """Add all rows to the statistics, then update shift and scale of all columns."""
    for i in range(indptr.size - 1):
        observe(rows, *row_at(values, columns, indptr, shared, i))
    if rows.scaling != NONE:
        for j in range(rows.present.size):
            if rows.present[j] > 0.0:
                renew(rows, j)
