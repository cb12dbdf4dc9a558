"""Detect counters, such as row numbers and times, and dates written as numbers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notice, Notices
from connectors.sentinels import warn_of_sentinels
from connectors.time_texts import form_of_date
from connectors.times import unit_of

_FEWEST, _FEWEST_WITH_TIES = 50, 500
_MOST_STEP = 0.1


def direction(values: NDArray[np.float64]) -> str:
    """Return the direction of a counter, ``"up"`` or ``"down"``, else an empty string.

    A counter has at least 50 strictly monotonic numbers, or at least 500 monotonic ones. No step exceeds a tenth of the
    range, unless the numbers are times since 1970. Missing values are ignored.

    Examples
    --------
    >>> direction(np.arange(100.0)), direction(-np.arange(100.0)), direction(np.sin(np.arange(100.0)))
    ('up', 'down', '')
    """
    values = values[~np.isnan(values)]
    if len(values) < _FEWEST or values[0] == values[-1] or not np.isfinite(values).all():
        return ""
    is_up = bool(values[0] < values[-1])
    steps = np.diff(values if is_up else -values)
    if steps.min() < 0 or (steps.min() == 0 and len(values) < _FEWEST_WITH_TIES):
        return ""
    is_small = steps.max() <= _MOST_STEP * abs(values[-1] - values[0])
    return ("up" if is_up else "down") if is_small or _are_times(values) else ""


def _are_times(values: NDArray[np.float64]) -> bool:
    unit = unit_of(float(values[0]))
    return unit is not None and unit == unit_of(float(values[-1]))


def form_of_dates(values: NDArray[np.float64]) -> str:
    """Return the format of a column of dates such as 20231114, else an empty string.

    The column needs at least 50 values and at least two distinct ones.

    Examples
    --------
    >>> form_of_dates(np.repeat([20231130.0, 20231201.0], 30)), form_of_dates(np.arange(20231130.0, 20231190.0))
    ('%Y%m%d', '')
    """
    values = values[~np.isnan(values)]
    numbers = np.unique(values)
    if len(values) < _FEWEST or len(numbers) < 2:
        return ""
    forms = {form_of_date(number) for number in (numbers[0], numbers[-1])}
    if len(forms) > 1 or None in forms:
        return ""
    return str(forms.pop()) if all(form_of_date(number) in forms for number in numbers.tolist()) else ""


def warn_if_counter(name: str, values: NDArray[Any], notices: Notices) -> None:
    """Warn if a feature is a counter or contains dates written as numbers."""
    details = {"option": shlex.quote(name), "kept": shlex.quote(f"{name}:number")}
    remedy = "--ignore {option} leaves it out"
    if form := form_of_dates(values):
        what = f"has dates written as numbers, such as {values[~np.isnan(values)][0]:.0f}"
        details["times"] = shlex.quote(f"{name}:time")
        remedy = f"--types {{times}} --set time-format={form} makes features of their hour and weekday, {remedy}"
    elif way := direction(values):
        what = f"only counts {way} in the first {len(values)} rows, as row numbers and times do"
        if _are_times(values[~np.isnan(values)]):
            order = " (the newest come first: sort the rows by it)" if way == "down" else ""
            remedy = f"--time {{option}} takes it as the time of the event{order}, {remedy}"
    else:
        return
    form = (
        f"column {{name!r}} {what}, and is learned as a feature: {remedy} (--types {{kept}} keeps it without this "
        "warning)"
    )
    notices.say(Notice.of(form, name, **details))


def warn_of_numbers(
    name: str, values: NDArray[np.float64], notices: Notices, cells: Sequence[str] | None = None
) -> None:
    """Warn of a feature that only counts up or down, and of values that stand for missing ones.

    Parameters
    ----------
    name
        The feature.
    values, cells
        Its first numbers, NaN where missing, and how they are written, if they are texts.
    notices
        Where warnings go.
    """
    warn_if_counter(name, values, notices)
    warn_of_sentinels(name, values.tolist(), notices, cells)


def is_index(cells: Sequence[str]) -> bool:
    """Return whether all cells are integers that ascend, or differ in 50 or more rows.

    The second case covers shuffled and sampled rows.
    """
    if not all(cell.isascii() and cell.isdigit() for cell in cells):
        return False
    numbers = [*map(int, cells)]
    is_another = len(cells) >= _FEWEST and len({*numbers}) == len(cells)
    return is_another or all(a < b for a, b in pairwise(numbers))
