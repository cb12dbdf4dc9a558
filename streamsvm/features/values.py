"""Feature values: classification as numbers, strings or missing, and validation."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from connectors.events import SparseRows
from streamsvm.features import datetimes
from streamsvm.features.rows import BadRows, Floats
from streamsvm.features.scaler import LARGEST
from streamsvm.labels import is_nan

# float() converts these types, but they are strings or have a unit.
NO_NUMBERS = (bytes, bytearray, np.datetime64, np.timedelta64)


def text_of(value: str) -> str:
    """Return the characters of a string, or the value of a string `Enum` member."""
    return value if type(value) is str else str.__str__(value)


def name_key(name: Any) -> tuple[int, str]:
    """Sort key of feature names: integers by size, then other names by representation.

    Columns of an array thus keep their order.
    """
    return (name, "") if type(name) is int else (sys.maxsize, repr(name))


def number_of(name: Any, value: Any) -> float:
    """Convert a value to float, with NaN for missing values.

    Raises
    ------
    TypeError, ValueError
        If the value is not a number and not missing, or is infinite.
    """
    try:
        if isinstance(value, NO_NUMBERS):
            raise TypeError
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        if is_nan(value):
            return math.nan
        raise TypeError(no_feature(name, value)) from None
    if abs(number) > LARGEST:
        raise ValueError(_too_large(name, number))
    return number


def check_name(name: Any) -> None:
    """Raise an error if a feature name is NaN, which no lookup can find."""
    if is_nan(name):
        raise ValueError("a feature is named NaN, which equals nothing, itself neither: give it another name")


def no_feature(name: Any, value: Any) -> str:
    """Return the error message for a value of an unsupported type."""
    kind = type(value).__name__
    if isinstance(value, timedelta | np.timedelta64):
        return f"feature {name!r} is of type {kind}: give its seconds, as `total_seconds()` has them"
    return f"feature {name!r} is of type {kind}: a feature must be a number, a string, a datetime, or None"


def _too_large(name: Any, value: float) -> str:
    kind = "infinite" if math.isinf(value) else "too large"
    return (
        f"feature {name!r} is {kind} ({value}): the largest magnitude taken is {LARGEST:g}; clip it, or give None "
        f"(--set missing={value:g})"
    )


def unusable_rows(X: Any) -> dict[int, str]:
    """Return the rows of a stream batch that cannot be encoded, with reasons."""
    if isinstance(X, SparseRows):
        return unusable_entries(X.indptr, X.indices, X.values)
    found: dict[int, str] = {}
    if isinstance(X, dict):
        numbers = {name: column for name, column in X.items() if column.dtype.kind == "f"}
        found = infinite_rows(np.column_stack(list(numbers.values())), list(numbers)) if numbers else {}
        texts = [name for name in X if name not in numbers]
        X = [dict(zip(texts, row, strict=True)) for row in zip(*(X[name].tolist() for name in texts), strict=True)]
    return found | {i: reason for i, x in enumerate(X) if (reason := what_is_wrong(x)) is not None}


def unusable_entries(indptr: Any, names: Any, values: Floats) -> dict[int, str]:
    """Return the sparse rows with a value beyond LARGEST, with reasons."""
    bad = np.flatnonzero(np.abs(values) > LARGEST)
    rows = np.searchsorted(indptr, bad, side="right") - 1
    return {int(i): _too_large(int(names[b]), values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}


def what_is_wrong(x: Mapping[Any, Any]) -> str | None:
    """Return why an event cannot be encoded, or None."""
    try:
        for name, value in x.items():
            if value is not None and not isinstance(value, str):
                number_of(name, value)
    except (TypeError, ValueError) as error:
        timed = datetimes.with_times(x)
        return str(error) if timed is None else what_is_wrong(timed)
    except AttributeError:
        return f"a row must be a mapping of names to values, got {type(x).__name__}"
    return None


def all_within(values: Floats) -> bool:
    """Return whether all values are finite and at most LARGEST in magnitude."""
    return bool(values.max(initial=0.0) <= LARGEST and values.min(initial=0.0) >= -LARGEST)


def infinite_rows(X: Floats, names: list[Any]) -> dict[int, str]:
    """Return the rows with a value beyond LARGEST, with reasons."""
    if all_within(X):
        return {}
    rows, columns = np.nonzero(np.abs(X) > LARGEST)
    return {int(i): _too_large(names[j], float(X[i, j])) for i, j in zip(rows[::-1], columns[::-1], strict=True)}


def refuse_rows(bad: dict[int, str]) -> None:
    """Raise `BadRows` if there are any."""
    if bad:
        raise BadRows(bad)


def refuse_lengths(n: int, learn: Any) -> None:
    """Raise an error unless the number of labels equals the number of rows."""
    if learn is not None and len(learn) != n:
        raise ValueError(f"{n} rows and {len(learn)} labels: there must be as many")


def learns(learn: Any) -> bool:
    """Return whether any row is learned."""
    return learn is not None and bool(np.any(learn))
