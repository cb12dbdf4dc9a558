"""Records of all partitions of a topic, fetched and merged in order."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.errors import ConnectorError
from connectors.kafka.clients import convert_errors
from connectors.kafka.failures import RetryTimeout
from connectors.kafka.offsets import Offsets

if TYPE_CHECKING:
    from connectors.kafka.source_options import SourceOptions


_RECORD_BYTES = 400  # size of a record in addition to its key, value and headers
_WAIT_S = 0.01  # between two polls of a topic without partitions
_SHOWN_PARTITIONS = 3  # in messages


class TimeOrder:
    """Merge partitions by timestamp: the partition with the earliest record is next.

    For equal timestamps, the lower partition is first. The order within a partition is kept, whatever its timestamps.
    This equals a stable sort by the running maximum of each partition's timestamps. Many records are merged at once.
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
        self._held = {partition: _PartitionBuffer(size) for partition in sorted(partitions)}

    def add(self, partition: int, records: Sequence[Any]) -> None:
        """Add the next records of a partition."""
        if records:
            self._held[partition].add(records)

    def held(self, partition: int) -> int:
        """Return the total size of the buffered records of a partition."""
        return self._held[partition].size

    def empty_partitions(self) -> list[int]:
        """Return the partitions without buffered records."""
        return [partition for partition, buffer in self._held.items() if not buffer.records]

    def take(self, ended: Collection[int]) -> list[Any]:
        """Return the records whose order is final, given the partitions that ended."""
        if any(partition not in ended for partition in self.empty_partitions()):
            return []
        held = {partition: buffer for partition, buffer in self._held.items() if buffer.records}
        # Stop at the last record of each partition that continues: the next one may have any timestamp.
        bound = min(
            ((int(buffer.times[-1]), partition) for partition, buffer in held.items() if partition not in ended),
            default=None,
        )
        taken: list[Any] = []
        times: list[NDArray[np.int64]] = []
        for partition, buffer in held.items():
            n = len(buffer.records)
            if bound is not None:
                n = int(np.searchsorted(buffer.times, bound[0], "right" if partition <= bound[1] else "left"))
            times.append(buffer.times[:n])
            taken += buffer.take(n)
        if len(held) < 2:
            return taken
        return [taken[i] for i in np.argsort(np.concatenate(times), kind="stable").tolist()]


class ArrivalOrder(TimeOrder):
    """Return records in order of arrival."""

    def take(self, ended: Collection[int]) -> list[Any]:
        """Return all buffered records, partition by partition."""
        return [record for buffer in self._held.values() for record in buffer.take(len(buffer.records))]


