"""Detection of significant accuracy drops at all time scales, for any model.

Hits are counted in blocks, and blocks in an exponential histogram as in ADWIN (Bifet and Gavalda, 2007) with O(log n)
memory. Rates before and after a split are compared by a likelihood ratio test.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import real, whole
from streamsvm.models.codec import SavedState, Stateful

_BLOCK = 128  # events per block
_BUCKETS = 5  # buckets per size; beyond it, the oldest two are merged into one of twice the size
ALPHA = 0.01
"""Probability of any false alarm in a stream of any length.

Errors are assumed to be independent, with a constant rate.
"""

_CALIBRATION = 16.0  # binomial variance added to the observed one
_MOST_DEVIATION = 5.0  # in units of dispersion, because a change of the rate is no dispersion
_MOST_VARIANCE = 16384.0  # total variance over which the dispersion is averaged; older blocks fade
_LEAST = 8  # least number of blocks before a split
_PLATEAU = 8  # drops in several steps are one drop if the plateau is at most this many times the detection delay
_MOST = 256  # greatest number of stored drops


class AccuracyDrop(NamedTuple):
    """Number of judged events when a drop was detected, and accuracies around it."""

    judged: int
    before: float
    after: float


class AccuracyDrops(Stateful):
    """Detects accuracy drops, at events that do not depend on the batch size.

    The test at a split bounds the error by the Chernoff bounds of both rates: P(LLR >= x) <= 4 exp(-x) (1 + x - log 4).
    Test number j may spend `ALPHA` / (2.5 (j + 1) log(j + 1)^2), so all tests of a stream together spend at most
    `ALPHA`. This assumes independent errors at a constant rate. For errors in bursts, the limit is raised by the
    dispersion of blocks, estimated from the differences of successive blocks. False alarms are then rare, but their
    probability is not bounded.

    A rise only shortens the window. Steps of a gradual drop that follow each other closely are one drop: later steps
    change its `after`.

    Attributes
    ----------
    count
        Number of drops.
    last
        The last drops, at most 256.
    new
        Drops since the last call of `pop_new`, at most 256, as they were at detection.

    Examples
    --------
    >>> drops = AccuracyDrops()
    >>> hits = np.arange(20_000) % 10 > 0
    >>> hits[10_000:10_500] = False
    >>> drops.add(hits)
    >>> [(drop.judged, round(drop.before, 2)) for drop in drops.last]
    [(10112, 0.9)]
    """

    saved = (
        *("count", "last", "_judged", "_open", "_open_hits", "_blocks", "_tests", "_levels", "_after_drop"),
        *("_previous", "_variance", "_binomial"),
    )

    def __init__(self) -> None:
        self.count = 0
        self.last: list[AccuracyDrop] = []
        self.new: list[AccuracyDrop] = []
        self._judged = self._open = self._open_hits = 0  # events in all, events of the open block, and its hits
        self._blocks = 0  # blocks in the window
        self._tests = 0
        self._levels: list[list[int]] = []  # hits in buckets of 1, 2, 4, ... blocks, each level oldest first
        self._after_drop = False  # whether the window began with a drop
        self._previous = -1  # hits of the last block
        self._variance = self._binomial = 0.0  # variance of hits summed over blocks: observed and expected

    def add(self, hits: NDArray[np.bool_]) -> None:
        """Add whether each prediction was right."""
        cuts = [0, *range(_BLOCK - self._open, len(hits), _BLOCK), len(hits)]
        sums = np.concatenate([[0], np.cumsum(hits)])[cuts].tolist()
        for (start, end), (before, after) in zip(pairwise(cuts), pairwise(sums), strict=True):
            self._open += end - start
            self._open_hits += after - before
            self._judged += end - start
            if self._open == _BLOCK:
                self._take(self._open_hits)
                self._open = self._open_hits = 0

    def pop_new(self) -> list[AccuracyDrop]:
        """Return the drops since the last call."""
        found, self.new = self.new, []
        return found

    def _take(self, hits: int) -> None:
        """Add a block, and test the splits next to changed buckets, about 10 on average."""
        if self._previous >= 0:
            total = hits + self._previous
            expected = total * (2 * _BLOCK - total) / (4.0 * _BLOCK)
            self._variance += min((hits - self._previous) ** 2 / 2.0, _MOST_DEVIATION * self._dispersion * expected)
            self._binomial += expected
            if self._binomial > _MOST_VARIANCE:
                self._variance, self._binomial = self._variance / 2.0, self._binomial / 2.0
        self._previous = hits
        self._blocks += 1
        level = 0
        carry = [hits]
        while carry:
            if level == len(self._levels):
                self._levels.append([])
            buckets = self._levels[level]
            buckets += carry
            carry = []
            if len(buckets) > _BUCKETS:
                carry = [buckets.pop(0) + buckets.pop(0)]
            level += 1
        while self._cut(level):
            level = len(self._levels)

    def _cut(self, n_levels: int) -> bool:
        """Drop events before the first split with different rates, if there is one.

        Returns whether there was such a split.
        """
        all_hits, n = sum(map(sum, self._levels)), self._blocks * _BLOCK
        limit = self._limit()
        recent_hits = recent_n = 0
        for level, buckets in enumerate(self._levels[:n_levels]):
            for i in range(len(buckets) - 1, -1, -1):
                recent_hits += buckets[i]
                recent_n += _BLOCK << level
                if n - recent_n < _LEAST * _BLOCK:
                    return False
                self._tests += 1
                if is_sure(all_hits - recent_hits, n - recent_n, recent_hits, recent_n, limit):
                    self._note(all_hits - recent_hits, n - recent_n, recent_hits, recent_n)
                    self._levels = [*self._levels[:level], buckets[i:]]
                    self._blocks = recent_n // _BLOCK
                    return True
        return False

    def _limit(self) -> float:
        """Return the critical value of the log likelihood ratio for the next tests."""
        j = self._tests + len(self._levels) * (_BUCKETS + 1) + 1
        level = math.log(4.0 * 2.5 * (j + 1) * math.log(j + 1) ** 2 / ALPHA)
        x = level + math.log(level)
        x = level + math.log(1.0 + x - math.log(4.0))
        return x * self._dispersion

    @property
    def _dispersion(self) -> float:
        """Ratio of the variance of hits to that of independent events, at least 1."""
        return max(1.0, (self._variance + _CALIBRATION) / (self._binomial + _CALIBRATION))

    def _note(self, hits: int, n: int, recent_hits: int, recent_n: int) -> None:
        before, after = hits / n, recent_hits / recent_n
        if after >= before:
            self._after_drop = False
            return
        if self._after_drop and n <= _PLATEAU * recent_n:  # no plateau: the drop continues
            first = self.last[-1]
            self.last[-1] = AccuracyDrop(first.judged, first.before, after)
        else:
            self.count += 1
            drop = AccuracyDrop(self._judged, before, after)
            self.last, self.new = [*self.last, drop][-_MOST:], [*self.new, drop][-_MOST:]
        self._after_drop = True

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`."""
        super().restore(state)
        self.last = [
            AccuracyDrop(whole(n), real(before, high=1.0), real(after, high=1.0)) for n, before, after in self.last
        ]
        self._levels = [[whole(hits, high=_BLOCK << level) for hits in held] for level, held in enumerate(self._levels)]
        if self._blocks != sum(len(held) << level for level, held in enumerate(self._levels)):
            raise ArchiveError("buckets of drops that do not fit together")

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return (
            min(self.count, self._judged, self._open_hits, self._tests) >= 0
            and self._open_hits <= self._open < _BLOCK
            and self._previous <= _BLOCK
            and (bool(self.last) or not self._after_drop)
        )


def is_sure(hits: int, n: int, recent_hits: int, recent_n: int, limit: float) -> bool:
    """Return whether the log likelihood ratio of two rates exceeds a limit.

    The ratio is at most Pearson's statistic, because KL(p, q) <= (p - q)^2 / (q (1 - q)). Testing this bound first
    avoids most logarithms.
    """
    total, all_hits = n + recent_n, hits + recent_hits
    difference = hits * recent_n - recent_hits * n
    most = difference * difference * total / (n * recent_n * max(all_hits * (total - all_hits), 1))
    return most > limit and log_ratio(hits, n, recent_hits, recent_n) > limit


def log_ratio(hits: int, n: int, recent_hits: int, recent_n: int) -> float:
    """Return the log likelihood ratio of two rates against one."""
    separate = _log_likelihood(hits, n) + _log_likelihood(recent_hits, recent_n)
    return separate - _log_likelihood(hits + recent_hits, n + recent_n)


def _log_likelihood(hits: int, n: int) -> float:
    return sum(m * math.log(m / n) for m in (hits, n - hits) if m)
