"""Times and numbers as texts, and times as features."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.cells import is_missing

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_DAY_MS = 86_400_000
_THURSDAY = 3  # the weekday of 1970-01-01, where Monday is 0
_EXACT = 1 << 53  # floats hold all whole numbers up to this
_DIGITS = {8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # dates that look like numbers
_RFC_2822 = re.compile(
    r"(?:[A-Za-z]{3}, ?)?\d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d(?::\d\d)? (?:[+-]\d{4}|UT|UTC|GMT|Z|[ECMP][SD]T)"
)
_NAMED_UTC = re.compile(r" ?(?:UTC|GMT|Z)$")
_SPACED_OFFSET = re.compile(r" (?=[+-]\d\d:?\d\d$)")


def milliseconds_of(moment: datetime) -> int:
    """A datetime as milliseconds since 1970, UTC where it has no zone."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return ((moment - _EPOCH) // _MICROSECOND + 500) // 1000


def is_missing_time(value: Any, missing: frozenset[str]) -> bool:
    """Whether a value is None, NaN or a text that stands for a missing value."""
    return value is None or value != value or (isinstance(value, str) and is_missing(value, missing))


def number_of(value: Any) -> int | float | None:
    """A number that is given or spelled, None where it is none."""
    if type(value) in (int, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, str) or "_" in value:
        return None
    if value[4:5] == "-" and value[7:8] == "-":  # mostly a date
        return None
    with contextlib.suppress(ValueError):
        return int(value)
    with contextlib.suppress(ValueError):
        return number if math.isfinite(number := float(value)) else None
    return None


def numbers_of(values: Sequence[Any]) -> NDArray[Any] | None:
    """Numbers given or spelled, exactly; None where one is none."""
    kinds = set(map(type, values))
    if kinds == {str}:
        if "_" in "".join(values):
            return None
        with contextlib.suppress(ValueError):
            return _whole(list(map(int, values)))
        with contextlib.suppress(ValueError):
            return _fractions(np.fromiter(map(float, values), np.float64, len(values)))
    elif kinds == {int}:
        return _whole(values)
    elif kinds == {int, float} or kinds == {float}:
        with contextlib.suppress(OverflowError):
            return _fractions(np.array(values, np.float64))
    return None


def _whole(values: Sequence[int]) -> NDArray[np.int64] | None:
    with contextlib.suppress(OverflowError):
        return np.array(values, np.int64)
    return None


def _fractions(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Those, unless some may be whole numbers that a float cannot hold, or are not finite."""
    return values if bool((np.abs(values) < _EXACT).all()) else None


def dashed(values: Sequence[Any]) -> NDArray[np.int64] | None:
    """Milliseconds since 1970 of texts that are all ISO 8601 with dashes and of one zone; None where they are not."""
    if not values or type(values[0]) is not str or values[0][4:5] != "-":
        return None
    try:
        # With a dash there, none is a number that ISO 8601 takes for a date.
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
    """Milliseconds since 1970 of a time spelled out."""
    if form:
        return milliseconds_of(datetime.strptime(text, form))
    try:
        return milliseconds_of(datetime.fromisoformat(text))
    except ValueError:
        if _RFC_2822.fullmatch(text):
            from email.utils import parsedate_to_datetime  # seldom met, and long to import

            return milliseconds_of(parsedate_to_datetime(text))
        return milliseconds_of(datetime.fromisoformat(_SPACED_OFFSET.sub("", _NAMED_UTC.sub("", text))))


def form_of_date(number: float) -> str | None:
    """The format of a number that may be a date without marks between its parts; None where it is none."""
    text = str(number).removesuffix(".0")
    form = _DIGITS.get(len(text)) if text[:2] in ("19", "20") and text.isdigit() else None
    if form is None:
        return None
    try:
        datetime.strptime(text, form)
    except ValueError:
        return None
    return form


# Features --------------------------------------------------------------------------------------------------------


def circles_of(time: int) -> Sequence[float]:
    """Milliseconds since 1970 as features: the hour of the day and the day of the week (UTC), as sine and cosine.

    On a circle, midnight is as near to eleven in the evening as to one in the morning. The time itself is no feature:
    it never comes again.

    Examples
    --------
    >>> [round(value, 3) for value in circles_of(4 * 86_400_000 + 6 * 3_600_000)]  # a Monday
    [1.0, 0.0, 0.0, 1.0]
    """
    days, rest = divmod(time, _DAY_MS)
    hour, weekday = 2.0 * math.pi * rest / _DAY_MS, 2.0 * math.pi * ((days + _THURSDAY) % 7) / 7.0
    return math.sin(hour), math.cos(hour), math.sin(weekday), math.cos(weekday)


def time_row(name: str, time: int) -> dict[str, float]:
    """The features that `circles_of` makes of milliseconds since 1970, by name."""
    return dict(zip(time_names(name), circles_of(time), strict=True))


def time_names(name: str) -> list[str]:
    """How the features of a time are named."""
    return [f"{name} {part}" for part in ("hour sin", "hour cos", "weekday sin", "weekday cos")]


def time_features(name: str, times: NDArray[np.int64], there: NDArray[np.bool_]) -> dict[str, NDArray[np.float64]]:
    """What `time_row` makes of each of many milliseconds since 1970, as columns; NaN where there is none."""
    days, rest = np.divmod(times, _DAY_MS)
    hours = (2.0 * math.pi * rest / _DAY_MS).tolist()
    week = [2.0 * math.pi * day / 7.0 for day in range(7)]
    weekdays = (days + _THURSDAY) % 7
    n = len(times)
    # By math, as for single times: what numpy computes differs in the last bit.
    columns = [np.fromiter(map(wave, hours), np.float64, n) for wave in (math.sin, math.cos)]
    columns += [np.array([wave(day) for day in week])[weekdays] for wave in (math.sin, math.cos)]
    return dict(zip(time_names(name), (np.where(there, column, np.nan) for column in columns), strict=True))
