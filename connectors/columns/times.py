"""Event times: parse them to milliseconds since 1970 and derive features."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import FURTHEST_MS, MISSING_NUMBERS, Bad, shown
from connectors.columns.roles import TIME_UNITS
from connectors.columns.time_texts import (
    dashed,
    form_of_date,
    is_missing_time,
    moment_of,
    options_of,
    time_features,
    time_number,
    time_numbers,
    time_row,
)
from connectors.errors import ConnectorError

EARLIEST_S, LATEST_S = 100_000_000, 1 << 31
"""Plausible times in seconds since 1970, from March 1973 to January 2038.

Other units scale this range.
"""

# Largest step, as a factor, in a column that counts from an origin other than 1970.
_GROWTH = 100
UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

logger = logging.getLogger("connectors")


def time_unit_of(number: float) -> str | None:
    """Return the unit in which a number since 1970 is a plausible time, or None.

    Examples
    --------
    >>> time_unit_of(1_700_000_000.5), time_unit_of(1_700_000_000_123), time_unit_of(1500)
    ('s', 'ms', None)
    """
    size = abs(number)
    return next((unit for unit, n in TIME_UNITS.items() if EARLIEST_S * n <= size < LATEST_S * n), None)


class Times:
    """Parse the times of a stream to milliseconds since 1970.

    Times are numbers, ISO 8601 or RFC 2822; those without a time zone are UTC. The first nonzero number of a column
    determines its unit: the one of seconds, milliseconds, microseconds and nanoseconds that gives a date between 1973
    and 2038. If none does, the column counts milliseconds from another origin. Later numbers in another unit are
    rejected.

    Parameters
    ----------
    unit
        Unit of all numbers: s, ms, us or ns. None to detect it.
    form
        Format of all times for `datetime.strptime`, or formats by column. None for the default formats.

    Attributes
    ----------
    guesses : dict
        For each column, the detected unit, or the largest number so far if no unit was detected.

    Examples
    --------
    >>> times, bad = Times(), {}
    >>> times.milliseconds("t", ["1700000500.5", "1700000501", "1700000500500", "Tue, 14 Nov 2023 22:21:40 GMT"], bad)
    array([1700000500500, 1700000501000,             0, 1700000500000])
    >>> times.guesses, list(bad)
    ({'t': 's'}, [2])
    """

    def __init__(self, unit: str | None = None, form: str | Mapping[str, str] | None = None) -> None:
        self.unit, self._formats = unit, form
        self.guesses: dict[str, Any] = {}
        self._reported: set[str] = set()
        self._ways: dict[str, str] = {}

    def decide(self, source: str, name: str, values: Sequence[Any]) -> None:
        """Detect the unit of a column from its first values.

        Raises
        ------
        ConnectorError
            If more than one value in ten is in another unit.
        """
        if self.unit or self._format(name) or name in self.guesses:
            return
        numbers = [number for value in values if (number := time_number(value))]
        if not numbers:
            return
        if fault := _date_in_digits(name, numbers[0]):
            raise ConnectorError(f"{source}: {fault}", option="time_unit", column=name)
        votes = Counter(unit for number in numbers if (unit := time_unit_of(number)))
        guesses: list[Any] = [time_unit_of(numbers[0]) or abs(numbers[0]), *(unit for unit, _ in votes.most_common(1))]
        for guess in guesses:
            if 10 * _count_refused(name, numbers, guess) <= len(numbers):
                self.guesses[name] = guess
                return
        units = [unit for unit, _ in votes.most_common(2)]
        examples = [next(number for number in numbers if time_unit_of(number) == unit) for unit in units]
        some = " and ".join(f"{UNIT_NAMES[unit]} ({example})" for unit, example in zip(units, examples, strict=True))
        others = "" if len(units) > 1 else f" and smaller numbers ({numbers[0]})"
        what = f"times in {name!r} seem to have several units, {some}{others}"
        way = f"set time_unit= to one of {', '.join(TIME_UNITS)}, or correct the file"
        raise ConnectorError(f"{source}: {what}: {way}", option="time_unit", column=name)

    def _format(self, name: str) -> str | None:
        """Return the format of a column, None for the default formats."""
        return self._formats.get(name) if isinstance(self._formats, Mapping) else self._formats

    def of(self, name: str, value: Any) -> int:
        """Parse one time. Raise ValueError with the reason if it is not a time."""
        try:
            form = self._format(name)
            number = None if form else time_number(value)  # before ISO 8601, which parses some numbers as dates
            if number is None:
                return moment_of(str(value).strip(), form)
            found = scaled(number, self.unit or self._unit(name, number))
        except (_RefusedError, ConnectorError) as error:
            raise ValueError(str(error)) from None
        except (ValueError, OverflowError):
            raise ValueError(self._no_time(name, value)) from None
        if abs(found) >= FURTHEST_MS:
            raise ValueError(self._no_time(name, value))
        return found

    def milliseconds(self, name: str, values: Sequence[Any] | NDArray[Any], bad: Bad) -> NDArray[np.int64]:
        """Parse one column of times. Rows that are not times are added to `bad`."""
        numbers = None
        if isinstance(values, np.ndarray):
            numbers = values
        elif not self._format(name):
            if (moments := dashed(values)) is not None:
                return moments
            numbers = time_numbers(values)
        if numbers is not None and (found := self._at_once(name, numbers)) is not None:
            return found
        times = np.zeros(len(values), np.int64)
        for i, value in enumerate(values if numbers is not values else values.tolist()):
            try:
                times[i] = self.of(name, value)
            except ValueError as error:
                bad.setdefault(i, str(error))
        return times

    def features(
        self, name: str, values: Sequence[Any], bad: Bad, missing: frozenset[str] = MISSING_NUMBERS
    ) -> dict[str, NDArray[np.float64]]:
        """Return hour and weekday of times, NaN where missing.

        The reason for each row that is not a time is added to `bad`.
        """
        present = np.flatnonzero([not is_missing_time(value, missing) for value in values])
        found: Bad = {}
        whole = len(present) == len(values)
        times = np.zeros(len(values), np.int64)
        times[present] = self.milliseconds(name, values if whole else [values[i] for i in present.tolist()], found)
        for i, reason in found.items():
            bad.setdefault(int(present[i]), reason)
        is_time = np.zeros(len(values), bool)
        is_time[np.delete(present, list(found))] = True
        return time_features(name, times, is_time)

    def row(self, name: str, value: Any, missing: frozenset[str] = MISSING_NUMBERS) -> dict[str, float]:
        """Return the features of a time by name; none if it is missing.

        Raises
        ------
        ValueError
            If the value is not a time.
        """
        return {} if is_missing_time(value, missing) else time_row(name, self.of(name, value))

    # Units of numbers --------------------------------------------------------------------------------------------

    def _unit(self, name: str, number: float) -> str:
        """Return the unit of a number of a column; the column may be new."""
        if not number:  # zero in every unit
            return "ms"
        guess = self.guesses.get(name)
        if guess is None:
            if fault := _date_in_digits(name, number):
                raise _RefusedError(fault)
            guess = self.guesses[name] = time_unit_of(number) or abs(number)
        unit = time_unit_of(number)
        if isinstance(guess, str):
            if unit not in (None, guess):
                raise _RefusedError(_of_another(name, number, str(unit), guess))
            self._log_once(name, number)
            return guess
        if unit is not None and abs(number) > _GROWTH * guess:
            raise _RefusedError(_of_another(name, number, unit, None))
        self._log_once(name, number)
        self.guesses[name] = max(guess, abs(number))
        return "ms"

    def _at_once(self, name: str, numbers: NDArray[Any]) -> NDArray[np.int64] | None:
        """Parse a column of numbers at once. None if the rows must be parsed one by one."""
        unit = self.unit or self._unit_of_all(name, numbers)
        if unit is None:
            return None
        most = FURTHEST_MS // (1000 if unit == "s" else 1)
        if len(numbers) and not (numbers.min() > -most and numbers.max() < most):
            return None
        return scaled(numbers, unit)

    def _unit_of_all(self, name: str, numbers: NDArray[Any]) -> str | None:
        """Apply `_unit` to a column of numbers. None if it may reject any of them."""
        lowest, highest = (numbers.min().item(), numbers.max().item()) if len(numbers) else (0, 0)
        if not (lowest or highest):
            return "ms"
        try:
            unit = self._unit(name, numbers[(numbers != 0).argmax()].item())
        except _RefusedError:
            return None
        guess = self.guesses.get(name, unit)
        if isinstance(guess, str):
            n = TIME_UNITS[guess]
            return unit if EARLIEST_S * n <= lowest <= highest < LATEST_S * n else None
        largest = max(guess, highest, -lowest)
        if largest >= EARLIEST_S:
            return None
        self.guesses[name] = largest
        return unit

    def _log_once(self, name: str, number: float) -> None:
        """Log once how the numbers of a column are interpreted."""
        if name in self._reported:
            return
        self._reported.add(name)
        guess = self.guesses[name]
        if isinstance(guess, str):
            moment = datetime.fromtimestamp(abs(number) / TIME_UNITS[guess], UTC)
            is_one = "" if number < 0 else f" ({number} is {moment:%Y-%m-%d %H:%M:%S} UTC)"
            logger.info("times in %r are read as %s since 1970%s; time_unit= changes this",
                        name, UNIT_NAMES[guess], is_one)  # fmt: skip
        else:
            logger.warning("times in %r, such as %s, have no clear unit and are read as milliseconds; "
                           "time_unit= changes this", name, number)  # fmt: skip

    def _no_time(self, name: str, value: Any) -> str:
        if form := self._format(name):
            return f"'{name}' is not a time of the format {form!r}: {shown(value)}"
        if name not in self._ways:  # computed once per column, because it is slow
            self._ways[name] = options_of(str(value))
        way = f"a number since 1970, ISO 8601 or RFC 2822; {self._ways[name]} reads others"
        return f"'{name}' is not a time ({way}): {shown(value)}"


class SingleTimes(Times):
    """Parse each time on its own, for workers that see only a part of the stream.

    The number alone must determine its unit.
    """

    def _unit(self, name: str, number: float) -> str:
        if fault := _date_in_digits(name, number):
            raise _RefusedError(fault)
        unit = time_unit_of(number)
        if unit is None and number:
            way = f"set time_unit= to one of {', '.join(TIME_UNITS)}"
            raise _RefusedError(f"the unit of the time {number} in '{name}' is ambiguous: {way}")
        return unit or "ms"


class _RefusedError(ValueError):
    """A number that is not a time, with the reason."""


@overload
def scaled(number: float, unit: str) -> int: ...
@overload
def scaled(number: NDArray[Any], unit: str) -> NDArray[np.int64]: ...
def scaled(number: Any, unit: str) -> Any:
    """Convert numbers in a unit to milliseconds, with halves rounded up.

    Examples
    --------
    >>> scaled(1.5, "s"), scaled(2_499_999, "ns"), scaled(2_500_000, "ns"), scaled(np.array([2.5]), "ms")
    (1500, 2, 3, array([3]))

    Raises
    ------
    ValueError, OverflowError
        If the number is not finite.
    """
    number, size = (number * 1000, 1) if unit == "s" else (number, TIME_UNITS[unit] // 1000)
    if isinstance(number, np.ndarray):
        if number.dtype.kind == "f":
            return np.floor(number / size + 0.5).astype(np.int64)
    elif not isinstance(number, int):
        return math.floor(number / size + 0.5)
    return number if size == 1 else (number + size // 2) // size


def is_spelled_out(text: str) -> bool:
    """Return whether a text is a time and not a number.

    Examples
    --------
    >>> is_spelled_out("2024-05-31"), is_spelled_out("31 May 2024 12:00 GMT"), is_spelled_out("20240531")
    (True, True, False)
    """
    if time_number(text) is not None:
        return False
    try:
        moment_of(text.strip(), None)
    except (ValueError, OverflowError):
        return False
    return True


# Numbers ---------------------------------------------------------------------------------------------------------


def _date_in_digits(name: str, number: float) -> str | None:
    """Return why a number may be a date without separators, or None."""
    form = form_of_date(number)
    if form is None:
        return None
    way = f"set time_format={form}, or time_unit= one of {', '.join(TIME_UNITS)}"
    return f"the time {number:.0f} in '{name}' may be a date or a number: {way}"


def _of_another(name: str, number: float, unit: str, own: str | None) -> str:
    before = f"those before are in {UNIT_NAMES[own]}" if own else "those before are far smaller numbers"
    what = f"the time {number} in '{name}' seems to be in {UNIT_NAMES[unit]}, but {before}"
    return f"{what}; time_unit= reads all in one unit"


def _count_refused(name: str, numbers: Sequence[float], guess: Any) -> int:
    """Return how many numbers do not fit a guess."""
    if isinstance(guess, str):
        return sum(time_unit_of(number) != guess for number in numbers)
    times, bad = Times(), Bad()
    times.guesses[name], times._reported = guess, {name}
    times.milliseconds(name, numbers, bad)
    return len(bad)
