"""Kafka source: events of all partitions of a topic, in one order."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from connectors.errors import ConnectorError, UnreachableError
from connectors.events import Batch, Position, Source
from connectors.kafka.clients import (
    ANSWER_S,
    Brokers,
    Topic,
    client_options,
    connect,
    import_kafka,
    logger,
    safe_name,
    server_list,
    talking,
)
from connectors.kafka.decoder import Decoder
from connectors.kafka.failures import START_S, RetryTimeout
from connectors.kafka.group import Lag
from connectors.kafka.order import ArrivalOrder, TimeOrder
from connectors.kafka.values import ALIASES, FORMATS
from connectors.options import Options

_RECORD_BYTES = 400  # that a record takes beside its key, value and headers
_LEAST_FETCH = 1 << 14  # bytes that are fetched of a partition at once, however many there are
_WAIT_S = 0.01  # for more records before results are to be made durable, once
_IDLE_S = 0.05  # and then
_LOOK_S = 30.0  # between two looks for new partitions
_ASK_S = 5.0  # between two questions to a broker about the ends of partitions, and about what topics there are
_ANSWER_S = 2.0  # for an answer while the run is on; then it is asked again
_STALLED_S = (
    0.5  # that a partition may show nothing though its end is not reached, before an open transaction is thought of
)
_DRY_S = 30.0  # without an event, though there are some, before that is said
_SHOWN_PARTITIONS = 3  # of those that are waited for
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
        `ignore` and `types` as for files (without `key` and `time`, those of the record are used); `schema` (Avro
        schema file); `framed` (default no; whether Avro values start with the five bytes of a schema registry);
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

    def __init__(self, *, servers: str | Sequence[str], topic: str, **options: Any) -> None:
        kafka = import_kafka()
        self.servers, self.topic = server_list(servers, f"kafka topic {topic}"), topic
        self.name = safe_name(self.servers, topic)
        asked = Options(self.name, options)
        self._take_options(asked, kafka.KafkaConsumer.DEFAULT_CONFIG)
        asked.finish()
        self._closed = self._assigned = False
        self.stalls = 0
        """How often no event came for 30 s although there was a lag."""
        self._ready: list[Any] = []
        self._order = self._order_type(())
        self._next: dict[int, int] = {}
        self._begin: dict[int, int] = {}
        self._end: dict[int, int] = {}  # at the start
        self._end_now: dict[int, int] = {}
        self._stable: dict[int, int] = {}
        self._lacking_since: dict[int, float] = {}
        self._looked = self._asked = self._stable_at = self._refreshed = time.monotonic()
        self._waited = self._stalled = False
        self._waiting_since = time.monotonic()
        self._ahead: dict[int, int] = {}  # partitions that are not read for now, and from where on they will be
        self._brokers = Brokers(self.name, self.servers, self._client)
        self._published = Lag(self._brokers, self._group)
        self._starting = RetryTimeout(START_S if self._timeout_s is None else self._timeout_s)
        self._timeout = RetryTimeout(float("inf") if self._timeout_s is None else self._timeout_s)
        found = self._find_topic()
        self._id = None if found is None else found.id
        settings = self._fetch_sizes(1 if found is None else len(found.partitions)) | self._client
        self._consumer = connect(self.name, self.servers, kafka.KafkaConsumer, settings)
        try:
            if found is not None:
                self._starting.ask(functools.partial(self._open, found.partitions))
            self._starting.reward(self.name)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"KafkaSource({self.name!r})"

    # Settings ----------------------------------------------------------------------------------------------------

    def _take_options(self, asked: Options, defaults: Mapping[str, Any]) -> None:
        format_ = asked.choice("format", [*FORMATS, *ALIASES], "json")
        values = FORMATS[ALIASES.get(format_, format_)](asked)
        self._batch_size = asked.integer("batch_size", 1024, 1)
        max_value_bytes = asked.integer("max_value_bytes", 1 << 20, 1)
        self._decoder = Decoder(self.topic, values, max_value_bytes)
        self._max_held_bytes = asked.integer("max_held_bytes", 64 << 20, 1)
        self._at_once = max(1, self._max_held_bytes // 8 // max_value_bytes)  # records, until their size is known
        orders = {"timestamp": TimeOrder, "arrival": ArrivalOrder}
        self._order_type = orders[asked.choice("order", orders, "timestamp")]
        self._max_idle = asked.seconds("max_idle", 0.02)
        self._until_end = asked.choice("at_end", ("stop", "wait"), "wait") == "stop"
        self._start = asked.choice("auto_offset_reset", ("earliest", "latest"), "earliest")
        self._skip = asked.choice("gap", ("stop", "skip"), "stop") == "skip"
        self._accept = asked.choice("recreated", ("stop", "accept"), "stop") == "accept"
        self._wait = asked.choice("absent", ("stop", "wait"), "stop") == "wait"
        defaults = {key: value for key, value in defaults.items() if key != "auto_offset_reset"}
        self._client: dict[str, Any] = {
            "isolation_level": "read_committed",
            "max_poll_records": 4000,
            "metrics_enabled": False,
            "fetch_max_wait_ms": 100,  # for so long a broker answers nothing else
        }
        self._timeout_s = asked.seconds("broker_timeout", START_S) if asked.has("broker_timeout") else None
        if self._timeout_s is not None:
            self._client["bootstrap_timeout_ms"] = self._timeout_s * 1000
        self._client |= client_options(asked, defaults)
        self._group = str(self._client.pop("group_id", f"streamsvm.{self.topic}") or "")
        self._client |= {"enable_auto_commit": False, "auto_offset_reset": "none", "allow_auto_create_topics": False}

    def _fetch_sizes(self, partitions: int) -> dict[str, int]:
        """Return the fetch limits of the client, per request and per partition."""
        most = self._max_held_bytes // 8
        return {
            "fetch_max_bytes": max(_LEAST_FETCH, most),
            "max_partition_fetch_bytes": max(_LEAST_FETCH, min(1 << 20, most // max(1, partitions))),
        }

    def _find_topic(self) -> Topic | None:
        """Describe the topic; return None if the source waits for it to be created."""
        with contextlib.closing(self._brokers.admin()) as client:
            found, self.cluster = self._starting.ask(lambda: self._brokers.find_topic(client, self.topic))
            if found is None and not self._wait:
                with talking(self.name, "topics cannot be listed"):
                    there = sorted(name for name in client.list_topics() if not name.startswith("__"))
                raise ConnectorError(
                    f"{self.name}: there is no topic {self.topic!r} among {', '.join(there[:20]) or 'none at all'}; "
                    "create it, or say absent=wait to wait until it is there"
                )
        if found is None:
            logger.warning("%s: there is no such topic yet: waiting for it", self.name)
        return found

    # Where it stands ---------------------------------------------------------------------------------------------

    def _open(self, partitions: Sequence[int]) -> None:
        """Read the first and last offsets of the partitions, and set the start position."""
        self._begin, self._end = (
            self._offsets("beginning_offsets", partitions),
            self._offsets("end_offsets", partitions),
        )
        first = self._begin if self._start == "earliest" else self._end
        self._next = {partition: first[partition] for partition in partitions}

    def _offsets(self, which: str, partitions: Sequence[int], seconds: float = ANSWER_S) -> dict[int, int]:
        tps = [self._tp(partition) for partition in partitions]
        with talking(self.name, "the offsets of its partitions cannot be had"):
            found = getattr(self._consumer, which)(tps, timeout_ms=seconds * 1000)
        return {tp.partition: offset for tp, offset in found.items()}

    def _tp(self, partition: int) -> Any:
        from kafka import TopicPartition

        return TopicPartition(self.topic, partition)

    @property
    def identity(self) -> str:
        """Name of the topic, independent of the broker addresses."""
        return f"the Kafka topic {self.topic}"

    @property
    def partitions(self) -> list[int]:
        """Known partitions."""
        return sorted(self._next)

    @property
    def beginnings(self) -> dict[int, int]:
        """First offset of each partition."""
        return dict(self._begin)

    @property
    def position(self) -> Position:
        """Next offset of each partition."""
        return {self.topic: {str(partition): offset for partition, offset in sorted(self._next.items())}}

    @property
    def fraction(self) -> float | None:
        """Fraction read of the records that existed at the start, None for a live stream."""
        if not self._until_end or not self._end:
            return None
        size = sum(self._end.values()) - sum(self._begin.values())
        left = sum(max(0, self._end[p] - offset) for p, offset in self._next.items() if p in self._end)
        return 1.0 if not size else 1 - left / size

    @property
    def lag(self) -> dict[int, int]:
        """Number of offsets that each partition is behind its last known end."""
        return {partition: max(0, self._known_end(partition) - offset) for partition, offset in self._next.items()}

    @property
    def is_at_end(self) -> bool:
        """Whether all partitions were at their end, and idle for `max_idle`, at the last poll."""
        return self._waited and self._ended() >= self._next.keys()

    def _known_end(self, partition: int) -> int:
        read = self._assigned and partition not in self._ahead
        highwater = self._consumer.highwater(self._tp(partition)) if read else None
        return max(highwater or 0, self._end.get(partition, 0), self._end_now.get(partition, 0))

    def seek(self, position: Position) -> None:
        """Move to a position, so that the next event is the first one after it."""
        try:
            asked = {int(partition): int(offset) for partition, offset in position[self.topic].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConnectorError(f"{self.name}: not a position in topic {self.topic}: {position!r}") from error
        learned = position.get(_ID)
        if learned and self._id and learned != self._id and not self._accept:
            raise ConnectorError(
                f"{self._anew(learned, self._id)}; or where its events are those that were learned, as in a topic that "
                "was restored, say recreated=accept"
            )
        if gone := sorted(set(asked) - set(self._next)):
            raise ConnectorError(
                f"{self.name}: has no partition {gone[0]}, of which events were learned: is it another topic?"
            )
        for partition, offset in asked.items():
            self._next[partition] = self._checked(partition, offset)
        for partition in set(self._next) - set(asked):  # it is new, and its events are from its beginning on
            self._next[partition] = self._begin[partition]
        self._decoder.restore(position)
        self._assigned = False

    def _checked(self, partition: int, offset: int) -> int:
        begin, end = self._begin[partition], self._end[partition]
        if offset > end:
            raise ConnectorError(self._beyond(partition, offset, end))
        if offset < begin and not self._skip:
            raise ConnectorError(self._gap(partition, offset, begin))
        if offset < begin:
            logger.warning(
                "%s: partition %d: skipping from %d to %d, removed by retention", self.name, partition, offset, begin
            )
        return max(offset, begin)

    def _beyond(self, partition: int, offset: int, end: int) -> str:
        return (
            f"{self.name}: partition {partition} ends at offset {end}, but events up to {offset} were learned: the "
            "topic was made anew or lost records; start over with --reset"
        )

    def _anew(self, learned: str, there: str) -> str:
        return (
            f"{self.name}: the topic was deleted and made anew since events of it were learned (its id was {learned}, "
            f"and is {there}), so that the same offsets are other events; start over with --reset"
        )

    def _gap(self, partition: int, offset: int, begin: int) -> str:
        return (
            f"{self.name}: retention has removed the offsets {offset} to {begin - 1} of partition {partition}, which "
            "come next; say gap=skip to go on with the events that are left, or start over with --reset"
        )

    # Reading -----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        self._assign()
        self._waiting_since = time.monotonic()
        while not self._finished():
            batch = self._next_batch()
            left = time.monotonic()
            yield batch
            self._waiting_since += time.monotonic() - left  # what is done with events is no waiting for them

    def _finished(self) -> bool:
        return (
            self._until_end
            and bool(self._next)
            and all(offset >= self._end.get(partition, 0) for partition, offset in self._next.items())
        )

    def _assign(self) -> None:
        """Assign all partitions at their next offsets, and discard buffered records."""
        self._order, self._ready = self._order_type(self._next, _size), []
        self._lacking_since.clear()
        self._ahead.clear()
        with talking(self.name, "its partitions cannot be taken"):
            self._consumer.assign([self._tp(partition) for partition in self._next])
            for partition, offset in self._next.items():
                self._consumer.seek(self._tp(partition), offset)
        self._assigned = True

    def _next_batch(self) -> Batch:
        self._check_same()
        deadline = time.monotonic() + (_IDLE_S if self._waited else _WAIT_S)
        try:
            while not self._ready and (left := deadline - time.monotonic()) > 0 and not self._finished():
                self._poll(left)
            self._waited = not self._ready
            self._look_around()
            self._watch_for_stall()
        except UnreachableError as error:
            self._check_there()
            self._timeout.bear(error)
        n = self._fitting()
        records, self._ready = self._ready[:n], self._ready[n:]
        return self._batch(records)

    def _fitting(self) -> int:
        """Return the number of ready records that fit in a batch."""
        sizes = np.cumsum([_size(record) for record in self._ready[: self._batch_size]])
        return max(1, int(np.searchsorted(sizes, self._max_held_bytes // 8, "right")))

    def _poll(self, seconds: float) -> None:
        """Fetch records, and move those whose order is final to `_ready`."""
        if not self._next:
            time.sleep(min(seconds, _WAIT_S))
            return
        before = sum(map(self._order.held, self._next))
        found = self._fetch(min(seconds, self._max_idle or 0.001) if before else seconds)
        for tp, records in found.items():
            self._order.add(tp.partition, self._wanted(tp.partition, records))
        n, size = sum(map(len, found.values())), sum(map(self._order.held, self._next)) - before
        if size > 0:  # as many at once as fit if they are like these: any number may come compressed
            self._at_once = max(1, min(self._client["max_poll_records"], self._max_held_bytes // 8 * n // size))
        self._ready = self._order.take(self._ended())
        self._choose()
        if not self._ready:
            self._pass_over()

    def _choose(self) -> None:
        """Unassign partitions that fill their share of memory, until half of it is free.

        Assigning a partition again at its offset discards the records that the client has fetched. Pausing is not an
        option: kafka-python 3.0.12 loses records of paused partitions and then returns no more of them.
        """
        share = self._max_held_bytes / len(self._next)
        full = {p for p in self._next if self._order.held(p) > (share / 2 if p in self._ahead else share)}
        if full == self._ahead.keys():
            return
        for partition in full - self._ahead.keys():
            self._end_now[partition] = self._known_end(partition)
            self._ahead[partition] = self._reached(partition)
        again = {p: self._ahead.pop(p) for p in self._ahead.keys() - full}
        with talking(self.name, "its partitions cannot be taken"):
            self._consumer.assign([self._tp(p) for p in self._next if p not in self._ahead])
            for partition, offset in again.items():
                self._consumer.seek(self._tp(partition), offset)

    def _fetch(self, seconds: float) -> dict[Any, list[Any]]:
        from kafka.errors import OffsetOutOfRangeError

        try:
            with talking(self.name, "records cannot be fetched"):
                found: dict[Any, list[Any]] = self._consumer.poll(
                    timeout_ms=max(1, int(seconds * 1000)), max_records=self._at_once
                )
        except ConnectorError as error:
            if not isinstance(error.__cause__, OffsetOutOfRangeError):
                raise
            self._overtaken(error)
            return {}
        if found:
            self._timeout.reward(self.name)
        return found

    def _overtaken(self, error: ConnectorError) -> None:
        """Handle an offset that retention removed during the run."""
        self._begin = self._offsets("beginning_offsets", self.partitions)
        behind = {p: offset for p, offset in self._next.items() if offset < self._begin[p]}
        if not behind:
            end = self._offsets("end_offsets", self.partitions)
            for partition in [p for p, offset in self._next.items() if offset > end[p]]:
                raise ConnectorError(self._beyond(partition, self._next[partition], end[partition])) from error
            raise error
        for partition, offset in behind.items():
            self._next[partition] = self._checked(partition, offset)
        self._assign()

    def _wanted(self, partition: int, records: list[Any]) -> list[Any]:
        """Return the records before the end of a bounded stream."""
        end = self._end.get(partition, 0)
        if not self._until_end or records[-1].offset < end:
            return records
        return [record for record in records if record.offset < end]

    def _ended(self) -> set[int]:
        """Return the partitions to not wait for: at their end, and idle for `max_idle`."""
        now, ended, lacking = time.monotonic(), set(), self._order.lacking()
        self._lacking_since = {partition: self._lacking_since.get(partition, now) for partition in lacking}
        for partition, since in self._lacking_since.items():
            reached = self._reached(partition)
            if (self._until_end and reached >= self._end.get(partition, 0)) or (
                now - since >= self._max_idle
                and (reached >= self._known_end(partition) or reached >= self._stable_end(partition, now - since))
            ):
                ended.add(partition)
        return ended

    def _stable_end(self, partition: int, seconds: float) -> float:
        """Return the last stable offset of a partition that delivers nothing, else infinity."""
        if seconds < _STALLED_S:
            return float("inf")
        if time.monotonic() - self._stable_at > _STALLED_S:
            self._stable_at = time.monotonic()
            with contextlib.suppress(ConnectorError):
                self._stable = self._offsets("end_offsets", self.partitions, 1)
        return self._stable.get(partition, float("inf"))

    def _reached(self, partition: int) -> int:
        """Return the position of the client in a partition."""
        with talking(self.name, "its position cannot be had"):
            return int(self._consumer.position(self._tp(partition), timeout_ms=_ANSWER_S * 1000) or 0)

    def _pass_over(self) -> None:
        """Skip offsets without events, such as transaction markers, after all earlier records."""
        for partition in self._order.lacking():
            reached = self._reached(partition)
            if self._until_end:
                reached = min(reached, self._end.get(partition, 0))
            self._next[partition] = max(self._next[partition], reached)

    # While nothing comes -----------------------------------------------------------------------------------------

    def _watch_for_stall(self) -> None:
        """Warn once if no event arrives for a long time although there is a lag."""
        now = time.monotonic()
        if self._ready or not (behind := sum(self.lag.values())):
            self._waiting_since, self._stalled = now, False
        elif not self._stalled and now - self._waiting_since >= _DRY_S:
            self._stalled = True
            self.stalls += 1
            logger.warning(
                "%s: no event for %g s, and %s to come: waiting for %s", self.name, _DRY_S, behind, self._awaited()
            )

    def _awaited(self) -> str:
        """Describe the partitions with a lag and without buffered records."""
        reached = {partition: self._reached(partition) for partition in self._order.lacking()}
        awaited = []
        for partition, offset in reached.items():
            end = self._known_end(partition)
            if offset < end:
                stable = self._stable_end(partition, _DRY_S)
                why = "; an open transaction there must end first" if offset >= stable else ""
                awaited.append(f"partition {partition}, at offset {offset} of {end}{why}")
        shown = " and ".join(awaited[:_SHOWN_PARTITIONS]) or "the client"
        more = len(awaited) - _SHOWN_PARTITIONS
        return f"{shown} and {more} more" if more > 0 else shown

    def _look_around(self) -> None:
        """Check for new partitions and offsets at regular intervals, even under load."""
        now = time.monotonic()
        if now - self._looked >= (_LOOK_S if self._next else 1.0):
            self._looked = now
            self._look_for_partitions()
        if self._next and now - self._asked >= _ASK_S:
            self._asked = now
            self._end_now = self._offsets("end_offsets", self.partitions, _ANSWER_S)
            self._timeout.reward(self.name)  # silence, but no broker is away

    def _look_for_partitions(self) -> None:
        """Add new partitions from their beginning, also those of a new topic."""
        with talking(self.name, "its partitions cannot be had"):
            there = self._consumer.partitions_for_topic(self.topic) or set()
        if not self._next:
            self._timeout.reward(self.name)
        self._id = self._id or self._id_there()
        new = sorted(there - set(self._next))
        if not new or (self._until_end and self._next):
            return
        logger.warning("%s: taking partitions %s, which are new", self.name, ", ".join(map(str, new)))
        begin, end = self._offsets("beginning_offsets", new), self._offsets("end_offsets", new)
        self._begin |= begin
        self._end |= end
        self._next |= begin
        self._assign()

    def _id_there(self) -> str | None:
        """Return the topic id that the client received last."""
        found = self._consumer._client.cluster.topic_id(self.topic)
        return None if found is None else str(found)

    def _check_same(self) -> None:
        """Raise ConnectorError if the topic was deleted and recreated."""
        now = time.monotonic()
        if now - self._refreshed >= _ASK_S:  # by itself the client asks every few minutes
            self._refreshed = now
            self._consumer._client.cluster.request_update()
        there = self._id_there()
        if self._id is not None and there not in (None, self._id):
            raise ConnectorError(self._anew(self._id, there))

    def _check_there(self) -> None:
        """Raise ConnectorError if the topic was deleted."""
        if self._brokers.gone([self.topic]) is not None:
            raise ConnectorError(
                f"{self.name}: the topic is there no more; what was learned is in the checkpoint or the saved model. "
                "Where the topic is made anew, start over with --reset"
            )

    def _batch(self, records: Sequence[Any]) -> Batch:
        self._next |= {record.partition: record.offset + 1 for record in records}
        return self._decoder.batch(records, self.position | ({} if self._id is None else {_ID: self._id}))

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._decoder.notices

    # Around a run ------------------------------------------------------------------------------------------------

    def acknowledge(self, position: Position) -> None:
        """Commit the position of a checkpoint to the group, only to show the lag."""
        from kafka.structs import OffsetAndMetadata

        self._published.publish(
            {self._tp(int(p)): OffsetAndMetadata(o, "", -1) for p, o in position[self.topic].items()}
        )

    def close(self) -> None:
        """Disconnect from the brokers."""
        if not self._closed:
            self._closed = True
            self._published.close()
            with contextlib.suppress(Exception):
                self._consumer.close(autocommit=False, timeout_ms=2000)


def _size(record: Any) -> int:
    """Return the approximate size of a record in bytes."""
    sizes: int = record.serialized_key_size + record.serialized_value_size + record.serialized_header_size
    return sizes + _RECORD_BYTES
