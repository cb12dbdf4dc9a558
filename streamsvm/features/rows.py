"""Encoded rows, the order of their entries, and errors of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Up to this many entries, a sort in numpy takes less time than a matrix of scipy does to begin with.
FEW_ENTRIES = 1000


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

    def __reduce__(self) -> Any:
        # Errors of worker processes are pickled; by default the message is passed to `__init__`.
        return type(self), (self.rows,)


@dataclass(slots=True)
class EncodedRows:
    """Rows as columns and values, in ascending column order.

    Explicitly missing values are NaN, and absent names have no entry. Row i has values[indptr[i]:indptr[i + 1]] in
    columns[indptr[i]:indptr[i + 1]]. If `shared` is true, `columns` applies to every row.
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


def in_order(columns: Ints, values: Floats, indptr: Ints) -> EncodedRows:
    """Sort the entries of rows by column and drop negative columns."""
    is_known = columns >= 0
    if not is_known.all():
        indptr = np.concatenate([[0], is_known.cumsum()])[indptr]
        columns, values = columns[is_known], values[is_known]
    if len(columns) <= FEW_ENTRIES:
        order = np.lexsort((columns, np.arange(len(indptr) - 1).repeat(indptr[1:] - indptr[:-1])))
        return EncodedRows(values[order], columns[order], indptr.copy(), False)
    from scipy.sparse import csr_matrix  # slow to import

    shape = len(indptr) - 1, int(columns.max(initial=-1)) + 1
    rows = csr_matrix((values, columns, indptr), shape, copy=True)  # sorted in place
    rows.sort_indices()
    return EncodedRows(rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64), False)
