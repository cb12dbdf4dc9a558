"""Estimate of accuracy before labels arrive, from predicted probabilities.

The accuracy over recent predictions is estimated by the mean of their probabilities of being right (CBPE, as in NannyML
for batches). Probabilities are calibrated with the labels so far, in bins of equal width. The 95 % error bar has two
parts: the random outcome of each prediction, and the uncertainty about the bins.

When features change, the probabilities remain calibrated if the classes depend on the features as before. They are too
high if a broken input misleads the model. Until labels of later events show which case holds, the estimate is lowered
towards the accuracy of chance, in proportion to the share of the relevance that changed. The error grows as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.codec import Stateful
from streamsvm.run.measures import BINS, Reliability, bin_of

_PRIOR = 2.0  # pseudo-labels per bin, distributed as predicted
_MEMORY = 5_000.0  # effective number of labels per bin
_MEMORY_BEFORE = 50.0  # of those of events before a change, once labels of later events come
_RENEW_LEAST, _RENEW_MOST = 50, 1000  # labels between updates of the calibration: a tenth of all, within bounds
_Z = 1.96
_SETTLED = 1_000  # labels of events after a change until the estimate is no longer lowered


@dataclass(frozen=True, slots=True)
class Estimated:
    """Estimated accuracy of predictions without labels.

    Parameters
    ----------
    events
        Number of predictions.
    accuracy, error
        Estimated accuracy, and the error of the estimate.
    lowered
        Reduction of the accuracy due to changed features.
    """

    events: int
    accuracy: float
    error: float
    lowered: float = 0.0


class Estimate(Stateful):
    """Estimates accuracy over recent events.

    Parameters
    ----------
    window
        Number of recent predictions in the estimate.

    Examples
    --------
    >>> estimate = Estimate(window=400)
    >>> scores, nothing = np.full(400, 0.75), np.zeros(0)
    >>> estimate.update(scores, nothing, nothing > 0)
    >>> now = estimate.now()
    >>> now.events, round(now.accuracy, 2), round(now.error, 2)
    (400, 0.75, 0.49)
    >>> estimate.update(nothing, scores, np.arange(400) % 4 > 0)
    >>> round(estimate.now().error, 2)
    0.06
    >>> now = estimate.now(changed=0.4, chance=0.5)
    >>> round(now.accuracy, 2), round(now.error, 2), round(now.lowered, 2)
    (0.65, 0.16, 0.1)
    """

    saved = ("_right", "_latest", "_recent", "_since", "_n_since")

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self._right = np.zeros((2, BINS))  # numbers of labels, and of right predictions among them
        self._latest = Reliability()  # labels that the calibration does not include yet
        self._recent = np.zeros(0)
        self._since = np.zeros(0, np.int64)  # event time of a change of the features, if there is one
        self._n_since = 0  # number of labels of events since then

    def change(self, at: int) -> None:
        """Note that features changed at a time in milliseconds."""
        self._since, self._n_since = np.array([at]), 0

    def update(
        self,
        scores: NDArray[np.float64],
        judged: NDArray[np.float64],
        right: NDArray[np.bool_],
        times: NDArray[np.int64] | None = None,
    ) -> None:
        """Add predictions, and outcomes of these or earlier ones, in batches of any size.

        Parameters
        ----------
        scores
            Probability of the predicted class of each new prediction, NaN if unknown.
        judged, right
            Probability of each prediction whose label arrived, and whether it was right.
        times
            Times of their events.
        """
        self._recent = np.concatenate([self._recent, scores[~np.isnan(scores)]])[-self.window :]
        known = ~np.isnan(judged)
        judged, right = judged[known], right[known]
        if len(self._since) and times is not None:
            later = np.flatnonzero(times[known] >= self._since[0])
            if len(later) and not self._n_since:
                self._calibrate(judged[: later[0]], right[: later[0]])
                judged, right = judged[later[0] :], right[later[0] :]
                self._renew(_MEMORY_BEFORE)
            self._n_since += len(later)
        self._calibrate(judged, right)

    def _calibrate(self, judged: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
        while len(judged):
            n = self._awaited - int(self._latest.counts[0].sum())
            self._latest.add(judged[:n], right[:n])
            judged, right = judged[n:], right[n:]
            if self._latest.counts[0].sum() == self._awaited:
                self._renew(_MEMORY)

    def _renew(self, memory: float) -> None:
        self._right += self._latest.counts[:2]
        self._right *= np.minimum(1.0, memory / np.maximum(self._right[0], 1.0))
        self._latest = Reliability()

    @property
    def _awaited(self) -> int:
        """Number of new labels that triggers an update of the calibration."""
        return min(max(int(self._right[0].sum()) // 10, _RENEW_LEAST), _RENEW_MOST)

    def now(self, changed: float = 0.0, chance: float = 0.0) -> Estimated:
        """Return the current estimate over the recent predictions.

        Parameters
        ----------
        changed
            Share of the relevance of the features that changed, from 0 to 1.
        chance
            Accuracy of predictions that are independent of the features.
        """
        n = len(self._recent)
        if not n:
            return Estimated(0, math.nan, math.nan)
        bins = bin_of(self._recent)
        labels, hits = self._right[:, bins]
        p = (hits + _PRIOR * self._recent) / (labels + _PRIOR)
        changed *= max(0.0, 1.0 - self._n_since / _SETTLED)
        lowered = changed * max(0.0, float(p.mean()) - chance)
        variance = p * (1.0 - p) / (labels + _PRIOR + 1.0)
        # The error of a bin applies to all of its predictions; errors of different bins are independent.
        of_bins = np.bincount(bins, np.sqrt(variance), BINS) / n
        error = _Z * math.sqrt((p * (1.0 - p)).mean() / n + (of_bins**2).sum())
        return Estimated(n, float(p.mean()) - lowered, error + lowered, lowered)

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return bool(((self._recent >= 0.0) & (self._recent <= 1.0)).all()) and not np.isnan(self._right).any()
