"""Messages for viewers of a page, and counts over time in bounded memory."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


class Broadcaster:
    """The latest of a sequence of messages; a slow viewer misses those in between.

    Examples
    --------
    >>> broadcaster = Broadcaster()
    >>> broadcaster.publish(b"first")
    >>> broadcaster.publish(b"second")
    >>> broadcaster.after(0, timeout=1.0)
    (2, b'second')
    >>> broadcaster.after(2, timeout=0.0)
    (2, None)
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number, self._message = 0, b""
        self.at = -float("inf")
        self.closed = False

    def publish(self, message: bytes) -> None:
        """Publish a message."""
        with self._condition:
            self._number, self._message, self.at = self._number + 1, message, time.monotonic()
            self._condition.notify_all()

    def close(self) -> None:
        """Stop publishing."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def wait_closed(self, seconds: float) -> bool:
        """Wait for the end of publishing; return whether it has come."""
        with self._condition:
            return self._condition.wait_for(lambda: self.closed, seconds)

    @property
    def latest(self) -> bytes:
        """The latest message; empty before the first."""
        return self._message

    def after(self, number: int, timeout: float) -> tuple[int, bytes | None]:
        """Wait for a message with a higher number; None after `timeout` seconds."""
        with self._condition:
            self._condition.wait_for(lambda: self._number > number or self.closed, timeout)
            return self._number, self._message if self._number > number else None


COLUMNS = (
    *("time", "taken", "judged", "rejected", "hits", "no_change", "majority"),  # counts, except the time in seconds
    *("loss", "scored"),  # the summed log loss, and the number of events
    *("lag", "pending"),
)
_FINENESS = 500.0  # age of a point over the distance to its neighbours, at most
_MOST = 2_048  # points between two reductions


class Series:
    """Points in time, spaced from 1 s to 1/500 of their age (2,000 points per day).

    Examples
    --------
    >>> series = Series()
    >>> for second in range(10_000):
    ...     series.add({"time": float(second), "judged": 10.0 * second})
    >>> columns = series.columns()
    >>> len(columns["time"]) < 3_000, float(columns["time"][0]), float(columns["time"][-1])
    (True, 0.0, 9999.0)
    """

    def __init__(self) -> None:
        self._table, self._new = np.zeros((0, len(COLUMNS))), list[list[float]]()
        self._lock = threading.Lock()

    def add(self, figures: Mapping[str, float]) -> None:
        """Add a point: values of `COLUMNS`."""
        with self._lock:
            self._new.append([figures.get(name, np.nan) for name in COLUMNS])
            if len(self._new) >= _MOST:
                self._table, self._new = _thinned(self._all()), []

    def _all(self) -> NDArray[np.float64]:
        return np.concatenate([self._table, np.array(self._new).reshape(-1, len(COLUMNS))])

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """Return all points by column, the oldest first, and always with the newest."""
        with self._lock:
            table = _thinned(self._all())
        return dict(zip(COLUMNS, table.T, strict=True))


def _thinned(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keep the first point per interval; interval lengths double with age."""
    if not len(table):
        return table
    time = table[:, 0]
    length = 2.0 ** np.floor(np.log2(np.maximum((time[-1] - time) / _FINENESS, 1.0)))
    interval = np.floor(time / length)
    is_first = (np.diff(interval, prepend=np.nan) != 0) | (np.diff(length, prepend=np.nan) != 0)
    is_first[-1] = True
    kept: NDArray[np.float64] = table[is_first]
    return kept


def rounded(values: NDArray[np.float64]) -> list[float | None]:
    """Return the values with few digits, to shorten JSON; None unless finite."""
    return [
        None if not math.isfinite(v) else int(v) if v == int(v) else float(f"{v:.6g}" if abs(v) < 1e6 else f"{v:.3f}")
        for v in values.tolist()
    ]
