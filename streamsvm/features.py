"""From named features to columns of numbers."""

from __future__ import annotations

import math
import struct
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import narwhals as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from connectors.events import SparseRows
from streamsvm.kernels.rows import LARGEST

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

    def __len__(self) -> int:
        return len(self.indptr) - 1


class FeatureSpace:
    """The columns of a stream's features, in order of first arrival; names may appear at any time.

    A number (bool included) under a name takes the column of that name. A string is one-hot: it takes the column of the
    pair (name, string), with the value 1. None and NaN are missing, as is a name that is absent: a missing value
    contributes nothing. New names of one event take columns in an order of their own (integers by size, others by their
    representation), so that the order in which an event lists its features is without consequence.

    Parameters
    ----------
    max_features
        The most columns there may be. Names and strings that come later are refused: they contribute nothing, are
        counted in `n_refused`, and warned of once.

    Attributes
    ----------
    names
        What stands in each column: a name, or a `(name, string)` pair where `is_indicator` says so.
    is_indicator
        Whether a column holds the presence of a string.
    n_refused
        How many values of learned events were refused because all columns were taken.

    Examples
    --------
    >>> space = FeatureSpace(max_features=100)
    >>> rows = space.encode([{"size": 2.5, "color": "red"}, {"color": "blue", "size": None}], learn=[True, True])
    >>> space.names
    [('color', 'red'), 'size', ('color', 'blue')]
    >>> rows.values, rows.columns
    (array([1. , 2.5, 1. ]), array([0, 1, 2]))
    """

    def __init__(self, max_features: int) -> None:
        self.max_features = max_features
        self.names: list[Any] = []
        self.is_indicator: list[bool] = []
        self.n_refused = 0
        self._numbers: dict[Hashable, int] = {}
        self._strings: dict[Hashable, dict[str, int]] = {}
        self._warned = False
        self._set_fast_path()

    def __len__(self) -> int:
        return len(self.names)

    def _set_fast_path(self) -> None:
        """Prepare for events that have a number under each name there is, and nothing else.

        Such an event x (len(x) == plain_length) is written to memory, in order of columns, by
        `packer(buffer, offset, *getter(x))`, which raises one of NOT_PLAIN where it is not of that kind.
        """
        n = len(self.names)
        self.plain_length = n if n > 0 and not self._strings else -1
        self.getter: Callable[[Any], tuple[Any, ...]] = itemgetter(*self.names) if n > 1 else _Single(self.names)
        self.packer = struct.Struct(f"{n}d").pack_into

    # New columns -------------------------------------------------------------------------------------------------

    def _add(self, name: Hashable, string: str | None) -> int:
        """A column for a name or, unless `string` is None, for a string under that name; -1 where refused."""
        column = len(self.names)
        if column >= self.max_features:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"all {self.max_features} columns are taken: {name!r}{'' if string is None else f' = {string!r}'} "
                    "and other new names or strings are ignored from here on (counted in `n_refused`); "
                    "raise `max_features` to take them in",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return -1
        if string is None:
            self._numbers[name] = column
            self.names.append(name)
        else:
            self._strings.setdefault(name, {})[string] = column
            self.names.append((name, string))
        self.is_indicator.append(string is not None)
        return column

    def restore(self, names: Iterable[Any], is_indicator: Iterable[bool], n_refused: int) -> None:
        """Take the columns another space had."""
        for name, indicator in zip(names, is_indicator, strict=True):
            self._add(*(name if indicator else (name, None)))
        self.n_refused = n_refused
        self._set_fast_path()

    # Single events and lists of them -----------------------------------------------------------------------------

    def encode_event(self, x: Mapping[Any, Any], learn: bool) -> tuple[list[int], list[float]]:
        """The columns, ascending, and values of one event; names not known yet get columns only if `learn`.

        Raises
        ------
        TypeError, ValueError
            For a value that is neither a number nor a string nor missing, or is infinite.
        """
        entries: list[tuple[int, float]] = []
        unseen: list[tuple[Hashable, str | None, float]] = []
        numbers, strings = self._numbers, self._strings
        string: str | None
        for name, value in x.items():
            if value is None:
                continue
            if isinstance(value, str):
                number, string = 1.0, str(value)
                column = strings.get(name, {}).get(string, -1)
            else:
                number, string = _number(name, value), None
                if math.isnan(number):
                    continue
                column = numbers.get(name, -1)
            if column >= 0:
                entries.append((column, number))
            elif learn:
                unseen.append((name, string, number))
        if unseen:
            before = len(self.names)
            unseen.sort(key=_arrival_key)
            for name, string, number in unseen:
                column = self._add(name, string)
                if column >= 0:
                    entries.append((column, number))
                else:
                    self.n_refused += 1
            if len(self.names) > before:
                self._set_fast_path()
        entries.sort()
        return [column for column, _ in entries], [number for _, number in entries]

    def encode(self, X: Any, learn: Sequence[bool] | NDArray[np.bool_] | None = None) -> EncodedRows:
        """Encode many rows.

        Parameters
        ----------
        X
            Mappings; a table (dict of equally long columns); a data frame; a numpy array of numbers, shape (n, d),
            or a scipy sparse matrix, whose names are 0 ... d - 1; or `SparseRows`.
        learn
            Which rows may bring new names; none of them by default.

        Raises
        ------
        BadRows
            Where values are infinite or of no use; no name has been taken in.
        TypeError, ValueError
            Where X as a whole is of no use.
        """
        if isinstance(X, EncodedRows):
            return X
        if isinstance(X, SparseRows):
            return self._encode_sparse(X.indptr, X.indices, X.values, learn)
        if scipy.sparse.issparse(X):
            X = X.tocsr()
            if not X.has_sorted_indices or not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            return self._encode_sparse(X.indptr, X.indices, X.data, learn)
        if isinstance(X, np.ndarray):
            return self._encode_array(X, learn)
        if isinstance(X, dict):
            return self._encode_table(X, learn)
        if isinstance(X, list | tuple):
            return self._encode_events(X, learn)
        return self._encode_table(_table_of_frame(X), learn)

    def _encode_events(self, events: Sequence[Mapping[Any, Any]], learn: Any) -> EncodedRows:
        _refuse_lengths(len(events), learn)
        _refuse_rows({i: reason for i, x in enumerate(events) if (reason := _what_is_wrong(x)) is not None})
        columns: list[int] = []
        values: list[float] = []
        lengths = np.zeros(len(events), np.int64)
        for i, x in enumerate(events):
            row_columns, row_values = self.encode_event(x, learn is not None and bool(learn[i]))
            columns += row_columns
            values += row_values
            lengths[i] = len(row_columns)
        return EncodedRows(np.array(values, float), np.array(columns, np.int64), _starts(lengths), False)

    # Columns of values -------------------------------------------------------------------------------------------

    def _encode_array(self, X: NDArray[Any], learn: Any) -> EncodedRows:
        if X.ndim != 2:
            raise ValueError(f"an array of rows must have two dimensions, got shape {X.shape}; reshape it to (n, d)")
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(float), np.nan)
        if X.dtype.kind not in "biuf":
            return self._encode_table({j: X[:, j] for j in range(X.shape[1])}, learn)
        return self._encode_numbers(list(range(X.shape[1])), np.ascontiguousarray(X, float), learn)

    def _encode_numbers(self, names: list[Any], X: Floats, learn: Any) -> EncodedRows:
        """Rows with a number (or NaN) under each of the same names."""
        n, _ = X.shape
        _refuse_lengths(n, learn)
        _refuse_rows(_infinite_rows(X, names))
        if n > 0 and learn is not None and not all(map(self._numbers.__contains__, names)):
            unknown = [j for j, name in enumerate(names) if name not in self._numbers]
            use = np.asarray(learn, bool)
            first = int(use.argmax())
            # Mostly all names arrive with the first row, and no look at the others is needed.
            met = X[first : first + 1, unknown] if use[first] else X[:0, unknown]
            if np.isnan(met).any() or len(self) + len(unknown) > self.max_features:
                first, met = 0, np.where(use[:, None], X[:, unknown], np.nan)
            there = ~np.isnan(met)  # NaN is missing: a name arrives with its first number
            if len(there):
                self._arrive(first + there.argmax(axis=0), there.sum(axis=0), [names[j] for j in unknown])
        known = [(self._numbers[name], j) for j, name in enumerate(names) if name in self._numbers]
        known.sort()
        order = [j for _, j in known]
        if order != list(range(X.shape[1])):
            X = np.ascontiguousarray(X[:, order])
        width = len(order)
        return EncodedRows(
            X.reshape(-1),
            np.array([column for column, _ in known], np.int64),
            np.arange(n + 1, dtype=np.int64) * width,
            True,
        )

    def _encode_table(self, table: Mapping[Any, Any], learn: Any) -> EncodedRows:
        columns = {name: _column(name, values) for name, values in table.items()}
        n = len(next(iter(columns.values()))) if columns else 0
        for name, values in columns.items():
            if len(values) != n:
                raise ValueError(f"column {name!r} has {len(values)} values, the first column has {n}")
        if all(values.dtype.kind == "f" for values in columns.values()):
            X = np.column_stack(list(columns.values())) if columns else np.zeros((n, 0))
            return self._encode_numbers(list(columns), np.ascontiguousarray(X), learn)
        names = list(columns)
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        return self._encode_events([dict(zip(names, row, strict=True)) for row in rows], learn)

    def _encode_sparse(self, indptr: Any, indices: Any, values: Any, learn: Any) -> EncodedRows:
        """Rows whose names are integers."""
        if np.iscomplexobj(values):
            raise TypeError("values must be real numbers, got complex ones")
        indptr, indices = np.asarray(indptr, np.int64), np.asarray(indices, np.int64)
        values = np.ascontiguousarray(values, float)
        n = len(indptr) - 1
        _refuse_lengths(n, learn)
        bad = np.flatnonzero(np.abs(values) > LARGEST)
        if len(bad):
            rows = np.searchsorted(indptr, bad, side="right") - 1
            _refuse_rows(
                {int(i): _too_large(int(indices[b]), values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}
            )
        present = np.unique(indices)
        lookup = np.array([self._numbers.get(int(name), -1) for name in present], np.int64)
        unknown = present[lookup < 0]
        if len(unknown) and learn is not None and n > 0:
            entry_row = np.repeat(np.arange(n), np.diff(indptr))
            usable = np.asarray(learn, bool)[entry_row] & ~np.isnan(values) & np.isin(indices, unknown)
            met, first, counts = np.unique(indices[usable], return_index=True, return_counts=True)
            self._arrive(entry_row[usable][first], counts, met.tolist())
            lookup = np.array([self._numbers.get(int(name), -1) for name in present], np.int64)
        columns = lookup[np.searchsorted(present, indices)]
        if (columns < 0).any():
            keep = columns >= 0
            indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(keep)])[indptr]
            columns, values = columns[keep], values[keep]
        rows = np.repeat(np.arange(n), np.diff(indptr))
        order = np.lexsort((columns, rows))
        return EncodedRows(np.ascontiguousarray(values[order]), columns[order], np.ascontiguousarray(indptr), False)

    def _arrive(self, rows: Ints, counts: Ints, names: Sequence[Any]) -> None:
        """Take in names of numbers, in the order in which single events would bring them.

        names[i] was met counts[i] times, first in row rows[i].
        """
        for _, _, i in sorted((int(rows[i]), _name_key(name), i) for i, name in enumerate(names) if counts[i] > 0):
            if self._add(names[i], None) < 0:
                self.n_refused += int(counts[i])
        self._set_fast_path()


