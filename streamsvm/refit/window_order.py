"""Order of events in a window: the latest, those of the last seconds, or a sample.

The number of an event is the count of events before it. The oldest event leaves first; if `balanced`, the oldest of the
largest class, counting the new event (among equals the class with the oldest event). A sample draws an event of these
instead.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.models.archive import check_names
from streamsvm.refit.window_rows import Chunk

Holds = Callable[[Chunk], NDArray[np.bool_]]

_NEVER = np.iinfo(np.int64).max
_MASK = (1 << 64) - 1
# The increment of splitmix64, and the number of draws made at a time.
_STEP, _AHEAD = 0x9E3779B97F4A7C15, 512


class ByAge:
    """The numbers of the latest n events, oldest first, in one group, or one per class if balanced."""

    _groups: dict[int, Any]

    def __init__(self, n: int, balanced: bool) -> None:
        self._n_most, self._balanced, self._n_held = n, balanced, 0
        self._groups = {}

    def __len__(self) -> int:
        return self._n_held

    def enter_all(self, numbers: Ints, codes: Ints, times: Floats) -> None:
        """Add events one after another."""
        if not self._balanced and len(numbers):
            self._enter_unbalanced(numbers, times)
            return
        for event in zip(numbers.tolist(), codes.tolist(), times.tolist(), strict=True):
            self.enter(*event)

    def _enter_unbalanced(self, numbers: Ints, times: Floats) -> None:
        """Add events to a window that is not balanced."""
        group = self._groups.setdefault(0, deque())
        group.extend(numbers.tolist())
        for _ in range(len(group) - self._n_most):
            group.popleft()
        self._n_held = len(group)

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event; another leaves if there are too many."""
        if self._n_held >= self._n_most:
            self.leave(code)
        key = code if self._balanced else 0
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = deque()
        group.append(number)
        self._n_held += 1

    def leave(self, code: int) -> int:
        """Remove the next event to leave before one of this class enters; return its number."""
        return self._remove(self._fullest(code))

    def _fullest(self, code: int) -> int:
        """The largest group, with one more event of class `code`."""
        if not self._balanced:
            return 0
        best = most = oldest = 0
        for own, group in self._groups.items():
            n = len(group) + (own == code)
            if n >= most:
                first = next(iter(group))
                if n > most or first < oldest:
                    best, most, oldest = own, n, first
        return best

    def _remove(self, key: int) -> int:
        """Remove the oldest event of a group; return its number."""
        group = self._groups[key]
        number: int = group.popleft()
        if not group:
            del self._groups[key]
        self._n_held -= 1
        return number

    def keep_from(self, number: int) -> None:
        """Remove the events before a number."""
        for key, group in list(self._groups.items()):
            while group and group[0] < number:
                self._remove(key)

    def holds(self) -> Holds:
        """Return a function that tells which events of a chunk are held now."""
        firsts: dict[int, int] = {key: group[0] for key, group in self._groups.items()}

        def held(chunk: Chunk) -> NDArray[np.bool_]:
            if not self._balanced:
                return chunk.numbers >= firsts.get(0, _NEVER)
            codes, at = np.unique(chunk.codes, return_inverse=True)
            first = np.array([firsts.get(code, _NEVER) for code in codes.tolist()], np.int64)
            return np.asarray(chunk.numbers >= first[at])

        return held

    def forget(self) -> None:
        """Drop data of events that have left."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """JSON header and arrays of everything but the events."""
        return {}, {}

    def restore(self, numbers: Ints, codes: Ints, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Add these events, in order of arrival, to an empty window."""
        check_names(arrays, set())
        self.enter_all(numbers, codes, np.full(len(codes), math.nan))