class _PartitionBuffer:
    """Buffered records of one partition, with the running maximum of the timestamps.

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


class Reader:
    """Fetch records, and hold them until their order is final.

    Parameters
    ----------
    offsets
        Offsets of the partitions.
    consumer
        The client.
    options
        Options of the source.
    timeout
        Timeout of the brokers, reset by records.

    Attributes
    ----------
    ready
        Records whose order is final.
    """

    def __init__(self, offsets: Offsets, consumer: Any, options: SourceOptions, timeout: RetryTimeout) -> None:
        self._offsets, self._consumer, self._options, self._timeout = offsets, consumer, options, timeout
        self._at_once = max(
            1, options.batch_bytes // options.values.max_value_bytes
        )  # records, until their size is known
        self._ahead: dict[int, int] = {}  # partitions that are not fetched for now, and where they resume
        self._empty_since: dict[int, float] = {}
        self._order, self.ready = options.order(()), list[Any]()

    def assign(self) -> None:
        """Fetch all partitions from their next offsets, and discard held records."""
        self._order, self.ready = self._options.order(self._offsets.next, _size), []
        self._empty_since.clear()
        self._ahead.clear()
        self._offsets.fetch(self._offsets.next)

    def peek(self) -> list[Any]:
        """Return the next ready records, as many as fit in a batch."""
        sizes = np.cumsum([_size(record) for record in self.ready[: self._options.batch_size]])
        n = max(1, int(np.searchsorted(sizes, self._options.batch_bytes, "right")))
        return self.ready[:n]

    def remove(self, records: Sequence[Any]) -> None:
        """Remove records that `peek` returned; they count as read."""
        self.ready = self.ready[len(records) :]
        self._offsets.next |= {record.partition: record.offset + 1 for record in records}

    def poll(self, seconds: float) -> None:
        """Fetch records, and move those whose order is final to `ready`."""
        partitions = self._offsets.next
        if not partitions:
            time.sleep(min(seconds, _WAIT_S))
            return
        before = sum(map(self._order.held, partitions))
        found = self._fetch(min(seconds, self._options.max_idle or 0.001) if before else seconds)
        for tp, records in found.items():
            self._order.add(tp.partition, self._wanted(tp.partition, records))
        n, size = sum(map(len, found.values())), sum(map(self._order.held, partitions)) - before
        if size > 0:  # as many as fit if others are alike: compressed records may be any number
            most = self._options.client["max_poll_records"]
            self._at_once = max(1, min(most, self._options.batch_bytes * n // size))
        self.ready = self._order.take(self.ended())
        self._choose()
        if not self.ready:
            self._skip_gaps()

    def _choose(self) -> None:
        """Unassign partitions that fill their share of memory, until half of it is free.

        Assigning a partition again at its offset discards the records that the client has fetched. Pausing is not an
        option: kafka-python 3.0.12 loses records of paused partitions and then returns no more of them.
        """
        offsets = self._offsets
        share = self._options.max_held_bytes / len(offsets.next)
        full = {p for p in offsets.next if self._order.held(p) > (share / 2 if p in self._ahead else share)}
        if full == self._ahead.keys():
            return
        for partition in full - self._ahead.keys():
            offsets.end_now[partition] = offsets.known_end(partition)
            self._ahead[partition] = offsets.reached(partition)
        again = {p: self._ahead.pop(p) for p in self._ahead.keys() - full}
        offsets.fetch(again, [p for p in offsets.next if p not in self._ahead])

    def _fetch(self, seconds: float) -> dict[Any, list[Any]]:
        from kafka.errors import OffsetOutOfRangeError

        try:
            with convert_errors(self._offsets.name, "records cannot be fetched"):
                found: dict[Any, list[Any]] = self._consumer.poll(
                    timeout_ms=max(1, int(seconds * 1000)), max_records=self._at_once
                )
        except ConnectorError as error:
            if not isinstance(error.__cause__, OffsetOutOfRangeError):
                raise
            self._offsets.skip_removed(error)
            self.assign()
            return {}
        if found:
            self._timeout.reset(self._offsets.name)
        return found

    def _wanted(self, partition: int, records: list[Any]) -> list[Any]:
        """Return the records before the end of a bounded stream."""
        end = self._offsets.end.get(partition, 0)
        if not self._options.until_end or records[-1].offset < end:
            return records
        return [record for record in records if record.offset < end]

    def ended(self) -> set[int]:
        """Return the partitions to not wait for: at their end, and idle for `max_idle`."""
        now, ended, offsets = time.monotonic(), set(), self._offsets
        self._empty_since = {p: self._empty_since.get(p, now) for p in self._order.empty_partitions()}
        for partition, since in self._empty_since.items():
            reached, idle = offsets.reached(partition), now - since
            if (self._options.until_end and reached >= offsets.end.get(partition, 0)) or (
                idle >= self._options.max_idle
                and (reached >= offsets.known_end(partition) or reached >= offsets.stable_end(partition, idle))
            ):
                ended.add(partition)
        return ended

    def _skip_gaps(self) -> None:
        """Skip offsets without events, such as transaction markers."""
        offsets = self._offsets
        for partition in self._order.empty_partitions():
            reached = offsets.reached(partition)
            if self._options.until_end:
                reached = min(reached, offsets.end.get(partition, 0))
            offsets.next[partition] = max(offsets.next[partition], reached)

    @property
    def has_unfetched(self) -> bool:
        """Whether a partition without buffered records has records to be fetched.

        Records of open transactions do not count.
        """
        ends = (
            (p, min(self._offsets.known_end(p), self._offsets.stable_end(p, math.inf)))
            for p in self._order.empty_partitions()
        )
        return any(self._offsets.reached(p) < end for p, end in ends)

    def awaited(self) -> str:
        """Describe the partitions with a lag and without held records."""
        awaited, offsets = [], self._offsets
        for partition in self._order.empty_partitions():
            offset, end = offsets.reached(partition), offsets.known_end(partition)
            if offset < end:
                is_open = offset >= offsets.stable_end(partition, math.inf)
                why = "; an open transaction there must end first" if is_open else ""
                awaited.append(f"partition {partition}, at offset {offset} of {end}{why}")
        shown = " and ".join(awaited[:_SHOWN_PARTITIONS]) or "the client"
        more = len(awaited) - _SHOWN_PARTITIONS
        return f"{shown} and {more} more" if more > 0 else shown


def _size(record: Any) -> int:
    """Return the approximate size of a record in bytes."""
    sizes: int = record.serialized_key_size + record.serialized_value_size + record.serialized_header_size
    return sizes + _RECORD_BYTES