# What packing an event raises where it has other names, or values that are no numbers.
NOT_PLAIN = (KeyError, struct.error, OverflowError, TypeError, ValueError)


class _Single:
    """`itemgetter` that gives a tuple for a single name too."""

    def __init__(self, names: list[Any]) -> None:
        self._names = tuple(names)

    def __call__(self, x: Mapping[Any, Any]) -> tuple[Any, ...]:
        return tuple(x[name] for name in self._names)


def _name_key(name: Any) -> tuple[int, str]:
    """Names in an order of their own: integers by size, so that an array's columns keep theirs, then all others."""
    return (name, "") if type(name) is int else (sys.maxsize, repr(name))


def _arrival_key(entry: Any) -> tuple[tuple[int, str], bool, str]:
    return _name_key(entry[0]), entry[1] is not None, entry[1] or ""


def is_nan(value: Any) -> bool:
    """Whether a value is NaN, or what pandas has in its place: NaT and NA."""
    return type(value).__name__ == "NAType" or bool(value != value)


def _number(name: Any, value: Any) -> float:
    try:
        if isinstance(value, bytes | bytearray):  # which float() would read as text
            raise TypeError
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        if is_nan(value):
            return math.nan
        raise TypeError(
            f"feature {name!r} is of type {type(value).__name__}: a feature must be a number, a string, or None"
        ) from None
    if abs(number) > LARGEST:
        raise ValueError(_too_large(name, number))
    return number


