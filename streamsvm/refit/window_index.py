"""Indexes of windows: the numbers of the events in a window.

The number of an event is the count of earlier events. Numbers are stored in one group, or in one per class if the
window is balanced. The oldest event of the largest group leaves first, counting the new event. Ties go to the group
with the oldest event.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.models.archive import check_names

Holds = Callable[[Ints, Ints], NDArray[np.bool_]]
Arrays = dict[str, NDArray[Any]]

_NEVER = np.iinfo(np.int64).max
# Random numbers of a sample are drawn for this many events at a time.
_BITS = 9
_DRAWN = 1 << _BITS


class LatestIndex:
    """Latest n events."""

    def __init__(self, n: int, balanced: bool) -> None:
        self._most, self._balanced, self._n = n, balanced, 0
        self._groups: dict[int, Any] = {}

    @staticmethod
    def _group() -> Any:
        return deque()

    def __len__(self) -> int:
        return self._n

    def enter_all(self, numbers: Ints, codes: Ints, times: Floats) -> None:
        """Add events in order."""
        if not self._balanced and len(numbers):
            group = self._groups.setdefault(0, self._group())
            group.extend(numbers.tolist())
            for _ in range(len(group) - self._most):
                group.popleft()
            self._n = len(group)
            return
        for event in zip(numbers.tolist(), codes.tolist(), times.tolist(), strict=True):
            self.enter(*event)

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event; another one leaves if the window is full."""
        if self._n >= self._most:
            self.leave(code)
        self._append(number, code if self._balanced else 0)

    def _append(self, number: int, key: int) -> None:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._group()
        group.append(number)
        self._n += 1

    def leave(self, code: int, n_before: int = 0) -> None:
        """Remove an event before one of class `code` enters; `n_before` events have left for lack of memory."""
        self._remove(self._fullest(code))

    def _fullest(self, code: int) -> int:
        """Return the largest group, counting one more event of class `code`."""
        if not self._balanced:
            return 0
        best = most = oldest = 0
        for own, group in self._groups.items():
            n = len(group) + (own == code)
            if n >= most:
                first = group[0]
                if n > most or first < oldest:
                    best, most, oldest = own, n, first
        return best

    def _remove(self, key: int) -> None:
        """Remove the oldest event of a group."""
        group = self._groups[key]
        group.popleft()
        self._n -= 1
        if not group:
            del self._groups[key]

    def keep_from(self, number: int) -> None:
        """Remove the events before a number."""
        for key, group in list(self._groups.items()):
            while group and group[0] < number:
                group.popleft()
            if not group:
                del self._groups[key]
        self._n = sum(map(len, self._groups.values()))

    def holds(self) -> Holds:
        """Return a function of numbers and classes that returns which of these events are in the window now."""
        firsts = {key: group[0] for key, group in self._groups.items()}

        def held(numbers: Ints, codes: Ints) -> NDArray[np.bool_]:
            if not self._balanced:
                return np.asarray(numbers >= firsts.get(0, _NEVER))
            keys, at = np.unique(codes, return_inverse=True)
            first = np.array([firsts.get(key, _NEVER) for key in keys.tolist()], np.int64)
            return np.asarray(numbers >= first[at])

        return held

    def forget(self) -> None:
        """Drop data of events that have left."""

    def arrays(self) -> Arrays:
        """Return the arrays to save beside the events."""
        return {}

    def restore(self, numbers: Ints, codes: Ints, arrays: Arrays) -> None:
        """Add events, in order of arrival, to an empty index."""
        check_names(arrays, set())
        self._append_all(numbers, codes)

    def _append_all(self, numbers: Ints, codes: Ints) -> None:
        for number, code in zip(numbers.tolist(), codes.tolist(), strict=True):
            self._append(number, code if self._balanced else 0)


