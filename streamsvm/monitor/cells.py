"""Events of any supported type as numbers and texts by column."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from connectors.events import SparseRows
from streamsvm.features.rows import Floats
from streamsvm.features.tables import column_of, frame_of, is_numeric, is_sparse, plain_numbers, table_of_frame
from streamsvm.labels import is_nan
from streamsvm.models.archive import ArchiveError
from streamsvm.models.codec import LoadedState, SavedState
from streamsvm.monitor.bins import Texts, are_texts

_DATETIME = "datetime"  # text of all datetimes, which differ by nature
_PART_CELLS = 1 << 18  # cells of rows that are converted at a time


class Cells(NamedTuple):
    """Numbers and texts of a column, NaN and None where the cell is of another kind."""

    numbers: Floats
    texts: Texts | None = None

    @property
    def has_value(self) -> NDArray[np.bool_]:
        """Whether each cell has a value."""
        has: NDArray[np.bool_] = ~np.isnan(self.numbers)
        return has if self.texts is None else has | are_texts(self.texts)


Part = tuple[dict[Any, Cells], int]
"""Columns by name, and the number of rows."""


def join_cells(first: Cells, second: Cells) -> Cells:
    """Join cells of a column."""
    numbers = np.concatenate((first.numbers, second.numbers))
    if first.texts is second.texts is None:
        return Cells(numbers)
    texts = [np.full(len(n), None, object) if own is None else own for n, own in (first, second)]
    return Cells(numbers, np.concatenate(texts))


def join_parts(part: Part, other: Part) -> Part:
    """Join the rows of two parts; columns that one of them lacks are missing."""
    (columns, n), (others, m) = part, other
    if not n:
        return other
    missing, missing_there = Cells(np.full(n, math.nan)), Cells(np.full(m, math.nan))
    names = dict.fromkeys((*columns, *others))
    return {x: join_cells(columns.get(x, missing), others.get(x, missing_there)) for x in names}, n + m


def rows_from(part: Part, start: int) -> Part:
    """Return a copy of the rows of a part from `start` on."""
    columns, n = part
    rest = {}
    for name, (numbers, texts) in columns.items():
        rest[name] = Cells(numbers[start:].copy(), None if texts is None else texts[start:].copy())
    return rest, n - start


def cells_state(cells: Mapping[str, Cells]) -> SavedState:
    """Return the state of the cells of columns, by name."""
    texts = {name: own.texts.tolist() for name, own in cells.items() if own.texts is not None}
    return {"texts": texts}, {name: own.numbers for name, own in cells.items()}


def restored_cells(state: LoadedState) -> dict[str, Cells]:
    """Validate and return the cells of `cells_state`."""
    header, arrays = state
    texts = {name: np.fromiter(own, object, len(own)) for name, own in header["texts"].items()}
    found = {name: Cells(numbers.copy(), texts.get(name)) for name, numbers in arrays.items()}
    for name, (numbers, own) in found.items():
        fits = own is None or (len(own) == len(numbers) and all(isinstance(text, str | None) for text in own))
        if numbers.dtype != np.float64 or numbers.ndim != 1 or not fits:
            raise ArchiveError(f"cells of column {name} that do not fit together")
    return found


def parts_of(X: Any, wanted: Any) -> Iterator[Part]:
    """Yield rows of X in parts.

    Parameters
    ----------
    X
        A list of dicts, a data frame, a dict of columns, a batch of a source, a numpy array or a sparse matrix.
    wanted
        Function that tells whether a column is used.

    Raises
    ------
    TypeError, ValueError
        If X is of another type, or its columns differ in length.
    """
    X = getattr(X, "features", X) if type(X).__name__ == "Batch" else X
    if isinstance(X, SparseRows) or is_sparse(X):
        yield from _sparse_parts(X, wanted)
    elif isinstance(X, list | tuple):
        yield from _dict_parts(X, wanted)
    else:
        yield _table_part(_table(X), wanted)


def _table(X: Any) -> Mapping[Any, Any]:
    if isinstance(X, Mapping):
        return X
    if isinstance(X, np.ndarray):
        if X.ndim != 2:
            raise ValueError(f"an array of rows must have two dimensions, got shape {X.shape}")
        return dict(enumerate(X.T))
    return table_of_frame(frame_of(X))


def _table_part(table: Mapping[Any, Any], wanted: Any) -> Part:
    found, n = {}, None
    for name, values in table.items():
        column = column_of(name, values)
        if n is not None and len(column) != n:
            raise ValueError(f"column {name!r} has {len(column)} values, others have {n}")
        n = len(column)
        if not wanted(name):
            continue
        if column.dtype.kind == "M":
            found[name] = _cells([None if is_nat else _DATETIME for is_nat in np.isnat(column).tolist()])
        else:
            found[name] = Cells(column.astype(float, copy=False)) if is_numeric(column) else _cells(column.tolist())
    return found, n or 0


def _dict_parts(rows: Sequence[Any], wanted: Any) -> Iterator[Part]:
    for x in rows[:64]:
        _check_event(x)
    step = max(64, _PART_CELLS // max(1, max(map(len, rows[:64]), default=1)))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        plain = plain_numbers(part)
        if plain is not None:
            yield {name: Cells(plain[1][:, k]) for k, name in enumerate(plain[0]) if wanted(name)}, len(part)
            continue
        for x in part:
            _check_event(x)
        names = [name for name in dict.fromkeys(name for x in part for name in x) if wanted(name)]
        yield {name: _cells([x.get(name) for x in part]) for name in names}, len(part)


def _check_event(x: Any) -> None:
    if not isinstance(x, Mapping):
        raise TypeError(f"an event is a dict of features, got {type(x).__name__}")


def _sparse_parts(X: Any, wanted: Any) -> Iterator[Part]:
    """Yield rows of a sparse matrix; cells that are not stored are missing."""
    if not isinstance(X, SparseRows):
        rows = X.tocsr()
        X = SparseRows(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(float))
    start, step = 0, 1024
    while start < len(X):
        part = X.picked(slice(start, start + step))
        names, place = np.unique(part.indices, return_inverse=True)
        kept = np.array([k for k, name in enumerate(names.tolist()) if wanted(name)], np.int64)
        if len(kept) > 1024 and step > 64:
            step = 64  # most columns are not known yet
            continue
        row_of = np.repeat(np.arange(len(part)), np.diff(part.indptr))
        at = np.full(len(names), len(kept))
        at[kept] = np.arange(len(kept))
        dense = np.full((len(kept) + 1, len(part)), math.nan)
        dense[at[place], row_of] = part.values
        yield {name: Cells(dense[k]) for k, name in enumerate(names[kept].tolist())}, len(part)
        start, step = start + step, 1024


def _cells(values: list[Any]) -> Cells:
    """Separate numbers and texts; all datetimes have one text."""
    kinds = set(map(type, values))
    if kinds <= {str, type(None)}:
        return Cells(np.full(len(values), math.nan), np.fromiter(values, object, len(values)))
    try:
        if all(issubclass(kind, Real | NoneType) for kind in kinds):
            return Cells(np.array([math.nan if value is None else value for value in values], float))
    except (TypeError, ValueError, OverflowError):
        pass
    numbers, texts = np.full(len(values), math.nan), np.full(len(values), None, object)
    for i, value in enumerate(values):
        if isinstance(value, Real | Decimal | np.bool_):
            try:
                numbers[i] = float(value)
            except OverflowError:
                numbers[i] = math.inf if cast(int, value) > 0 else -math.inf
        elif value is not None and not is_nan(value):
            texts[i] = _DATETIME if isinstance(value, date | np.datetime64) else str(value)
    return Cells(numbers, texts)
