"""Conversion of tables, data frames and lists of dicts to arrays per column.

Also results in the form of a given frame, and weights of rows.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat, starmap
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.absent import ABSENT
from streamsvm.features.rows import EncodedRows, Floats
from streamsvm.features.scaler import LARGEST
from streamsvm.features.values import NO_NUMBERS, no_feature
from streamsvm.frames import eager, empty_like

if TYPE_CHECKING:
    import narwhals as nw

TEXT_OR_NONE = frozenset({str, NoneType})
_NUMBER_OR_NONE = frozenset({float, int, bool, NoneType})
# Errors of packing an event that has other names, or values that are not numbers.
NOT_PLAIN = (KeyError, struct.error, OverflowError, TypeError, ValueError)
# Number of rows filled at a time, so that they stay in the processor cache.
_BLOCK_ROWS = 1024


def getter_of(names: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a variant of `itemgetter` that returns a tuple for any number of names."""
    return itemgetter(*names) if len(names) > 1 else lambda x: tuple(x[name] for name in names)


# Lists of dicts -------------------------------------------------------------------------------------------------------


def plain_numbers(events: Sequence[Any]) -> tuple[list[Any], Floats] | None:
    """Return names and values of dicts with numbers under common names.

    Returns
    -------
    names : list
        Feature names.
    values : ndarray of shape (n, d)
        Values, NaN if missing and ABSENT under absent names. The function returns None if there are other values, or
        if most names are absent.
    """
    if not events or set(map(type, events)) != {dict}:
        return None
    if any(isinstance(value, NO_NUMBERS) for value in events[0].values()):
        return None
    n, d = len(events), max(map(len, events))
    names = list(next(x for x in events if len(x) == d))
    if not names or n * d > 2 * sum(map(len, events)):
        return None
    get, pack = getter_of(names), struct.Struct(f"{d}d").pack
    known = frozenset(names)
    try:
        try:
            rows: Iterable[Any] = map(get, events)
            if min(map(len, events)) < d:
                rows = (get(x) if len(x) == d else _filled(x, names, known) for x in events)
            packed = b"".join(starmap(pack, rows))
        except struct.error:  # possibly because of None
            packed = b"".join(starmap(pack, map(_filled, events, repeat(names), repeat(known))))
    except NOT_PLAIN:
        return None
    return names, np.frombuffer(packed).reshape(n, d)


def _filled(x: Mapping[Any, Any], names: Sequence[Any], known: frozenset[Any]) -> list[Any]:
    """Return the values of an event under these names, with NaN for None."""
    if not known.issuperset(x):
        raise KeyError
    return [math.nan if (value := x.get(name, ABSENT)) is None else value for name in names]


def plain_table(events: Sequence[Any]) -> dict[Any, NDArray[Any]] | None:
    """Return dicts of numbers and strings as columns.

    Under absent names, columns of numbers have ABSENT, and others None. Return None if most values would be absent.
    """
    if not events or set(map(type, events)) != {dict}:
        return None
    names = dict.fromkeys(chain.from_iterable(events))
    if not names or len(names) * len(events) > 2 * sum(map(len, events)):
        return None
    table = {}
    for name in names:
        values = [x.get(name, ABSENT) for x in events]
        kinds = set(map(type, values))
        try:
            if kinds <= _NUMBER_OR_NONE:
                table[name] = np.array(values, float)
            else:
                table[name] = _objects([None if value is ABSENT else value for value in values])
        except OverflowError:
            return None
    return table


# Tables ---------------------------------------------------------------------------------------------------------------


def names_with_values(table: Mapping[Any, NDArray[Any]]) -> list[Any]:
    """Return the names of columns with values, or all names if every column is empty."""
    return [name for name, column in table.items() if _has_values(column)] or list(table)


def _has_values(column: NDArray[Any]) -> bool:
    if column.dtype.kind == "f":
        return not np.isnan(column).all()
    return column.dtype.kind != "O" or any(value is not None for value in column)


def column_of(name: Any, values: Any) -> NDArray[Any]:
    """Return a column as an array: numbers and datetimes unchanged, else objects."""
    if not isinstance(values, np.ndarray):
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise TypeError(
                f"column {name!r} is of type {type(values).__name__}: a table needs a list or an array of values "
                "for each name. Pass a single event to `learn_one` or `predict_one`, or in a list"
            )
        values = _objects(list(values))
    array: NDArray[Any] = values
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {array.shape}")
    if array.dtype.kind == "m":
        raise TypeError(no_feature(name, np.timedelta64(0)))
    return array if is_numeric(array) or array.dtype.kind == "M" else array.astype(object)


def is_numeric(array: NDArray[Any]) -> bool:
    """Return whether the elements of an array are numbers or bools."""
    return array.dtype.kind in "biuf"


