"""Data frames of any library, lazy frames and Arrow streams as eager data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import narwhals as nw


def eager(X: Any) -> nw.DataFrame[Any] | None:
    """Return a table as a data frame in memory, or None if X is not a table.

    Lazy frames are collected, and streams of Arrow batches are read to their end.

    Parameters
    ----------
    X
        A data frame or lazy frame that narwhals supports, or an object with `__arrow_c_stream__` or
        `__arrow_c_array__`, such as a `pyarrow.RecordBatchReader`.

    Raises
    ------
    ModuleNotFoundError
        If Arrow data are given without pyarrow.

    Examples
    --------
    >>> import polars as pl
    >>> eager(pl.LazyFrame({"size": [1.0, 2.0]})).columns, eager([1.0])
    (['size'], None)
    """
    import narwhals as nw

    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame
    if isinstance(frame, nw.LazyFrame):
        return frame.collect(_backend_of(frame))
    if not _has_arrow(X):
        return None
    try:
        import pyarrow
    except ImportError:
        kind = type(X).__name__
        raise ModuleNotFoundError(f"{kind} needs pyarrow: pip install 'streamsvm[parquet]'") from None
    try:
        table: nw.DataFrame[Any] = nw.from_native(pyarrow.table(X), eager_only=True)
    except (TypeError, ValueError):  # a series
        return None
    return table


def refuse_other_order(X: Any, y: Any) -> None:
    """Refuse labels that have the index of the rows in another order.

    Rows and labels are matched by position, as in scikit-learn. Labels with an index of other values are accepted.

    Parameters
    ----------
    X, y
        Rows and labels; only the index of pandas is compared.

    Raises
    ------
    ValueError
        If the order differs.

    Examples
    --------
    >>> import pandas as pd
    >>> refuse_other_order(pd.DataFrame({"size": [1, 2]}), pd.Series(["a", "b"], index=[1, 0]))
    Traceback (most recent call last):
    ValueError: the index of the labels is that of the rows in another order: use y.loc[X.index]
    """
    rows: Any = getattr(X, "index", None)
    labels: Any = getattr(y, "index", None)
    if rows is labels or not (hasattr(rows, "equals") and hasattr(labels, "equals")) or len(rows) != len(labels):
        return
    if not rows.equals(labels) and rows.is_unique and labels.is_unique and rows.isin(labels).all():
        raise ValueError("the index of the labels is that of the rows in another order: use y.loc[X.index]")


def empty_like(X: Any) -> nw.DataFrame[Any] | None:
    """Return a frame of the kind of `eager(X)`: X if it is eager, else an empty one.

    A stream of batches is not read.
    """
    import narwhals as nw

    frame = nw.from_native(X, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame
    if isinstance(frame, nw.LazyFrame):
        return nw.from_dict({}, backend=_backend_of(frame))
    return nw.from_dict({}, backend="pyarrow") if _has_arrow(X) else None


def _has_arrow(X: Any) -> bool:
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")


def _backend_of(frame: nw.LazyFrame[Any]) -> Any:
    """Return the library for the collected frame."""
    return "polars" if frame.implementation.is_polars() else "pyarrow"
