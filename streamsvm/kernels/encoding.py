"""Entries of rows, as they come, to entries in ascending order of columns."""

from __future__ import annotations

from numba import types

from streamsvm.kernels import kernel
from streamsvm.kernels.entries import Entry
from streamsvm.kernels.rows import borrow, u

# So few entries are sorted by insertion alone.
INSERTED_MOST = 32


@kernel
def meet(names, values, indptr, learn, table, rows, counts):
    """Of each name without a column, how many values learned rows have under it, and the first row that has one.

    Row i has names[indptr[i]:indptr[i + 1]], which are indices into `table`; what is NaN is no value.
    """
    names, values, indptr, learn = borrow(names), borrow(values), borrow(indptr), borrow(learn)
    table, rows, counts = borrow(table), borrow(rows), borrow(counts)
    for i in range(indptr.size - 1):
        if not learn[i]:
            continue
        for k in range(indptr[i], indptr[i + 1]):
            name, value = u(names[u(k)]), values[u(k)]
            if table[name] < 0 and value == value:
                if counts[name] == 0:
                    rows[name] = i
                counts[name] += 1


@kernel
def order(columns, values, indptr, out_columns, out_values, out_indptr):
    """Lay out rows with their entries in ascending order of columns, without those whose column is negative."""
    columns, values, indptr = borrow(columns), borrow(values), borrow(indptr)
    out_columns, out_values, out_indptr = borrow(out_columns), borrow(out_values), borrow(out_indptr)
    at = out_indptr[0] = 0
    for i in range(indptr.size - 1):
        first, ascending = at, True
        for k in range(indptr[i], indptr[i + 1]):
            column = columns[u(k)]
            if column >= 0:
                ascending &= at == first or out_columns[u(at - 1)] < column
                out_columns[u(at)], out_values[u(at)] = column, values[u(k)]
                at += 1
        if not ascending:
            sort(out_columns, out_values, first, at)
        out_indptr[u(i + 1)] = at


@kernel
def sort(columns, values, first, end):
    """Sort the entries from `first` to before `end`, mostly nearly in order: by insertion, from afar at first.

    By Shell's method with Knuth's steps: NumPy's takes five seconds to compile.
    """
    step = 1
    while step < (end - first) // INSERTED_MOST:
        step = 3 * step + 1
    while step > 0:
        for k in range(first + step, end):
            column, value, j = columns[u(k)], values[u(k)], k
            while j - step >= first and columns[u(j - step)] > column:
                columns[u(j)], values[u(j)] = columns[u(j - step)], values[u(j - step)]
                j -= step
            columns[u(j)], values[u(j)] = column, value
        step //= 3


_INTS, _FLOATS, _FLAGS = types.int64[::1], types.float64[::1], types.boolean[::1]

ENTRIES = {
    "meet": Entry(meet, (_INTS, _FLOATS, _INTS, _FLAGS, _INTS, _INTS, _INTS)),
    "order": Entry(order, (_INTS, _FLOATS, _INTS, _INTS, _FLOATS, _INTS)),
}
