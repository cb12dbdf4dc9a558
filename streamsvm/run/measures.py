"""Measures of predictions and decisions: overall, recent and over time.

Losses are summed in integer units of 2^-24, so that sums are exact and independent of batches.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats, Ints
from streamsvm.models.codec import Stateful
from streamsvm.run.counts import MOST_RANKED, Curve, Ranking

CURVE_LINES = ("model", "no_change", "majority")
"""Hits of the model and two baselines: the previous and the majority label."""
COLUMNS = (
    *CURVE_LINES,
    *("rated", "log_loss", "brier"),
    *("sets", "covered", "size"),
    *("costed", "cost"),
    *("watched", "alarms", "right", "events"),
)
"""Counts of judged events, by group.

The first count of each group after the hits is the number of events in it.
"""
UNIT = float(1 << 24)
FIGURES: dict[str, tuple[str, str, float]] = {
    "log_loss": ("log_loss", "rated", UNIT),
    "brier": ("brier", "rated", UNIT),
    "size": ("size", "sets", 1.0),
    "cost": ("cost", "costed", UNIT),
    "alarms": ("alarms", "watched", 1.0),
    "coverage": ("covered", "sets", 1.0),
    "precision": ("right", "alarms", 1.0),
    "recall": ("right", "events", 1.0),
}
"""Sum and count of each mean, as columns of `COLUMNS`, and the unit."""
BINS = 20
SHIFT = 32  # a pair of classes is kept as one integer: truth << 32 | prediction
_LEAST = float(np.finfo(np.float64).eps)  # as scikit-learn has it


def figures_of(sums: NDArray[Any]) -> dict[str, float]:
    """Return figures from sums by `COLUMNS`, NaN if undefined.

    Returns
    -------
    figures
        log_loss, brier
            Means of -log p of the label, and of the squared distance of the probabilities from the outcome (0 to 2).
        coverage, size
            Share of labels in their prediction set, and the mean size of sets.
        cost
            Mean cost of an event.
        alarms, precision, recall
            Share of events with an alarm, precision of alarms, and their recall.
    """
    named = dict(zip(COLUMNS, sums.tolist(), strict=True))
    return {
        figure: named[total] / named[count] / unit if named[count] else math.nan
        for figure, (total, count, unit) in FIGURES.items()
    }


class Reliability(Stateful):
    """Accuracy by predicted probability, in 20 bins of equal width.

    Examples
    --------
    >>> reliability = Reliability()
    >>> reliability.add(np.array([0.9, 0.9, 0.6, 0.6]), np.array([True, True, True, False]))
    >>> round(reliability.error, 3)
    0.1
    """

    saved = ("counts",)

    def __init__(self) -> None:
        self.counts = np.zeros((3, BINS), np.int64)
        """Numbers of predictions and correct ones, and the sum of probabilities."""

    def add(self, scores: Floats, right: NDArray[np.bool_]) -> None:
        """Add predictions, with their probabilities and whether they were correct."""
        bins = bin_of(scores)
        self.counts[0] += np.bincount(bins, minlength=BINS)
        self.counts[1] += np.bincount(bins[right], minlength=BINS)
        # Sums of a batch are whole numbers that floats hold exactly.
        self.counts[2] += np.bincount(bins, _units(scores), BINS).astype(np.int64)

    @property
    def error(self) -> float:
        """Expected calibration error."""
        n, right, scores = self.counts
        return float(np.abs(right - scores / UNIT).sum() / n.sum()) if n.any() else math.nan

    def points(self) -> list[tuple[float, float, int]]:
        """Return mean probability, accuracy and count of nonempty bins."""
        n, right, scores = self.counts[:, self.counts[0] > 0]
        return list(zip((scores / UNIT / n).tolist(), (right / n).tolist(), n.tolist(), strict=True))


def bin_of(scores: Floats) -> Ints:
    """Return the bins of probabilities, of `BINS` bins of equal width."""
    return np.clip((scores * BINS).astype(np.int64), 0, BINS - 1)


class Measures(Stateful):
    """Measures of probabilities and of decisions.

    Parameters
    ----------
    window
        Number of judged events of recent measures.

    Attributes
    ----------
    curve
        Sums by `COLUMNS` over time.
    reliability, ranking
        Calibration of the predicted label, and ranking of each class.
    """

    saved = ("window", "curve", "reliability", "ranking", "_recent", "_scores")

    def __init__(self, window: int = 1000) -> None:
        self.window = window
        self.curve = Curve(len(COLUMNS))
        self.reliability, self.ranking = Reliability(), Ranking(window)
        self._recent = np.zeros((0, len(COLUMNS) + 1), np.int64)  # counts, and the pair of classes
        self._scores = np.zeros(0)

    def add(
        self,
        truth: Ints,
        guess: Ints,
        scores: Floats | None = None,
        *,
        baselines: NDArray[np.bool_] | None = None,
        **values: NDArray[Any],
    ) -> None:
        """Add judged events.

        Parameters
        ----------
        truth, guess
            True and predicted class numbers; -1 for a label without a class.
        scores
            Probabilities of the predicted classes, NaN if unknown.
        baselines
            Whether each baseline of `CURVE_LINES` is right, shape (n, 2).
        **values
            What is known of `proba`, probabilities of all classes, shape (n, n_classes), NaN if unknown; `members`,
            whether each class is in the prediction set, shape (n, n_classes); `costs`, the cost of each event, NaN if
            unknown; `watched`, whether each event has an alarm, negative if unknown, and whether it is of the alarm's
            class, shape (n, 2).
        """
        right = guess == truth
        rows = np.zeros((len(truth), len(COLUMNS) if values else len(CURVE_LINES)), np.int64)
        rows[:, 0] = right
        if baselines is not None:
            rows[:, 1:3] = baselines
        if values:
            self._count(rows[:, 3:], truth, **values)
        if scores is None:
            scores = np.full(len(truth), np.nan)
        self.curve.add(rows)
        recent = np.zeros((min(len(truth), self.window), len(COLUMNS) + 1), np.int64)
        recent[:, : rows.shape[1]] = rows[-self.window :]
        recent[:, -1] = (truth << SHIFT | guess)[-self.window :]
        self._recent = _latest(self._recent, recent, self.window)
        self._scores = _latest(self._scores, scores, self.window)
        known = ~np.isnan(scores)
        self.reliability.add(scores[known], right[known])

    def _count(
        self,
        rows: Ints,
        truth: Ints,
        proba: Floats | None = None,
        members: NDArray[np.bool_] | None = None,
        costs: Floats | None = None,
        watched: Ints | None = None,
    ) -> None:
        """Fill the counts that follow the hits."""
        n = len(truth)
        if proba is not None and proba.shape[1]:
            self._rate(rows[:, :3], truth, proba)
        if members is not None and members.shape[1]:
            own = members[np.arange(n), np.maximum(truth, 0) % members.shape[1]]
            rows[:, 3] = 1 if proba is None else ~np.isnan(_sums(proba))
            rows[:, 5] = _sums(members.astype(np.int64))
            rows[:, 4] = own & (truth >= 0) & (truth < members.shape[1])
        if costs is not None:
            rows[:, 6], rows[:, 7] = ~np.isnan(costs), _units(np.nan_to_num(costs))
        if watched is not None:
            known, (alarms, own) = watched[:, 0] >= 0, watched.T
            rows[:, 8:] = np.column_stack([known, alarms, alarms & own, own]) * known[:, None]

    def _rate(self, rows: Ints, truth: Ints, proba: Floats) -> None:
        total = _sums(proba * proba)
        known: Any = slice(None)
        p, y = proba, truth
        if np.isnan(total).any():
            known = np.flatnonzero(~np.isnan(total))
            p, y, total = proba[known], truth[known], total[known]
        inside = (y >= 0) & (y < p.shape[1])
        own = np.where(inside, p[np.arange(len(y)), np.where(inside, y, 0)], 0.0)
        rows[known, 0] = 1
        rows[known, 1] = _units(-np.log(np.maximum(own, _LEAST)))
        rows[known, 2] = _units(total - 2.0 * own + 1.0)
        self.ranking.add(y, p)

    def clear_probabilities(self) -> None:
        """Discard losses and rankings, because some probabilities are unknown."""
        self.curve.clear(slice(3, 6))
        self._recent[:, 3:6] = 0
        self.ranking = Ranking(self.window)

    @property
    def overall(self) -> dict[str, float]:
        """Figures of all events."""
        return figures_of(self.curve.totals())

    @property
    def recent(self) -> dict[str, float]:
        """Figures of the last `window` judged events."""
        return figures_of(self._recent[:, :-1].sum(axis=0))

    @property
    def recent_hits(self) -> dict[str, float]:
        """Accuracies of `CURVE_LINES` over recent events, NaN without events.

        Recent events are the last `window` judged ones.
        """
        with np.errstate(invalid="ignore"):
            shares = self._recent[:, : len(CURVE_LINES)].sum(axis=0) / len(self._recent)
        return dict(zip(CURVE_LINES, shares.tolist(), strict=True))

    @property
    def n_recent(self) -> int:
        """Number of recent events."""
        return len(self._recent)

    def recent_pairs(self) -> tuple[Ints, Ints, Ints]:
        """Return labels, predictions, and counts of their pairs among recent events."""
        pairs, counts = np.unique(self._recent[:, -1], return_counts=True)
        return pairs >> SHIFT, pairs & (1 << SHIFT) - 1, counts

    @property
    def is_empty(self) -> bool:
        """Whether there are neither probabilities nor decisions."""
        return not self.reliability.counts[0].any() and not self.curve.totals()[3:].any()

    @property
    def recent_reliability(self) -> Reliability:
        """Calibration of the last `window` judged events."""
        recent, known = Reliability(), ~np.isnan(self._scores)
        recent.add(self._scores[known], self._recent[known, 0] > 0)
        return recent

    def windowed(self, figure: str) -> tuple[Ints, Floats]:
        """Return one of `FIGURES` over time, as a mean over `window` events."""
        name, count, unit = FIGURES[figure]
        ends, sums = self.curve.sums(min(self.window, max(1, self.curve.events // 10)))
        n, total = sums[:, COLUMNS.index(count)], sums[:, COLUMNS.index(name)]
        used = n > 0
        return ends[used], total[used] / n[used] / unit

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        n = min(self.window, self.curve.events)
        return self.window > 0 and len(self._recent) == len(self._scores) == n and not (self._scores > 1.0).any()


def _sums(values: NDArray[Any]) -> NDArray[Any]:
    """Sum the columns of each row in order, so that zeros do not change the rounding."""
    few = values.shape[1] <= MOST_RANKED
    sums: NDArray[Any] = sum(values.T[1:], values.T[0]) if few else np.cumsum(values, axis=1)[:, -1]
    return sums


def _latest(before: NDArray[Any], rows: NDArray[Any], window: int) -> NDArray[Any]:
    """Return the last rows, at most `n`."""
    n_before = min(max(window - len(rows), 0), len(before))
    return np.concatenate([before[len(before) - n_before :], rows[-window:]])


def _units(values: Floats) -> Ints:
    """Return losses as integers."""
    units: Ints = np.round(values * UNIT).astype(np.int64)
    return units
