"""Parse times and numbers from text, and compute time features."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.absent import ABSENT
from connectors.columns.cells import is_missing

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_DAY_MS = 86_400_000
_THURSDAY = 3  # weekday of 1970-01-01; Monday is 0
_EXACT = 1 << 53  # floats represent all integers up to this
_DIGITS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # dates that look like numbers
_RFC_2822 = re.compile(
    r"(?:[A-Za-z]{3}, ?)?\d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d(?::\d\d)? (?:[+-]\d{4}|UT|UTC|GMT|Z|[ECMP][SD]T)"
)
_NAMED_UTC = re.compile(r" ?(?:UTC|GMT|Z)$")
_SPACED_OFFSET = re.compile(r" (?=[+-]\d\d:?\d\d$)")


_DATES = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_LONGEST = 40


def milliseconds_of(moment: datetime) -> int:
    """Convert a datetime to milliseconds since 1970.

    A datetime without a time zone is UTC.
    """
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return ((moment - _EPOCH) // _MICROSECOND + 500) // 1000


def is_missing_time(value: Any, missing: frozenset[str]) -> bool:
    """Return whether a value is None, NaN or a text that marks a missing value."""
    return value is None or value != value or (isinstance(value, str) and is_missing(value, missing))


def time_number(value: Any) -> int | float | None:
    """Return a value as a number, or None if it is not one."""
    if type(value) in (int, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str) or "_" in value:
        return None
    if value[4:5] == "-" and value[7:8] == "-":  # usually a date
        return None
    with contextlib.suppress(ValueError):
        return int(value)
    with contextlib.suppress(ValueError):
        return number if math.isfinite(number := float(value)) else None
    return None


def time_numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    """Return values as exact numbers, or None if any is not one."""
    kinds = set(map(type, values))
    if kinds == {str}:
        if "_" in "".join(values):
            return None
        for kind in (int, float):
            with contextlib.suppress(ValueError):
                values = list(map(kind, values))
                break
        else:
            return None
    elif not kinds <= {int, float}:
        return None
    found = np.array(values)
    if found.dtype.kind == "f":  # not NaN, and no more than the integers that a float represents
        return found if bool((np.abs(found) < _EXACT).all()) else None
    return found if found.dtype == np.int64 else None


def dashed(values: Sequence[Any]) -> NDArray[np.int64] | None:
    """Parse ISO 8601 texts with dashes and a single time zone; None for other texts."""
    if not values or type(values[0]) is not str or values[0][4:5] != "-":
        return None
    try:
        # The dash excludes numbers, because ISO 8601 parses some of them as dates.
        moments = [datetime.fromisoformat(text) for text in values if text[4:5] == "-"]
    except (TypeError, ValueError):
        return None
    zones = {moment.tzinfo for moment in moments}
    if len(moments) < len(values) or not zones <= {None, UTC}:
        return None
    if UTC in zones:
        moments = [moment.replace(tzinfo=None) for moment in moments]
    return (np.array(moments, "datetime64[us]").astype(np.int64) + 500) // 1000


def moment_of(text: str, form: str | None) -> int:
    """Parse a time given as text to milliseconds since 1970."""
    if form:
        return milliseconds_of(datetime.strptime(text, form))
    try:
        return milliseconds_of(datetime.fromisoformat(text))
    except ValueError:
        if _RFC_2822.fullmatch(text):
            from email.utils import parsedate_to_datetime  # rarely needed and slow to import

            return milliseconds_of(parsedate_to_datetime(text))
        return milliseconds_of(datetime.fromisoformat(_SPACED_OFFSET.sub("", _NAMED_UTC.sub("", text))))


def form_of_date(number: float) -> str | None:
    """Return the format of a number that may be a date without separators, or None."""
    text = str(number).removesuffix(".0")
    form = _DIGITS.get(len(text)) if text[:2] in ("19", "20") and text.isdigit() else None
    return form if form is not None and _reads(form, text) else None


# Features --------------------------------------------------------------------------------------------------------


def circles_of(time: int) -> Sequence[float]:
    """Return hour and weekday (UTC) of a time as sine and cosine.

    On a circle, 00:00 is as close to 23:00 as to 01:00. The time itself is not a feature, because no value recurs.

    Examples
    --------
    >>> [round(value, 3) for value in circles_of(4 * 86_400_000 + 6 * 3_600_000)]  # a Monday
    [1.0, 0.0, 0.0, 1.0]
    """
    days, rest = divmod(time, _DAY_MS)
    hour, weekday = 2.0 * math.pi * rest / _DAY_MS, 2.0 * math.pi * ((days + _THURSDAY) % 7) / 7.0
    return math.sin(hour), math.cos(hour), math.sin(weekday), math.cos(weekday)


def time_row(name: str, time: int) -> dict[str, float]:
    """Return the features of `circles_of` by name."""
    return dict(zip(time_names(name), circles_of(time), strict=True))


_PARTS = (" hour sin", " hour cos", " weekday sin", " weekday cos")


def time_names(name: str) -> list[str]:
    """Return the names of the features of a time."""
    return [f"{name}{part}" for part in _PARTS]


def is_of_time(name: object) -> bool:
    """Return whether a feature has the name of a feature of a time."""
    return isinstance(name, str) and name.endswith(_PARTS)


def time_features(name: str, times: NDArray[np.int64], is_present: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """Compute `time_row` for an array of times, with ABSENT for missing times."""
    days, rest = np.divmod(times, _DAY_MS)
    hours = (2.0 * math.pi * rest / _DAY_MS).tolist()
    week = [2.0 * math.pi * day / 7.0 for day in range(7)]
    weekdays = (days + _THURSDAY) % 7
    n = len(times)
    # `math`, as for single times: the results of numpy differ in the last bit.
    columns = [np.fromiter(map(wave, hours), np.float64, n) for wave in (math.sin, math.cos)]
    columns += [np.array([wave(day) for day in week])[weekdays] for wave in (math.sin, math.cos)]
    return dict(zip(time_names(name), (np.where(is_present, column, ABSENT) for column in columns), strict=True))


def formats_of(texts: Iterable[str]) -> list[str]:
    """Return the `datetime.strptime` formats that parse all texts.

    The result has two formats if day and month are ambiguous.

    Examples
    --------
    >>> formats_of(["31.12.2023 23:59", "1.1.2024 00:00"])
    ['%d.%m.%Y %H:%M']
    >>> formats_of(["01/02/2024 12:00 AM"])
    ['%d/%m/%Y %I:%M %p', '%m/%d/%Y %I:%M %p']
    >>> formats_of(["1.2.3"]), formats_of(["10.0.0.1"]), formats_of([])
    ([], [], [])
    """
    found: list[str] | None = None
    for text in texts:
        tried = [date + clock for date in _DATES for clock in _CLOCKS] if found is None else found
        found = [form for form in tried if _reads(form, text.strip())]
        if not found:
            break
    return found or []


def _reads(form: str, text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def options_of(text: str) -> str:
    """Return the command-line options that parse a time, for messages."""
    return " or ".join(f"--set time-format={shlex.quote(form)}" for form in formats_of([text])) or "--set time-format"
