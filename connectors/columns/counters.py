"""Detect counters, such as row numbers and times, and dates written as numbers."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from connectors.columns.time_texts import form_of_date
from connectors.columns.times import time_unit_of
from connectors.notices import Notice, Notices

# Minimum number and share of cells with a sentinel.
_LEAST_SENTINELS, _SENTINEL_SHARE = 5, 0.01
# Minimum distance from the other values, in units of their range. It is smaller for negative sentinels, because prices
# and shares are not negative.
_FAR, _FAR_BELOW = 3.0, 0.5
_SENTINEL = re.compile(
    r"-?9{3,}(\.[09]*)?|-1(\.0*)?[eE]\+?30|-(32768|2147483648)(\.0*)?|-?(3\.4028|1\.7014)\d*[eE]\+?38"
)


_FEWEST, _FEWEST_WITH_TIES = 50, 500
_MOST_STEP = 0.1
_MOST_DAYS = 31


def sentinels(values: Sequence[float], cells: Sequence[str] | None = None) -> dict[str, float]:
    """Return sentinels such as -9999, found by their digits and distance from others.

    Parameters
    ----------
    values, cells
        First numbers of a column, NaN where missing, and their texts, if any.

    Returns
    -------
    dict
        Share of each sentinel.

    Examples
    --------
    >>> sentinels([1.0, 2.0, 3.0, -9999.0] * 5)
    {'-9999': 0.25}
    """
    found = {}
    counts = Counter(value for value in values if math.isfinite(value))
    if cells is None:
        texts = {value: repr(value).removesuffix(".0") for value in counts}
    else:
        texts = {value: cell.strip() for cell, value in zip(cells, values, strict=True)}
    candidates = {value for value in counts if _SENTINEL.fullmatch(texts[value])}
    rest = counts.keys() - candidates
    for value in sorted(candidates) if rest else ():
        share, distance = counts[value] / counts.total(), max(min(rest) - value, value - max(rest))
        is_frequent = counts[value] >= _LEAST_SENTINELS and share >= _SENTINEL_SHARE
        far = _FAR_BELOW if value < 0 else _FAR
        if is_frequent and distance > far * (max(rest) - min(rest)):
            found[texts[value]] = share
    return found


def direction(values: NDArray[np.float64]) -> str:
    """Return the direction of a counter, ``"up"`` or ``"down"``, else an empty text.

    A counter has at least 50 strictly monotonic numbers, or at least 500 monotonic ones that may not be days of a
    month. No step exceeds a tenth of the range, unless the numbers are times since 1970. Missing values are ignored.

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
    has_ties = steps.min() == 0
    may_be_days = values.min() >= 1 and values.max() <= _MOST_DAYS and not np.any(values % 1)
    if steps.min() < 0 or (has_ties and (len(values) < _FEWEST_WITH_TIES or may_be_days)):
        return ""
    is_small = steps.max() <= _MOST_STEP * abs(values[-1] - values[0])
    return ("up" if is_up else "down") if is_small or _are_times(values) else ""


def _are_times(values: NDArray[np.float64]) -> bool:
    unit = time_unit_of(float(values[0]))
    return unit is not None and unit == time_unit_of(float(values[-1]))


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


def _counter_notice(name: str, values: NDArray[np.float64]) -> Notice | None:
    """Return a warning if a feature is a counter or contains dates as numbers."""
    details = {"option": shlex.quote(name), "kept": shlex.quote(f"{name}:number")}
    remedy = "--ignore {option} leaves it out"
    if form := form_of_dates(values):
        what = f"has dates written as numbers, such as {values[~np.isnan(values)][0]:.0f}"
        details["times"] = shlex.quote(f"{name}:time")
        remedy = f"--types {{times}} --set time-format={form} converts them to hour and weekday, {remedy}"
    elif way := direction(values):
        what = f"only counts {way} in the first {len(values)} rows, like a row number or a time"
        if _are_times(values[~np.isnan(values)]):
            order = " (the newest come first: sort the rows by it)" if way == "down" else ""
            remedy = f"--time {{option}} uses it as the event time{order}, {remedy}"
    else:
        return None
    form = (
        f"column {{name!r}} {what}, and is used as a feature: {remedy} (--types {{kept}} keeps it without this warning)"
    )
    return Notice.of(form, name, **details)


def warn_of_numbers(
    name: str, values: NDArray[np.float64], notices: Notices, cells: Sequence[str] | None = None
) -> None:
    """Warn if a feature is a counter, or contains sentinels of missing values.

    Parameters
    ----------
    name
        The feature.
    values, cells
        Its first numbers, NaN where missing, and how they are written, if they are texts.
    notices
        Where warnings go.
    """
    if (notice := _counter_notice(name, values)) is not None:
        notices.warn(notice)
    for text, share in sentinels(values.tolist(), cells).items():
        form = (
            f"column {{name!r}}: {text} in {{share:.0f}} % of its first cells looks like a missing value, and is "
            f"read as a number: --set missing={text} declares it (with other markers, if there are: it replaces "
            "the default ones)"
        )
        notices.warn(Notice.of(form, name, share=100.0 * share))


def is_index(cells: Sequence[str]) -> bool:
    """Return whether a column of texts is a row index.

    Its cells are integers that ascend, or at least 50 integers without duplicates, as in shuffled or sampled rows.
    """
    if not all(cell.isascii() and cell.isdigit() for cell in cells):
        return False
    numbers = [*map(int, cells)]
    is_another = len(cells) >= _FEWEST and len({*numbers}) == len(cells)
    return is_another or all(a < b for a, b in pairwise(numbers))
