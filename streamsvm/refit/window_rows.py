"""Rows of a window: in memory, in archives, and as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import LARGEST
from streamsvm.models import ArchiveError
from streamsvm.models.codec import LoadedState, SavedState

if TYPE_CHECKING:
    import scipy.sparse

MOST_COLUMNS = 1 << 31
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
# Memory of an event beside its row.
EVENT_BYTES = 32


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Events of a window in order of arrival.

    Parameters
    ----------
    rows
        Encoded rows.
    codes, weights, times
        Class and weight of each event, and the newest event time at its arrival, NaN if there was none.
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
        is_present = ~np.isnan(self.rows.values)
        if self.rows.shared:
            is_present = np.asarray(is_present.reshape(len(self), len(self.rows.columns)).any(axis=0))
        return int(self.rows.columns[is_present].max(initial=-1)) + 1

    @property
    def event_bytes(self) -> Ints:
        """Memory of each event in bytes.

        It includes column numbers, unless a row has the first columns.
        """
        rows, lengths = self.rows, np.diff(self.rows.indptr)
        if rows.shared:
            is_listed = np.full(len(self), rows.columns[-1:].sum() != len(rows.columns) - 1)
        else:
            ends, is_listed = rows.indptr[1:], lengths > 0
            is_listed[is_listed] = rows.columns[ends[is_listed] - 1] != lengths[is_listed] - 1
        return EVENT_BYTES + lengths * np.where(is_listed, 16, 8)

    def part(self, start: int, end: int) -> WindowRows:
        """Return consecutive events as views."""
        of_events = (getattr(self, name)[start:end] for name in _OF_EVENTS)
        return WindowRows(self.rows.part(start, end), *of_events)

    def chosen(self, which: NDArray[np.bool_]) -> WindowRows:
        """Return the chosen events, as copies unless all are chosen."""
        if which.all():
            return self
        rows, lengths = self.rows, np.diff(self.rows.indptr)
        entries, indptr = np.repeat(which, lengths), np.append(0, np.cumsum(lengths[which]))
        columns = rows.columns if rows.shared else rows.columns[entries]
        of_events = (getattr(self, name)[which] for name in _OF_EVENTS)
        return WindowRows(EncodedRows(rows.values[entries], columns, indptr, rows.shared), *of_events)

    def state(self) -> SavedState:
        """Return header and arrays for an archive."""
        rows = self.rows
        arrays = {"values": rows.values, "columns": rows.columns, "indptr": rows.indptr}
        return {"shared": bool(rows.shared)}, arrays | {name: getattr(self, name) for name in _OF_EVENTS}

    @classmethod
    def from_state(cls, state: LoadedState) -> Self:
        """Restore events from their `state`.

        Raises
        ------
        ArchiveError, ValueError
            If the state is invalid.
        """
        header, arrays = state
        for name, dtype in ROW_ARRAYS.items():
            if arrays[name].dtype != dtype or arrays[name].ndim != 1:
                raise ArchiveError(f"array {name!r} has shape {arrays[name].shape} and type {arrays[name].dtype}")
        values, columns, indptr, codes, weights, times, numbers = (arrays[name] for name in ROW_ARRAYS)
        shared, begins, known = header["shared"], np.zeros(len(columns) + 1, bool), values[~np.isnan(values)]
        begins[[0, -1] if shared else indptr] = True
        is_valid = (
            type(shared) is bool
            and len(indptr) == len(codes) + 1
            and len(codes) == len(weights) == len(times) == len(numbers)
            and (indptr[0] == 0 and indptr[-1] == len(values) and (np.diff(indptr) >= 0).all())
            and ((np.diff(indptr) == len(columns)).all() if shared else len(columns) == len(values))
            and (np.diff(columns) > 0)[~begins[1:-1]].all()
            and ((columns >= 0) & (columns < MOST_COLUMNS)).all()
            and (np.abs(known) <= LARGEST).all()
            and (codes >= 0).all()
            and ((weights > 0.0) & (weights < np.inf)).all()
            and ((numbers >= 0).all() and (np.diff(numbers) > 0).all())
            and not np.isinf(times).any()
        )
        if not is_valid:
            raise ArchiveError("the rows of a window are damaged")
        return cls(EncodedRows(values, columns, indptr, shared), codes, weights, times, numbers)


def without_new_gaps(events: WindowRows, n_columns: int) -> tuple[WindowRows, int]:
    """Remove missing values in columns that had no value before, as in single events.

    Parameters
    ----------
    events
        Consecutive events.
    n_columns
        Number of columns up to the last with a value, in earlier events.

    Returns
    -------
    WindowRows
        The events.
    int
        Number of columns up to the last with a value, after these events.
    """
    rows = events.rows
    if not len(events) or int(rows.columns.max(initial=-1)) < n_columns:
        return events, n_columns
    at, is_value = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), ~np.isnan(rows.values)
    columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns
    reach = np.full(len(rows), n_columns)
    np.maximum.at(reach, at[is_value], columns[is_value] + 1)
    reach = np.maximum.accumulate(reach)
    keep = is_value | (columns < reach[at])
    if not keep.all():
        indptr = np.append(0, np.cumsum(keep))[rows.indptr]
        events = replace(events, rows=EncodedRows(rows.values[keep], columns[keep], indptr, False))
    return events, int(reach[-1])


def dense_of(rows: EncodedRows, n_columns: int) -> Floats:
    """Return the first columns of rows as an array, NaN if missing.

    The array has shape (n, n_columns).
    """
    matrix, keep = np.full((len(rows), n_columns), np.nan), rows.columns < n_columns
    if rows.shared:
        matrix[:, rows.columns[keep]] = rows.values.reshape(len(rows), len(rows.columns))[:, keep]
    else:
        at = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
        matrix[at[keep], rows.columns[keep]] = rows.values[keep]
    return matrix


def csr_of(rows: EncodedRows, n_columns: int) -> scipy.sparse.csr_array:
    """Return the first columns of rows as a sparse array without missing values.

    The array has shape (n, n_columns).
    """
    import scipy.sparse  # only solvers of sparse windows need it

    columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns
    keep = ~np.isnan(rows.values) & (columns < n_columns)
    indptr = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    # scikit-learn's trees need 32-bit indices.
    kind = scipy.sparse.get_index_dtype(maxval=max(int(indptr[-1]), n_columns))
    entries = rows.values[keep], columns[keep].astype(kind), indptr.astype(kind)
    return scipy.sparse.csr_array(entries, shape=(len(rows), n_columns))


def joined(parts: Sequence[WindowRows]) -> WindowRows:
    """Return a copy of the events of several windows."""
    parts = parts or [_NOTHING]
    rows = [part.rows for part in parts]
    lengths = np.concatenate([np.diff(own.indptr) for own in rows])
    values, indptr, first = np.concatenate([own.values for own in rows]), np.append(0, np.cumsum(lengths)), rows[0]
    own_columns = first.columns if first.shared else first.columns[: lengths[:1].sum()]
    shared = bool((lengths == len(own_columns)).all()) and all(_are_all(own, own_columns) for own in rows)
    if shared:
        columns = own_columns.copy()
    else:
        columns = np.concatenate([np.tile(own.columns, len(own)) if own.shared else own.columns for own in rows])
    of_events = (np.concatenate([getattr(part, name) for part in parts]) for name in _OF_EVENTS)
    return WindowRows(EncodedRows(values, columns, indptr, shared), *of_events)


def _are_all(rows: EncodedRows, columns: Ints) -> bool:
    """Return whether each row has these columns, given that the numbers are equal."""
    return not (len(rows) and rows.columns.size) or bool((rows.columns.reshape(-1, len(columns)) == columns).all())


_NO_INTS = np.zeros(0, np.int64)
_NOTHING = WindowRows(
    EncodedRows(np.zeros(0), _NO_INTS, np.zeros(1, np.int64), True), _NO_INTS, np.zeros(0), np.zeros(0), _NO_INTS
)
