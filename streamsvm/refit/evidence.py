"""Whether a challenger is better than the running learner, by a paired test that may be looked at after every event.

Both predict an event before they learn from it. With d = 1 where only the challenger is right, -1 where only the
learner is, and 0 otherwise, and a bet λ in (0, 1/2], the product of 1 + λ d over the events is a nonnegative
supermartingale as long as the challenger is at no event expected to be better, given what came before; so is the mean
over a grid of bets, E. By Ville's inequality E then ever reaches 1/α with probability α at most, however often and for
whatever reason one looks (Choe and Ramdas, "Comparing sequential forecasters", arXiv 2110.00115). As d is one of three
values, E depends on the counts of wins and losses alone.

References
----------
.. [1] Y. J. Choe, A. Ramdas. Comparing Sequential Forecasters. Operations Research 72(4), 2024. arXiv 2110.00115.
.. [2] J. Ville. Étude critique de la notion de collectif. Gauthier-Villars, 1939.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import DAMAGED, ArchiveError
from streamsvm.parameters import check_between, check_number

# Bets from 1/2 down to 1/256: a bet within a factor of 2^(1/4) of the best one gets all but 4 % of its growth.
_BETS = 0.5 ** np.arange(1.0, 8.5, 0.5)
_UP, _DOWN = np.log1p(_BETS), np.log1p(-_BETS)
_MOST_EVENTS = 1 << 53
_COUNTS = ("n_wins", "n_losses", "n_ties")


class Verdict(Enum):
    """What the evidence says."""

    OPEN = "open"
    BETTER = "better"
    FUTILE = "futile"


class Judged(NamedTuple):
    """How many events were consumed, and the verdict after the last of them."""

    n: int
    verdict: Verdict


@dataclass
class Evidence:
    """Evidence that a challenger is better than the running learner.

    Parameters
    ----------
    alpha
        The chance, at most, that any challenger at all is taken for better without being so. The k-th one spends
        6 alpha / (π² k²) of it, which over all k is `alpha`.
    most
        Events after which a challenger that is not found better is given up.
    n_wins, n_losses, n_ties
        Events at which only the challenger was right, only the learner was, and neither or both.

    Notes
    -----
    A challenger is given up, too, where the same test the other way round, with wins for losses, finds the learner
    better at level `alpha`: one that is no worse is given up for that with probability `alpha` at most.

    Examples
    --------
    >>> evidence = Evidence(alpha=0.05)
    >>> evidence.add(n_wins=30, n_losses=10)
    >>> evidence.value
    26.2
    >>> evidence.is_better(rank=1)
    False
    >>> evidence.judge(np.ones(100), rank=1)
    Judged(n=1, verdict=<Verdict.BETTER: 'better'>)
    """

    alpha: float = 0.05
    most: int = 20_000
    n_wins: int = 0
    n_losses: int = 0
    n_ties: int = 0

    def __post_init__(self) -> None:
        check_between("alpha", self.alpha, 0.0, 1.0)
        check_number("most", self.most, 1, _MOST_EVENTS, whole=True)
        for name in _COUNTS:
            check_number(name, getattr(self, name), 0, _MOST_EVENTS, whole=True)

    def add(self, n_wins: int, n_losses: int, n_ties: int = 0) -> None:
        """Take so many further events; what it comes to does not depend on how they are cut."""
        self.n_wins += n_wins
        self.n_losses += n_losses
        self.n_ties += n_ties

    @property
    def n_events(self) -> int:
        """Events in all."""
        return self.n_wins + self.n_losses + self.n_ties

    @property
    def log_value(self) -> float:
        """The logarithm of E."""
        return float(_log_value(self.n_wins, self.n_losses))

    @property
    def value(self) -> float:
        """E; inf beyond what a float holds."""
        return math.exp(self.log_value) if self.log_value < 709.0 else math.inf

    def is_better(self, rank: int) -> bool:
        """Whether the challenger, the first, second … `rank`-th to be tried, is better."""
        return self.log_value >= self._needed(rank)

    @property
    def is_futile(self) -> bool:
        """Whether it is to be given up: found worse, or after `most` events not found better."""
        return self.n_events >= self.most or bool(_log_value(self.n_losses, self.n_wins) >= self._needed_against)

    def verdict(self, rank: int) -> Verdict:
        """What the evidence says of the `rank`-th challenger."""
        if self.is_better(rank):
            return Verdict.BETTER
        return Verdict.FUTILE if self.is_futile else Verdict.OPEN

    def judge(self, differences: NDArray[Any], rank: int) -> Judged:
        """Take events in order up to the first at which there is a verdict, which so is the same whatever the batches.

        Where the verdict is open, it is to be called again with further events.

        Parameters
        ----------
        differences
            The learner's error less the challenger's, of each event: 1, 0 or -1.
        rank
            Of the challenger among those tried.
        """
        differences = differences[: max(self.most - self.n_events, 1)]
        differ = np.flatnonzero(differences)
        wins = self.n_wins + np.cumsum(differences[differ] > 0)
        losses = self.n_losses + np.cumsum(differences[differ] < 0)
        better = _log_value(wins, losses) >= self._needed(rank)
        worse = _log_value(losses, wins) >= self._needed_against
        decided = differ[better | worse]
        n = int(decided[0]) + 1 if len(decided) else len(differences)
        taken = differences[:n]
        n_wins, n_losses = int((taken > 0).sum()), int((taken < 0).sum())
        self.add(n_wins, n_losses, n - n_wins - n_losses)
        return Judged(n, self.verdict(rank))

    def _needed(self, rank: int) -> float:
        """The logarithm of what E must reach."""
        check_number("rank", rank, 1, _MOST_EVENTS, whole=True)
        return math.log(math.pi**2 / 6.0) + 2.0 * math.log(rank) - math.log(self.alpha)

    @property
    def _needed_against(self) -> float:
        """The logarithm of what E must reach the other way round."""
        return -math.log(self.alpha)

    def state(self) -> dict[str, int]:
        """What was counted, for JSON."""
        return {name: getattr(self, name) for name in _COUNTS}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` gave.

        Raises
        ------
        ArchiveError
            Where it is no such state.
        """
        try:
            if set(state) != set(_COUNTS):
                raise ValueError(f"counts of {sorted(state)}")
            for name in _COUNTS:
                check_number(name, state[name], 0, _MOST_EVENTS, whole=True)
                setattr(self, name, state[name])
        except DAMAGED as error:
            raise ArchiveError(f"not the counts of a test: {error!r}") from error


def _log_value(n_wins: Any, n_losses: Any) -> Any:
    """The logarithm of the mean over the bets of (1 + λ)^wins (1 - λ)^losses."""
    products = np.multiply.outer(n_wins, _UP) + np.multiply.outer(n_losses, _DOWN)
    return np.logaddexp.reduce(products, axis=-1) - math.log(len(_BETS))
