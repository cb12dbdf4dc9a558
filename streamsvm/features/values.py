"""Feature values (numbers, strings, datetimes or missing) and event times.

Datetimes are encoded as hour of the day and weekday. Time columns of streams use the same encoding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.roles import TIME_UNITS
from connectors.columns.time_texts import milliseconds_of, time_features, time_names, time_row
from connectors.columns.times import UNIT_NAMES, time_unit_of
from connectors.events import SparseRows
from connectors.notices import Notice
from streamsvm.features.rows import BadRows, Floats
from streamsvm.features.scaler import LARGEST
from streamsvm.labels import is_nan

_DATETIMES = (date, np.datetime64)  # a datetime is a date


def with_times(x: Mapping[Any, Any]) -> dict[Any, Any] | None:
    """Replace datetimes of an event by numeric features; return None if it has none.

    Examples
    --------
    >>> found = with_times({"a": 1.0, "t": datetime(1970, 1, 5, 6)})
    >>> {name: round(value, 3) for name, value in found.items()}
    {'a': 1.0, 't hour sin': 1.0, 't hour cos': 0.0, 't weekday sin': 0.0, 't weekday cos': 1.0}
    """
    if not names_of_times(x):
        return None
    found: dict[Any, Any] = {}
    for name, value in x.items():
        if not isinstance(value, _DATETIMES):
            found[name] = value
        elif value == value:  # not NaT
            found |= time_row(str(name), _milliseconds(value))
    return found


def names_of_times(x: Mapping[Any, Any]) -> list[Hashable]:
    """Return the names of the datetime features of an event."""
    return [name for name, value in x.items() if isinstance(value, _DATETIMES)]


def columns_of_times(name: Any, moments: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Return the numeric features of NumPy datetimes, as `with_times` does."""
    there = ~np.isnat(moments)
    microseconds = np.where(there, moments.astype("datetime64[us]").astype(np.int64), 0)
    return time_features(str(name), (microseconds + 500) // 1000, there)


def notice_of_times(name: Hashable) -> Notice:
    """Return a notice on how a datetime feature is encoded, and on the alternatives."""
    form = (
        "feature {name!r} is a datetime: its hour and weekday in UTC are learned, as {names}; give a number, such as "
        "the seconds since another event, to learn something else, or leave it out"
    )
    return Notice.of(form, name, names=", ".join(map(repr, time_names(str(name)))))


def _milliseconds(value: Any) -> int:
    if isinstance(value, np.datetime64):
        return (int(value.astype("datetime64[us]").astype(np.int64)) + 500) // 1000
    return milliseconds_of(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))


def seconds_of(time: Any) -> float:
    """Convert a number of seconds or a datetime to seconds since 1970.

    A datetime without a time zone is UTC.

    Raises
    ------
    TypeError, ValueError
        If the value is neither, or is a number in another unit.

    Examples
    --------
    >>> seconds_of(12), seconds_of(datetime(1970, 1, 2))
    (12.0, 86400.0)
    """
    if isinstance(time, np.datetime64):
        time = math.nan if np.isnat(time) else time.astype("datetime64[us]").item()
    if isinstance(time, datetime) and time == time:  # NaT of pandas differs from itself
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    try:
        number = math.nan if isinstance(time, datetime) else float(time)
    except (TypeError, ValueError) as error:
        raise type(error)(f"an event time must be a number of seconds or a datetime, got {time!r}") from None
    unit = time_unit_of(number) if math.isfinite(number) else None
    if unit not in (None, "s"):
        raise ValueError(
            f"an event time must be a number of seconds, got {time!r}, which seems to be in {UNIT_NAMES[str(unit)]}: "
            f"divide it by {TIME_UNITS[str(unit)]}"
        )
    return number


# float() converts these types, but they are strings or have a unit.
NO_NUMBERS = (bytes, bytearray, np.datetime64, np.timedelta64)


def text_of(value: str) -> str:
    """Return the characters of a string, or the value of a string `Enum` member."""
    return value if type(value) is str else str.__str__(value)


def name_key(name: Any) -> tuple[int, str]:
    """Sort key of feature names: integers by size, then others by representation.

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
        raise ValueError("a feature is named NaN, which does not equal itself: use another name")


def no_feature(name: Any, value: Any) -> str:
    """Return the error message for a value of an unsupported type."""
    kind = type(value).__name__
    if isinstance(value, timedelta | np.timedelta64):
        return f"feature {name!r} is of type {kind}: use its seconds: `total_seconds()`"
    rows = "; use `learn_many` or `predict_many` for several rows" if hasattr(value, "__array__") else ""
    return f"feature {name!r} is of type {kind}: a feature must be a number, a string, a datetime, or None{rows}"


def _too_large(name: Any, value: float) -> str:
    kind = "infinite" if math.isinf(value) else "too large"
    return (
        f"feature {name!r} is {kind} ({value}): magnitudes must be at most {LARGEST:g}; clip it, or use None "
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
    return found | {i: reason for i, x in enumerate(X) if (reason := encoding_error(x)) is not None}


def unusable_entries(indptr: Any, names: Any, values: Floats) -> dict[int, str]:
    """Return the sparse rows with a value beyond LARGEST, with reasons."""
    bad = np.flatnonzero(np.abs(values) > LARGEST)
    rows = np.searchsorted(indptr, bad, side="right") - 1
    return {int(i): _too_large(int(names[b]), values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}


def encoding_error(x: Mapping[Any, Any]) -> str | None:
    """Return why an event cannot be encoded, or None."""
    try:
        for name, value in x.items():
            if value is not None and not isinstance(value, str):
                number_of(name, value)
    except (TypeError, ValueError) as error:
        timed = with_times(x)
        return str(error) if timed is None else encoding_error(timed)
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
        raise ValueError(f"{n} rows and {len(learn)} labels: the numbers must be equal")


def learns(learn: Any) -> bool:
    """Return whether any row is learned."""
    return learn is not None and bool(np.any(learn))
