"""Scaling of rows with the statistics of their columns."""

from __future__ import annotations

import math

from streamsvm.core.jit import call_pointer, inlined, kernel, uint
from streamsvm.features.ranks import rank, row_addresses
from streamsvm.features.scaler import (
    CLIP,
    FAR,
    FARTHER,
    LARGEST,
    LEAST_UNTIED,
    RANK,
    is_far,
    is_whole,
)


@inlined
def load_row(rows, values, columns):
    """Scale a row and make it the current row.

    Parameters
    ----------
    values, columns
        Entries of the row, in ascending column order.

    Returns
    -------
    int
        The number of pairs, or -1 - i if entry i is infinite or larger than LARGEST.
    """
    if is_whole(columns) and rows.scaling != RANK:
        return load_whole(rows, values, columns)
    return load_pairs(rows, rows, values, columns)


@inlined
def load_whole(rows, values, columns):
    """Implement `load_row` for a row with an entry in each of the first n columns.

    Missing values become 0, unless there are columns of missing values.
    """
    shift, scale, out, limit = rows.shift, rows.scale, rows.scaled, rows.limit
    n, rows.in_order = values.size, 1
    out[0] = 1.0
    unusual = 0
    for j in range(n):
        x = values[uint(j)]
        z = (x - shift[uint(j)]) * scale[uint(j)]
        unusual += (not abs(z) <= FAR) | (abs(x) > LARGEST)  # also if missing
        z = z if z < limit else limit
        z = z if z > -limit else -limit
        out[uint(j + 1)] = z if x == x else 0.0
    rows.n_far = unusual
    if unusual:
        for j in range(n):
            x = values[uint(j)]
            if abs(x) > LARGEST:
                return -1 - j
            if is_far(rows, j, x):
                out[uint(j + 1)] = scaled_outlier(rows, j, x)
        if rows.n_gaps > 0:
            return load_pairs(rows, rows, values, columns)
    rows.n_pairs = n + 1
    return n + 1


@inlined
def add_missing(rows, stats, j, m):
    """Insert a pair for a missing value of column j with an own column into m pairs.

    Returns the number of pairs.
    """
    out_rows, out, row, at = rows.own_rows, rows.scaled, int(stats.gap[uint(j)]), m
    if row <= 0:
        return m
    while out_rows[uint(at - 1)] > row:
        out_rows[uint(at)], out[uint(at)] = out_rows[uint(at - 1)], out[uint(at - 1)]
        at -= 1
    out_rows[uint(at)], out[uint(at)] = row, 1.0
    return m + 1


@kernel
def load_pairs(rows, stats, values, columns):
    """Implement `load_row` for any row; missing values have pairs of own columns.

    Parameters
    ----------
    stats
        State with the statistics that scale the row; it observes the same events.
    """
    shift, scale, out, limit = stats.shift, stats.scale, rows.scaled, rows.limit
    out_rows = rows.own_rows
    n_ranked = rows.ranks.shape[0] if rows.scaling == RANK else 0
    if n_ranked > 0:
        call_pointer(rows.find_ranks, row_addresses(rows, stats, values, columns))
    rows.in_order = 0
    out_rows[0] = 0
    out[0] = 1.0
    m = 1
    for i in range(values.size):
        x = values[uint(i)]
        if not abs(x) <= LARGEST:
            if math.isnan(x):
                continue
            return -1 - i
        j = columns[uint(i)]
        if j < n_ranked and stats.centred[j] > 0.0:  # sparse columns and indicators are not ranked
            z = rank(rows, stats, j)
        else:
            z = (x - shift[uint(j)]) * scale[uint(j)]
            if abs(z) > FAR and is_far(stats, j, x):
                z = scaled_outlier(stats, j, x)
            z = z if z < limit else limit
            z = z if z > -limit else -limit
        out_rows[uint(m)] = j + 1
        out[uint(m)] = z
        m += 1
    if stats.n_gaps > 0:
        for i in range(values.size):
            if math.isnan(values[uint(i)]):
                m = add_missing(rows, stats, columns[uint(i)], m)
    rows.n_pairs = m
    return m


@kernel
def scaled_outlier(rows, j, x):
    """Return the scaled value of an outlier of column j.

    It decreases towards 0, the value of a missing entry, with the distance.
    """
    z = (x - rows.shift[uint(j)]) * rows.scale[uint(j)]
    share = min(FARTHER / (abs(z) * math.sqrt(max(1.0 - rows.ties[uint(j)], LEAST_UNTIED))), 1.0)
    return math.copysign(CLIP * share * share, z)
