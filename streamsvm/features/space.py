"""Feature space: named features to columns of numbers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.absent import are_absent
from connectors.events import SparseRows
from streamsvm.features.known_features import KnownFeatures
from streamsvm.features.mismatches import FeatureMismatchError
from streamsvm.features.rows import EncodedRows, Floats, Ints, in_order
from streamsvm.features.scaler import LARGEST
from streamsvm.features.tables import (
    TEXT_OR_NONE,
    column_of,
    frame_of,
    is_numeric,
    is_sparse,
    plain_numbers,
    plain_table,
    side_by_side,
    table_of_frame,
)
from streamsvm.features.values import (
    all_within,
    columns_of_times,
    encoding_error,
    infinite_rows,
    learns,
    name_key,
    refuse_lengths,
    refuse_rows,
    unusable_entries,
)

# Integer names below this limit are looked up in a table.
TABLED = 1 << 20


class FeatureSpace(KnownFeatures):
    """Columns of the features of a stream, in order of first arrival.

    New names may appear at any time. A number or bool takes the column of its name. A string is one-hot encoded: it
    takes the column of the pair (name, string), with value 1. None, NaN and absent names are missing values, which
    contribute nothing. Scaling distinguishes None and NaN under names of numbers, which are NaN in encoded rows, from
    absent names, which have no entry. A datetime becomes hour and weekday in UTC, each as sine and cosine, with one
    notice per name. New names of one event take columns in a fixed order: integers by size, then other names by
    representation. The order of features within an event therefore has no effect.

    Names with uninformative strings are left out with a warning. Strings are uninformative if the first 40 are all
    times. They are also uninformative if 37 of the first 40 differ and fewer than three known strings recur within 500
    strings. Meanwhile new strings take no columns. A name that is left out contributes nothing from the next event on.
    The check repeats when a name has 128 columns, 256 columns, and so on. Only learned events count, so the result does
    not depend on batch boundaries. Numeric features are never left out: a numeric identifier costs one column.

    Parameters
    ----------
    max_features
        Maximum number of columns. Later names and strings are refused: they contribute nothing, are counted in
        `n_refused`, and raise one warning.
    categories
        Names whose strings are always categories.

    Attributes
    ----------
    names
        Name of each column; a `(name, string)` pair if `is_indicator` is true.
    is_indicator
        Whether each column is the indicator of a string.
    n_refused
        Number of values in learned events without a column because `max_features` columns exist.
    left_out
        Names that are left out, with the kind of their strings: `"identifiers"` or `"times"`.

    Examples
    --------
    >>> space = FeatureSpace(max_features=100)
    >>> rows = space.encode([{"size": 2.5, "color": "red"}, {"color": "blue", "size": None}], learn=[True, True])
    >>> space.names
    [('color', 'red'), 'size', ('color', 'blue')]
    >>> rows.values, rows.columns
    (array([1. , 2.5, nan, 1. ]), array([0, 1, 1, 2]))
    """

    def encode(
        self, X: Any, learn: Sequence[bool] | NDArray[np.bool_] | None = None, *, complete: bool = True
    ) -> EncodedRows:
        """Encode rows.

        Parameters
        ----------
        X
            List of mappings, table (dict of columns of equal length), data frame, NumPy array of shape (n, d), SciPy
            sparse matrix, or `SparseRows`. Columns of arrays and sparse matrices have the names 0 to d - 1.
        learn
            Which rows may add names; by default none.
        complete
            Whether a table contains all features of its rows. False for separate events stored as a table.

        Returns
        -------
        EncodedRows
            The encoded rows.

        Raises
        ------
        BadRows
            If values are infinite or of an unsupported type. No name has been added.
        FeatureMismatchError
            If a table, frame or array has no known name, or an array has another width than the learned ones.
        TypeError, ValueError
            If X as a whole cannot be used.
        """
        if isinstance(X, EncodedRows):
            return X
        if isinstance(X, SparseRows):
            return self._encode_sparse(X.indptr, X.indices, X.values, learn)
        if is_sparse(X):
            X = X.tocsr()
            if not X.has_sorted_indices or not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            return self._encode_of_width(X.shape, learn, self._encode_sparse, X.indptr, X.indices, X.data)
        if isinstance(X, np.ndarray):
            return self._encode_array(X, learn)
        if isinstance(X, dict):
            return self._encode_table(X, learn, complete)
        if isinstance(X, list | tuple):
            if X and isinstance(X[0], list | tuple):
                raise TypeError("rows are lists, which do not name their features: pass numpy.array(X), or dicts")
            return self._encode_events(X, learn)
        frame = frame_of(X)
        if not frame.columns:  # a table without columns would not have a number of rows
            return self._encode_events([{}] * len(frame), learn)
        return self._encode_table(table_of_frame(frame), learn)

    def _encode_events(self, events: Sequence[Mapping[Any, Any]], learn: Any) -> EncodedRows:
        """Encode mappings: as arrays if all are plain, else one by one."""
        refuse_lengths(len(events), learn)
        rows = None
        if (numbers := plain_numbers(events)) is not None:
            rows = self._encode_numbers(*numbers, learn)
        elif (table := plain_table(events)) is not None:
            rows = self._encode_known(table, learn)
        if rows is None:
            return self._encode_one_by_one(events, learn)
        if not learns(learn):
            self.mismatches.count_unknown_rows(len(rows), len(rows.values), events[0])
        return rows

    def _encode_one_by_one(self, events: Sequence[Mapping[Any, Any]], learn: Any) -> EncodedRows:
        refuse_rows({i: reason for i, x in enumerate(events) if (reason := encoding_error(x)) is not None})
        rows = [self.encode_event(x, learn is not None and bool(learn[i])) for i, x in enumerate(events)]
        columns = np.concatenate([np.zeros(0, np.int64), *(columns for columns, _ in rows)])
        values = np.concatenate([np.zeros(0), *(values for _, values in rows)])
        return EncodedRows(values, columns, np.cumsum([0, *(len(columns) for columns, _ in rows)]), False)

    # Columns of values -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _bad_rows_first(self, encode: Callable[..., EncodedRows], *given: Any) -> Iterator[None]:
        """Report rows that cannot be encoded before names that do not match."""
        try:
            yield
        except FeatureMismatchError:
            encode(*given, None)
            raise

    def _encode_of_width(
        self, shape: tuple[int, int], learn: Any, encode: Callable[..., EncodedRows], *given: Any
    ) -> EncodedRows:
        """Encode an array or sparse matrix after a check of its width."""
        mismatches, width = self.mismatches, shape[1]
        if width != mismatches.width:
            with self._bad_rows_first(encode, *given):
                mismatches.compare_width(shape, sparse=encode == self._encode_sparse)
        rows = encode(*given, learn)
        if mismatches.width is None and learns(learn):
            mismatches.width = width
        return rows

    def _encode_array(self, X: NDArray[Any], learn: Any) -> EncodedRows:
        if X.dtype.names is not None and X.ndim == 1:
            return self._encode_table({name: X[name] for name in X.dtype.names}, learn)
        if X.ndim != 2:
            raise ValueError(f"an array of rows must have two dimensions, got shape {X.shape}; reshape it to (n, d)")
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(float), np.nan)
        names = list(range(X.shape[1]))
        if X.dtype.kind in "biuf":
            return self._encode_of_width(X.shape, learn, self._encode_numbers, names, np.ascontiguousarray(X, float))
        return self._encode_of_width(X.shape, learn, self._encode_table, {j: X[:, j] for j in names})

    def _encode_numbers(self, names: list[Any], X: Floats, learn: Any) -> EncodedRows:
        """Encode rows that all have a number or NaN under each of these names."""
        n, _ = X.shape
        refuse_lengths(n, learn)
        refuse_rows(infinite_rows(X, names))
        numbers = self.numbers
        if n > 0 and learn is not None and not all(map(numbers.__contains__, names)):
            X = self._add_number_columns(names, X, np.asarray(learn, bool))
        known = [(numbers[name], j) for j, name in enumerate(names) if name in numbers]
        if n and len(known) < len(names) and self.strings and not learns(learn):
            for j in (j for j, name in enumerate(names) if name not in numbers):
                there = ~np.isnan(X[:, j])
                self.mismatches.count_other_kind(names[j], X[there.argmax(), j].item(), int(there.sum()))
        known.sort()
        order = [j for _, j in known]
        if order != list(range(X.shape[1])):
            X = np.ascontiguousarray(X[:, order])
        columns = np.array([column for column, _ in known], np.int64)
        if (absent := are_absent(X)).any():
            return _without(X, columns, absent)
        return EncodedRows(X.reshape(-1), columns, np.arange(n + 1, dtype=np.int64) * len(order), True)

    def _add_number_columns(self, names: list[Any], X: Floats, use: NDArray[np.bool_]) -> Floats:
        """Add columns for new names of learned rows, in the order single events would.

        Returns
        -------
        Floats
            The rows, with NaN under a name in rows that come before its first number in a learned row.
        """
        unknown = [j for j, name in enumerate(names) if name not in self.numbers]
        first = int(use.argmax())
        # Usually the first row has all names, and the other rows need not be searched.
        met = X[first : first + 1, unknown] if use[first] else X[:0, unknown]
        if np.isnan(met).any() or len(self) + len(unknown) > self.max_features:
            first, met = 0, np.where(use[:, None], X[:, unknown], np.nan)
        there = ~np.isnan(met)  # a name gets its column with its first number
        if not len(there):
            return X
        rows, counts = first + there.argmax(axis=0), there.sum(axis=0)
        order = sorted(np.flatnonzero(counts).tolist(), key=lambda i: (int(rows[i]), name_key(names[unknown[i]])))
        self.add_numbers([names[unknown[i]] for i in order], counts[order])
        if rows[order].any():
            X = X.copy()
            for i in order:
                X[: rows[i], unknown[i]] = np.nan
        return X

    def _encode_table(self, table: Mapping[Any, Any], learn: Any, complete: bool = True) -> EncodedRows:
        mismatches = self.mismatches
        columns: dict[Any, NDArray[Any]] = {}
        for name, values in table.items():
            column = column_of(name, values)
            if column.dtype.kind != "M":
                columns[name] = column
                continue
            columns |= columns_of_times(name, column)
            if learn is not None and (np.asarray(learn, bool)[: len(column)] & ~np.isnat(column)[: len(learn)]).any():
                self.warn_of_times([name])
        given = list(columns)
        if complete and given != mismatches.accepted and len(next(iter(columns.values()), ())):
            with self._bad_rows_first(self._encode_columns, columns):
                mismatches.compare(mismatches.names_of_table(columns), table=True)
                if self.names:
                    mismatches.accepted = given
        rows = self._encode_columns(columns, learn)
        if not (complete or learns(learn)):
            mismatches.count_unknown_rows(len(rows), len(rows.values), given)
        elif complete and learns(learn):
            mismatches.accepted = given
        return rows

    def _encode_columns(self, columns: dict[Any, NDArray[Any]], learn: Any) -> EncodedRows:
        n = len(next(iter(columns.values()))) if columns else 0
        for name, values in columns.items():
            if len(values) != n:
                raise ValueError(f"column {name!r} has {len(values)} values, the first column has {n}")
        for name in self.left_out:
            if name in columns and set(map(type, columns[name])) <= TEXT_OR_NONE:
                del columns[name]
        if all(map(is_numeric, columns.values())):
            names = sorted(columns, key=self._place)  # in column order, `_encode_numbers` copies nothing
            return self._encode_numbers(names, side_by_side([columns[name] for name in names], n), learn)
        refuse_lengths(n, learn)
        if (rows := self._encode_known(columns, learn)) is not None:
            return rows
        names = list(columns)
        events = zip(*(values.tolist() for values in columns.values()), strict=True)
        return self._encode_one_by_one([dict(zip(names, event, strict=True)) for event in events], learn)

    def _place(self, name: Any) -> tuple[int, tuple[int, str]]:
        """Sort key of names: by column, then in the order of arrival within one event."""
        return self.numbers.get(name, sys.maxsize), name_key(name)

    def _encode_known(self, table: Mapping[Any, NDArray[Any]], learn: Any) -> EncodedRows | None:
        """Encode rows without new features; return None if they need individual encoding."""
        n = len(next(iter(table.values())))
        learned = np.zeros(n, bool) if learn is None else np.asarray(learn, bool)
        if learned.any() and not self.texts.watched.keys().isdisjoint(table):
            return None
        columns, values = np.empty((n, len(table)), np.int64), np.ones((n, len(table)))
        for k, (name, given) in enumerate(table.items()):
            if is_numeric(given):
                values[:, k], column = given, self.numbers.get(name, -1)
                there = ~np.isnan(given)
                columns[:, k] = np.where(are_absent(np.ascontiguousarray(values[:, k])), -1, column)
                if n and column < 0 and not learned.any():
                    self.mismatches.count_other_kind(name, given[there.argmax()].item(), int(there.sum()))
            else:
                found = self._columns_of_texts(name, given, not learned.any())
                if found is None or (name in self.numbers and None in given.tolist()):  # missing, or absent
                    return None
                columns[:, k], there = found
            if (there & learned & (columns[:, k] < 0)).any():
                return None
        if (np.abs(values) > LARGEST).any():
            return None
        return in_order(columns.reshape(-1), values.reshape(-1), np.arange(n + 1, dtype=np.int64) * len(table))

    def _columns_of_texts(
        self, name: Any, given: NDArray[Any], predicting: bool
    ) -> tuple[Ints, NDArray[np.bool_]] | None:
        """Return the columns of strings under a name, and which strings count.

        The column is -1 for an unknown string. Return None if other values are present.
        """
        strings = self.strings.get(name, {})
        try:
            columns = np.fromiter(map(strings.get, given, repeat(-1)), np.int64, len(given))
        except TypeError:  # an unhashable value is not a string
            return None
        there = columns >= 0
        others = given[~there]
        if not set(map(type, others)) <= TEXT_OR_NONE:
            return None
        if predicting and len(others):
            texts = [value for value in others if value is not None]
            if name in self.strings:
                self.mismatches.count_unknown_texts(name, texts)
            else:
                self.mismatches.count_other_kind(name, texts[0] if texts else "", len(texts))
        if name not in self.texts.closed:
            there[~there] = others != None  # noqa: E711 - elementwise
        return columns, there

    def _encode_sparse(self, indptr: Any, names: Any, values: Any, learn: Any) -> EncodedRows:
        """Encode rows whose names are integers."""
        if np.iscomplexobj(values):
            raise TypeError("values must be real numbers, got complex ones")
        indptr, names = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(names, np.int64)
        values = np.ascontiguousarray(values, float)
        refuse_lengths(len(indptr) - 1, learn)
        if not len(names) == len(values) == indptr[-1] or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ValueError("the row starts do not fit the entries")
        if not all_within(values):
            refuse_rows(unusable_entries(indptr, names, values))
        distinct = None
        if names.min(initial=0) < 0 or names.max(initial=0) >= TABLED:
            distinct, names = np.unique(names, return_inverse=True)
        table = self._table_of(names, distinct)
        columns = table[names]
        if learn is not None and (columns < 0).any():
            learned = np.repeat(np.asarray(learn, bool), np.diff(indptr))
            new = np.flatnonzero((columns < 0) & learned & ~np.isnan(values))
            met, first, counts = np.unique(names[new], return_index=True, return_counts=True)
            order = np.searchsorted(indptr, new[first], side="right").argsort(kind="stable")  # by row, then by size
            met = met[order]
            self.add_numbers((met if distinct is None else distinct[met]).tolist(), counts[order])
            columns = self._table_of(names, distinct)[names]
        rows = in_order(columns, values, indptr)
        if not learns(learn):
            given = names[:TABLED] if distinct is None else distinct
            self.mismatches.count_unknown_rows(len(rows), len(rows.values), given.tolist())
        return rows

    def _table_of(self, names: Ints, distinct: Ints | None) -> Ints:
        """Return the columns of the integers from 0 on, or of `distinct`; -1 if unknown."""
        if distinct is None:
            return self.of_integers(int(names.max(initial=-1)) + 1)
        return np.array([self.numbers.get(name, -1) for name in distinct.tolist()], np.int64)


def _without(X: Floats, columns: Ints, absent: NDArray[np.bool_]) -> EncodedRows:
    """Encode rows of values in these columns, without those under absent names."""
    there = ~absent
    indptr = np.append(0, np.cumsum(there.sum(axis=1)))
    return EncodedRows(X[there], np.broadcast_to(columns, X.shape)[there], indptr, False)
