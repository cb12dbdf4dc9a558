"""Encoded rows, their order of entries, and the error for rows that cannot be encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import inlined, kernel
from streamsvm.core.precompile import prepare
from streamsvm.core.signatures import INTEGERS, NUMBERS
from streamsvm.core.simd import uint

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Up to INSERTED_MOST entries use insertion sort.
INSERTED_MOST = 32


class BadRows(ValueError):
    """Rows that cannot be learned or predicted; no row of the call has been used.

    Attributes
    ----------
    rows
        Reasons by row number.
    """

    def __init__(self, rows: Mapping[int, str]) -> None:
        self.rows = dict(rows)
        shown = "; ".join(f"row {i}: {reason}" for i, reason in sorted(self.rows.items())[:3])
        more = f" and {len(self.rows) - 3} more" if len(self.rows) > 3 else ""
        super().__init__(f"{shown}{more}. No row has been used: mend or leave out the bad ones.")


@dataclass(slots=True)
class EncodedRows:
    """Rows as columns and values, in ascending column order.

    Missing values are NaN. Row i has values[indptr[i]:indptr[i + 1]] in columns[indptr[i]:indptr[i + 1]]. If `shared`
    is true, `columns` applies to every row.
    """

    values: Floats
    columns: Ints
    indptr: Ints
    shared: bool

    @classmethod
    def of_event(cls, columns: Ints, values: Floats) -> EncodedRows:
        """Return a single event as one row."""
        return cls(values, columns, np.array([0, len(columns)]), False)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def part(self, start: int, end: int) -> EncodedRows:
        """Return the rows from `start` to `end - 1` as views."""
        indptr = self.indptr[start : end + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        columns = self.columns if self.shared else self.columns[first:last]
        return EncodedRows(self.values[first:last], columns, indptr - first, self.shared)


@kernel
def order(columns, values, indptr, out_columns, out_values, out_indptr):
    """Copy rows with their entries in ascending column order, without negative columns."""
    at = out_indptr[0] = 0
    for i in range(indptr.size - 1):
        first, last, ascending = at, -1, True
        for k in range(indptr[i], indptr[i + 1]):
            column = columns[uint(k)]
            if column >= 0:
                ascending &= column > last
                last = column
                out_columns[uint(at)], out_values[uint(at)] = column, values[uint(k)]
                at += 1
        if not ascending and at - first <= INSERTED_MOST:
            insert(out_columns, out_values, first, at)
        elif not ascending:
            sort(out_columns, out_values, first, at - first)
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


@inlined
def sort(columns, values, first, n):
    """Sort n entries by column with heapsort, which needs no memory."""
    for root in range(n // 2 - 1, -1, -1):
        sift_down(columns, values, first, root, n)
    for end in range(n - 1, 0, -1):
        swap(columns, values, first, first + end)
        sift_down(columns, values, first, 0, end)


@inlined
def sift_down(columns, values, first, root, n):
    """Move an entry down the heap of n entries, until no child is larger."""
    while 2 * root + 1 < n:
        child = 2 * root + 1
        if child + 1 < n and columns[uint(first + child)] < columns[uint(first + child + 1)]:
            child += 1
        if columns[uint(first + root)] >= columns[uint(first + child)]:
            return
        swap(columns, values, first + root, first + child)
        root = child


@inlined
def swap(columns, values, i, j):
    """Exchange two entries."""
    columns[uint(i)], columns[uint(j)] = columns[uint(j)], columns[uint(i)]
    values[uint(i)], values[uint(j)] = values[uint(j)], values[uint(i)]


ENTRY_POINTS = {"order": EntryPoint(order, (INTEGERS, NUMBERS, INTEGERS, INTEGERS, NUMBERS, INTEGERS))}


def in_order(columns: Ints, values: Floats, indptr: Ints) -> EncodedRows:
    """Sort the entries of rows by column and drop negative columns."""
    rows = EncodedRows(np.empty_like(values), np.empty_like(columns), np.empty_like(indptr), False)
    prepare([ENTRY_POINTS["order"]])
    ENTRY_POINTS["order"](columns, values, indptr, rows.columns, rows.values, rows.indptr)
    n = int(rows.indptr[-1])
    rows.values, rows.columns = rows.values[:n], rows.columns[:n]
    return rows