class SinceIndex(LatestIndex):
    """Latest n events within a span of event time.

    The time of an event is the newest time at its arrival. Times that jump back or are missing therefore do not change
    the order, and a time far ahead empties the window once. An event expires when the newest time is more than
    `seconds` ahead. It leaves then, or in a balanced window only while its class has more events than its share. The
    share is the number of unexpired events divided by the number of classes, and at least one.
    """

    def __init__(self, n: int, balanced: bool, seconds: float) -> None:
        super().__init__(n, balanced)
        self._seconds, self._newest = seconds, -math.inf
        # Times that have not expired, each with the number of the first event at that time.
        self._times: deque[tuple[float, int]] = deque()
        # Number of expired events in each group of a balanced window. In other windows they leave at once.
        self._n_late: dict[int, int] = {}

    def enter_all(self, numbers: Ints, codes: Ints, times: Floats) -> None:
        """Add events in order."""
        super().enter_all(numbers, codes, times)
        newest = np.fmax.accumulate(np.append(self._newest, times))
        is_new = newest[1:] > newest[:-1]
        if not self._balanced and is_new.any():
            self._advance(zip(times[is_new].tolist(), numbers[is_new].tolist(), strict=True))

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event, and remove expired ones."""
        if time > self._newest:
            self._advance([(time, number)])
        if self._n_late:
            self._expire(code)
        super().enter(number, code, time)

    def _advance(self, later: Iterable[tuple[float, int]]) -> None:
        """Add times. The first time also applies to earlier events."""
        times = self._times
        is_first = not times
        times.extend(later)
        if is_first:
            times[0] = times[0][0], 0
        newest, first = times[-1][0], times[0]
        while newest - times[0][0] > self._seconds:
            times.popleft()
        self._newest = newest
        if times[0] is first:
            return
        if self._balanced:
            self._count_late()
        else:
            self.keep_from(times[0][1])

    def _count_late(self) -> None:
        first, late = self._times[0][1] if self._times else 0, self._n_late
        for key, group in self._groups.items():
            n = late.get(key, 0)
            while n < len(group) and group[n] < first:
                n += 1
                late[key] = n

    def _expire(self, code: int) -> None:
        """Remove expired events before one of class `code` enters a balanced window."""
        groups, late = self._groups, self._n_late
        share = max((self._n - sum(late.values()) + 1) // (len(groups) + (code not in groups)), 1)
        for own in list(late):
            while own in late and len(groups[own]) + (own == code) > share:
                self._remove(own)

    def _remove(self, key: int) -> None:
        """Remove the oldest event of a group."""
        super()._remove(key)
        if key in self._n_late:
            self._n_late[key] -= 1
            if not self._n_late[key]:
                del self._n_late[key]

    def keep_from(self, number: int) -> None:
        """Remove the events before a number."""
        super().keep_from(number)
        if self._balanced:
            self._n_late.clear()
            self._count_late()

    def forget(self) -> None:
        """Drop the times of events that have left, except the newest."""
        if times := list(self._times):
            held = list(chain.from_iterable(self._groups.values()))
            at = np.searchsorted([first for _, first in times], held, side="right") - 1
            self._times = deque(times[i] for i in np.union1d(at[at >= 0], len(times) - 1).astype(int).tolist())

    def arrays(self) -> Arrays:
        """Return the times that have not expired, and the number of the first event at each."""
        clocks, firsts = zip(*self._times, strict=True) if self._times else ((), ())
        return {"clocks": np.array(clocks, np.float64), "firsts": np.array(firsts, np.int64)}

    def restore(self, numbers: Ints, codes: Ints, arrays: Arrays) -> None:
        """Add events, in order of arrival, to an empty index."""
        check_names(arrays, {"clocks", "firsts"})
        clocks, firsts = arrays["clocks"], arrays["firsts"]
        for name, array_, kind in (("clocks", clocks, np.float64), ("firsts", firsts, np.int64)):
            if array_.dtype != kind or array_.shape != (len(clocks),) or not (np.diff(array_) > 0).all():
                raise ArchiveError(f"array {name!r} of {array_.shape} {array_.dtype} is not in ascending order")
        if not np.isfinite(clocks).all() or (firsts < 0).any():
            raise ArchiveError("times are not finite, or begin before the first event")
        self._append_all(numbers, codes)
        self._times.extend(zip(clocks.tolist(), firsts.tolist(), strict=True))
        self._newest = self._times[-1][0] if self._times else -math.inf
        if self._balanced:
            self._count_late()


class SampleIndex(LatestIndex):
    """A sample: an event enters and, if m of n places are used, replaces a random one with probability m / n."""

    def __init__(self, n: int, balanced: bool, seed: int) -> None:
        super().__init__(n, balanced)
        self._seed = seed
        self._block, self._drawn = -1, list[list[float]]()

    @staticmethod
    def _group() -> Any:
        return array("q")  # fast to copy

    def enter_all(self, numbers: Ints, codes: Ints, times: Floats) -> None:
        """Add events in order."""
        if not self._balanced and self._n == self._most and len(numbers):
            first, last = (int(numbers[k]) // _DRAWN for k in (0, -1))
            draws = np.concatenate([_draws(self._seed, block)[:, 1] for block in range(first, last + 1)])
            at = (draws[numbers - first * _DRAWN] * self._n).astype(np.int64)
            np.frombuffer(self._groups[0], np.int64)[at] = numbers
            return
        for number, code in zip(numbers.tolist(), codes.tolist(), strict=True):
            self.enter(number, code, math.nan)

    def enter(self, number: int, code: int, time: float) -> None:
        """Add an event, possibly in place of another one."""
        key = code if self._balanced else 0
        first, second, _ = self._draws_of(number)
        if first * self._most < self._n:
            own = self._fullest(code)
            if own == key:
                group = self._groups[own]
                group[int(second * len(group))] = number
                return
            self._remove_at(own, second)
        self._append(number, key)

    def leave(self, code: int, n_before: int = 0) -> None:
        """Remove a random event."""
        self._remove_at(self._fullest(code), self._draws_of(n_before)[2])

    def _draws_of(self, number: int) -> list[float]:
        block, at = number >> _BITS, number & (_DRAWN - 1)
        if block != self._block:
            self._block, self._drawn = block, _draws(self._seed, block).tolist()
        return self._drawn[at]

    def _remove_at(self, key: int, share: float) -> None:
        """Remove the event at a relative position in a group; the last event takes its place."""
        group = self._groups[key]
        at, last = int(share * len(group)), group.pop()
        self._n -= 1
        if at < len(group):
            group[at] = last
        if not group:
            del self._groups[key]

    def keep_from(self, number: int) -> None:
        """Remove the events before a number."""
        kept = {key: array("q", [own for own in group if own >= number]) for key, group in self._groups.items()}
        self._groups = {key: group for key, group in kept.items() if group}
        self._n = sum(map(len, kept.values()))

    def _numbers(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *map(np.array, self._groups.values())])

    def holds(self) -> Holds:
        """Return a function of numbers and classes that returns which of these events are in the window now."""
        copied = self._numbers()
        ordered = cache(lambda: np.append(np.sort(copied), -1))
        return lambda numbers, codes: ordered()[np.searchsorted(ordered()[:-1], numbers)] == numbers

    def arrays(self) -> Arrays:
        """Return the place of each event, by arrival."""
        return {"places": np.argsort(self._numbers())}

    def restore(self, numbers: Ints, codes: Ints, arrays: Arrays) -> None:
        """Add events, in order of arrival, to an empty index."""
        check_names(arrays, {"places"})
        places = arrays["places"]
        if places.dtype != np.int64 or not np.array_equal(np.sort(places), np.arange(len(numbers))):
            raise ArchiveError(f"{len(numbers)} events are not in as many places")
        order = np.argsort(places)
        self._append_all(numbers[order], codes[order])


@lru_cache(maxsize=4)
def _draws(seed: int, block: int) -> Floats:
    """Return random numbers of events: whether and which event each replaces, and which leaves for lack of memory."""
    return np.random.default_rng([seed, block]).random((_DRAWN, 3))
