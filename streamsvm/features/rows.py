"""Encoded rows: values and columns of many events, and errors of rows that cannot be encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.features.encoding import ENTRY_POINTS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class BadRows(ValueError):
    """Rows that cannot be learned from or predicted, with the reason for each; nothing has been done with any row.

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
    """Rows as columns and values, in ascending order of columns, NaN where missing.

    Row i has values[indptr[i]:indptr[i + 1]], in columns[indptr[i]:indptr[i + 1]], or, where `shared`, all rows have
    the same `columns`.
    """

    values: Floats
    columns: Ints
    indptr: Ints
    shared: bool

    @classmethod
    def of_event(cls, columns: Ints, values: Floats) -> EncodedRows:
        """A single event as a row."""
        return cls(values, columns, np.array([0, len(columns)]), False)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def part(self, start: int, end: int) -> EncodedRows:
        """The rows from `start` to before `end`, as views."""
        indptr = self.indptr[start : end + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        columns = self.columns if self.shared else self.columns[first:last]
        return EncodedRows(self.values[first:last], columns, indptr - first, self.shared)


def in_order(columns: Ints, values: Floats, indptr: Ints) -> EncodedRows:
    """Entries of rows in ascending order of columns, without those whose column is negative."""
    rows = EncodedRows(np.empty_like(values), np.empty_like(columns), np.empty_like(indptr), False)
    call_kernel("order", columns, values, indptr, rows.columns, rows.values, rows.indptr)
    n = int(rows.indptr[-1])
    rows.values, rows.columns = rows.values[:n], rows.columns[:n]
    return rows


def call_kernel(name: str, *arrays: NDArray[Any]) -> None:
    """Call an entry point of `encoding`, which does not check types: arrays may be read-only."""
    entry = ENTRY_POINTS[name]
    prepare([entry])
    entry.compile()(*arrays)
