"""Entries of rows, as they come, to entries in ascending order of columns."""

from __future__ import annotations

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import allocating, inlined, kernel
from streamsvm.core.signatures import FLAGS, INTEGERS, NUMBERS
from streamsvm.core.simd import uint

# So few entries are sorted by insertion; more by digits of so many bits.
INSERTED_MOST = 32
DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


@kernel
def meet(names, values, indptr, learn, table, rows, counts):
    """Of each name without a column, how many values learned rows have under it, and the first row that has one.

    Row i has names[indptr[i]:indptr[i + 1]], which are indices into `table`; what is NaN is no value.
    """
    for i in range(indptr.size - 1):
        if not learn[i]:
            continue
        for k in range(indptr[i], indptr[i + 1]):
            name, value = uint(names[uint(k)]), values[uint(k)]
            if table[name] < 0 and value == value:
                if counts[name] == 0:
                    rows[name] = i
                counts[name] += 1


@allocating
def order(columns, values, indptr, out_columns, out_values, out_indptr):
    """Lay out rows with their entries in ascending order of columns, without those whose column is negative."""
    at = out_indptr[0] = 0
    for i in range(indptr.size - 1):
        first, largest, ascending = at, -1, True
        for k in range(indptr[i], indptr[i + 1]):
            column = columns[uint(k)]
            if column >= 0:
                ascending &= column > largest
                largest = max(largest, column)
                out_columns[uint(at)], out_values[uint(at)] = column, values[uint(k)]
                at += 1
        if not ascending and at - first <= INSERTED_MOST:
            insert(out_columns, out_values, first, at)
        elif not ascending:
            sort(out_columns, out_values, first, at - first, largest)
        out_indptr[uint(i + 1)] = at


@inlined
def insert(columns, values, first, end):
    """Sort the few entries from `first` to before `end` by insertion."""
    for k in range(first + 1, end):
        column, value, j = columns[uint(k)], values[uint(k)], k
        while j > first and columns[uint(j - 1)] > column:
            columns[uint(j)], values[uint(j)] = columns[uint(j - 1)], values[uint(j - 1)]
            j -= 1
        columns[uint(j)], values[uint(j)] = column, value


@allocating
def sort(columns, values, first, n, largest):
    """Sort the n entries from `first` on by the digits of their columns, the lowest first."""
    spare_columns, spare_values, counts = np.empty(n, np.int64), np.empty(n), np.empty(DIGITS + 1, np.int64)
    shift = 0
    while largest >> shift > 0:
        for digit in range(counts.size):
            counts[uint(digit)] = 0
        for k in range(n):
            counts[uint((columns[uint(first + k)] >> shift & (DIGITS - 1)) + 1)] += 1
        for digit in range(DIGITS):
            counts[uint(digit + 1)] += counts[uint(digit)]
        for k in range(n):
            column = columns[uint(first + k)]
            digit = uint(column >> shift & (DIGITS - 1))
            to = uint(counts[digit])
            counts[digit] += 1
            spare_columns[to], spare_values[to] = column, values[uint(first + k)]
        for k in range(n):
            columns[uint(first + k)], values[uint(first + k)] = spare_columns[uint(k)], spare_values[uint(k)]
        shift += DIGIT_BITS


ENTRY_POINTS = {
    "meet": EntryPoint(meet, (INTEGERS, NUMBERS, INTEGERS, FLAGS, INTEGERS, INTEGERS, INTEGERS)),
    "order": EntryPoint(order, (INTEGERS, NUMBERS, INTEGERS, INTEGERS, NUMBERS, INTEGERS)),
}
