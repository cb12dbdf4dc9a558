"""Falls of accuracy that chance does not explain: what drift shows itself by in a run, whatever the model.

Whoever learns better and better has no falls; where a concept changes, the accuracy falls until it is learned anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 128  # events that are counted as one
_RECENT = (1, 2, 4, 8, 16)  # so many blocks of late are compared with
_BEFORE, _LEAST = 64, 8  # at most, and at least, so many before them
# The likelihood ratio's statistic from which on it is no chance: rates as different as 5.5 standard deviations. Errors
# of a stream come in flocks, and every block is a chance to be wrong.
_SURE = 30.0
_MOST = 256  # falls that are kept


@dataclass(frozen=True, slots=True)
class Fall:
    """A fall of accuracy, after how many judged events it was noticed, and the accuracies before and since."""

    judged: int
    before: float
    after: float


class Falls:
    """Notices falls of accuracy, at events that depend on the hits alone and not on how they are cut into batches.

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
    >>> falls.last
    [Fall(judged=10112, before=0.900, after=0.117)]
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: list[Fall] = []
        self._judged = self._open = self._open_hits = 0  # events in all; those of the block not yet full, and its hits
        self._blocks: list[int] = []  # hits of the last blocks

    def add(self, hits: NDArray[np.bool_]) -> None:
        """Take whether events were predicted right."""
        cuts = [0, *range(_BLOCK - self._open, len(hits), _BLOCK), len(hits)]
        sums = np.concatenate([[0], np.cumsum(hits)])[cuts].tolist()
        for (start, end), (before, after) in zip(pairwise(cuts), pairwise(sums), strict=True):
            self._open += end - start
            self._open_hits += after - before
            self._judged += end - start
            if self._open == _BLOCK:
                self._blocks.append(self._open_hits)
                self._open = self._open_hits = 0
                self._look()

    def _look(self) -> None:
        del self._blocks[: -_BEFORE - _RECENT[-1]]
        sums = list(accumulate(self._blocks, initial=0))
        for k in _RECENT:
            split = len(self._blocks) - k
            first = max(split - _BEFORE, 0)
            if split - first < _LEAST:
                return
            n, m = (split - first) * _BLOCK, k * _BLOCK
            hits, recent_hits = sums[split] - sums[first], sums[-1] - sums[split]
            if recent_hits * n < hits * m and _is_sure(hits, n, recent_hits, m):
                self.count += 1
                self.last = [*self.last, Fall(self._judged, hits / n, recent_hits / m)][-_MOST:]
                self._blocks = self._blocks[split:]
                return

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        counts = [self._judged, self._open, self._open_hits]
        return {"count": self.count, "last": [asdict(f) for f in self.last], "counts": counts, "blocks": self._blocks}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Falls:
        """What `state` gave."""
        falls = cls()
        falls.count, falls._blocks = state["count"], list(state["blocks"])
        falls.last = [Fall(**fall) for fall in state["last"]]
        falls._judged, falls._open, falls._open_hits = state["counts"]
        return falls


def _is_sure(hits: int, n: int, recent_hits: int, recent_n: int) -> bool:
    """Whether it is no chance that two rates differ.

    The likelihood ratio's statistic is at most twice Pearson's (as KL(p, q) <= (p - q)^2 / (q (1 - q))), which spares
    most of the logarithms.
    """
    total, all_hits = n + recent_n, hits + recent_hits
    apart = hits * recent_n - recent_hits * n
    most = 2.0 * apart * apart * total / (n * recent_n * max(all_hits * (total - all_hits), 1))
    return most > _SURE and _surprise(hits, n, recent_hits, recent_n) > _SURE


def _surprise(hits: int, n: int, recent_hits: int, recent_n: int) -> float:
    """Twice the logarithm of the likelihood ratio of two rates against one."""
    apart = _log_likelihood(hits, n) + _log_likelihood(recent_hits, recent_n)
    return 2.0 * (apart - _log_likelihood(hits + recent_hits, n + recent_n))


def _log_likelihood(hits: int, n: int) -> float:
    return sum(m * math.log(m / n) for m in (hits, n - hits) if m)
