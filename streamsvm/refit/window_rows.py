"""Rows of a window for solvers, in memory and in archives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import LARGEST
from streamsvm.models import ArchiveError
from streamsvm.online.saving import check_bounds

if TYPE_CHECKING:
    import scipy.sparse

_MOST_COLUMNS = 1 << 31
# Arrays in an archive.
ROW_ARRAYS: dict[str, type] = {
    "values": np.float64,
    "columns": np.int64,
    "indptr": np.int64,
    "codes": np.int64,
    "weights": np.float64,
    "times": np.float64,
    "numbers": np.int64,
}
_OF_EVENTS = ("codes", "weights", "times", "numbers")


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Events of a window in order of arrival.

    Parameters
    ----------
    rows
        Encoded rows; `shared` if all have the columns 0 to d - 1.
    codes, weights, times
        Class, weight and time of each event; time is NaN if missing.
    numbers
        Number of earlier events of each.
    """

    rows: EncodedRows
    codes: Ints
    weights: Floats
    times: Floats
    numbers: Ints

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def n_columns(self) -> int:
        """Number of columns up to the last with a value."""
        there = ~np.isnan(self.rows.values)
        if self.rows.shared:
            there = np.asarray(there.reshape(len(self), len(self.rows.columns)).any(axis=0))
        return int(self.rows.columns[there].max(initial=-1)) + 1

    def part(self, start: int, end: int) -> WindowRows:
        """Return consecutive events as views."""
        of_events = (getattr(self, name)[start:end] for name in _OF_EVENTS)
        return WindowRows(self.rows.part(start, end), *of_events)

    def dense(self, n_columns: int) -> Floats:
        """Return the first columns as an array of shape (n, n_columns), NaN if missing."""
        return dense_of(self.rows, n_columns)

    def csr(self, n_columns: int) -> scipy.sparse.csr_array:
        """Return the first columns as a sparse array of shape (n, n_columns), without missing values."""
        return csr_of(self.rows, n_columns)


def dense_of(rows: EncodedRows, n_columns: int) -> Floats:
    """Return the first columns of rows as an array of shape (n, n_columns), NaN if missing."""
    matrix, keep = np.full((len(rows), n_columns), np.nan), rows.columns < n_columns
    if rows.shared:
        matrix[:, rows.columns[keep]] = rows.values.reshape(len(rows), len(rows.columns))[:, keep]
    else:
        at = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
        matrix[at[keep], rows.columns[keep]] = rows.values[keep]
    return matrix


def csr_of(rows: EncodedRows, n_columns: int) -> scipy.sparse.csr_array:
    """Return the first columns of rows as a sparse array of shape (n, n_columns), without missing values."""
    import scipy.sparse  # only solvers of sparse windows need it

    columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns
    keep = ~np.isnan(rows.values) & (columns < n_columns)
    indptr = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    # scikit-learn's trees need 32-bit indices.
    kind = scipy.sparse.get_index_dtype(maxval=max(int(indptr[-1]), n_columns))
    entries = rows.values[keep], columns[keep].astype(kind), indptr.astype(kind)
    return scipy.sparse.csr_array(entries, shape=(len(rows), n_columns))


# Chunks -----------------------------------------------------------------------------------------------------------


