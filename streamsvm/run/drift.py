"""Falls of accuracy that chance does not explain, at every scale: how drift shows in a run, whatever the model.

Hits are counted in blocks, and blocks in an exponential histogram as in ADWIN (Bifet and Gavalda, 2007), which needs
O(log n) memory. Rates before and after a split are compared by their likelihood ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import real, whole

_BLOCK = 128  # events that are counted as one
_BUCKETS = 5  # of each size; the oldest two become one of twice the size
ALPHA = 0.01
"""Probability of any false alarm in a stream of independent errors at a constant rate, however long it is."""

_CALIBRATION = 16.0  # variance that is assumed to be binomial, beside what came
_MOST_DEVIATION = 5.0  # times the dispersion, of one pair of blocks: a step of the rate is no dispersion
_MOST_VARIANCE = 16384.0  # of which the dispersion is a mean; older blocks fade
_LEAST = 8  # blocks before a split
_PLATEAU = 8  # a fall in several steps: the rate stood still for at most so many times what detection took
_MOST = 256  # falls that are kept


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of accuracy, after how many judged events it was noticed, and the accuracies before and since."""

    judged: int
    before: float
    after: float


class Falls:
    """Detect falls of accuracy, at events that depend on the hits alone and not on how they are cut into batches.

    The test at a split bounds the error by the Chernoff bounds of both rates: P(LLR >= x) <= 4 exp(-x) (1 + x - log 4).
    Test number j may spend `ALPHA` / (2.5 (j + 1) log(j + 1)^2), so all tests of a stream together spend at most
    `ALPHA`. This assumes independent errors at a constant rate. Where errors come in bursts, the limit is raised by
    the dispersion of blocks, estimated from the differences of successive ones: false alarms are rare
    then, but without a bound.

    A rise only shortens the window. Steps of a gradual fall that follow each other closely are one fall: the later
    steps change its `after`.

    Attributes
    ----------
    count
        How many there were.
    last
        The last of them, at most 256.

    Examples
    --------
    >>> falls = Falls()
    >>> hits = np.arange(20_000) % 10 > 0
    >>> hits[10_000:10_500] = False
    >>> falls.add(hits)
    >>> [(fall.judged, round(fall.before, 2)) for fall in falls.last]
    [(10112, 0.9)]
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: list[Fall] = []
        self._judged = self._open = self._open_hits = 0  # events in all; those of the block not yet full, and its hits
        self._blocks = 0  # in the window
        self._tests = 0
        self._levels: list[list[int]] = []  # hits of buckets of 1, 2, 4, ... blocks, each level oldest first
        self._after_fall = False  # whether the window began with a fall
        self._previous = -1  # hits of the last block
        self._variance = self._binomial = 0.0  # of hits of a block, summed over blocks: as observed, and as expected

    def add(self, hits: NDArray[np.bool_]) -> None:
        """Take whether events were predicted right."""
        cuts = [0, *range(_BLOCK - self._open, len(hits), _BLOCK), len(hits)]
        sums = np.concatenate([[0], np.cumsum(hits)])[cuts].tolist()
        for (start, end), (before, after) in zip(pairwise(cuts), pairwise(sums), strict=True):
            self._open += end - start
            self._open_hits += after - before
            self._judged += end - start
            if self._open == _BLOCK:
                self._take(self._open_hits)
                self._open = self._open_hits = 0

    def _take(self, hits: int) -> None:
        """Add a block to the histogram, and test the splits beside buckets that changed: about 10 in the mean."""
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
        """Drop what comes before the first split at which rates differ; whether there was one."""
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
                if _is_sure(all_hits - recent_hits, n - recent_n, recent_hits, recent_n, limit):
                    self._note(all_hits - recent_hits, n - recent_n, recent_hits, recent_n)
                    self._levels = [*self._levels[:level], buckets[i:]]
                    self._blocks = recent_n // _BLOCK
                    return True
        return False

    def _limit(self) -> float:
        """The likelihood ratio's logarithm from which on a difference is no chance, in the tests of the next block."""
        j = self._tests + len(self._levels) * (_BUCKETS + 1) + 1
        level = math.log(4.0 * 2.5 * (j + 1) * math.log(j + 1) ** 2 / ALPHA)
        x = level + math.log(level)
        x = level + math.log(1.0 + x - math.log(4.0))
        return x * self._dispersion

    @property
    def _dispersion(self) -> float:
        """How much more hits of blocks vary than those of independent events, at least 1."""
        return max(1.0, (self._variance + _CALIBRATION) / (self._binomial + _CALIBRATION))

    def _note(self, hits: int, n: int, recent_hits: int, recent_n: int) -> None:
        before, after = hits / n, recent_hits / recent_n
        if after >= before:
            self._after_fall = False
            return
        if self._after_fall and n <= _PLATEAU * recent_n:  # the window has no plateau: the same fall goes on
            first = self.last[-1]
            self.last[-1] = Fall(first.judged, first.before, after)
        else:
            self.count += 1
            self.last = [*self.last, Fall(self._judged, before, after)][-_MOST:]
        self._after_fall = True

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        counts = [self._judged, self._open, self._open_hits, self._blocks, self._tests, self._previous]
        return {
            "count": self.count,
            "last": [asdict(f) for f in self.last],
            "counts": counts,
            "levels": [list(buckets) for buckets in self._levels],
            "after_fall": self._after_fall,
            "dispersion": [self._variance, self._binomial],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Falls:
        """What `state` gave."""
        falls = cls()
        falls.count = whole(state["count"])
        falls.last = [
            Fall(whole(fall["judged"]), real(fall["before"], high=1.0), real(fall["after"], high=1.0))
            for fall in state["last"]
        ]
        falls._judged, falls._open, falls._open_hits, *more = (whole(count, -1) for count in state["counts"])
        if min(falls._judged, falls._open_hits) < 0 or not falls._open_hits <= falls._open < _BLOCK:
            raise ArchiveError("counts of falls that do not fit together")
        if "levels" not in state:  # a checkpoint of an earlier version: the window begins anew
            return falls
        falls._blocks, falls._tests, falls._previous = more
        falls._levels = [
            [whole(hits, high=_BLOCK << level) for hits in held] for level, held in enumerate(state["levels"])
        ]
        falls._after_fall = bool(state["after_fall"])
        falls._variance, falls._binomial = map(real, state["dispersion"])
        n_blocks = sum(len(held) << level for level, held in enumerate(falls._levels))
        if falls._blocks != n_blocks or min(falls._tests, falls._previous + 1) < 0 or falls._previous > _BLOCK:
            raise ArchiveError("buckets of falls that do not fit together")
        if falls._after_fall and not falls.last:
            raise ArchiveError("a fall that is not there")
        return falls


def _is_sure(hits: int, n: int, recent_hits: int, recent_n: int, limit: float) -> bool:
    """Whether the logarithm of the likelihood ratio of two rates against one is above a limit.

    It is at most Pearson's statistic (as KL(p, q) <= (p - q)^2 / (q (1 - q))), which spares most of the logarithms.
    """
    total, all_hits = n + recent_n, hits + recent_hits
    apart = hits * recent_n - recent_hits * n
    most = apart * apart * total / (n * recent_n * max(all_hits * (total - all_hits), 1))
    return most > limit and _log_ratio(hits, n, recent_hits, recent_n) > limit


def _log_ratio(hits: int, n: int, recent_hits: int, recent_n: int) -> float:
    """Logarithm of the likelihood ratio of two rates against one."""
    apart = _log_likelihood(hits, n) + _log_likelihood(recent_hits, recent_n)
    return apart - _log_likelihood(hits + recent_hits, n + recent_n)


def _log_likelihood(hits: int, n: int) -> float:
    return sum(m * math.log(m / n) for m in (hits, n - hits) if m)
