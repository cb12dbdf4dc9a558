"""Recognize rows that are sorted by their label, as files often are and streams hardly ever."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Shorter runs are strays where they are not of the class around them.
_SHORTEST_RUN = 10
# Rows are sorted where at most such a share of them are strays, and the chance of such an order is smaller.
_MOST_STRAYS, _LOG_CHANCE = 0.02, math.log(1e-6)
_MOST_BLOCKS = 2
# After so many strays, and such a share, nothing more is looked at.
_HOPELESS, _HOPELESS_SHARE = 100, 0.1
_MOST_TOLD = 5


class LabelOrder:
    """Follows in which order labels come: each class in one run, or all classes in runs twice in the same order.

    Few rows may stand elsewhere. Labels that persist have runs, too, but come again.

    Examples
    --------
    >>> order = LabelOrder()
    >>> order.take(np.repeat([0, 1, 0, 1], 500))
    >>> order.notice(["a", "b"])[:64]
    'the rows seem to be sorted by their label: each of 2 classes cam'
    >>> order.take(np.repeat([0, 1], 500))
    >>> order.notice(["a", "b"])
    ''
    """

    def __init__(self) -> None:
        self._segments: list[list[int]] = []  # class and number of rows
        self._counts: Counter[int] = Counter()  # segments by class
        self._strays = 0
        self._run = [-1, 0]  # class and length of the last run
        self._is_open = True

    def take(self, codes: NDArray[np.integer[Any]]) -> None:
        """Take the classes of the next rows, by number."""
        if not self._is_open:
            return
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for code, n in zip(codes[starts].tolist(), np.diff(starts, append=len(codes)).tolist(), strict=True):
            if not self._goes_on(code, n):
                break

    def _goes_on(self, code: int, n: int) -> bool:
        """Take a run, or more of the last one; whether rows may still be sorted."""
        if code != self._run[0]:
            self._strays += self._n_pending
            self._run = [code, 0]
            self._is_open = self._strays <= max(_HOPELESS, _HOPELESS_SHARE * self._n_rows)
        self._run[1] += n
        if self._segments and self._segments[-1][0] == code:
            self._segments[-1][1] += n
        elif self._run[1] >= _SHORTEST_RUN:
            self._segments.append([code, self._run[1]])
            self._counts[code] += 1
            self._is_open &= self._counts[code] <= _MOST_BLOCKS
        return self._is_open

    @property
    def _n_pending(self) -> int:
        """The length of the last run where it belongs to no segment."""
        return 0 if self._segments and self._segments[-1][0] == self._run[0] else self._run[1]

    @property
    def _n_rows(self) -> int:
        return sum(n for _, n in self._segments) + self._strays + self._n_pending

    def notice(self, labels: Sequence[Any]) -> str:
        """What to say of rows that seem to be sorted; empty for nothing.

        Parameters
        ----------
        labels
            The label of each class by number.
        """
        order, n_classes = [code for code, _ in self._segments], len(self._counts)
        n_strays = self._strays + self._n_pending
        is_in_order = order in (order[:n_classes], _MOST_BLOCKS * order[:n_classes])
        if not self._is_open or n_classes < 2 or not is_in_order or n_strays > _MOST_STRAYS * self._n_rows:
            return ""
        if self._log_chance(n_strays) > _LOG_CHANCE:
            return ""
        totals: Counter[int] = Counter()
        for code, n in self._segments:
            totals[code] += n
        first = ", ".join(f"{labels[code]!r}: {n:,}" for code, n in list(totals.items())[:_MOST_TOLD])
        more = ", ..." if n_classes > _MOST_TOLD else ""
        runs = "one run" if len(order) == n_classes else "two runs, in the same order twice"
        few = f", except for {n_strays:,} rows" if n_strays else ""
        return (
            f"the rows seem to be sorted by their label: each of {n_classes} classes came in {runs} ({first}{more})"
            f"{few}, and a model that follows drift forgets those that came first. If they are no stream in order of "
            "time, shuffle them, or fit a batch solver of streamsvm.batch"
        )

    def _log_chance(self, n_strays: int) -> float:
        """How probable such an order is among all orders of the rows."""
        n, n_classes = self._n_rows, len(self._counts)
        likely = math.lgamma(n_classes + 1) + sum(math.lgamma(length + 1) for _, length in self._segments)
        likely += n_strays * math.log(n) + (len(self._segments) - n_classes) * math.log(n)
        return likely - math.lgamma(n + 1)

    def state(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"segments": self._segments, "strays": self._strays, "run": self._run, "open": self._is_open}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None, n_classes: int) -> LabelOrder:
        """What `state` gave; one that looks at nothing where there is none.

        Raises
        ------
        ValueError
            Where this is no state with so many classes.
        """
        order = cls()
        if state is None:
            order._is_open = False
            return order
        pairs = [*state["segments"], state["run"]]
        if any(len(pair) != 2 or {*map(type, pair)} != {int} or not 0 <= pair[1] < 1 << 62 for pair in pairs):
            raise ValueError(f"runs of labels {pairs[:5]}")
        if any(not -1 <= code < n_classes for code, _ in pairs) or type(state["strays"]) is not int:
            raise ValueError("runs of labels that are not known")
        if not 0 <= state["strays"] < 1 << 62 or len(pairs) > _MOST_BLOCKS * n_classes + 2:
            raise ValueError(f"{len(pairs)} runs of labels and {state['strays']} strays")
        order._segments, order._run = [list(pair) for pair in state["segments"]], list(state["run"])
        order._counts = Counter(code for code, _ in order._segments)
        order._strays, order._is_open = state["strays"], state["open"] is True
        return order
