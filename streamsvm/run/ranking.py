"""Ranking of events by class probability over a stream, in bounded memory.

Measures are computed from histograms of the probability of a class, in bins of equal width of its log-odds. The error
of the areas is at most half of the ties within bins, see `Ranking.error`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import whole
from streamsvm.models.codec import State
from streamsvm.run.curve import Buckets

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALARMS = (0.01, 0.05)
"""Shares of alarms at which recall is measured."""
MOST_RANKED = 8  # greatest number of classes to rank
_STEPS, _WIDEST = 512, 16.0  # bins of log-odds, from -16 to 16
_SPANS = 16  # spans of the stream, each with its own histograms


class Ranking(Buckets):
    """Histograms of the probability of each class over the stream, for events of the class and others.

    Examples
    --------
    >>> ranking = Ranking()
    >>> ranking.add(np.array([0, 1, 1, 0]), np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]]))
    >>> ranking.roc_auc(1), ranking.average_precision(1), round(ranking.recall_at(1, 0.25), 2)
    (1.0, 1.0, 0.5)
    """

    def __init__(self) -> None:
        super().__init__(_SPANS, (0, 2, _STEPS), width=256)
        self.n_classes = 0

    def add(self, truth: Ints, proba: Floats) -> None:
        """Add events: class numbers, and probabilities of all classes, shape (n, n_classes)."""
        self.n_classes = max(self.n_classes, proba.shape[1], int(truth.max(initial=-1)) + 1)
        if self.n_classes > MOST_RANKED:
            self.events = 0
            self.values = np.zeros((_SPANS, 0, 2, _STEPS), np.int64)
            return
        if self.n_classes > self.values.shape[1]:
            # A new class had probability 0, so earlier events are in its lowest bin.
            grown = np.zeros((_SPANS, self.n_classes, 2, _STEPS), np.int64)
            grown[:, : self.values.shape[1]] = self.values
            if self.values.shape[1]:
                grown[:, self.values.shape[1] :, 0, 0] = self.values[:, :1].sum(axis=(2, 3))
            self.values = grown
        span = self._spans(len(truth))
        with np.errstate(divide="ignore"):
            odds = np.log(proba) - np.log1p(-np.minimum(proba, 1.0))
        steps = np.clip((odds + _WIDEST) * (_STEPS / (2.0 * _WIDEST)), 0, _STEPS - 1).astype(np.int64)
        first = int(span[0]) if len(span) else 0
        for c in range(self.n_classes):
            at = steps[:, c] if c < proba.shape[1] else 0
            places = ((span - first) * 2 + (truth == c)) * _STEPS + at
            counts = np.bincount(places, minlength=2 * _STEPS).astype(np.int64)
            n_spans = -(-len(counts) // (2 * _STEPS))
            counts = np.concatenate([counts, np.zeros(n_spans * 2 * _STEPS - len(counts), np.int64)])
            self.values[first : first + n_spans, c] += counts.reshape(n_spans, 2, _STEPS)

    def _spans(self, n: int) -> Ints:
        """Return the span of each of the next n events."""
        self.reach(self.events + n)
        spans: Ints = (self.events + np.arange(n)) // self.width
        self.events += n
        return spans

    @property
    def spans(self) -> list[slice]:
        """Spans of the stream that have begun."""
        return [slice(i, i + 1) for i in range(self.used)] if self.values.shape[1] else []

    def of_late(self) -> slice:
        """Return the last complete span and the current one."""
        n = self.used
        return slice(max(n - 2, 0), n)

    def _split(self, c: int, spans: slice) -> tuple[Ints, Ints]:
        """Return the numbers of events of class c and of others in each bin, the most probable first."""
        if c >= self.values.shape[1]:
            return np.zeros(_STEPS, np.int64), np.zeros(_STEPS, np.int64)
        others, own = self.values[spans, c].sum(axis=0)[:, ::-1]
        return own, others

    def roc_auc(self, c: int, spans: slice = slice(None)) -> float:
        """Return the area under the ROC curve of class c; ties count as half."""
        own, others = self._split(c, spans)
        n = int(own.sum()) * int(others.sum())
        above = np.cumsum(own) - 0.5 * own
        return float(above @ others) / n if n else math.nan

    def error(self, c: int, spans: slice = slice(None)) -> float:
        """Return the greatest error of `roc_auc` due to the bins."""
        own, others = self._split(c, spans)
        n = int(own.sum()) * int(others.sum())
        return 0.5 * float((own * others).sum()) / n if n else math.nan

    def average_precision(self, c: int, spans: slice = slice(None)) -> float:
        """Return the average precision of alarms for class c."""
        own, others = self._split(c, spans)
        n, alarms = int(own.sum()), np.cumsum(own + others)
        used = alarms > 0
        return float((own[used] * np.cumsum(own)[used] / alarms[used]).sum()) / n if n else math.nan

    def recall_at(self, c: int, share: float, spans: slice = slice(None)) -> float:
        """Return the recall of class c if the given share of most probable events have an alarm."""
        own, others = self._split(c, spans)
        n, total = int(own.sum()), int((own + others).sum())
        if not n:
            return math.nan
        alarms = np.concatenate([[0], np.cumsum(own + others)])
        return float(np.interp(share * total, alarms, np.concatenate([[0], np.cumsum(own)]))) / n

    def figures(self, classes: list[int], spans: slice = slice(None)) -> dict[str, Any]:
        """Return measures of the ranking of classes, averaged over those with any events.

        Parameters
        ----------
        classes
            Class numbers.
        spans
            Spans of the stream.

        Returns
        -------
        figures
            The area under the ROC curve and its greatest error due to bins, the average precision, and the recall by
            share of alarms. NaN without events.
        """

        def mean(measure: Callable[..., float], *more: float) -> float:
            known = [value for value in (measure(c, *more, spans) for c in classes) if value == value]
            return sum(known) / len(known) if known else math.nan

        return {
            "roc_auc": mean(self.roc_auc),
            "roc_auc_error": mean(self.error),
            "average_precision": mean(self.average_precision),
            "recall_at_alarms": {f"{share:g}": mean(self.recall_at, share) for share in ALARMS},
        }

    def state(self) -> State:
        """Return the state."""
        header, arrays = super().state()
        return header | {"n_classes": self.n_classes}, arrays

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        self.n_classes = whole(state[0]["n_classes"])
        n = self.n_classes if self.n_classes <= MOST_RANKED else 0
        self.values = np.zeros((_SPANS, n, 2, _STEPS), np.int64)
        super().restore(state)
