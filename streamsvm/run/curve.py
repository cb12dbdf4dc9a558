"""Counts over a stream of any length in bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.codec import Stateful

_BUCKETS, _FIRST_BUCKETS = 1024, 32


class Curve(Stateful):
    """Counts over time, in at most 1024 buckets of equal width; when all are used, neighbours are merged.

    Parameters
    ----------
    n_columns
        Number of quantities to count.

    Attributes
    ----------
    events
        Number of events.
    width
        Number of events per bucket.

    Examples
    --------
    >>> curve = Curve(3)
    >>> curve.add(np.array([[True, False, False], [True, True, False]]))
    >>> x, share = curve.windowed(2)
    >>> x.tolist(), share.tolist()
    ([2], [[1.0, 0.5, 0.0]])
    """

    saved = ("events", "width", "values")

    def __init__(self, n_columns: int) -> None:
        self.events, self.width = 0, 1
        self.values = np.zeros((0, n_columns), np.int64)

    def add(self, hits: NDArray[Any]) -> None:
        """Add a batch, with one row per event. Columns that it lacks count nothing."""
        if not len(hits):
            return
        end = self.events + len(hits)
        while end > self.width * len(self.values):
            n = len(self.values)
            if n == _BUCKETS:
                self.values[: n // 2] = self.values[::2] + self.values[1::2]
                self.values[n // 2 :] = 0
                self.width *= 2
            else:
                added = min(max(n, _FIRST_BUCKETS), _BUCKETS - n)
                self.values = np.concatenate([self.values, np.zeros((added, self.values.shape[1]), np.int64)])
        first, last = self.events // self.width, (end - 1) // self.width
        starts = np.maximum(np.arange(first, last + 1) * self.width - self.events, 0)
        self.values[first : last + 1, : hits.shape[1]] += np.add.reduceat(hits, starts, axis=0, dtype=np.int64)
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

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return 0 <= self.events <= len(self.values) * self.width and len(self.values) <= _BUCKETS
