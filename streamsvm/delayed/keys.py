"""Keys of events and labels as text, and a notice if they do not match."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import StringColumn
from connectors.columns.times import scaled
from streamsvm.features.values import seconds_of
from streamsvm.models.archive import encode_label

LATEST = 1 << 62  # milliseconds
MANY_LABELS = 1_000  # number of unmatched labels that triggers a warning
_KEPT = 1_000  # keys of each kind
_FEW = 4  # few: fewer than one in this many
_EARLY_MS = 60_000  # tolerance for rounded times
# Time zones differ by multiples of half an hour, up to 26 hours. Labels may be later by a small slack.
_HALF_HOUR_MS, _FURTHEST_MS, _SLACK_MS = 1_800_000, 26 * 3_600_000, 360_000
_DAY_MS = 86_400_000
_NEARLY = 0.05

_Times: TypeAlias = "Sequence[int] | NDArray[np.int64]"


class KeyExamples:
    """First keys and times of events and labels, to explain why labels do not match.

    Parameters
    ----------
    wait_ms
        How long events wait, in milliseconds; None without limit.
    by_time
        Whether events and labels are processed in order of their times. Labels with earlier times than their events
        are then learned directly after the prediction.

    Attributes
    ----------
    wants_events, wants_labels
        Whether more keys of events, or of labels, are added.

    Examples
    --------
    >>> examples = KeyExamples(3_600_000)
    >>> examples.add(["7", "8"], [0, 1000], ["000007"], [500])
    >>> examples.notice({"labels": 1, "answered": 0, "late": 0, "repeated": 0, "corrected": 0}).partition(";")[0]
    "none of 1 labels matched an event: keys of events are like '7', keys of labels are like '000007'"
    >>> examples.add([], [], ["7", "8"], [7_500_000, 7_501_000])
    >>> examples.notice({"labels": 3, "answered": 0, "late": 2, "repeated": 0, "corrected": 0}).partition(",")[0]
    '0 of 3 labels arrived in time: they are 2:05:00 after their events (median)'
    """

    def __init__(self, wait_ms: int | None = None, *, by_time: bool = False) -> None:
        self.wait_ms, self._by_time = wait_ms, by_time
        self._events: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self.wants_events = self.wants_labels = True

    def add(self, of_events: Sequence[Any], event_times: _Times, of_labels: Sequence[Any], label_times: _Times) -> None:
        """Add keys, with the first time of each, up to a limit."""
        for found, keys, times in ((self._events, of_events, event_times), (self._labels, of_labels, label_times)):
            n = max(_KEPT - len(found), 0)
            for key, time in zip(key_texts(keys[:n]), times[:n], strict=True):
                found.setdefault(key, int(time))
        self.wants_events, self.wants_labels = len(self._events) < _KEPT, len(self._labels) < _KEPT

    def notice(self, counts: Mapping[str, int]) -> str:
        """Return a notice if few labels match in time or most come early, else ""."""
        if not self._events or not self._labels:
            return ""
        if common := self._events.keys() & self._labels.keys():
            times = np.array([(self._events[key], self._labels[key]) for key in common], np.int64)
            return self._notice_of_times(times, counts)
        if any(counts[name] for name in ("answered", "late", "repeated", "corrected")):
            return ""
        sides = [{_plain(key): key for key in reversed(side)} for side in (self._events, self._labels)]
        alike = next((plain for plain in reversed(sides[1]) if plain in sides[0]), None)
        keys = [side[alike] if alike is not None else next(reversed(side.values())) for side in sides]
        return (
            f"none of {counts['labels']:,} labels matched an event: keys of events are like {keys[0]!r}, keys of "
            f"labels are like {keys[1]!r}; they must be equal as text. Check that both streams use the same key"
        )

    def _notice_of_times(self, times: NDArray[np.int64], counts: Mapping[str, int]) -> str:
        """Return a notice if times of events and labels are distant or reversed."""
        lags = times[:, 1] - times[:, 0]
        median, n = int(np.median(lags)), f"{counts['answered']:,} of {counts['labels']:,} labels arrived in time"
        where = f"{_duration(abs(median))} {'after' if median > 0 else 'before'} their events (median)"
        if (
            self.wait_ms is not None
            and _FEW * max(counts["answered"] / max(counts["labels"], 1), np.mean(np.abs(lags) <= self.wait_ms)) < 1
        ):
            name = "`label_timeout`, --label-timeout"
            wait = f"wait for each other for {_duration(self.wait_ms)} ({name}): increase it if needed"
            return f"{n}: they are {where}, and {wait}; {_hint(times)}"
        if self._by_time and median <= -_EARLY_MS:
            return f"labels are {where}, and are learned immediately, as if they were on time; {_hint(times)}"
        return ""


def _hint(times: NDArray[np.int64]) -> str:
    """Suggest a likely cause of the distance between event and label times."""
    ratio = float(np.median(times[:, 1] / np.maximum(times[:, 0], 1)))
    least, median = map(int, np.quantile(times[:, 1] - times[:, 0], (0.1, 0.5)))
    zone = round(least / _HALF_HOUR_MS) * _HALF_HOUR_MS
    if any(abs(ratio * factor - 1) < _NEARLY for factor in (1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9)):
        return "but they seem to have different units: set time_unit= in the URL of one of them"
    for side, name in ((1, "labels"), (0, "events")):
        if not (times[:, side] % _DAY_MS).any():
            return f"but the times of {name} are whole days: include the hour"
    is_narrow = median - least <= _HALF_HOUR_MS
    if is_narrow and zone and abs(zone) <= _FURTHEST_MS and abs(least - zone) <= _SLACK_MS:
        return (
            f"but their clocks may be {_duration(abs(zone))} apart, like time zones: use UTC for both times, or times "
            "with an offset, such as 2026-01-31T12:00:00+02:00"
        )
    return "check that the times of both streams have the same meaning (time zone, time_unit)"


def _duration(ms: int) -> str:
    return str(timedelta(milliseconds=ms)).removesuffix("000")


def _plain(key: str) -> str:
    """Normalise a key: remove spaces, leading zeros, decimals, case and quotes."""
    text = key.strip().strip("\"'").casefold()
    with contextlib.suppress(ValueError, OverflowError):
        number = float(text)
        if number.is_integer() and abs(number) < 2.0**53:
            return str(int(number))
    return text.lstrip("0")


def key_texts(keys: Sequence[Any]) -> Sequence[str]:
    """Convert keys to strings."""
    return keys if isinstance(keys, StringColumn) or set(map(type, keys)) <= {str} else list(map(key_text, keys))


def key_text(key: Any) -> str:
    """Convert a key to a string; 17 and "17" are equal.

    Raises
    ------
    TypeError
        If the key has no unique string.
    ValueError
        If the key is missing (NaN).

    Examples
    --------
    >>> key_text(17), key_text("17"), key_text(17.0), key_text(("a", 1))
    ('17', '17', '17', '{"tuple": ["a", 1]}')
    """
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    if isinstance(key, float):
        if math.isnan(key):
            raise ValueError("the key is NaN, a missing value: events and labels without a key cannot be joined")
        if key.is_integer():
            key = int(key)
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    if isinstance(key, int | float | str) and not isinstance(key, bool):
        return str(key)
    try:
        return json.dumps(encode_label(key))
    except TypeError:
        kind = type(key).__name__
        raise TypeError(f"a key must be a string, a number, or a tuple of these, got {kind} {key!r}: use str") from None


def milliseconds(time: Any) -> int:
    """Convert an event time, in seconds or a datetime, to milliseconds since 1970."""
    seconds = seconds_of(time)
    if not math.isfinite(seconds) or abs(found := scaled(seconds, "s")) > LATEST:
        raise ValueError(f"an event time must be a number of seconds since 1970, got {time!r}")
    return found
