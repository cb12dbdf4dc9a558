"""Kernels that sort the entries of rows by column and find new feature names."""

from __future__ import annotations

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import allocating, inlined, kernel
from streamsvm.core.signatures import FLAGS, INTEGERS, NUMBERS
from streamsvm.core.simd import uint

# Up to INSERTED_MOST entries use insertion sort, more use radix sort with digits of DIGIT_BITS bits.
INSERTED_MOST = 32
DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


@kernel
def meet(names, values, indptr, learn, table, rows, counts):
    """Count the values of each name without a column, and find its first row.

    Only learned rows count.

    Parameters
    ----------
    names, values, indptr
        Entries of the rows: row i has names[indptr[i]:indptr[i + 1]]. Names are indices into `table`; NaN is missing.
    learn
        Whether each row is learned.
    table
        Column of each name, -1 if it has none.
    rows, counts
        Outputs per name: the first row with a value, and the number of values.
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
    """Copy rows with their entries in ascending column order, without negative columns."""
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
    """Sort the entries from `first` to `end - 1` by column with insertion sort."""
    for k in range(first + 1, end):
        column, value, j = columns[uint(k)], values[uint(k)], k
        while j > first and columns[uint(j - 1)] > column:
            columns[uint(j)], values[uint(j)] = columns[uint(j - 1)], values[uint(j - 1)]
            j -= 1
        columns[uint(j)], values[uint(j)] = column, value


@allocating
def sort(columns, values, first, n, largest):
    """Sort n entries from `first` on by column with radix sort."""
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