def _too_large(name: Any, value: float) -> str:
    kind = "infinite" if math.isinf(value) else "too large"
    return f"feature {name!r} is {kind} ({value}): the largest magnitude taken is {LARGEST:g}; clip it, or give None"


def _what_is_wrong(x: Mapping[Any, Any]) -> str | None:
    """Why an event cannot be encoded, None if it can."""
    try:
        for name, value in x.items():
            if value is not None and not isinstance(value, str):
                _number(name, value)
    except (TypeError, ValueError) as error:
        return str(error)
    except AttributeError:
        return f"a row must be a mapping of names to values, got {type(x).__name__}"
    return None


def _infinite_rows(X: Floats, names: list[Any]) -> dict[int, str]:
    if X.max(initial=0.0) <= LARGEST and X.min(initial=0.0) >= -LARGEST:  # both false where there is a NaN
        return {}
    rows, columns = np.nonzero(np.abs(X) > LARGEST)
    return {int(i): _too_large(names[j], float(X[i, j])) for i, j in zip(rows[::-1], columns[::-1], strict=True)}


def _refuse_rows(bad: dict[int, str]) -> None:
    if bad:
        raise BadRows(bad)


def _refuse_lengths(n: int, learn: Any) -> None:
    if learn is not None and len(learn) != n:
        raise ValueError(f"{n} rows and {len(learn)} labels: there must be as many")


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _column(name: Any, values: Any) -> NDArray[Any]:
    """Values as float64, or as objects where they are not an array of numbers."""
    if not isinstance(values, np.ndarray):
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise TypeError(
                f"column {name!r} is of type {type(values).__name__}: a table has a list or an array of values under "
                "each name (a single event goes to `learn_one` or `predict_one`, or into a list)"
            )
        values = _objects(list(values))
    array: NDArray[Any] = values
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {array.shape}")
    return array.astype(float if array.dtype.kind in "biuf" else object)


def _objects(values: list[Any]) -> NDArray[Any]:
    """An array of just these objects, which numpy would otherwise convert where they are of several types."""
    return np.fromiter(values, object, len(values))


def _table_of_frame(X: Any) -> dict[Any, NDArray[Any]]:
    try:
        frame = nw.from_native(X, eager_only=True)
    except TypeError:
        raise TypeError(
            f"rows of type {type(X).__name__} are not known: give a list of dicts, a data frame, a numpy array or a "
            "scipy sparse matrix"
        ) from None
    table: dict[Any, NDArray[Any]] = {}
    for name, series in zip(frame.columns, frame.iter_columns(), strict=True):
        if series.dtype.is_numeric() or series.dtype == nw.Boolean:
            table[name] = series.cast(nw.Float64).to_numpy().astype(float)
        else:
            table[name] = _objects(series.to_list())
    return table
