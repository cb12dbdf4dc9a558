"""Ranks of values among the recent values of their columns."""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import (
    INTEGER,
    address_of,
    call_pointer,
    columns_at,
    element_address,
    inlined,
    kernel,
    uint,
    values_at,
)
from streamsvm.features.scaler import ABOVE_ALL, n_ranked_values, rows_at
from streamsvm.features.sorted_window import (
    count_below,
    count_below_in_four,
    is_below,
    next_above,
    replace,
)


@inlined
def row_addresses(rows, stats, values, columns):
    """Return the arguments of `find_ranks` and `take_ranks` for a row."""
    return address_of(rows), address_of(stats), element_address(values, 0), element_address(columns, 0), values.size


@inlined
def rank(rows, stats, j):
    """Return the mid-rank of the current value of column j among its recent values.

    The rank is scaled to mean 0 and variance 1 for uniform values.
    """
    held = min(n_ranked_values(stats, uint(j)), rows.window)
    if held < 1:
        return 0.0
    return ((rows.entering[uint(j)] + rows.upto[uint(j)]) / (2.0 * held) - 0.5) * math.sqrt(12.0)


def find_ranks(address, statistics, values_address, columns_address, n_entries):
    """Count the recent values below each value of a row, and those not above it.

    The counts go to `entering` and `upto`. If a recent value is equal, `upto` counts the values below the next float.
    This function is compiled separately.
    """
    rows, stats = rows_at(address), rows_at(statistics)
    values, columns = values_at(values_address, n_entries), columns_at(columns_address, n_entries)
    (n_ranked, width), entering, upto, n = rows.ranks.shape, rows.entering, rows.upto, 0
    for i in range(n_entries):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        if stats.centred[uint(column)] > 0.0 and x == x:
            rows.searched[uint(n)], rows.sought[uint(n)] = column, x
            n += 1
    search(rows, n, entering)
    n_equal = 0
    for k in range(n):
        column, x = rows.searched[uint(k)], rows.sought[uint(k)]
        below = upto[uint(column)] = entering[uint(column)]
        if below == width or rows.ranks[uint(column), uint(below)] != x:
            continue
        if below + 1 == width or rows.ranks[uint(column), uint(below + 1)] != x:
            upto[uint(column)] = below + 1
        else:
            rows.searched[uint(n_equal)], rows.sought[uint(n_equal)] = column, next_above(x)
            n_equal += 1
    search(rows, n_equal, upto)


@inlined
def search(rows, n, found):
    """Count the recent values below each searched value in n columns.

    The columns are in `rows.searched` and the values in `rows.sought`. The count of column j is written to found[j].
    """
    columns, sought, k = rows.searched, rows.sought, 0
    while k + 4 <= n:
        count_below_in_four(rows.ranks, columns, sought, k, found)
        k += 4
    while k < n:
        found[uint(columns[uint(k)])] = count_below(rows.ranks[uint(columns[uint(k)])], sought[uint(k)])
        k += 1


@inlined
def observe_ranks(rows, stats, values, columns):
    """Add a learned row to the recent values, before `stats` observes the row."""
    call_pointer(rows.take_ranks, row_addresses(rows, stats, values, columns))


def take_ranks(address, statistics, values_address, columns_address, n_entries):
    """Implement `observe_ranks` as a separately compiled function."""
    rows, stats = rows_at(address), rows_at(statistics)
    values, columns = values_at(values_address, n_entries), columns_at(columns_address, n_entries)
    n_ranked, leaving = rows.ranks.shape[0], rows.leaving
    find_places(rows, stats, values, columns)
    for i in range(n_entries):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        j = uint(column)
        if x == x and stats.due[j] >= 0.0 and leaving[j] >= 0:
            replace(rows.ranks[j], leaving[j], rows.entering[j], x)


@kernel
def find_places(rows, stats, values, columns):
    """Find where the values of a row replace the oldest recent values.

    The positions go to `leaving` and `entering`; `leaving` is -1 where nothing changes.
    """
    n_ranked, window, spacing, n = rows.ranks.shape[0], rows.window, rows.spacing, 0
    for i in range(values.size):
        x, column = values[uint(i)], columns[uint(i)]
        if column >= n_ranked:
            break
        if not (x == x and stats.due[uint(column)] >= 0.0):
            continue
        j = uint(column)
        index = n_ranked_values(stats, j)
        if index == 0:
            empty(rows, j)
        after = index - window
        if after > 0 and after & (spacing - 1) != 0:
            rows.leaving[j] = -1
            continue
        ordered, slot = rows.ranks[j], uint(index if after < 0 else after // spacing % window)
        oldest = rows.ring[j, slot]
        rows.ring[j, slot] = x
        if oldest == x:
            rows.leaving[j] = -1
            continue
        rows.searched[uint(n)], rows.sought[uint(n)] = column, oldest
        n += 1
        if not is_below(ordered, x, rows.entering[j]):  # valid if `find_ranks` has just run on this row
            rows.entering[j] = count_below(ordered, x)
    search(rows, n, rows.leaving)


@inlined
def empty(rows, j):
    """Remove the recent values of column j."""
    for k in range(rows.ranks.shape[1]):
        rows.ring[j, uint(k)] = rows.ranks[j, uint(k)] = ABOVE_ALL


ENTRY_POINTS = {
    "find_ranks": EntryPoint(find_ranks, (INTEGER,) * 5),
    "take_ranks": EntryPoint(take_ranks, (INTEGER,) * 5),
}