class ByTime(ByAge):
    """The latest n events of the last seconds.

    The time of an event is the newest time known at its arrival. Times that jump back or are missing therefore do not
    change the order, and one far ahead empties the window once. An event expires when the newest time is more than
    `seconds` ahead. It leaves then; if `balanced`, only while its class holds more than its share, which is the number
    of events that have not expired divided by the number of classes, and at least one.
    """

    def __init__(self, n: int, balanced: bool, seconds: float) -> None:
        super().__init__(n, balanced)
        self._seconds, self._newest = seconds, -math.inf
        # Time, number and group of the events that have not expired; some may have left.
        self._fresh: deque[tuple[float, int, int]] = deque()
        # The number of expired events in each group.
        self._late: dict[int, int] = {}

    def _enter_unbalanced(self, numbers: Ints, times: Floats) -> None:
        """Add events, then remove the oldest while they are too many or too old."""
        came = np.maximum.accumulate(np.where(np.isfinite(times), times, -math.inf))
        known = came[came > -math.inf]
        if self._newest == -math.inf and len(known):  # applies to the events before it
            self._newest = float(known[0])
            self._fresh = deque((self._newest, own, key) for _, own, key in self._fresh)
        came = np.maximum(came, self._newest)
        self._expire(0)
        super()._enter_unbalanced(numbers, times)
        self._newest = float(came[-1])
        fresh, group = self._fresh, self._groups[0]
        fresh.extend(zip(came.tolist(), numbers.tolist(), repeat(0)))
        first = group[0]
        while fresh[0][1] < first or self._newest - fresh[0][0] > self._seconds:
            if fresh.popleft()[1] == group[0]:
                group.popleft()
        self._n_held = len(group)

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event, and remove expired ones."""
        if self._newest < time < math.inf:
            if self._newest == -math.inf:  # applies to the events before it
                self._fresh = deque((time, own, key) for _, own, key in self._fresh)
            self._newest = time
        key = code if self._balanced else 0
        self._expire(key)
        super().enter(number, code, time)
        self._fresh.append((self._newest, number, key))

    def _expire(self, key: int) -> None:
        """Remove expired events before one of this group enters."""
        fresh, groups, late = self._fresh, self._groups, self._late
        while fresh and self._newest - fresh[0][0] > self._seconds:
            _, number, own = fresh.popleft()
            if self._is_held(number, own):
                late[own] = late.get(own, 0) + 1
        if not late:
            return
        share = 0
        if self._balanced:
            n_classes = len(groups) + (key not in groups)
            share = max((len(self) - sum(late.values()) + 1) // n_classes, 1)
        for own in list(late):
            while own in late and len(groups[own]) + (own == key) > share:
                self._remove(own)

    def _is_held(self, number: int, key: int) -> bool:
        group = self._groups.get(key)
        return group is not None and group[0] <= number

    def _remove(self, key: int) -> int:
        """Remove the oldest event of a group; return its number."""
        if key in self._late:
            self._late[key] -= 1
            if self._late[key] == 0:
                del self._late[key]
        return super()._remove(key)

    def forget(self) -> None:
        """Drop data of events that have left."""
        if self._balanced:
            self._fresh = deque(event for event in self._fresh if self._is_held(*event[1:]))
        while self._fresh and not self._is_held(*self._fresh[0][1:]):
            self._fresh.popleft()

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The newest time, and the times of the events that have not expired."""
        self.forget()
        newest = self._newest if math.isfinite(self._newest) else None
        return {"newest": newest}, {"clocks": np.array([time for time, *_ in self._fresh], np.float64)}

    def restore(self, numbers: Ints, codes: Ints, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Add these events, in order of arrival."""
        check_names(arrays, {"clocks"})
        clocks, newest = arrays["clocks"], header["newest"]
        self._newest = newest = -math.inf if newest is None else float(newest)
        if clocks.dtype != np.float64 or clocks.ndim != 1 or len(clocks) > len(numbers):
            raise ArchiveError(f"array 'clocks' has shape {clocks.shape} and type {clocks.dtype}")
        if math.isnan(newest) or newest == math.inf or not (clocks <= newest).all() or (clocks[1:] < clocks[:-1]).any():
            raise ArchiveError("times are not finite, or run backward")
        if math.isfinite(newest) and not np.isfinite(clocks).all():
            raise ArchiveError("times are not finite")
        n_late = len(numbers) - len(clocks)
        for i, (number, code) in enumerate(zip(numbers.tolist(), codes.tolist(), strict=True)):
            key = code if self._balanced else 0
            ByAge.enter(self, number, code, math.nan)
            if i < n_late:
                self._late[key] = self._late.get(key, 0) + 1
            else:
                self._fresh.append((float(clocks[i - n_late]), number, key))


class Drawn(ByAge):
    """A sample: every event enters and, with m events held, replaces a random one with probability m / n.

    If balanced, groups map the numbers of their events, by arrival, to positions in the list to draw from.
    """

    _groups: dict[int, dict[int, int]]

    def __init__(self, n: int, balanced: bool, seed: int) -> None:
        super().__init__(n, balanced)
        self._random = seed
        self._drawn: list[int] = []  # the next random numbers, below 2^32
        self._n_drawn = 0
        self._numbers = array("q")  # quick to copy
        self._keys: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def _enter_unbalanced(self, numbers: Ints, times: Floats) -> None:
        """Add events to a sample that is not balanced."""
        held, draw = self._numbers, self._draw
        for number in numbers.tolist():
            n = len(held)
            if draw(self._n_most) < n:
                at, last = draw(n), held.pop()
                if at < n - 1:
                    held[at] = last
            held.append(number)

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event."""
        if self._draw(self._n_most) < len(self._numbers):
            self.leave(code)
        self._append(number, code)

    def _append(self, number: int, code: int) -> None:
        if self._balanced:
            self._groups.setdefault(code, {})[number] = len(self._numbers)
            self._keys.append(code)
        self._numbers.append(number)

    def leave(self, code: int) -> int:
        """Remove a random event; return its number."""
        n = len(self._numbers)
        at = self._draw(n)
        if self._balanced:
            key = self._fullest(code)
            while self._keys[at] != key:  # ends soon: the largest class has at least its share
                at = self._draw(n)
        return self._remove(at)

    def _remove(self, at: int) -> int:
        """Remove the event at a position, which the last one takes; return its number."""
        numbers, keys, groups = self._numbers, self._keys, self._groups
        number, last = numbers[at], numbers.pop()
        moves = at < len(numbers)
        if moves:
            numbers[at] = last
        if self._balanced:
            key, last_key = keys[at], keys.pop()
            if moves:
                keys[at], groups[last_key][last] = last_key, at
            del groups[key][number]
            if not groups[key]:
                del groups[key]
        return number

    def keep_from(self, number: int) -> None:
        """Remove the events before a number."""
        for own in sorted(own for own in self._numbers if own < number):
            self._remove(self._numbers.index(own))

    def _draw(self, n: int) -> int:
        """A random number below n, by splitmix64."""
        at = self._n_drawn
        if at == len(self._drawn):
            self._draw_ahead()
            at = 0
        self._n_drawn = at + 1
        return self._drawn[at] * n >> 32

    def _draw_ahead(self) -> None:
        self._random, self._n_drawn = self._state_of_random(), 0
        z = np.uint64(self._random) + np.arange(1, _AHEAD + 1, dtype=np.uint64) * np.uint64(_STEP)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        self._drawn = ((z ^ (z >> np.uint64(31))) >> np.uint64(32)).tolist()

    def _state_of_random(self) -> int:
        return (self._random + self._n_drawn * _STEP) & _MASK

    def holds(self) -> Holds:
        """Return a function that tells which events of a chunk are held now."""
        numbers = np.array(self._numbers, np.int64)

        @cache
        def ordered() -> Ints:
            return np.sort(numbers)

        def held(chunk: Chunk) -> NDArray[np.bool_]:
            found = np.append(ordered(), -1)[np.searchsorted(ordered(), chunk.numbers)]
            return np.asarray(found == chunk.numbers)

        return held

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State of the random numbers, and the position of each event in the list to draw from."""
        return {"random": self._state_of_random()}, {"places": np.argsort(np.array(self._numbers, np.int64))}

    def restore(self, numbers: Ints, codes: Ints, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Add these events, in order of arrival."""
        check_names(arrays, {"places"})
        places, random = arrays["places"], header["random"]
        if type(random) is not int or not 0 <= random <= _MASK:
            raise ArchiveError(f"'random' is {random!r}, not an integer between 0 and {_MASK}")
        if places.dtype != np.int64 or not np.array_equal(np.sort(places), np.arange(len(numbers))):
            raise ArchiveError(f"{len(numbers)} events are not in as many places")
        self._random = random
        for at in np.argsort(places).tolist():
            self._append(int(numbers[at]), int(codes[at]))
        # Groups list events by arrival.
        self._groups = {key: dict(sorted(group.items())) for key, group in self._groups.items()}
