"""Detection of rows sorted by label, which is common in files but not in streams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import listed
from streamsvm.models.archive import whole
from streamsvm.models.codec import SavedState, Stateful

# Shorter runs count as strays unless they belong to the class around them.
_SHORTEST_RUN = 10
# Rows count as sorted if the share of strays and the log probability of the order are below these limits.
_MOST_STRAYS, _LOG_CHANCE = 0.02, math.log(1e-6)
_MOST_BLOCKS = 2
# The detector stops if both the number and the share of strays exceed these limits.
_HOPELESS, _HOPELESS_SHARE = 100, 0.1
_MOST_SHOWN = 5


class LabelOrder(Stateful):
    """Detector of rows sorted by label.

    Rows are sorted if each class forms one run, or all classes form runs twice in one order. Few rows may be out of
    place. Persistent labels also form runs, but these recur.

    Examples
    --------
    >>> order = LabelOrder()
    >>> order.add(np.repeat([0, 1, 0, 1], 500))
    >>> order.notice(["a", "b"])[:64]
    'the rows seem to be sorted by their label: each of 2 classes occ'
    >>> order.add(np.repeat([0, 1], 500))
    >>> order.notice(["a", "b"])
    ''
    """

    saved = ("_segments", "_strays", "_run", "_is_open")

    def __init__(self) -> None:
        self._segments: list[list[int]] = []  # class and number of rows
        self._counts: Counter[int] = Counter()  # segments by class
        self._strays = 0
        self._run = [-1, 0]  # class and length of the last run
        self._is_open = True

    def add(self, codes: NDArray[np.integer[Any]]) -> None:
        """Add the class codes of the next rows."""
        if not self._is_open:
            return
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for code, n in zip(codes[starts].tolist(), np.diff(starts, append=len(codes)).tolist(), strict=True):
            if not self._goes_on(code, n):
                break

    def _goes_on(self, code: int, n: int) -> bool:
        """Add a run of n rows of one class; return whether rows may still be sorted."""
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
        """Length of the last run if it belongs to no segment, else 0."""
        return 0 if self._segments and self._segments[-1][0] == self._run[0] else self._run[1]

    @property
    def _n_rows(self) -> int:
        return sum(n for _, n in self._segments) + self._strays + self._n_pending

    def notice(self, labels: Sequence[Any]) -> str:
        """Return a notice if the rows appear to be sorted, else an empty string.

        Parameters
        ----------
        labels
            Label of each class code.
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
        first = listed((f"{labels[code]!r}: {n:,}" for code, n in totals.items()), _MOST_SHOWN, str)
        runs = "one run" if len(order) == n_classes else "two runs, in the same order twice"
        few = f", except for {n_strays:,} rows" if n_strays else ""
        return (
            f"the rows seem to be sorted by their label: each of {n_classes} classes occurs in {runs} ({first})"
            f"{few}, and an adaptive model forgets the first classes. Unless the rows are in time "
            "order, shuffle them, or use a batch solver of streamsvm.batch"
        )

    def _log_chance(self, n_strays: int) -> float:
        """Return the log probability of such an order among all orders of the rows."""
        n, n_classes = self._n_rows, len(self._counts)
        likely = math.lgamma(n_classes + 1) + sum(math.lgamma(length + 1) for _, length in self._segments)
        likely += n_strays * math.log(n) + (len(self._segments) - n_classes) * math.log(n)
        return likely - math.lgamma(n + 1)

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`; see also `fits`."""
        super().restore(state)
        *self._segments, self._run = [[whole(code, -1), whole(n)] for code, n in (*self._segments, self._run)]
        self._counts = Counter(code for code, _ in self._segments)

    def fits(self, n_classes: int) -> bool:
        """Return whether a restored state is possible with this number of classes."""
        runs = [*self._segments, self._run]
        is_known = all(code < n_classes for code, _ in runs)
        return is_known and len(runs) <= _MOST_BLOCKS * n_classes + 2 and self._strays >= 0
