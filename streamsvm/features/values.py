"""Values of features: which of them are numbers, texts or missing, and which are refused."""

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

# float() converts these, but they are texts, or numbers of some unit.
NO_NUMBERS = (bytes, bytearray, np.datetime64, np.timedelta64)


def text_of(value: str) -> str:
    """The characters of a string; those of a member of an `Enum` of strings are its value."""
    return value if type(value) is str else str.__str__(value)


def name_key(name: Any) -> tuple[int, str]:
    """Sort key of names: integers by size, so that an array's columns keep their order, then all others."""
    return (name, "") if type(name) is int else (sys.maxsize, repr(name))


def number_of(name: Any, value: Any) -> float:
    """A value as a number, NaN if it is missing.

    Raises
    ------
    TypeError, ValueError
        If it is neither, or infinite.
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
    """Refuse NaN as a name, because it could not be found again."""
    if is_nan(name):
        raise ValueError("a feature is named NaN, which equals nothing, itself neither: give it another name")


def no_feature(name: Any, value: Any) -> str:
    """The message about a value of a type that no feature has."""
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
    """Rows, as a stream brings them, that cannot be encoded, and why."""
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
    """Sparse rows with a value that is too large, and why."""
    bad = np.flatnonzero(np.abs(values) > LARGEST)
    rows = np.searchsorted(indptr, bad, side="right") - 1
    return {int(i): _too_large(int(names[b]), values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}


def what_is_wrong(x: Mapping[Any, Any]) -> str | None:
    """Why an event cannot be encoded, None if it can."""
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
    """Whether no value is too large; False also if some are NaN."""
    return bool(values.max(initial=0.0) <= LARGEST and values.min(initial=0.0) >= -LARGEST)


def infinite_rows(X: Floats, names: list[Any]) -> dict[int, str]:
    """Rows with a value that is too large, and why."""
    if all_within(X):
        return {}
    rows, columns = np.nonzero(np.abs(X) > LARGEST)
    return {int(i): _too_large(names[j], float(X[i, j])) for i, j in zip(rows[::-1], columns[::-1], strict=True)}


def refuse_rows(bad: dict[int, str]) -> None:
    """Raise `BadRows` if there are any."""
    if bad:
        raise BadRows(bad)


def refuse_lengths(n: int, learn: Any) -> None:
    """Refuse another number of labels than rows."""
    if learn is not None and len(learn) != n:
        raise ValueError(f"{n} rows and {len(learn)} labels: there must be as many")


def learns(learn: Any) -> bool:
    """Whether any row is to be learned."""
    return learn is not None and bool(np.any(learn))
