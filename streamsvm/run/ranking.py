"""How well classes are ranked by their probabilities, over a stream, in bounded memory.

Ranking is read from histograms of the probability of a class, in bins of equal width of its log-odds. The areas are off
by at most half of what is tied within bins, as `Ranking.error` says.
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
"""At which shares of alarms recall is measured."""
MOST_RANKED = 8  # classes that are ranked, where there are no more
_STEPS, _WIDEST = 512, 16.0  # of log-odds: so many bins from -16 to 16
_SPANS = 16  # of the stream, each with histograms of its own


class Ranking(Buckets):
    """Histograms of the probability of each class, of events that are of it and of others, over the stream.

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
        """Take events: the number of each one's class, and the probabilities of all, shape (n, n_classes)."""
        self.n_classes = max(self.n_classes, proba.shape[1], int(truth.max(initial=-1)) + 1)
        if self.n_classes > MOST_RANKED:
            self.events = 0
            self.values = np.zeros((_SPANS, 0, 2, _STEPS), np.int64)
            return
        if self.n_classes > self.values.shape[1]:
            # A class that was not known had no probability: whatever came before is in the lowest bin.
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
        """In which spans of the stream the next n events are."""
        self.reach(self.events + n)
        spans: Ints = (self.events + np.arange(n)) // self.width
        self.events += n
        return spans

    @property
    def spans(self) -> list[slice]:
        """All spans of the stream that have begun, to be asked about."""
        return [slice(i, i + 1) for i in range(self.used)] if self.values.shape[1] else []

    def of_late(self) -> slice:
        """The last span that is whole, and what has come since."""
        n = self.used
        return slice(max(n - 2, 0), n)

    def _split(self, c: int, spans: slice) -> tuple[Ints, Ints]:
        """Of class c and of others, how many events are in each bin, the most probable first."""
        if c >= self.values.shape[1]:
            return np.zeros(_STEPS, np.int64), np.zeros(_STEPS, np.int64)
        others, own = self.values[spans, c].sum(axis=0)[:, ::-1]
        return own, others

    def roc_auc(self, c: int, spans: slice = slice(None)) -> float:
        """How often an event of class c has a larger probability of it than one of another class, ties as half."""
        own, others = self._split(c, spans)
        n = int(own.sum()) * int(others.sum())
        above = np.cumsum(own) - 0.5 * own
        return float(above @ others) / n if n else math.nan

    def error(self, c: int, spans: slice = slice(None)) -> float:
        """How far `roc_auc` may be off for the width of the bins."""
        own, others = self._split(c, spans)
        n = int(own.sum()) * int(others.sum())
        return 0.5 * float((own * others).sum()) / n if n else math.nan

    def average_precision(self, c: int, spans: slice = slice(None)) -> float:
        """The precision of alarms for class c, in the mean over its events, as they are alarmed one after the other."""
        own, others = self._split(c, spans)
        n, alarms = int(own.sum()), np.cumsum(own + others)
        used = alarms > 0
        return float((own[used] * np.cumsum(own)[used] / alarms[used]).sum()) / n if n else math.nan

    def recall_at(self, c: int, share: float, spans: slice = slice(None)) -> float:
        """How many events of class c are among the share of all events that are the most probable to be."""
        own, others = self._split(c, spans)
        n, total = int(own.sum()), int((own + others).sum())
        if not n:
            return math.nan
        alarms = np.concatenate([[0], np.cumsum(own + others)])
        return float(np.interp(share * total, alarms, np.concatenate([[0], np.cumsum(own)]))) / n

    def figures(self, classes: list[int], spans: slice = slice(None)) -> dict[str, Any]:
        """How well these classes are told from the others, in the mean over those of which any event came.

        Parameters
        ----------
        classes
            Their numbers.
        spans
            Of the stream.

        Returns
        -------
        figures
            The area under the ROC curve, and how far that may be off for bins; the precision of alarms, in the mean
            over the class's events; and the share of its events that are among the most probable ones, by the share
            of all events that these are. NaN where no event came.
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
        """All of it."""
        header, arrays = super().state()
        return header | {"n_classes": self.n_classes}, arrays

    def restore(self, state: State) -> None:
        """Take over what `state` gave."""
        self.n_classes = whole(state[0]["n_classes"])
        n = self.n_classes if self.n_classes <= MOST_RANKED else 0
        self.values = np.zeros((_SPANS, n, 2, _STEPS), np.int64)
        super().restore(state)
