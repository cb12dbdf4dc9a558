"""Estimate of accuracy before labels arrive, from predicted probabilities.

The accuracy over recent predictions is estimated by the mean of their probabilities of being right (CBPE, as in NannyML
for batches). Probabilities are calibrated with the labels so far, in bins of equal width. The 95 % error bar has two
parts: the random outcome of each prediction, and the uncertainty about the bins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsvm.run.measures import BINS, Reliability, bin_of
from streamsvm.run.saved import Saved

_PRIOR = 2.0  # pseudo-labels per bin, distributed as predicted
_MEMORY = 5_000.0  # effective number of labels per bin
_RENEW_LEAST, _RENEW_MOST = 50, 1000  # labels between updates of the calibration: a tenth of all, within bounds
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Estimated:
    """An estimate: number of predictions, accuracy, and its error."""

    events: int
    accuracy: float
    error: float


class Estimate(Saved):
    """Estimates accuracy over recent events.

    Parameters
    ----------
    window
        Number of recent predictions in the estimate.

    Examples
    --------
    >>> estimate = Estimate(window=400)
    >>> scores, nothing = np.full(400, 0.75), np.zeros(0)
    >>> estimate.follow(scores, nothing, nothing > 0)
    >>> now = estimate.now
    >>> now.events, round(now.accuracy, 2), round(now.error, 2)
    (400, 0.75, 0.49)
    >>> estimate.follow(nothing, scores, np.arange(400) % 4 > 0)
    >>> round(estimate.now.error, 2)
    0.06
    """

    saved = ("_right", "_latest", "_recent")

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self._right = np.zeros((2, BINS))  # numbers of labels, and of right predictions among them
        self._latest = Reliability()  # labels that the calibration does not include yet
        self._recent = np.zeros(0)

    def follow(self, scores: NDArray[np.float64], judged: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        """Add predictions, and outcomes of these or earlier ones; the result does not depend on the batch size.

        Parameters
        ----------
        scores
            Probability of the predicted class of each new prediction, NaN if unknown.
        judged, right
            Probability of each prediction whose label arrived, and whether it was right.
        """
        self._recent = np.concatenate([self._recent, scores[~np.isnan(scores)]])[-self.window :]
        known = ~np.isnan(judged)
        judged, right = judged[known], right[known]
        while len(judged):
            n = self._awaited - int(self._latest.counts[0].sum())
            self._latest.add(judged[:n], right[:n])
            judged, right = judged[n:], right[n:]
            if self._latest.counts[0].sum() == self._awaited:
                self._right += self._latest.counts[:2]
                self._right *= np.minimum(1.0, _MEMORY / np.maximum(self._right[0], 1.0))
                self._latest = Reliability()

    @property
    def _awaited(self) -> int:
        """Number of new labels that triggers an update of the calibration."""
        return min(max(int(self._right[0].sum()) // 10, _RENEW_LEAST), _RENEW_MOST)

    @property
    def now(self) -> Estimated:
        """Current estimate over the recent predictions."""
        n = len(self._recent)
        if not n:
            return Estimated(0, math.nan, math.nan)
        bins = bin_of(self._recent)
        labels, hits = self._right[:, bins]
        p = (hits + _PRIOR * self._recent) / (labels + _PRIOR)
        variance = p * (1.0 - p) / (labels + _PRIOR + 1.0)
        # The error of a bin applies to all of its predictions; errors of different bins are independent.
        of_bins = np.bincount(bins, np.sqrt(variance), BINS) / n
        return Estimated(n, float(p.mean()), _Z * math.sqrt((p * (1.0 - p)).mean() / n + (of_bins**2).sum()))

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return bool(((self._recent >= 0.0) & (self._recent <= 1.0)).all()) and not np.isnan(self._right).any()