class Chunk(NamedTuple):
    """Events in order of arrival, in read-only arrays.

    A row with a value or NaN in each of the first columns stores no column numbers.

    Parameters
    ----------
    values
        Values of all rows.
    columns
        Column numbers of the rows that store them.
    lengths, listed
        Number of values of each row, and whether it stores column numbers.
    codes, weights, times, numbers
        See `WindowRows`.
    """

    values: Floats
    columns: NDArray[np.int32]
    lengths: Ints
    listed: NDArray[np.bool_]
    codes: Ints
    weights: Floats
    times: Floats
    numbers: Ints

    @classmethod
    def of(cls, window: WindowRows) -> Self:
        """Return the events of a window, as views where possible."""
        rows, n = window.rows, len(window)
        lengths, columns, listed = np.diff(rows.indptr), rows.columns[:0], np.zeros(n, bool)
        if not rows.shared or rows.columns[-1:].sum() != len(rows.columns) - 1:
            columns = np.tile(rows.columns, n) if rows.shared else rows.columns
            last, some = np.full(n, -1), lengths > 0
            last[some] = columns[rows.indptr[1:][some] - 1]
            listed = last != lengths - 1  # columns are in ascending order
            columns = columns[np.repeat(listed, lengths)]
        of_events = (getattr(window, name) for name in _OF_EVENTS)
        return cls(rows.values, columns.astype(np.int32), lengths, listed, *of_events)

    @property
    def n_bytes(self) -> int:
        """Memory in bytes."""
        return sum(array.nbytes for array in self)

    @property
    def bytes_of_events(self) -> Ints:
        """Memory of each event in bytes."""
        return BYTES_OF_EVENT + self.lengths * np.where(self.listed, 12, 8)

    def part(self, start: int, end: int) -> Self:
        """Return consecutive events as views."""
        values, columns = (
            slice(int(lengths[:start].sum()), int(lengths[:end].sum()))
            for lengths in (self.lengths, self.lengths * self.listed)
        )
        return self._at(values, columns, slice(start, end))

    def chosen(self, which: NDArray[np.bool_]) -> Self:
        """Return the chosen events, as copies unless all are chosen."""
        if which.all():
            return self
        lengths, listed = self.lengths, self.listed
        return self._at(np.repeat(which, lengths), np.repeat(which[listed], lengths[listed]), which)

    def _at(self, values: Any, columns: Any, events: Any) -> Self:
        of_events: Any = (array[events] for array in self[2:])
        return type(self)(self.values[values], self.columns[columns], *of_events)

    def window(self) -> WindowRows:
        """Return the events for a solver."""
        values, lengths, n = self.values, self.lengths, len(self.codes)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        shared = not self.listed.any() and bool((lengths == lengths[:1]).all())
        if shared:
            columns = np.arange(len(values) // max(n, 1))
        else:
            columns = np.arange(len(values)) - np.repeat(indptr[:-1], lengths)
            columns[np.repeat(self.listed, lengths)] = self.columns
        return WindowRows(EncodedRows(values, columns, indptr, shared), *self[4:])


# Memory of an event beside its row.
BYTES_OF_EVENT = 41


def joined(chunks: Iterable[Chunk]) -> Chunk:
    """Return a copy of the events of several chunks."""
    kinds = (float, np.int32, np.int64, bool, np.int64, float, float, np.int64)
    return Chunk(*map(np.concatenate, zip((np.empty(0, kind) for kind in kinds), *chunks, strict=True)))


# Archives ---------------------------------------------------------------------------------------------------------


def window_state(window: WindowRows) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the state of events for an archive."""
    rows = window.rows
    arrays = {"values": rows.values, "columns": rows.columns, "indptr": rows.indptr}
    return {"shared": bool(rows.shared)}, arrays | {name: getattr(window, name) for name in _OF_EVENTS}


def window_of_state(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> WindowRows:
    """Restore events from `window_state`.

    Raises
    ------
    ArchiveError, ValueError
        If the state is invalid.
    """
    for name, dtype in ROW_ARRAYS.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise ArchiveError(f"array {name!r} has shape {arrays[name].shape} and type {arrays[name].dtype}")
    n = len(arrays["codes"])
    if type(header["shared"]) is not bool or len(arrays["indptr"]) != n + 1:
        raise ArchiveError(f"there are not {n} rows")
    for name in _OF_EVENTS:
        if len(arrays[name]) != n:
            raise ArchiveError(f"array {name!r} has {len(arrays[name])} elements for {n} events")
    rows = EncodedRows(arrays["values"], arrays["columns"], arrays["indptr"], header["shared"])
    _check_rows(rows)
    check_bounds("codes", arrays["codes"], 0, np.inf)
    check_bounds("weights", arrays["weights"], np.nextafter(0.0, 1.0), np.finfo(float).max)
    check_bounds("numbers", arrays["numbers"], 0, np.inf)
    if (np.diff(arrays["numbers"]) <= 0).any():
        raise ArchiveError("events are not in order of arrival")
    if np.isinf(arrays["times"]).any():
        raise ArchiveError("times are not finite")
    return WindowRows(rows, *(arrays[name] for name in _OF_EVENTS))


def _check_rows(rows: EncodedRows) -> None:
    """Refuse malformed rows."""
    indptr, columns = rows.indptr, rows.columns
    lengths = np.diff(indptr)
    if indptr[0] != 0 or indptr[-1] != len(rows.values) or (lengths < 0).any():
        raise ArchiveError("rows do not start at the end of the previous one")
    if rows.shared:
        if not np.array_equal(columns, np.arange(len(columns))) or (lengths != len(columns)).any():
            raise ArchiveError("rows that share their columns do not have all of them")
    else:
        if len(columns) != len(rows.values):
            raise ArchiveError(f"there are {len(columns)} columns for {len(rows.values)} values")
        check_bounds("columns", columns, 0, _MOST_COLUMNS - 1)
        begins = np.zeros(len(columns) + 1, bool)
        begins[indptr] = True
        if not (np.diff(columns) > 0)[~begins[1:-1]].all():
            raise ArchiveError("the columns of a row are not in ascending order")
    check_bounds("values", rows.values[~np.isnan(rows.values)], -LARGEST, LARGEST)
