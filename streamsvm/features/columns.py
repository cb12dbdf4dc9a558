"""The columns of features, in order of first arrival."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Hashable, Mapping
from copy import copy
from itertools import repeat
from operator import itemgetter
from typing import Any

import numpy as np

from streamsvm.features.rows import Ints
from streamsvm.features.tables import Single
from streamsvm.features.values import check_name


class Columns:
    """The column of each name of numbers, and of each string under a name.

    Parameters
    ----------
    max_features
        The most columns.

    Attributes
    ----------
    names
        For each column a name, or a `(name, string)` pair if `is_indicator` says so.
    is_indicator
        Whether a column is of a string.
    numbers
        The column of each name of numbers.
    strings
        The columns of the strings under each name.
    n_refused
        The number of values of learned events that got no column because `max_features` were taken.
    plain_length, getter, packer, filler
        For events that have a number under each known name and nothing else: `packer(*getter(x))` returns the values of
        such an event x as bytes, in order of columns, and `filler(buffer, 0, *getter(x))` writes them to memory. Both
        raise one of `NOT_PLAIN` for other events. len(x) is `plain_length`, which is -1 while there is no fast path.
    """

    def __init__(self, max_features: int) -> None:
        self.max_features = max_features
        self.names: list[Any] = []
        self.is_indicator: list[bool] = []
        self.numbers: dict[Hashable, int] = {}
        self.strings: dict[Hashable, dict[str, int]] = {}
        self.n_refused = 0
        self._has_warned = False
        self._of_integers, self._n_tabled = np.zeros(0, np.int64), 0  # see `of_integers`
        self._last: tuple[int, list[Any], Ints] = 0, [], np.zeros(0, np.int64)  # see `of_numbers`
        self.set_fast_path()

    def __len__(self) -> int:
        return len(self.names)

    def copy(self) -> Columns:
        """Return a copy that shares nothing."""
        twin = copy(self)
        twin.names, twin.is_indicator = self.names.copy(), self.is_indicator.copy()
        twin.numbers = self.numbers.copy()
        twin.strings = {name: strings.copy() for name, strings in self.strings.items()}
        twin._of_integers, twin._n_tabled = np.zeros(0, np.int64), 0
        return twin

    def set_fast_path(self) -> None:
        """Prepare for plain events. A new column ends this until the next such event."""
        n = len(self.names)
        self.plain_length = n if n > 0 and not self.strings else -1
        self.getter: Callable[[Any], tuple[Any, ...]] = itemgetter(*self.names) if n > 1 else Single(self.names)
        values = struct.Struct(f"{n}d")
        self.packer, self.filler = values.pack, values.pack_into

    def look_for_fast_path(self, x: Mapping[Any, Any]) -> None:
        """Prepare for plain events after an event with as many features as there are columns."""
        if len(x) == len(self.names) != self.plain_length and not self.strings:
            self.set_fast_path()

    def add(self, name: Hashable, string: str | None) -> int:
        """Add a column for a name or, unless `string` is None, for a string under it; return -1 if it is refused."""
        check_name(name)
        column = len(self.names)
        if column >= self.max_features:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"all {self.max_features} columns are taken: {name!r}{'' if string is None else f' = {string!r}'} "
                    "and other new names or strings are ignored from here on (counted in `n_refused`); "
                    "raise `max_features` to take them in",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return -1
        if string is None:
            self.numbers[name] = column
            self.names.append(name)
        else:
            self.strings.setdefault(name, {})[string] = column
            self.names.append((name, string))
        self.is_indicator.append(string is not None)
        self.plain_length = -1
        return column

    def add_numbers(self, names: list[Any], counts: Ints) -> None:
        """Add columns for names of numbers; names[i] came counts[i] times, which are refused if there is no room."""
        for name in names:
            check_name(name)
        before, room = len(self), max(self.max_features - len(self), 0)
        self.names += names[:room]
        self.is_indicator += [False] * (len(self) - before)
        self.numbers.update(zip(names, range(before, len(self)), strict=False))
        if before < len(self):
            self.plain_length = -1
        if len(names) > room:
            self.add(names[room], None)  # which warns
            self.n_refused += int(counts[room:].sum())

    def of_numbers(self, x: Mapping[Any, Any]) -> Ints:
        """The columns of numbers under the names of an event, -1 for those without one.

        The last result is kept, because the event predicted is most often the one learned next.
        """
        names, n = list(x), len(self.names)
        if self._last[:2] != (n, names):
            self._last = n, names, np.fromiter(map(self.numbers.get, names, repeat(-1)), np.int64, len(names))
        return self._last[2].copy()

    def of_integers(self, size: int) -> Ints:
        """The columns of the integers from 0 to before `size`, or more; -1 for those without one."""
        if size > len(self._of_integers):
            self._of_integers, self._n_tabled = np.full(max(size, 2 * len(self._of_integers)), -1), 0
        table = self._of_integers
        for column in range(self._n_tabled, len(self)):
            name = self.names[column]
            # A name that equals a whole number has its hash, be it 1, 1.0 or True.
            if not self.is_indicator[column] and 0 <= (number := hash(name)) < len(table) and name == number:
                table[number] = column
        self._n_tabled = len(self)
        return table
