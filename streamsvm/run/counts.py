"""Counts over a stream of any length, in bounded memory.

Measures of ranking are computed from histograms of the probability of a class, in bins of equal width of its log-odds.
The error of the areas is at most half of the ties within bins, usually 0.0001 to 0.002.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats, Ints
from streamsvm.models.codec import Stateful

ALARMS = (0.01, 0.05)
"""Shares of alarms at which recall is measured."""
MOST_RANKED = 8  # greatest number of classes to rank
_STEPS, _WIDEST = 512, 16.0  # bins of log-odds, from -16 to 16
_LEAST_WINDOW = 256
ALL, RECENT = slice(0, 1), slice(1, 3)
"""All events; the last one or two windows of events."""
_BUCKETS, _FIRST_BUCKETS = 1024, 32


class Curve(Stateful):
    """Counts over time in at most 1024 buckets of equal width.

    Neighbouring buckets are merged when all are used.

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
        """Return means over a sliding window of `width_of(window)` events.

        Returns the ends of the windows, and a row of means for each.
        """
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
        """Return the multiple of the bucket width that is nearest to a window size."""
        return min(max(1, round(window / self.width)), max(self.events // self.width, 1)) * self.width

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return 0 <= self.events <= len(self.values) * self.width and len(self.values) <= _BUCKETS


class Ranking(Stateful):
    """Histograms of the probability of each class, for events with and without it.

    Parameters
    ----------
    window
        Least number of recent events.

    Examples
    --------
    >>> ranking = Ranking()
    >>> ranking.add(np.array([0, 1, 1, 0]), np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]]))
    >>> ranking.roc_auc(1), ranking.average_precision(1), round(ranking.recall_at(1, 0.25), 2)
    (1.0, 1.0, 0.5)
    """

    saved = ("n_events", "n_classes", "counts", "_window")

    def __init__(self, window: int = 1000) -> None:
        self._window = max(window, _LEAST_WINDOW)
        self.n_classes = self.n_events = 0
        self.counts = np.zeros((3, 0, 2, _STEPS), np.int64)  # all events, the previous window, and the current one

    def add(self, truth: Ints, proba: Floats) -> None:
        """Add events: class numbers, and probabilities of shape (n, n_classes)."""
        self.n_classes = max(self.n_classes, proba.shape[1], int(truth.max(initial=-1)) + 1)
        known = self.counts.shape[1]
        if self.n_classes > MOST_RANKED:
            self.counts = self.counts[:, :0]
            return
        if self.n_classes > known:
            grown = np.zeros((3, self.n_classes, 2, _STEPS), np.int64)
            grown[:, :known] = self.counts
            if known:  # a new class had probability 0, so earlier events are in its lowest bin
                grown[:, known:, 0, 0] = self.counts[:, :1].sum(axis=(2, 3))
            self.counts = grown
        with np.errstate(divide="ignore"):
            odds = np.log(proba) - np.log1p(-np.minimum(proba, 1.0))
        steps = np.clip((odds + _WIDEST) * (_STEPS / (2.0 * _WIDEST)), 0, _STEPS - 1).astype(np.int64)
        while len(truth):
            n = self._window - self.n_events % self._window
            for c in range(self.n_classes):
                places = (truth[:n] == c) * _STEPS + (steps[:n, c] if c < proba.shape[1] else 0)
                self.counts[::2, c] += np.bincount(places, minlength=2 * _STEPS).reshape(2, _STEPS)
            self.n_events += len(truth[:n])
            truth, steps = truth[n:], steps[n:]
            if self.n_events % self._window == 0:
                self.counts[1], self.counts[2] = self.counts[2], 0

    def _split(self, c: int, part: slice) -> tuple[Ints, Ints]:
        """Return the numbers of events of class c and others by descending probability."""
        if c >= self.counts.shape[1]:
            return np.zeros(_STEPS, np.int64), np.zeros(_STEPS, np.int64)
        others, own = self.counts[part, c].sum(axis=0)[:, ::-1]
        return own, others

    def roc_auc(self, c: int, part: slice = ALL) -> float:
        """Return the area under the ROC curve of class c; ties count as half."""
        own, others = self._split(c, part)
        n = int(own.sum()) * int(others.sum())
        above = np.cumsum(own) - 0.5 * own
        return float(above @ others) / n if n else math.nan

    def average_precision(self, c: int, part: slice = ALL) -> float:
        """Return the average precision of alarms for class c."""
        own, others = self._split(c, part)
        n, alarms = int(own.sum()), np.cumsum(own + others)
        used = alarms > 0
        return float((own[used] * np.cumsum(own)[used] / alarms[used]).sum()) / n if n else math.nan

    def recall_at(self, c: int, share: float, part: slice = ALL) -> float:
        """Return the recall of class c if a share of the most probable events is alarmed."""
        own, others = self._split(c, part)
        n, total = int(own.sum()), int((own + others).sum())
        if not n:
            return math.nan
        alarms = np.concatenate([[0], np.cumsum(own + others)])
        return float(np.interp(share * total, alarms, np.concatenate([[0], np.cumsum(own)]))) / n

    def figures(self, classes: list[int], part: slice = ALL) -> dict[str, Any]:
        """Return measures of the ranking of classes, averaged over those with any events.

        Parameters
        ----------
        classes
            Class numbers.
        part
            `ALL` or `RECENT` events.

        Returns
        -------
        figures
            The area under the ROC curve, the average precision, and the recall by share of alarms. NaN without events.
        """

        def mean(measure: Callable[..., float], *more: float) -> float:
            known = [value for value in (measure(c, *more, part) for c in classes) if value == value]
            return sum(known) / len(known) if known else math.nan

        return {
            "roc_auc": mean(self.roc_auc),
            "average_precision": mean(self.average_precision),
            "recall_at_alarms": {f"{share:g}": mean(self.recall_at, share) for share in ALARMS},
        }

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        n = self.n_classes if self.n_classes <= MOST_RANKED else 0
        return self.n_events >= 0 and self.counts.shape[1] == n and self._window >= _LEAST_WINDOW
