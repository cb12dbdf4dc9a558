"""Estimate of accuracy before labels arrive, from predicted probabilities, with a check against labels.

The accuracy over recent predictions is estimated by the mean of their probabilities of being right (CBPE, as in NannyML
for batches). Probabilities are calibrated with the labels so far, in bins of equal width. The 95 % error bar has two
parts: the random outcome of each prediction, and the uncertainty about the bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import reals, whole
from streamsvm.models.codec import State
from streamsvm.run.curve import Buckets
from streamsvm.run.measures import BINS, UNIT, Reliability, bin_of

BLOCKS = 512
_PRIOR = 2.0  # pseudo-labels per bin, distributed as predicted
_MEMORY = 5_000.0  # effective number of labels per bin
_RENEW_LEAST, _RENEW_MOST = 50, 1000  # labels between updates of the calibration: a tenth of all, within bounds
_Z = 1.96
_COMPLETE = 0.9  # share of labels that a block needs before it is checked against its estimate
_FIRST_WIDTH = 100
_COLUMNS = ("predicted", "promised", "variance", "labelled", "hits")


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate: number of predictions, accuracy, and its error."""

    events: int
    accuracy: float
    error: float


@dataclass(frozen=True, slots=True)
class Judged:
    """Outcome of predictions.

    Parameters
    ----------
    numbers
        Numbers of the events, in order of arrival.
    scores
        Probabilities of the predicted classes.
    right
        Whether each prediction was right.
    after
        Number of predictions of the same call that precede each outcome.
    """

    numbers: NDArray[np.int64]
    scores: NDArray[np.float64]
    right: NDArray[np.bool_]
    after: NDArray[np.int64]

    @classmethod
    def nothing(cls) -> Judged:
        """Return an empty instance."""
        none = np.zeros(0, np.int64)
        return cls(none, np.zeros(0), np.zeros(0, np.bool_), none)

    def __len__(self) -> int:
        return len(self.numbers)

    def known(self) -> Judged:
        """Return the entries with a probability."""
        return self._of(~np.isnan(self.scores))

    def cut(self, n: int) -> tuple[Judged, Judged]:
        """Return the first n entries, and the others."""
        return self._of(slice(n)), self._of(slice(n, None))

    def _of(self, which: Any) -> Judged:
        return Judged(self.numbers[which], self.scores[which], self.right[which], self.after[which])


