"""Counts over a stream of any length in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import whole
from streamsvm.models.codec import State

_BUCKETS = 1024


class Buckets:
    """Sums over time in buckets of equal width; when all are used, neighbours are merged.

    Parameters
    ----------
    n
        Number of buckets, even.
    shape
        Shape of the sums in each bucket.
    width
        Initial number of events per bucket.
    dtype
        Type of the sums.

    Attributes
    ----------
    events
        Number of events.

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
        """Merge neighbours until there is room for `end` events."""
        half = len(self.values) // 2
        while end > self.width * len(self.values):
            self.values[:half] = self.values[::2] + self.values[1::2]
            self.values[half:] = 0
            self.width *= 2

    @property
    def used(self) -> int:
        """Number of buckets in use."""
        return -(-self.events // self.width)

    def state(self) -> State:
        """Return the state."""
        return {"events": self.events, "width": self.width}, {"values": self.values[: self.used]}

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        header, values = state[0], state[1]["values"]
        self.events, self.width = whole(header["events"]), whole(header["width"], 1)
        is_whole = values.shape == (self.used, *self.values.shape[1:]) and values.dtype == self.values.dtype
        if not is_whole or len(values) > len(self.values):
            raise ValueError(f"sums of {self.events} events in buckets of {self.width}, and an array {values.shape}")
        self.values[: len(values)] = values


class Curve(Buckets):
    """Counts over time, in at most 1024 buckets of equal width; when all are used, neighbours are merged.

    Parameters
    ----------
    n_columns
        Number of quantities to count.

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
        """Add a batch, with one row per event."""
        if not len(hits):
            return
        end = self.events + len(hits)
        self.reach(end)
        first, last = self.events // self.width, (end - 1) // self.width
        starts = np.maximum(np.arange(first, last + 1) * self.width - self.events, 0)
        self.values[first : last + 1] += np.add.reduceat(hits, starts, axis=0, dtype=np.int64)
        self.events = end

    def clear(self, columns: slice) -> None:
        """Reset the counts of some columns."""
        self.values[:, columns] = 0

    def totals(self) -> NDArray[np.int64]:
        """Return the total of each column."""
        totals: NDArray[np.int64] = self.values.sum(axis=0)
        return totals

    def windowed(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return means over a sliding window of `width_of(window)` events: ends of the windows, and a row for each."""
        ends, sums = self.sums(window)
        return ends, sums / self.width_of(window)

    def sums(self, window: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the counts over a sliding window, as `windowed`."""
        full = self.events // self.width
        span = self.width_of(window) // self.width
        sums = np.concatenate([np.zeros((1, self.values.shape[1]), np.int64), np.cumsum(self.values[:full], axis=0)])
        ends = np.arange(span, full + 1)
        return ends * self.width, sums[ends] - sums[ends - span]

    def width_of(self, window: int) -> int:
        """Return the number of events in a window of about `window`, a multiple of the bucket width."""
        return min(max(1, round(window / self.width)), max(self.events // self.width, 1)) * self.width
