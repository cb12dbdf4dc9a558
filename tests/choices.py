"""Parametrisation over several choices without all of their combinations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet


def each_choice(*choices: tuple[str | tuple[str, ...], Iterable[Any]]) -> pytest.MarkDecorator:
    """Parametrize over pairs of names and values; each value occurs at least once.

    Shorter choices are repeated.
    """
    names: list[str] = []
    columns: list[list[tuple[Any, ...]]] = []
    for name, values in choices:
        names += [name] if isinstance(name, str) else name
        columns.append([_row(value, isinstance(name, str)) for value in values])
    rows = []
    for i in range(max(map(len, columns))):
        # The shift keeps choices of equal length from taking their values in step.
        taken = (column[(i + i // len(column) * j) % len(column)] for j, column in enumerate(columns))
        rows.append(tuple(value for part in taken for value in part))
    return pytest.mark.parametrize(names, rows)


def _row(value: Any, is_single: bool) -> tuple[Any, ...]:
    if isinstance(value, ParameterSet):
        return tuple(value.values)
    return (value,) if is_single else tuple(value)
