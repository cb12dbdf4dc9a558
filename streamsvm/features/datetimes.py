"""Datetime features, encoded as hour of the day and weekday.

Time columns of streams use the same encoding.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notice
from connectors.time_texts import milliseconds_of, time_features, time_names, time_row

if TYPE_CHECKING:
    import narwhals as nw

KINDS = (date, np.datetime64)  # a datetime is a date


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
        if not isinstance(value, KINDS):
            found[name] = value
        elif value == value:  # not NaT
            found |= time_row(str(name), _milliseconds(value))
    return found


def names_of_times(x: Mapping[Any, Any]) -> list[Hashable]:
    """Return the names of the datetime features of an event."""
    return [name for name, value in x.items() if isinstance(value, KINDS)]


def columns_of(name: Any, moments: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Return the numeric features of NumPy datetimes, as `with_times` does."""
    there = ~np.isnat(moments)
    microseconds = np.where(there, moments.astype("datetime64[us]").astype(np.int64), 0)
    return time_features(str(name), (microseconds + 500) // 1000, there)


def column_of_series(series: nw.Series[Any]) -> NDArray[np.datetime64]:
    """Return a date or datetime column of a data frame in UTC."""
    there = ~series.is_null().to_numpy().astype(bool)
    numbers = series.dt.timestamp("us").fill_null(0).to_numpy().astype(np.int64)
    return np.where(there, numbers.astype("datetime64[us]"), np.datetime64("NaT"))


def notice(name: Hashable) -> Notice:
    """Return a notice on how a datetime feature is encoded, and on the alternatives."""
    form = (
        "feature {name!r} is a datetime: learned are its hour and weekday in UTC, as {names}; give a number, such as "
        "the seconds since another event, to learn something else, or leave it out"
    )
    return Notice.of(form, name, names=", ".join(map(repr, time_names(str(name)))))


def _milliseconds(value: Any) -> int:
    if isinstance(value, np.datetime64):
        return (int(value.astype("datetime64[us]").astype(np.int64)) + 500) // 1000
    return milliseconds_of(value if isinstance(value, datetime) else datetime(value.year, value.month, value.day))
