"""Counts over a stream of any length, in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import whole
from streamsvm.models.codec import State

_BUCKETS = 1024


class Buckets:
    """Sums over time in buckets of equal width: when they run out, neighbours are merged.

    Parameters
    ----------
    n
        How many buckets there are, an even number.
    shape
        Of the sums in each.
    width
        How many events a bucket begins with.
    dtype
        Of the sums.

    Attributes
    ----------
    events
        How many there were.

    Examples
    --------
    >>> buckets = Buckets(2, (1,))
    >>> buckets.values[:, 0] = 3, 4
    >>> buckets.reach(3)
    >>> buckets.width, buckets.values[:, 0].tolist()
    (2, [7, 0])
    """

    def __init__(self, n: int, shape: tuple[int, ...], width: int = 1, dtype: Any = np.int64) -> None:
        self.events, self.width, self.values = 0, width, np.zeros((n, *shape), dtype)

    def reach(self, end: int) -> None:
        """Merge neighbours until there is room for so many events."""
        half = len(self.values) // 2
        while end > self.width * len(self.values):
            self.values[:half] = self.values[::2] + self.values[1::2]
            self.values[half:] = 0
            self.width *= 2

    @property
    def used(self) -> int:
        """How many buckets have begun."""
        return -(-self.events // self.width)

    def state(self) -> State:
        """All of it."""
        return {"events": self.events, "width": self.width}, {"values": self.values[: self.used]}

    def restore(self, state: State) -> None:
        """Take over what `state` gave."""
        header, values = state[0], state[1]["values"]
        self.events, self.width = whole(header["events"]), whole(header["width"], 1)
        is_whole = values.shape == (self.used, *self.values.shape[1:]) and values.dtype == self.values.dtype
        if not is_whole or len(values) > len(self.values):
            raise ValueError(f"sums of {self.events} events in buckets of {self.width}, and an array {values.shape}")
        self.values[: len(values)] = values


class Curve(Buckets):
    """Counts over time, in at most 1024 buckets of equal width: when they run out, neighbours are merged.

    Parameters
    ----------
    n_columns
        How many things are counted.

    Examples
    --------
    >>> curve = Curve(3)
    >>> curve.add(np.array([[True, False, False], [True, True, False]]))
    >>> x, share = curve.windowed(2)
    >>> x.tolist(), share.tolist()
    ([2], [[1.0, 0.5, 0.0]])
    """

    def __init__(self, n_columns: int) -> None:
        super().__init__(_BUCKETS, (n_columns,))

    def add(self, hits: NDArray[Any]) -> None:
        """Take the events of a batch: one row each."""
        if not len(hits):
            return
        end = self.events + len(hits)
        self.reach(end)
        first, last = self.events // self.width, (end - 1) // self.width
        starts = np.maximum(np.arange(first, last + 1) * self.width - self.events, 0)
        self.values[first : last + 1] += np.add.reduceat(hits, starts, axis=0, dtype=np.int64)
        self.events = end

    def clear(self, columns: slice) -> None:
        """Forget what was counted in some columns."""
        self.values[:, columns] = 0

    def totals(self) -> NDArray[np.int64]:
        """All counts, one number a column."""
        totals: NDArray[np.int64] = self.values.sum(axis=0)
        return totals

    def windowed(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Means over a sliding window of `width_of(window)` events: the ends of the windows, and a row for each."""
        ends, sums = self.sums(window)
        return ends, sums / self.width_of(window)

    def sums(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `windowed`, the counts themselves."""
        full = self.events // self.width
        span = self.width_of(window) // self.width
        sums = np.concatenate([np.zeros((1, self.values.shape[1]), np.int64), np.cumsum(self.values[:full], axis=0)])
        ends = np.arange(span, full + 1)
        return ends * self.width, sums[ends] - sums[ends - span]

    def width_of(self, window: int) -> int:
        """How many events a window of about `window` has: whole buckets, which are wide where the stream is long."""
        return min(max(1, round(window / self.width)), max(self.events // self.width, 1)) * self.width