def side_by_side(columns: Sequence[NDArray[Any]], n: int) -> Floats:
    """Stack columns of n numbers into an array of shape (n, d)."""
    X = np.empty((n, len(columns)))
    for start in range(0, n, _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        for k, column in enumerate(columns):
            X[block, k] = column[block]
    return X


def _objects(values: list[Any]) -> NDArray[Any]:
    """Return an object array, without NumPy's conversion of mixed types."""
    return np.fromiter(values, object, len(values))


# Frames and sparse matrices -------------------------------------------------------------------------------------------


def is_sparse(X: Any) -> bool:
    """Return whether X is a SciPy sparse matrix, without the slow import of SciPy."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(X))


def frame_of(X: Any) -> nw.DataFrame[Any]:
    """Return X as a narwhals data frame.

    Raises
    ------
    TypeError
        If X is not a table.
    """
    frame = eager(X)
    if frame is None:
        raise TypeError(
            f"rows of type {type(X).__name__} are not supported: pass a list of dicts, a data frame, Arrow data, a "
            "numpy array or a scipy sparse matrix"
        )
    return frame


def table_of_frame(frame: nw.DataFrame[Any]) -> dict[Any, NDArray[Any]]:
    """Return the columns of a data frame, without a copy for numeric arrays."""
    return {name: _column_of_frame(series) for name, series in zip(frame.columns, frame.iter_columns(), strict=True)}


def _times_of_series(series: nw.Series[Any]) -> NDArray[np.datetime64]:
    """Return a date or datetime column of a data frame in UTC."""
    there = ~series.is_null().to_numpy().astype(bool)
    numbers = series.dt.timestamp("us").fill_null(0).to_numpy().astype(np.int64)
    return np.where(there, numbers.astype("datetime64[us]"), np.datetime64("NaT"))


def _column_of_frame(series: nw.Series[Any]) -> NDArray[Any]:
    import narwhals as nw

    if series.dtype in (nw.Datetime, nw.Date):
        return _times_of_series(series)
    if series.dtype == nw.Duration:
        raise TypeError(no_feature(series.name, np.timedelta64(0)))
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return _objects(series.to_list())
    if series.dtype in (nw.Int128, nw.UInt128):  # NumPy lacks these types
        series = series.cast(nw.Float64)
    values: NDArray[Any] = series.to_numpy()
    return values if is_numeric(values) else series.cast(nw.Float64).to_numpy().astype(float)


# Weights, and outputs in the type of the input ------------------------------------------------------------------------


def weight_of(w: Any) -> float:
    """Validate and return the weight of an event."""
    weight = float(w)
    if not 0.0 <= weight <= LARGEST:
        raise ValueError(f"a weight must be a number of at least 0 and at most {LARGEST:g}, got {w!r}")
    return weight


def weights_of(w: Any, n: int) -> Floats:
    """Validate and return the weights of n events."""
    weights = np.full(n, weight_of(w)) if np.ndim(w) == 0 else np.ascontiguousarray(w, float)
    if weights.shape != (n,):
        raise ValueError(f"{n} rows need {n} weights, got shape {weights.shape}")
    if not ((weights >= 0.0) & (weights <= LARGEST)).all():
        raise ValueError(f"weights must be numbers of at least 0 and at most {LARGEST:g}")
    return weights


def _frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return an empty frame of the kind and index of X, or None without a frame."""
    if isinstance(X, (dict, list, np.ndarray, EncodedRows)):  # skip the slow checks of narwhals
        return None
    return empty_like(X)


def series_like(X: Any, labels: NDArray[Any]) -> Any:
    """Return labels as a series for the frame X, or unchanged if X is not a frame."""
    frame = _frame(X)
    if frame is None:
        return labels
    if frame.implementation.is_pandas_like():
        series = frame.implementation.to_native_namespace().Series
        return series(labels.tolist(), index=frame.to_native().index, dtype=_dtype(labels))
    import narwhals as nw

    values = labels.tolist()
    if len({type(value) for value in values if value is not None}) > 1:
        values = [None if value is None else str(value) for value in values]
    return nw.new_series("prediction", values, backend=frame.implementation).to_native()


def _dtype(labels: NDArray[Any]) -> Any:
    """Return the narrowest of bool, int, float and object that holds all labels."""
    kinds = set(map(type, labels.tolist()))
    return next((kind for kind in (bool, int, float) if kinds == {kind}), object)


def frame_like(X: Any, proba: NDArray[Any], classes: list[Any]) -> Any:
    """Return probabilities as a frame of the type of X, with one column per label.

    If X is not a frame, the array is returned unchanged.
    """
    frame = _frame(X)
    if frame is None:
        return proba
    if frame.implementation.is_pandas_like():
        native = frame.implementation.to_native_namespace().DataFrame
        return native(proba, columns=classes, index=frame.to_native().index)
    names = [str(label) for label in classes]
    if len(set(names)) < len(names):  # such as 1 and "1"
        names = [repr(label) for label in classes]
    columns = {name: proba[:, c].copy() for c, name in enumerate(names)}
    import narwhals as nw

    return nw.from_dict(columns, backend=frame.implementation).to_native()
