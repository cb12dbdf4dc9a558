"""Known features of a stream, with notices, and the encoding of single events."""

from __future__ import annotations

import logging
import math
import struct
import warnings
from array import array
from collections.abc import Hashable, Iterable, Mapping
from copy import copy
from itertools import repeat
from typing import Any, Self

import numpy as np

from connectors.columns.absent import is_absent
from connectors.notices import Notice, Notices, grouped
from streamsvm.features.mismatches import Mismatches
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.scaler import LARGEST
from streamsvm.features.string_features import StringFeatures
from streamsvm.features.tables import getter_of
from streamsvm.features.values import (
    check_name,
    encoding_error,
    name_key,
    names_of_times,
    notice_of_times,
    number_of,
    text_of,
    with_times,
)

logger = logging.getLogger("streamsvm.features")

# Events with at least this many names are encoded with arrays, shorter ones name by name.
LONG = 32
# Larger numbers are checked one by one, because NumPy datetimes convert to nanoseconds of this size.
_LARGE = 1e17


class KnownFeatures:
    """Columns of features in order of first arrival.

    It also decides which strings are categories, and issues warnings about features.

    Parameters
    ----------
    max_features
        Maximum number of columns.
    categories
        Names whose strings are always categories.

    Attributes
    ----------
    names
        Name of each column; a `(name, string)` pair if `is_indicator` is true, or `(name, None)` for missing values.
    is_indicator
        Whether a column is the indicator of a string, or of missing values.
    gaps
        Columns that indicate missing values, in ascending order. Encoded rows have no entries in them.
    numbers
        Column of each numeric feature.
    strings
        Columns of the string values of each feature.
    n_refused
        Number of values in learned events without a column because `max_features` columns exist.
    plain_length, getter, packer, filler
        Fast path for events that have a number under each known name and nothing else, so that len(x) is
        `plain_length`. `packer(*getter(x))` returns the values of such an event x as bytes in column order.
        `filler(buffer, 0, *getter(x))` writes them to memory. Both raise one of `NOT_PLAIN` for other events.
        `plain_length` is -1 while there is no fast path.
    texts
        Decision which names have categories.
    mismatches
        Warnings about features that differ from the learned ones.
    """

    def __init__(self, max_features: int, categories: Iterable[Hashable] = ()) -> None:
        self.max_features = max_features
        self.names: list[Any] = []
        self.is_indicator: list[bool] = []
        self.gaps: list[int] = []
        self.numbers: dict[Hashable, int] = {}
        self.strings: dict[Hashable, dict[str, int]] = {}
        self.n_refused = 0
        self._has_warned = False
        self._of_integers, self._n_tabled = np.zeros(0, np.int64), 0  # see `of_integers`
        self.set_fast_path()
        self.noticed: list[Notice] = []  # notices about the first rows
        self.issued = Notices(logger)  # shared with copies, so that each warning is issued once
        self.timed: dict[Hashable, None] = {}  # names of learned datetimes
        self.texts = StringFeatures(self, categories, self.issued)
        self.mismatches = Mismatches(self, self.texts, self.issued, logger)

    def __len__(self) -> int:
        return len(self.names)

    def __getstate__(self) -> dict[str, Any]:
        fast_path = ("plain_length", "getter", "packer", "filler")  # structs cannot be pickled
        return {name: value for name, value in self.__dict__.items() if name not in fast_path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.set_fast_path()

    def copy(self) -> Self:
        """Return a copy that shares only the record of issued warnings."""
        twin = copy(self)
        twin.names, twin.is_indicator, twin.gaps = self.names.copy(), self.is_indicator.copy(), self.gaps.copy()
        twin.numbers = self.numbers.copy()
        twin.strings = {name: strings.copy() for name, strings in self.strings.items()}
        twin._of_integers, twin._n_tabled = np.zeros(0, np.int64), 0
        twin.noticed, twin.timed = self.noticed.copy(), dict(self.timed)
        twin.texts = self.texts.copy(twin)
        twin.mismatches = self.mismatches.copy(twin, twin.texts)
        return twin

    @property
    def n_given(self) -> int:
        """Number of columns that events have values in, at most `max_features`."""
        return len(self.names) - len(self.gaps)

    def set_fast_path(self) -> None:
        """Set up the fast path for the current columns; a new column disables it."""
        n = self.n_given
        is_plain = n > 0 and not self.strings and (not self.gaps or self.gaps[0] == n)
        self.plain_length = n if is_plain else -1
        self.getter = getter_of(tuple(self.names[:n]))
        values = struct.Struct(f"{n}d")
        self.packer, self.filler = values.pack, values.pack_into

    def find_fast_path(self, x: Mapping[Any, Any]) -> None:
        """Set up the fast path if an event has as many features as there are columns."""
        if len(x) == self.n_given != self.plain_length and not self.strings:
            self.set_fast_path()

    def add(self, name: Hashable, string: str | None) -> int:
        """Add a column for a numeric feature, or for a string value of a feature.

        Parameters
        ----------
        name
            Feature name.
        string
            String value, or None for a numeric feature.

        Returns
        -------
        int
            The new column, or -1 if `max_features` columns exist.
        """
        check_name(name)
        column = len(self.names)
        if self.n_given >= self.max_features:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"all {self.max_features} columns are in use: {name!r}{'' if string is None else f' = {string!r}'} "
                    "and other new names or strings are ignored from here on (counted in `n_refused`); "
                    "raise `max_features` to include them",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return -1
        self.plain_length = -1
        columns: dict[Any, int] = self.numbers if string is None else self.strings.setdefault(name, {})
        # No call between the changes, so that Ctrl-C cannot separate them.
        columns[name if string is None else string] = column
        self.names += [name if string is None else (name, string)]
        self.is_indicator += [string is not None]
        if string is not None:
            self.texts.begin(name)
        return column

    def add_numbers(self, names: list[Any], counts: Ints) -> None:
        """Add columns for numeric features.

        Parameters
        ----------
        names
            Feature names.
        counts
            Number of values per name, which count as refused if there is no room.
        """
        for name in names:
            check_name(name)
        before, room = len(self), max(self.max_features - self.n_given, 0)
        new = names[:room]
        if new:
            self.plain_length = -1
        columns, flags = dict(zip(new, range(before, before + len(new)), strict=True)), [False] * len(new)
        # No call between the changes, so that Ctrl-C cannot separate them.
        self.names += new
        self.is_indicator += flags
        self.numbers |= columns
        if len(names) > room:
            self.add(names[room], None)  # this warns
            self.n_refused += int(counts[room:].sum())
        self.texts.warn_of_mixed(names)

    def add_gap(self, name: Hashable, at: int) -> None:
        """Add a column that indicates missing values of a numeric feature.

        Parameters
        ----------
        name
            Feature name.
        at
            The new column. Later columns, which have not been learned, make room for it.
        """
        moved = {column: column + 1 for column in range(at, len(self))}
        known: list[dict[Any, int]] = [self.numbers, *self.strings.values()]
        for columns in known:
            columns.update({each: moved[column] for each, column in columns.items() if column in moved})
        for found in self.texts.watched.values():
            found.again = {moved.get(column, column) for column in found.again}
        self.names.insert(at, (name, None))
        self.is_indicator.insert(at, True)
        self.gaps.append(at)
        self._of_integers, self._n_tabled = np.zeros(0, np.int64), 0
        self.set_fast_path()

    def of_integers(self, size: int) -> Ints:
        """Return the columns of integer names below at least `size`, -1 for unknown ones."""
        if size > len(self._of_integers):
            self._of_integers, self._n_tabled = np.full(max(size, 2 * len(self._of_integers)), -1), 0
        table = self._of_integers
        for column in range(self._n_tabled, len(self)):
            name = self.names[column]
            # Names that equal an integer have its hash: 1, 1.0 and True.
            if not self.is_indicator[column] and 0 <= (number := hash(name)) < len(table) and name == number:
                table[number] = column
        self._n_tabled = len(self)
        return table

    # Restoring and notices -------------------------------------------------------------------------------------------

    @property
    def left_out(self) -> dict[Hashable, str]:
        """Names that are left out, with the reason."""
        return self.texts.left_out

    def is_dead(self, column: int) -> bool:
        """Return whether a column belongs to a string of a name that is left out."""
        if not (self.left_out and self.is_indicator[column]):
            return False
        name, string = self.names[column]
        return name in self.left_out and string is not None

    def restore(
        self,
        names: Iterable[Any],
        is_indicator: Iterable[bool],
        left_out: Mapping[Hashable, str] | None = None,
        quoted: Iterable[Hashable] = (),
        noticed: Iterable[Notice] = (),
    ) -> None:
        """Restore the columns of another space, and its notices, without its counters.

        Parameters
        ----------
        names, is_indicator, left_out, quoted, noticed
            Attributes of the other space and its `texts`.
        """
        for name, indicator in zip(names, is_indicator, strict=True):
            if indicator and name[1] is None:
                self.add_gap(name[0], len(self))
            else:
                self.add(*(name if indicator else (name, None)))
        self.noticed = list(noticed)
        self.texts.restore(left_out or {}, quoted)
        self.texts.restore_watched({})

    def notices(self) -> list[str]:
        """Return all notices about features, grouped by kind."""
        single, of_rows = self.mismatches.notices()
        return grouped([*self.texts.notices(), *map(notice_of_times, self.timed), *self.noticed, *single]) + of_rows

    def notice(self, notices: Iterable[Notice]) -> None:
        """Record notices about the first rows and issue them as warnings."""
        self.noticed += (found := list(notices))
        self.issued.warn(*found)

    def warn_of_times(self, names: Iterable[Hashable]) -> None:
        """Warn once per name that datetimes are encoded as hour and weekday."""
        new = [name for name in names if name not in self.timed]
        self.timed |= dict.fromkeys(new)
        self.issued.warn(*map(notice_of_times, new))

    # Single events ---------------------------------------------------------------------------------------------------

    def encode_event(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        """Encode one event; a learned event adds columns for new features.

        Parameters
        ----------
        x
            Features by name.
        learn
            Whether new features get columns.

        Returns
        -------
        columns, values : ndarray
            Columns in ascending order, and their values.

        Raises
        ------
        TypeError, ValueError
            If a value is infinite, or not a number, a string, a datetime or missing.
        """
        if not hasattr(x, "items"):
            raise TypeError(f"{encoding_error(x)}; use `learn_many` or `predict_many` for several rows")
        entries = self._encode_numbers_alone(x, learn) if len(x) >= LONG else None
        if entries is None:
            try:
                entries = self._encode_any(x, learn)
            except TypeError:
                timed = with_times(x)
                if timed is None:
                    raise
                entries = self._encode_any(timed, learn)
                if learn:
                    self.warn_of_times(names_of_times(x))
        self.find_fast_path(x)
        if len(entries[0]) or not learn:
            self.mismatches.count_unknown_rows(1, len(entries[0]), x)
        return entries

    def _encode_numbers_alone(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats] | None:
        """Encode an event with only numbers by arrays; return None for other events."""
        try:
            values = np.frombuffer(array("d", x.values()))
        except (TypeError, OverflowError):
            return None
        if not (np.abs(values) < _LARGE).all():
            return None
        columns = np.fromiter(map(self.numbers.get, x, repeat(-1)), np.int64, len(x))
        if learn and (new := np.flatnonzero(columns < 0)).size:
            names = list(x)
            for i in sorted(new.tolist(), key=lambda i: name_key(names[i])):
                columns[i] = self.add(names[i], None)
                self.n_refused += int(columns[i] < 0)
            self.texts.warn_of_mixed(names[i] for i in new.tolist())
        order = columns.argsort()
        order = order[np.count_nonzero(columns < 0) :]
        return columns[order], values[order]

    def _encode_any(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        entries: list[tuple[int, float]] = []
        unseen: list[tuple[Hashable, str | None, float]] = []
        numbers, strings = self.numbers, self.strings
        string: str | None
        for name, value in x.items():
            if type(value) is float and -LARGEST <= value <= LARGEST:
                number, string, column = value, None, numbers.get(name, -1)
            elif isinstance(value, str):
                number, string = 1.0, text_of(value)
                column = strings.get(name, {}).get(string, -1)
            else:
                number, string = math.nan if value is None else number_of(name, value), None
                column = numbers.get(name, -1)
                if math.isnan(number) and (column < 0 or is_absent(number)):
                    continue
            if column >= 0:
                entries.append((column, number))
            elif learn and (string is None or name not in self.texts.closed):
                unseen.append((name, string, number))
            elif not learn:
                self.mismatches.count_other_kind(name, value)
                if string is not None and name in strings:
                    self.mismatches.count_unknown_texts(name, [string])
        if unseen:
            self._encode_unseen(unseen, entries)
        if learn and self.texts.watched:
            self.texts.learn(x)
        entries.sort()
        return np.array([column for column, _ in entries], np.int64), np.array([number for _, number in entries], float)

    def _encode_unseen(
        self, unseen: list[tuple[Hashable, str | None, float]], entries: list[tuple[int, float]]
    ) -> None:
        """Add columns for the new features of a learned event, and append their entries."""
        unseen.sort(key=_arrival_key)
        begun = []
        for name, string, number in unseen:
            column = self.add(name, string)
            if column >= 0:
                entries.append((column, number))
                if string is None or len(self.strings[name]) == 1:
                    begun.append(name)
            else:
                self.n_refused += 1
        self.texts.warn_of_mixed(begun)


def _arrival_key(entry: Any) -> tuple[tuple[int, str], bool, str]:
    return name_key(entry[0]), entry[1] is not None, entry[1] or ""
