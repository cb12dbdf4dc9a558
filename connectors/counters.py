"""Recognize columns that only count up, such as row numbers and times."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notice, Notices
from connectors.times import unit_of

_FEWEST, _FEWEST_WITH_TIES = 50, 500
_MOST_STEP = 0.1


def counts_up(values: NDArray[np.float64]) -> bool:
    """Whether numbers grow from row to row, by small steps.

    At least 50 numbers must each exceed the number before, or at least 500 never fall. No step may exceed a tenth of
    the range, unless all numbers are times since 1970. Missing values are left out.

    Examples
    --------
    >>> counts_up(np.arange(100.0)), counts_up(np.sin(np.arange(100.0)))
    (True, False)
    """
    values = values[~np.isnan(values)]
    if len(values) < _FEWEST or not values[0] < values[-1] or not np.isfinite(values).all():
        return False
    steps = np.diff(values)
    if steps.min() < 0 or (steps.min() == 0 and len(values) < _FEWEST_WITH_TIES):
        return False
    return bool(steps.max() <= _MOST_STEP * (values[-1] - values[0])) or _are_times(values)


def _are_times(values: NDArray[np.float64]) -> bool:
    unit = unit_of(float(values[0]))
    return unit is not None and unit == unit_of(float(values[-1]))


def warn_if_counter(name: str, values: NDArray[Any], notices: Notices) -> None:
    """Warn of a feature that only counts up."""
    if not counts_up(values):
        return
    remedy = "--ignore {option} leaves it out"
    if _are_times(values[~np.isnan(values)]):
        remedy = f"--time {{option}} takes it as the time of the event, {remedy}"
    form = (
        f"column {{name!r}} only counts up in the first {len(values)} rows, as row numbers and times do, and is "
        f"learned as a feature: {remedy} (--types {{kept}} keeps it without this warning)"
    )
    notices.say(Notice.of(form, name, option=shlex.quote(name), kept=shlex.quote(f"{name}:number")))


def is_index(cells: Sequence[str]) -> bool:
    """Whether all cells are whole numbers, each larger than the one before, or in many rows another one.

    Rows may have been shuffled, or some of them drawn.
    """
    if not all(cell.isascii() and cell.isdigit() for cell in cells):
        return False
    numbers = [*map(int, cells)]
    is_another = len(cells) >= _FEWEST and len({*numbers}) == len(cells)
    return is_another or all(a < b for a, b in pairwise(numbers))