class Estimate:
    """Estimates accuracy over recent events and over blocks of the stream, and checks blocks against labels.

    Parameters
    ----------
    window
        Number of recent predictions in the current estimate.

    Examples
    --------
    >>> estimate = Estimate(window=400)
    >>> events, scores, nothing = np.arange(400), np.full(400, 0.75), Judged.nothing()
    >>> estimate.follow(events, scores, nothing)
    >>> now = estimate.now
    >>> now.events, round(now.accuracy, 2), round(now.error, 2)
    (400, 0.75, 0.49)
    >>> estimate.follow(events[:0], scores[:0], Judged(events, scores, events % 4 > 0, np.zeros(400, int)))
    >>> estimate.check()
    (4, 4, 0.0)
    """

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self._right = np.zeros((2, BINS))  # numbers of labels, and of right predictions among them
        self._latest = Reliability()  # labels that the calibration does not include yet
        self._recent = np.zeros(0)
        self._blocks = Buckets(BLOCKS, (len(_COLUMNS),), _FIRST_WIDTH, np.float64)

    def follow(self, numbers: NDArray[np.int64], scores: NDArray[np.float64], judged: Judged) -> None:
        """Add predictions, and outcomes of these or earlier ones; the result does not depend on the batch size.

        Parameters
        ----------
        numbers
            Number of each event in order of arrival.
        scores
            Probability of the predicted class.
        judged
            Outcomes of these or earlier predictions.
        """
        judged, done = judged.known(), 0
        while len(judged):
            now, judged = judged.cut(self._awaited - int(self._latest.counts[0].sum()))
            self._predict(numbers[done : now.after[-1]], scores[done : now.after[-1]])
            done = now.after[-1]
            self._judge(now)
        self._predict(numbers[done:], scores[done:])

    @property
    def _awaited(self) -> int:
        """Number of new labels that triggers an update of the calibration."""
        return min(max(int(self._right[0].sum()) // 10, _RENEW_LEAST), _RENEW_MOST)

    def _predict(self, numbers: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        known = ~np.isnan(scores)
        numbers, scores = numbers[known], scores[known]
        self._recent = np.concatenate([self._recent, scores])[-self.window :]
        p, variance = self._calibrated(scores)
        while len(beyond := np.flatnonzero(numbers >= self._blocks.width * BLOCKS)):
            first = slice(int(beyond[0]))
            self._promise(numbers[first], p[first], variance[first])
            rest = slice(first.stop, None)
            numbers, p, variance = numbers[rest], p[rest], variance[rest]
            self._blocks.reach(self._blocks.width * BLOCKS + 1)
        self._promise(numbers, p, variance)

    def _promise(self, numbers: NDArray[np.int64], p: NDArray[np.float64], variance: NDArray[np.float64]) -> None:
        self._add(numbers, 0, p, p * (1.0 - p) + self._blocks.width * variance)

    def _judge(self, judged: Judged) -> None:
        """Add outcomes to the calibration and to the blocks."""
        self._latest.add(judged.scores, judged.right)
        if self._latest.counts[0].sum() == self._awaited:
            self._right += self._latest.counts[:2]
            self._right *= np.minimum(1.0, _MEMORY / np.maximum(self._right[0], 1.0))
            self._latest = Reliability()
        self._add(judged.numbers, 3, judged.right)

    def _add(self, numbers: NDArray[np.int64], first: int, *values: NDArray[Any]) -> None:
        """Count predictions in column `first` of the blocks, and add values to the next columns.

        Values are added in multiples of `UNIT`, so that sums are exact in any order.
        """
        if not len(numbers):
            return
        blocks = np.minimum(numbers // self._blocks.width, BLOCKS - 1)
        begin = int(blocks.min())
        counted = np.bincount(blocks - begin)
        here = slice(begin, begin + len(counted))
        self._blocks.values[here, first] += counted
        for column, value in enumerate(values, first + 1):
            self._blocks.values[here, column] += np.bincount(blocks - begin, np.round(value * UNIT)) / UNIT

    def _calibrated(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the calibrated probability of being right, and its variance."""
        n, hits = self._right[:, bin_of(scores)]
        rates = (hits + _PRIOR * scores) / (n + _PRIOR)
        return rates, rates * (1.0 - rates) / (n + _PRIOR + 1.0)

    @property
    def now(self) -> Estimated:
        """Current estimate over the recent predictions."""
        n = len(self._recent)
        if not n:
            return Estimated(0, math.nan, math.nan)
        p, variance = self._calibrated(self._recent)
        # The error of a bin applies to all of its predictions; errors of different bins are independent.
        of_bins = np.bincount(bin_of(self._recent), np.sqrt(variance), BINS) / n
        return Estimated(n, float(p.mean()), _Z * math.sqrt((p * (1.0 - p)).mean() / n + (of_bins**2).sum()))

    def curve(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return, per block: its end, estimated accuracy, error, and accuracy, NaN until enough labels arrived."""
        n, promised, variance, labelled, hits = self._blocks.values.T
        used = np.flatnonzero(n)
        n, labelled = n[used], labelled[used]
        with np.errstate(invalid="ignore", divide="ignore"):
            truth = np.where(labelled >= _COMPLETE * n, hits[used] / labelled, math.nan)
        return (used + 1) * self._blocks.width, promised[used] / n, _Z * np.sqrt(variance[used]) / n, truth

    def check(self) -> tuple[int, int, float]:
        """Return the number of checked blocks, the number within the error, and the mean absolute difference."""
        _, estimate, error, truth = self.curve()
        known = ~np.isnan(truth)
        off = np.abs(truth - estimate)[known]
        return int(known.sum()), int((off <= error[known]).sum()), float(off.mean()) if len(off) else math.nan

    def state(self) -> State:
        """Return the state."""
        return {"width": self._blocks.width}, {
            "bins": self._right,
            "latest": self._latest.counts,
            "blocks": self._blocks.values,
            "scores": self._recent,
        }

    def restore(self, state: State) -> None:
        """Restore the result of `state`."""
        header, arrays = state
        shapes = [arrays[name].shape for name in ("bins", "latest", "blocks")]
        if shapes != [(2, BINS), (3, BINS), (BLOCKS, len(_COLUMNS))] or arrays["latest"].dtype != np.int64:
            raise ValueError("an estimate of other bins or blocks")
        self._blocks.width, self._recent = whole(header["width"], 1), reals(arrays["scores"], 1, 0.0, 1.0)
        self._right, self._blocks.values = (reals(arrays[name], 2) for name in ("bins", "blocks"))
        self._latest.counts = arrays["latest"].copy()
        if any(np.isnan(array).any() for array in (self._recent, self._right, self._blocks.values)):
            raise ArchiveError("an estimate of numbers that are not known")
