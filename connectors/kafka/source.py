"""Kafka source: events of all partitions of a topic, in one order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

from connectors.errors import ConnectorError, UnreachableError
from connectors.events import Batch, Position
from connectors.kafka.clients import (
    CONNECT_S,
    Brokers,
    Topic,
    convert_errors,
    logger,
    named_servers,
    split_address,
)
from connectors.kafka.failures import START_S, RetryTimeout
from connectors.kafka.offsets import LIVE_RESPONSE_S, Lag, Offsets
from connectors.kafka.producer import metadata_of
from connectors.kafka.reader import Reader
from connectors.kafka.source_options import SourceOptions
from connectors.options import Options
from connectors.streams import Source

_WAIT_S = 0.01  # for more records, once, before results are made durable
_IDLE_S = 0.05  # after that
CHECK_S = 30.0  # between two checks for new partitions
QUERY_S = 5.0  # between two queries of the ends of partitions and of the topic id
_SUSPENDED_S = 2.0  # after the deadline of a poll: the process did not run, so that no broker was silent
DRY_S = 30.0  # with a lag and without an event, before a warning
_REGISTRY = "schema registry"
_ID = "topic id"  # beside the topic in positions; no topic can have this name


class KafkaSource(Source):
    """Read the records of one topic as events.

    One process reads all partitions without a consumer group; the position `{topic: {partition: next offset}}` is
    stored with the model. Records are merged by timestamp across partitions, and the lower partition is first for equal
    timestamps. The order within a partition is kept. The source waits for partitions that still have records, but at
    most `max_idle` for empty ones. The replay of a filled topic is therefore deterministic. On a live stream, events
    that are read again after a crash may interleave differently.

    Parameters
    ----------
    servers
        Bootstrap brokers as HOST:PORT, separated by commas, or a list.
    topic
        Name of the topic.
    **options
        *Events*: `format` (json, avro or csv; default json); `label`, `key`, `time`, `time_unit`, `time_format`,
        `ignore`, `types`, `envelope`, `flatten` and `lists` as for files (without `key` and `time`, those of the record
        are used);
        `registry` (URL of a schema registry); `schema` (Avro schema file, required without a registry); `framed`
        (default no; whether values start with a zero byte and a schema id although there is no registry); `id_bytes` (4
        or 8, size of the schema id; default 4);
        `names`, `delimiter`, `quote` and `escape` (CSV); `max_value_bytes` (default 1 MiB; longer values are rejected).
        *Order and positions*: `order` (timestamp or arrival); `max_idle` (default 0.02 s); `at_end` (wait, or stop at
        the offsets seen at the start); `auto_offset_reset` (earliest or latest, for a start without a position); `gap`
        (stop or skip, if retention removed the next records); `absent` (stop or wait, if the topic does not exist);
        `recreated` (stop or accept, if the topic id has changed).
        *Reading*: `batch_size` (default 1024); `max_held_bytes` (default 64 MiB; memory for partitions that wait for
        others, shared equally; a partition with a full share is not read); `group_id` (default streamsvm.TOPIC; offsets
        are committed to it to show the lag and are never read; empty for none); `broker_timeout` (seconds to wait for
        unavailable brokers; by default 10 s for the first response and 30 s for requests at the start, then forever);
        `client` (TOML file with client options, such as credentials); and any option of `kafka.KafkaConsumer`. Defaults
        that differ from the client: `isolation_level` is read_committed, `max_poll_records` 4000 and
        `fetch_max_wait_ms` 100. `fetch_max_bytes` is an eighth of `max_held_bytes`. `max_partition_fetch_bytes` is this
        value divided by the number of partitions, at most 1 MiB. A batch is also limited to an eighth of
        `max_held_bytes`, or one record.

    Raises
    ------
    ConnectorError
        If no broker responds, the topic does not exist, an option is invalid, or a position cannot be resumed.
    """

    is_live = True

    def __init__(self, *, servers: str | Sequence[str], topic: str, **options: Any) -> None:
        (self.servers, self.name), self.topic = named_servers(servers, topic), topic
        self._options = own = SourceOptions(Options(self.name, options), topic)
        self._closed = self._waited = self._stalled = False
        self._checked_at = self._queried_at = self._refreshed = self._waiting_since = time.monotonic()
        self._checked = -QUERY_S
        self._brokers = Brokers(self.name, self.servers, own.client)
        self._published = Lag(self._brokers, own.group)
        self._starting = RetryTimeout(START_S if own.timeout_s is None else own.timeout_s)
        self._timeout = RetryTimeout(float("inf") if own.timeout_s is None else own.timeout_s)
        self._registry_timeout = RetryTimeout(self._timeout.seconds, _REGISTRY)
        if own.values.registry is not None:
            RetryTimeout(CONNECT_S if own.timeout_s is None else own.timeout_s, _REGISTRY).retry(
                own.values.registry.check
            )
        found = self._find_topic()
        self._id = None if found is None else found.id
        limits = own.fetch_limits(1 if found is None else len(found.partitions))
        self._consumer = self._brokers.open("KafkaConsumer", **limits)
        self._cluster = metadata_of(self._consumer)
        self._offsets = Offsets(self.name, topic, self._consumer, own)
        self._reader = Reader(self._offsets, self._consumer, own, self._timeout)
        try:
            if found is not None:
                self._starting.retry(lambda: self._offsets.add(found.partitions, from_end=own.from_end))
            self._starting.reset(self.name)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"KafkaSource({self.name!r})"

    def _find_topic(self) -> Topic | None:
        """Describe the topic; return None if the source waits for it to be created."""
        with contextlib.closing(self._brokers.admin()) as client:
            found, self.cluster = self._starting.retry(lambda: self._brokers.find_topic(client, self.topic))
            if found is None and not self._options.wait_for_topic:
                with convert_errors(self.name, "topics cannot be listed"):
                    topics = sorted(name for name in client.list_topics() if not name.startswith("__"))
                what = f"there is no topic {self.topic!r} among {', '.join(topics[:20]) or 'none at all'}"
                way = "create it, or add ?absent=wait to its URL to wait until it is there"
                raise ConnectorError(f"{self.name}: {what}; {way}", "no topic", option="absent")
        if found is None:
            logger.warning("%s: the topic does not exist yet; waiting for it", self.name)
        return found

    # Position ----------------------------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """Name of the topic, independent of the broker addresses."""
        return f"the Kafka topic {self.topic}"

    @property
    def partitions(self) -> list[int]:
        """Known partitions."""
        return sorted(self._offsets.next)

    @property
    def beginnings(self) -> dict[int, int]:
        """First offset of each partition."""
        return dict(self._offsets.begin)

    @property
    def position(self) -> Position:
        """Next offset of each partition."""
        return {self.topic: {str(partition): offset for partition, offset in sorted(self._offsets.next.items())}}

    @property
    def fraction(self) -> float | None:
        """Share of the initial records that were read; None for a live stream."""
        begin, end = self._offsets.begin, self._offsets.end
        if not self._options.until_end or not end:
            return None
        size = sum(end.values()) - sum(begin.values())
        left = sum(max(0, end[p] - offset) for p, offset in self._offsets.next.items() if p in end)
        return 1.0 if not size else 1 - left / size

    @property
    def lag(self) -> dict[int, int]:
        """Number of offsets that each partition is behind its last known end."""
        return {p: max(0, self._offsets.known_end(p) - offset) for p, offset in self._offsets.next.items()}

    @property
    def is_at_end(self) -> bool:
        """Whether all partitions were at their end and idle for `max_idle`."""
        return self._waited and self._reader.ended() >= self._offsets.next.keys()

    def seek(self, position: Position) -> None:
        """Move to a position, so that the next event is the first one after it."""
        try:
            offsets = {int(partition): int(offset) for partition, offset in position[self.topic].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"{self.name}: not a position in topic {self.topic}: {position!r}"
            raise ConnectorError(message, "position") from error
        learned = position.get(_ID)
        if learned and self._id and learned != self._id and not self._options.accept_recreated:
            way = (
                "or where its events are those that were learned, as in a topic that was restored, set recreated=accept"
            )
            raise ConnectorError(f"{self._recreation(learned, self._id)}; {way}", "recreated", option="recreated")
        self._offsets.seek(offsets)
        self._options.values.restore(position)

    def _recreation(self, learned: str, current: str) -> str:
        return (
            f"{self.name}: the topic was deleted and recreated since events of it were learned (its id was {learned}, "
            f"and is {current}), so that the same offsets are other events; start over with --reset"
        )

    # Reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        self._reader.assign()
        self._waiting_since = time.monotonic()
        while not self._offsets.is_finished:
            batch = self._next_batch()
            left = time.monotonic()
            yield batch
            self._waiting_since += time.monotonic() - left  # does not count the time to process events

    def _next_batch(self) -> Batch:
        self._check_same()
        reader, deadline = self._reader, time.monotonic() + (_IDLE_S if self._waited else _WAIT_S)
        try:
            while not reader.ready and (left := deadline - time.monotonic()) > 0 and not self._offsets.is_finished:
                reader.poll(left)
            if (late := time.monotonic() - deadline) >= _SUSPENDED_S:
                self._waiting_since += late
            self._waited = not reader.ready
            self._check_topic()
        except UnreachableError as error:
            if time.monotonic() - self._checked >= QUERY_S:
                self._check_exists()
                self._checked = time.monotonic()
            self._timeout.wait(error)
        else:
            self._watch_for_stall()
        records = reader.peek()
        if not self._has_schemas(records):
            records = []
        reader.remove(records)
        position = self.position | ({} if self._id is None else {_ID: self._id})
        return self._options.values.batch(self.topic, records, position)

    def _has_schemas(self, records: Sequence[Any]) -> bool:
        """Return whether the schemas of records are known. Wait a little if they are not."""
        try:
            found = self._options.values.prepare(records)
        except UnreachableError as error:
            self._registry_timeout.wait(error)
            return False
        if found:
            self._registry_timeout.reset(self.name)
        else:
            time.sleep(_IDLE_S)
        return found

    def _watch_for_stall(self) -> None:
        """Warn once of a stall: no event arrives despite a lag; fail after a timeout.

        The client repeats fetches that fail, without a limit and without a message.
        """
        now = time.monotonic()
        if self._reader.ready or not (behind := sum(self.lag.values())):
            self._waiting_since, self._stalled = now, False
            return
        silence = now - self._waiting_since
        if silence >= self._timeout.seconds and self._reader.has_unfetched:
            what = f"no record for {silence:.0f} s, and {behind} to come: waiting for {self._reader.awaited()}"
            raise UnreachableError(f"{self.name}: {what}")
        if not self._stalled and silence >= DRY_S:
            self._stalled = True
            self.stalls += 1
            what = "%s: no event for %g s, and %s to come: waiting for %s"
            logger.warning(what, self.name, DRY_S, behind, self._reader.awaited())

    def _check_topic(self) -> None:
        """Check for new partitions and offsets at regular intervals, even under load."""
        now, offsets = time.monotonic(), self._offsets
        if now - self._checked_at >= (CHECK_S if offsets.next else 1.0):
            self._checked_at = now
            self._add_partitions()
        if offsets.next and now - self._queried_at >= QUERY_S:
            self._queried_at = now
            offsets.end_now = offsets.query("end_offsets", self.partitions, LIVE_RESPONSE_S)
            self._timeout.reset(self.name)  # brokers respond, without events

    def _add_partitions(self) -> None:
        """Add new partitions from their beginning, also those of a new topic."""
        with convert_errors(self.name, "its partitions cannot be read"):
            partitions = self._consumer.partitions_for_topic(self.topic) or set()
        if not self._offsets.next:
            self._timeout.reset(self.name)
        self._id = self._id or self._current_id()
        new = sorted(partitions - set(self._offsets.next))
        if not new or (self._options.until_end and self._offsets.next):
            return
        logger.warning("%s: taking partitions %s, which are new", self.name, ", ".join(map(str, new)))
        self._offsets.add(new)
        self._reader.assign()

    def _current_id(self) -> str | None:
        """Return the topic id that the client received last."""
        found = self._cluster.topic_id(self.topic)
        return None if found is None else str(found)

    def _check_same(self) -> None:
        """Raise ConnectorError if the topic was deleted and recreated."""
        now = time.monotonic()
        if now - self._refreshed >= QUERY_S:  # the client asks every few minutes
            self._refreshed = now
            self._cluster.request_update()
        current = self._current_id()
        if self._id is not None and current not in (None, self._id):
            raise ConnectorError(self._recreation(self._id, current), "recreated")

    def _check_exists(self) -> None:
        """Raise ConnectorError if the topic was deleted."""
        if self._brokers.find_deleted({self.topic: 0}) is not None:
            what = "the topic no longer exists; what was learned is in the checkpoint or the saved model"
            raise ConnectorError(
                f"{self.name}: {what}. Where the topic is recreated, start over with --reset", "deleted"
            )

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._options.values.notices

    # Around a run ------------------------------------------------------------------------------------------------

    def acknowledge(self, position: Position) -> None:
        """Commit the position of a checkpoint to the group, only to show the lag."""
        from kafka.structs import OffsetAndMetadata

        self._published.publish(
            {self._offsets.tp(int(p)): OffsetAndMetadata(o, "", -1) for p, o in position[self.topic].items()}
        )

    def close(self) -> None:
        """Disconnect from the brokers."""
        if not self._closed:
            self._closed = True
            self._published.close()
            with contextlib.suppress(Exception):
                self._consumer.close(autocommit=False, timeout_ms=2000)


def open_source(path: str, options: Options) -> Source:
    """Open a topic as a source."""
    servers, topic = split_address(path)
    return KafkaSource(servers=servers, topic=topic, **options.rest())
