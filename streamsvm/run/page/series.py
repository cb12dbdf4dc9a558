"""Statistics of a run over time in bounded memory, with a resolution from a second to a quarter of an hour.

Points contain counts since the start of the stream, not rates or shares. Differences between any two points are
therefore exact, and a coarse series is a fine one with points left out.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

COLUMNS = (
    *("time", "taken", "judged", "rejected", "hits", "no_change", "majority"),  # counts, except the time in seconds
    *("loss", "scored"),  # the summed log loss, and the number of events
    *("lag", "pending"),
)
TIERS = ((1.0, 900), (10.0, 720), (60.0, 1440), (900.0, 3000))
"""Distance of points in seconds, and their number: a quarter of an hour, two hours, a day, and a month."""

N_FEATURES = 8
_MOST_NAMES = 512  # greatest number of names, because features may keep changing


class Series:
    """Points at decreasing resolution.

    Examples
    --------
    >>> series = Series()
    >>> for second in range(2_000):
    ...     series.add({"time": float(second), "judged": 10.0 * second}, "a member", {"x": 0.5})
    >>> columns = series.columns()
    >>> len(columns["time"]), columns["time"][:3].tolist(), float(columns["time"][-1])
    (1010, [0.0, 10.0, 20.0], 1999.0)
    """

    def __init__(self) -> None:
        self._tiers = [_Tier(step, most) for step, most in TIERS]
        self._latest: NDArray[np.float64] | None = None
        self._features, self._members = _Names(), _Names()
        self._lock = threading.Lock()

    def add(self, figures: Mapping[str, float], leader: str, relevance: Mapping[str, float]) -> None:
        """Add a point: values of `COLUMNS`, the leading member, and relevance in descending order."""
        codes, values = np.full(N_FEATURES, -1.0), np.full(N_FEATURES, np.nan)
        for i, (name, value) in enumerate(list(relevance.items())[:N_FEATURES]):
            codes[i], values[i] = self._features[name], value
        row = [figures.get(name, math.nan) for name in COLUMNS]
        point = np.concatenate([row, [self._members[leader]], codes, values])
        with self._lock:
            self._latest = point
            for tier in self._tiers:
                tier.add(point)

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return all points by column, oldest first; coarser tiers only contribute points before the finer ones.

        The last point is always the one added last.
        """
        table = self._table()
        return {name: table[:, j] for j, name in enumerate(COLUMNS)}

    def packed(self) -> dict[str, Any]:
        """Return the series as plain data: columns, leading members by number, and the most relevant features."""
        table = self._table()
        leaders = table[:, len(COLUMNS)].astype(int).tolist()
        names, relevance = self._relevance(table[:, len(COLUMNS) + 1 :])
        return {
            "columns": {name: _rounded(table[:, j]) for j, name in enumerate(COLUMNS)},
            "leaders": leaders,
            "members": list(self._members.names),
            "relevance": {name: _rounded(values) for name, values in zip(names, relevance, strict=True)},
        }

    def _table(self) -> NDArray[np.float64]:
        with self._lock:
            parts = [] if self._latest is None else [self._latest]
            before = parts[0][0] if parts else math.inf
            for tier in self._tiers:
                parts += [point for point in reversed(tier.points) if point[0] < before]
                before = parts[-1][0] if parts else before
        return np.array(parts[::-1]).reshape(len(parts), len(COLUMNS) + 1 + 2 * N_FEATURES)

    def _relevance(self, held: NDArray[np.float64]) -> tuple[list[str], Sequence[NDArray[np.float64]]]:
        """Return the features with the largest share over all points, and their relevance, NaN if unknown."""
        codes, values = held[:, :N_FEATURES].astype(int), held[:, N_FEATURES:]
        total = np.nansum(values, axis=1, keepdims=True)
        shares = np.where(codes >= 0, np.nan_to_num(values / np.where(total > 0.0, total, 1.0)), 0.0)
        sums = np.bincount(np.maximum(codes, 0).ravel(), shares.ravel(), minlength=1)
        chosen = [code for code in np.argsort(-sums, kind="stable")[:N_FEATURES].tolist() if sums[code] > 0.0]
        found = [np.where(codes == code, values, -np.inf).max(axis=1, initial=-np.inf) for code in chosen]
        names = list(self._features.names)
        return [names[code] for code in chosen], [np.where(np.isinf(each), np.nan, each) for each in found]


class _Names(dict[str, int]):
    """Numbers of names in order of arrival; -1 for the empty name and for names beyond the limit."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, name: str) -> int:
        if not name or len(self.names) >= _MOST_NAMES:
            return -1
        self[name] = len(self.names)
        self.names.append(name)
        return self[name]


class _Tier:
    """The latest points at a distance of at least `step` seconds."""

    def __init__(self, step: float, most: int) -> None:
        self._step, self._due = step, -math.inf
        self.points: deque[NDArray[np.float64]] = deque(maxlen=most)

    def add(self, point: NDArray[np.float64]) -> None:
        if point[0] >= self._due:
            self._due = (point[0] // self._step + 1) * self._step
            self.points.append(point)


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Return the values with few digits, to shorten JSON."""
    return [
        None if v != v else int(v) if v == int(v) else float(f"{v:.6g}" if abs(v) < 1e6 else f"{v:.3f}")
        for v in values.tolist()
    ]
