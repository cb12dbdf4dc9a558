"""Times of events: to milliseconds since 1970, and to features."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.arrow_cells import FURTHEST_MS
from connectors.cells import Bad, is_missing, shown
from connectors.options import MISSING

_NO_TIME = (math.nan,) * 4
_DAY_MS = 86_400_000
_THURSDAY = 3  # the day 1970 began with, where Monday is 0


def time_of(text: str) -> int:
    """Milliseconds since 1970 from a whole number of them or an ISO 8601 time, UTC where it names no zone.

    Examples
    --------
    >>> time_of("1500"), time_of("1970-01-01T00:00:01.5"), time_of("1970-01-01 01:00+01:00")
    (1500, 1500, 0)
    """
    try:
        time = int(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if abs(time) >= FURTHEST_MS:
        raise ValueError(f"the time {shown(text)} is none")
    return time


def times_of(name: str, values: Iterable[Any], bad: Bad) -> list[int]:
    """Times of events; what is none is noted in `bad`."""
    values = list(values)
    if set(map(type, values)) <= {str}:
        with contextlib.suppress(ValueError):
            whole = list(map(int, values))
            if min(whole, default=0) > -FURTHEST_MS and max(whole, default=0) < FURTHEST_MS:
                return whole
    times = []
    for i, value in enumerate(values):
        try:
            times.append(time_of(str(value)))
        except (ValueError, OverflowError):
            bad.setdefault(i, _no_time(name, value))
            times.append(0)
    return times


def circles_of(value: Any, missing: frozenset[str] = MISSING) -> Sequence[float] | None:
    """A time as features: the hour of its day and the day of its week (UTC), as sine and cosine; None where missing.

    On a circle, midnight is as near to eleven in the evening as to one in the morning. The time itself is no feature:
    it never comes again.

    Examples
    --------
    >>> [round(value, 3) for value in circles_of("1970-01-05T06:00")]  # a Monday
    [1.0, 0.0, 0.0, 1.0]

    Raises
    ------
    ValueError, OverflowError
        If it is not a time.
    """
    if value is None or value != value or (isinstance(value, str) and is_missing(value, missing)):
        return None
    days, rest = divmod(time_of(str(value)), _DAY_MS)
    hour, weekday = 2.0 * math.pi * rest / _DAY_MS, 2.0 * math.pi * ((days + _THURSDAY) % 7) / 7.0
    return math.sin(hour), math.cos(hour), math.sin(weekday), math.cos(weekday)


def time_row(name: str, value: Any, missing: frozenset[str] = MISSING) -> dict[str, float]:
    """The features that `circles_of` makes of a time, by name; none where it is missing."""
    return dict(zip(time_names(name), circles_of(value, missing) or (), strict=False))


def time_names(name: str) -> list[str]:
    """How the features of a time are named."""
    return [f"{name} {part}" for part in ("hour sin", "hour cos", "weekday sin", "weekday cos")]


def time_features(
    name: str, values: Iterable[Any], bad: Bad, missing: frozenset[str] = MISSING
) -> dict[str, NDArray[np.float64]]:
    """Columns of hour and weekday made of times, NaN where missing; what is no time is noted in `bad`."""
    rows = []
    for i, value in enumerate(values):
        try:
            rows.append(circles_of(value, missing) or _NO_TIME)
        except (ValueError, OverflowError):
            bad.setdefault(i, _no_time(name, value))
            rows.append(_NO_TIME)
    columns = np.array(rows, np.float64).reshape(-1, len(_NO_TIME)).T
    return dict(zip(time_names(name), map(np.ascontiguousarray, columns), strict=True))


def _no_time(name: str, value: Any) -> str:
    return f"'{name}' is not a time (milliseconds since 1970 or ISO 8601): {shown(value)}"
