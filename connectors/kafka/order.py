"""One order for the records of several partitions: by time, as far as each partition's own order allows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class TimeOrder:
    """Merges partitions: of the records at their heads the one with the smallest timestamp is the next.

    Of equal timestamps the lower partition comes first; the order within a partition is kept whatever its timestamps
    say. That is the order of a stable sort by partition of the running maximum of each partition's timestamps, so whole
    stretches are merged at once. A record is handed out only when none that is still to come could go before it.

    Parameters
    ----------
    partitions
        The numbers of all partitions.

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

    def __init__(self, partitions: Collection[int]) -> None:
        self._held: dict[int, list[Any]] = {partition: [] for partition in sorted(partitions)}

    def add(self, partition: int, records: Sequence[Any]) -> None:
        """Take the next records of a partition."""
        self._held[partition] += records

    def held(self, partition: int) -> int:
        """How many records of a partition wait."""
        return len(self._held[partition])

    def lacking(self) -> list[int]:
        """The partitions of which no record waits."""
        return [partition for partition, records in self._held.items() if not records]

    def take(self, ended: Collection[int]) -> list[Any]:
        """The records whose turn it is for sure, where no more are waited for from the partitions that `ended`."""
        if any(not records and partition not in ended for partition, records in self._held.items()):
            return []
        held = {partition: records for partition, records in self._held.items() if records}
        keys = {partition: _running_maximum(records) for partition, records in held.items()}
        # No further than the last record of a partition that goes on: the one after it may be as old as one pleases.
        bound = min(
            ((int(key[-1]), partition) for partition, key in keys.items() if partition not in ended), default=None
        )
        taken: list[Any] = []
        lengths: list[NDArray[np.int64]] = []
        for partition, records in held.items():
            n = len(records)
            if bound is not None:
                n = int(np.searchsorted(keys[partition], bound[0], "right" if partition <= bound[1] else "left"))
            taken += records[:n]
            lengths.append(keys[partition][:n])
            self._held[partition] = records[n:]
        if len(held) < 2:
            return taken
        return [taken[i] for i in np.argsort(np.concatenate(lengths), kind="stable").tolist()]


class ArrivalOrder(TimeOrder):
    """Hands records out as they come."""

    def take(self, ended: Collection[int]) -> list[Any]:
        """All that wait, partition by partition."""
        taken = [record for records in self._held.values() for record in records]
        self._held = {partition: [] for partition in self._held}
        return taken


def _running_maximum(records: Sequence[Any]) -> NDArray[np.int64]:
    times = np.fromiter((record.timestamp for record in records), np.int64, len(records))
    running: NDArray[np.int64] = np.maximum.accumulate(times)
    return running
