"""Rows that are in a topic already, for sinks whose rows do not come in the order of the events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.errors import UnreachableError
from connectors.kafka.clients import Brokers, connect, import_kafka, talking

_MOST_S = 60.0  # without a record, while there are some

Identity = tuple[Any, ...]


class WrittenRows:
    """Reads back what was committed to a topic since a moment, to leave out what would come twice.

    Parameters
    ----------
    brokers
        Where the topic is.
    topic
        The topic.
    columns
        What tells rows apart.
    """

    def __init__(self, brokers: Brokers, topic: str, columns: Sequence[str]) -> None:
        self._brokers, self._name, self._topic, self._columns = brokers, brokers.name, topic, tuple(columns)
        self._rows: set[Identity] = set()
        self._since: dict[str, int] = {}

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[tuple[Any, list[Any]]]:
        from kafka import TopicPartition

        kafka = import_kafka()
        known = kafka.KafkaConsumer.DEFAULT_CONFIG
        shared = {key: value for key, value in self._brokers.client.items() if key in known}
        shared |= {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": None}
        consumer = connect(self._name, self._brokers.servers, kafka.KafkaConsumer, shared)
        try:
            with talking(self._name, "its partitions cannot be had"):
                partitions = sorted(consumer.partitions_for_topic(self._topic) or ())
            yield consumer, [TopicPartition(self._topic, partition) for partition in partitions]
        finally:
            with contextlib.suppress(Exception):
                consumer.close(autocommit=False, timeout_ms=2000)

    def ends(self) -> dict[str, int]:
        """From where on to read back: where the partitions end; as long as rows that were there are still to come
        again, where these begin."""
        if self._rows:
            return self._since
        with self._consumer() as (consumer, tps), talking(self._name, "the ends of its partitions cannot be had"):
            return {str(tp.partition): offset for tp, offset in consumer.end_offsets(tps).items()}

    def read(self, since: Mapping[str, int]) -> None:
        """Learn what was committed after these ends."""
        self._since = dict(since)
        with self._consumer() as (consumer, tps), talking(self._name, "what was written cannot be read"):
            ends = consumer.end_offsets(tps)
            left = {tp for tp in tps if ends[tp] > int(since.get(str(tp.partition), 0))}
            if not left:
                return
            consumer.assign(list(left))
            for tp in left:
                consumer.seek(tp, int(since.get(str(tp.partition), 0)))
            deadline = time.monotonic() + _MOST_S
            while left := {tp for tp in left if consumer.position(tp) < ends[tp]}:
                found = consumer.poll(timeout_ms=500)
                deadline = time.monotonic() + _MOST_S if found else deadline
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"{self._name}: what was written cannot be read: no record for {_MOST_S:g} s"
                    )
                for record in (record for records in found.values() for record in records):
                    self._note(record.value)

    def _note(self, value: bytes | None) -> None:
        """Take a record into account, if it is one of ours."""
        with contextlib.suppress(ValueError, TypeError):
            row = json.loads(value or b"")
            place = tuple(row.get(name) for name in self._columns)
            if any(one is not None for one in place):  # else it is nobody's of ours
                self._rows.add(place)

    def missing(self, columns: Mapping[str, Sequence[Any]]) -> list[int] | None:
        """The numbers of the rows that are not there; None for all."""
        if not self._rows:
            return None
        present = [columns.get(name) for name in self._columns]
        n = len(next(iter(columns.values())))
        rows = [tuple(None if column is None else column[i] for column in present) for i in range(n)]
        keep = [i for i, row in enumerate(rows) if row not in self._rows]
        self._rows -= set(rows)
        return None if len(keep) == n else keep
