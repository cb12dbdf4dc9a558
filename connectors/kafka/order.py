"""Order of records across partitions: by timestamp or by arrival."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TimeOrder:
    """Merge partitions by timestamp; the earliest first record of any partition is next.

    For equal timestamps, the lower partition is first. The order within a partition is kept, whatever its timestamps.
    This equals a stable sort by the running maximum of each partition's timestamps, so many records are merged at once.
    A record is returned only if no later record can precede it.

    Parameters
    ----------
    partitions
        Numbers of all partitions.
    size
        Function that returns the size of a record for `held`; 1 by default.

    Examples
    --------
    >>> from types import SimpleNamespace as Record
    >>> order = TimeOrder([0, 1])
    >>> order.add(0, [Record(timestamp=t) for t in (10, 5, 30)])
    >>> order.add(1, [Record(timestamp=t) for t in (7, 20)])
    >>> [record.timestamp for record in order.take(ended=[])]
    [7, 10, 5, 20]
    >>> [record.timestamp for record in order.take(ended=[1])]
    [30]
    """

    def __init__(self, partitions: Collection[int], size: Callable[[Any], int] = lambda _: 1) -> None:
        self._held = {partition: _Stretch(size) for partition in sorted(partitions)}

    def add(self, partition: int, records: Sequence[Any]) -> None:
        """Add the next records of a partition."""
        if records:
            self._held[partition].add(records)

    def held(self, partition: int) -> int:
        """Return the total size of the buffered records of a partition."""
        return self._held[partition].size

    def lacking(self) -> list[int]:
        """Return the partitions without buffered records."""
        return [partition for partition, stretch in self._held.items() if not stretch.records]

    def take(self, ended: Collection[int]) -> list[Any]:
        """Return the records whose order is final, without waiting for partitions in `ended`."""
        if any(partition not in ended for partition in self.lacking()):
            return []
        held = {partition: stretch for partition, stretch in self._held.items() if stretch.records}
        # No further than the last record of a partition that goes on: the one after it may be as old as one pleases.
        bound = min(
            ((int(stretch.times[-1]), partition) for partition, stretch in held.items() if partition not in ended),
            default=None,
        )
        taken: list[Any] = []
        times: list[NDArray[np.int64]] = []
        for partition, stretch in held.items():
            n = len(stretch.records)
            if bound is not None:
                n = int(np.searchsorted(stretch.times, bound[0], "right" if partition <= bound[1] else "left"))
            times.append(stretch.times[:n])
            taken += stretch.take(n)
        if len(held) < 2:
            return taken
        return [taken[i] for i in np.argsort(np.concatenate(times), kind="stable").tolist()]


class ArrivalOrder(TimeOrder):
    """Return records in order of arrival."""

    def take(self, ended: Collection[int]) -> list[Any]:
        """Return all buffered records, partition by partition."""
        return [record for stretch in self._held.values() for record in stretch.take(len(stretch.records))]


class _Stretch:
    """Buffered records of one partition, with the running maximum of their timestamps.

    The maximum stays valid after records were taken, because it exceeds that of all taken records.
    """

    def __init__(self, size: Callable[[Any], int]) -> None:
        self._size_of = size
        self.records: list[Any] = []
        self.times = self._sizes = np.zeros(0, np.int64)
        self.size = 0

    def add(self, records: Sequence[Any]) -> None:
        n = len(records)
        times = np.fromiter((record.timestamp for record in records), np.int64, n)
        sizes = np.fromiter(map(self._size_of, records), np.int64, n)
        if self.records:
            times[0] = max(times[0], self.times[-1])
        self.records += records
        self.times = np.concatenate([self.times, np.maximum.accumulate(times)])
        self._sizes = np.concatenate([self._sizes, sizes])
        self.size += int(sizes.sum())

    def take(self, n: int) -> list[Any]:
        taken, self.records = self.records[:n], self.records[n:]
        self.size -= int(self._sizes[:n].sum())
        self.times, self._sizes = self.times[n:], self._sizes[n:]
        return taken
