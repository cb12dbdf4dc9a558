"""Encoding of single events as columns and values."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from streamsvm.features import datetimes
from streamsvm.features.known import KnownFeatures
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.scaler import LARGEST
from streamsvm.features.values import name_key, number_of, text_of, what_is_wrong

# Events with at least this many names are encoded with arrays, shorter ones name by name.
LONG = 32
# Larger numbers are checked one by one, because NumPy datetimes convert to nanoseconds of this size.
_LARGE = 1e17


class EventEncoder(KnownFeatures):
    """Encoder of single events; learned events add columns for new features."""

    def encode_event(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        """Encode one event.

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
            raise TypeError(f"{what_is_wrong(x)}; rows at once go to `learn_many` or `predict_many`")
        entries = self._encode_numbers_alone(x, learn) if len(x) >= LONG else None
        if entries is None:
            try:
                entries = self._encode_any(x, learn)
            except TypeError:
                timed = datetimes.with_times(x)
                if timed is None:
                    raise
                entries = self._encode_any(timed, learn)
                if learn:
                    self.say_times(datetimes.names_of_times(x))
        self.look_for_fast_path(x)
        if len(entries[0]) or not learn:
            self.mismatches.look_at(1, len(entries[0]), x)
        return entries

    def _encode_numbers_alone(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats] | None:
        """Encode an event with only numbers by arrays; return None for other events."""
        try:
            values = np.frombuffer(array("d", x.values()))
        except (TypeError, OverflowError):
            return None
        if not (np.abs(values) < _LARGE).all():
            return None
        columns = self.of_numbers(x)
        if learn and (new := np.flatnonzero(columns < 0)).size:
            names = list(x)
            for i in sorted(new.tolist(), key=lambda i: name_key(names[i])):
                columns[i] = self.add(names[i], None)
                self.n_refused += int(columns[i] < 0)
        order = columns.argsort()
        order = order[np.count_nonzero(columns < 0) :]
        return columns[order], values[order]

    def _encode_any(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        entries: list[tuple[int, float]] = []
        unseen: list[tuple[Hashable, str | None, float]] = []
        numbers, strings = self.numbers, self.strings
        string: str | None
        for name, value in x.items():
            if value is None:
                continue
            if type(value) is float and -LARGEST <= value <= LARGEST:
                number, string, column = value, None, numbers.get(name, -1)
            elif isinstance(value, str):
                number, string = 1.0, text_of(value)
                column = strings.get(name, {}).get(string, -1)
            else:
                number, string = number_of(name, value), None
                if math.isnan(number):
                    continue
                column = numbers.get(name, -1)
            if column >= 0:
                entries.append((column, number))
            elif learn and (string is None or name not in self.texts.closed):
                unseen.append((name, string, number))
            elif not learn:
                self.mismatches.meet_other_kind(name, value)
                if string is not None and name in strings:
                    self.mismatches.meet_unknown_texts(name, [string])
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
        self.texts.say_mixed(begun)


def _arrival_key(entry: Any) -> tuple[tuple[int, str], bool, str]:
    return name_key(entry[0]), entry[1] is not None, entry[1] or ""
