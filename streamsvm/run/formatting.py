"""Formatting of times, classes and lines in a run."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TextIO

from streamsvm.names import shown

_TRUTH = {"true": True, "false": False}


def meanings(label: Any) -> list[Any]:
    """Return the possible values of a label that is given as text.

    Examples
    --------
    >>> meanings("true"), meanings("2.5"), meanings("2.50"), meanings(7)
    (['true', True], ['2.5', 2.5], ['2.50'], [7])
    """
    if not isinstance(label, str):
        return [label]
    found = [label, *(truth for name, truth in _TRUTH.items() if label.lower() == name)]
    with contextlib.suppress(ValueError):
        number = float(label)
        # Other spellings such as "07" are different labels; "inf" is not a number here.
        found += [number] if repr(number) == label and math.isfinite(number) else []
    return found


def meant(label: Any, *classes: Iterable[Any]) -> Any:
    """Return the class of a label in a setting: known, else of a known type.

    A label without a known type is a string.

    Examples
    --------
    >>> meant("true", [False, True]), meant("true", [False]), meant("true", ["no"]), meant("true", [])
    (True, True, 'true', 'true')
    """
    every = meanings(label)
    if len(every) == 1:
        return label
    known = set(chain(*classes))
    types = set(map(type, known))
    return next(chain((m for m in every if m in known), (m for m in every if type(m) in types), [label]))


def json_number(value: float) -> float | None:
    """Return a number for JSON, None for NaN.

    Examples
    --------
    >>> json_number(0.5), json_number(float("nan"))
    (0.5, None)
    """
    return None if value != value else value


def plain(value: Any, longest: int = 300) -> Any:
    """Return a value for JSON: texts and names are on one line, and NaN is None.

    Examples
    --------
    >>> plain({"a\\nb": [1, 0.5, float("nan")], "c": "x" * 9}, longest=5)
    {'a\\\\nb': [1, 0.5, None], 'c': 'xxxx…'}
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float):
        return json_number(float(value))  # NumPy's numbers are floats, too
    if isinstance(value, Mapping):
        return {shown(name, longest): plain(one, longest) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one, longest) for one in value]
    return shown(value, longest)


def span(seconds: float) -> str:
    """Format a time span in a suitable unit.

    Examples
    --------
    >>> span(0.25), span(90), span(7200), span(200_000)
    ('0.25 s', '90 s', '2 h', '2.3 d')
    """
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 300.0)):
        if seconds >= 2 * size or (unit == "h" and seconds >= size):
            return f"{seconds / (60.0 if unit == 'min' else size):.2g} {unit}"
    return f"{seconds:.3g} s"


class ClassNames:
    """Unique field names of classes in JSON, where names are strings.

    Examples
    --------
    >>> names = ClassNames()
    >>> names.of(["up", 1, True, "1", None, 2.5])
    ['up', '1', 'true', '"1"', 'null', '2.5']
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._taken: set[str] = set()

    def of(self, classes: Sequence[Any]) -> list[str]:
        """Return the names of classes, adding new ones."""
        for label in classes[len(self._names) :]:
            plain = label if isinstance(label, str) else json.dumps(label, default=str)
            name = plain if plain not in self._taken else json.dumps(label, default=str)
            while name in self._taken:
                name += "'"
            self._taken.add(name)
            self._names.append(name)
        return self._names


def width_of(terminal: TextIO) -> int:
    """Return the length of a line on a terminal, without the last column.

    Standard output may be a file, and terminals such as that of Emacs know no escape sequences.
    """
    try:
        columns = os.get_terminal_size(terminal.fileno()).columns
    except OSError:
        columns = 0
    return (columns or 80) - 1
