"""Offsets of the partitions of a topic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.errors import ConnectorError
from connectors.kafka.clients import RESPONSE_S, Brokers, convert_errors, describe, logger
from connectors.kafka.failures import is_transient
from connectors.kafka.producer import BackgroundCall

if TYPE_CHECKING:
    from connectors.kafka.source_options import SourceOptions

LIVE_RESPONSE_S = 2.0
"""Timeout of a query during a run; it is repeated later."""

_STALLED_S = 0.5  # without a record and with a lag; an open transaction may be the reason


_AGAIN_S = 0.2  # between two requests to a coordinator that is loading its offsets
_END_S = 2.0  # timeout of the last commit at the end
_DENIED_S = 60.0  # between two commits without the permission, which may be granted
_NO_RIGHT = ("GroupAuthorizationFailedError", "TopicAuthorizationFailedError")


class Offsets:
    """Next offset to hand out, and first and last existing offset, of each partition.

    Parameters
    ----------
    name, topic
        Name of the source in messages, and of the topic.
    consumer
        The client.
    options
        Options of the source.

    Attributes
    ----------
    next, begin, end, end_now
        Next offset; first offset; end at the start and at the last query.
    """

    def __init__(self, name: str, topic: str, consumer: Any, options: SourceOptions) -> None:
        self.name, self._topic, self._consumer, self._options = name, topic, consumer, options
        self.next: dict[int, int] = {}
        self.begin: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.end_now: dict[int, int] = {}
        self._fetched: set[int] = set()
        self._stable: dict[int, int] = {}
        self._stable_at = time.monotonic()

    def tp(self, partition: int) -> Any:
        """Return a partition as a key of the client."""
        from kafka import TopicPartition

        return TopicPartition(self._topic, partition)

    def query(self, which: str, partitions: Sequence[int], seconds: float = RESPONSE_S) -> dict[int, int]:
        """Query `beginning_offsets` or `end_offsets`."""
        with convert_errors(self.name, "the offsets of its partitions cannot be read"):
            found = getattr(self._consumer, which)(list(map(self.tp, partitions)), timeout_ms=seconds * 1000)
        return {tp.partition: offset for tp, offset in found.items()}

    def add(self, partitions: Sequence[int], *, from_end: bool = False) -> None:
        """Add partitions, from their beginning or end."""
        begin, end = self.query("beginning_offsets", partitions), self.query("end_offsets", partitions)
        self.begin |= begin
        self.end |= end
        self.next |= end if from_end else begin

    def fetch(self, offsets: Mapping[int, int], keep: Sequence[int] = ()) -> None:
        """Fetch partitions from offsets, continue those in `keep`, and stop all others."""
        self._fetched = {*offsets, *keep}
        with convert_errors(self.name, "its partitions cannot be assigned"):
            self._consumer.assign([self.tp(partition) for partition in self.next if partition in self._fetched])
            for partition, offset in offsets.items():
                self._consumer.seek(self.tp(partition), offset)

    def seek(self, position: Mapping[int, int]) -> None:
        """Set the next offsets."""
        if missing := sorted(set(position) - set(self.next)):
            raise ConnectorError(
                f"{self.name}: has no partition {missing[0]}, whose events were learned: check the topic", "position"
            )
        self.next = dict(self.begin)  # also of new partitions
        self._check(position, self.end)

    def skip_removed(self, error: ConnectorError) -> None:
        """Move to existing offsets if the client reported that an offset does not exist."""
        before, partitions = dict(self.next), sorted(self.next)
        self.begin, end = self.query("beginning_offsets", partitions), self.query("end_offsets", partitions)
        self._check(before, end)
        if self.next == before:
            raise error

    def _check(self, offsets: Mapping[int, int], ends: Mapping[int, int]) -> None:
        for partition, offset in offsets.items():
            begin, end = self.begin[partition], ends[partition]
            if offset > end:
                what = f"partition {partition} ends at offset {end}, but events up to {offset} were learned"
                why = "the topic was recreated or lost records; start over with --reset"
                raise ConnectorError(f"{self.name}: {what}: {why}", "recreated")
            if offset < begin and not self._options.skip_gap:
                what = f"retention has removed the offsets {offset} to {begin - 1} of partition {partition}"
                way = "set gap=skip to continue with the remaining events, or start over with --reset"
                raise ConnectorError(f"{self.name}: {what}, which come next; {way}", "removed", option="gap")
            if offset < begin:
                what = "%s: partition %d: skipping from %d to %d, removed by retention"
                logger.warning(what, self.name, partition, offset, begin)
            self.next[partition] = max(offset, begin)

    @property
    def is_finished(self) -> bool:
        """Whether a bounded stream is at its end."""
        return (
            self._options.until_end
            and bool(self.next)
            and all(offset >= self.end.get(partition, 0) for partition, offset in self.next.items())
        )

    def known_end(self, partition: int) -> int:
        """Return the last known end of a partition."""
        highwater = self._consumer.highwater(self.tp(partition)) if partition in self._fetched else None
        return max(highwater or 0, self.end.get(partition, 0), self.end_now.get(partition, 0))

    def stable_end(self, partition: int, seconds: float) -> float:
        """Return the last stable offset of a stalled partition, else infinity."""
        if seconds < _STALLED_S:
            return float("inf")
        if time.monotonic() - self._stable_at > _STALLED_S:
            self._stable_at = time.monotonic()
            with contextlib.suppress(ConnectorError):
                self._stable = self.query("end_offsets", sorted(self.next), 1)
        return self._stable.get(partition, float("inf"))

    def reached(self, partition: int) -> int:
        """Return the position of the client in a partition."""
        with convert_errors(self.name, "its position cannot be read"):
            return int(self._consumer.position(self.tp(partition), timeout_ms=LIVE_RESPONSE_S * 1000) or 0)


class Lag:
    """Commit offsets to a group in the background, so that monitoring shows the lag.

    Failures only cause a warning, and the offsets are never read. The consumer itself has no group, because it would
    query the group before each fetch and fail with it.

    Parameters
    ----------
    brokers
        Brokers of the group.
    group
        Name of the group; empty for none.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers, self._name, self._group = brokers, brokers.name, group
        self._waiting: Mapping[Any, Any] = {}
        self._call: BackgroundCall | None = None
        self._closed, self._reported, self._allowed_at = False, set[bool](), 0.0

    def publish(self, offsets: Mapping[Any, Any]) -> None:
        """Commit offsets in the background; they replace offsets not yet committed.

        Nothing is committed after `close`.
        """
        if self._group and not self._closed:
            self._waiting = offsets
            self._advance()

    def _advance(self) -> None:
        is_idle = self._call is None or self._call.done()
        if self._waiting and is_idle and time.monotonic() >= self._allowed_at:
            offsets, self._waiting = self._waiting, {}
            self._call = BackgroundCall(lambda: self._try(offsets), f"{self._group} shows the lag")

    def _try(self, offsets: Mapping[Any, Any]) -> None:
        try:
            self._commit(offsets)
            self._reported.clear()
        except Exception as error:  # the lag is not shown, but the run continues
            self._warn(error)

    def _commit(self, offsets: Mapping[Any, Any]) -> None:
        from kafka.errors import KafkaError, NoError

        deadline = time.monotonic() + RESPONSE_S
        with contextlib.closing(self._brokers.admin()) as client:
            while True:
                try:
                    found = client.alter_group_offsets(self._group, offsets)
                    for kind in set(found.values()) - {NoError}:
                        raise kind(self._group)
                    return
                except KafkaError as error:
                    if not is_transient(error) or self._closed or time.monotonic() > deadline:
                        raise
                time.sleep(_AGAIN_S)

    def _warn(self, error: Exception) -> None:
        is_denied = type(error).__name__ in _NO_RIGHT
        if is_denied:
            self._allowed_at = time.monotonic() + _DENIED_S
        if is_denied in self._reported:
            return
        self._reported.add(is_denied)
        if is_denied:
            what = "no permission to READ the group %s (group_id=NAME names another, `group_id=` none)"
            logger.warning(f"%s: the lag is not published: {what}", self._name, self._group)
        else:
            reason = error if isinstance(error, ConnectorError) else f"{self._name}: {describe(error)}"
            logger.warning("%s; the lag is not published to the group %s for now", reason, self._group)

    def close(self) -> None:
        """Wait up to two seconds for pending offsets."""
        deadline = time.monotonic() + _END_S
        for _ in range(2):  # the call under way, and one with the latest offsets, also after a denied permission
            if self._call is None or self._call.wait(max(0.0, deadline - time.monotonic())):
                self._allowed_at = 0.0
                self._advance()
        self._closed = True
