"""Deduplication of rows that are not written in the order of the events."""

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
    """Read the rows committed since a position, to avoid writing them twice.

    Parameters
    ----------
    brokers
        Brokers of the topic.
    topic
        Name of the topic.
    columns
        Columns that identify a row.
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
        """Return the offsets from which a resumed run reads back.

        These are the ends of the partitions, or the previous start if known rows are still pending.
        """
        if self._rows:
            return self._since
        with self._consumer() as (consumer, tps), talking(self._name, "the ends of its partitions cannot be had"):
            return {str(tp.partition): offset for tp, offset in consumer.end_offsets(tps).items()}

    def read(self, since: Mapping[str, int]) -> None:
        """Read the rows committed after these offsets."""
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
        """Store the identity of a row, if the record contains one."""
        with contextlib.suppress(ValueError, TypeError):
            row = json.loads(value or b"")
            place = tuple(row.get(name) for name in self._columns)
            if any(one is not None for one in place):  # else it is nobody's of ours
                self._rows.add(place)

    def missing(self, columns: Mapping[str, Sequence[Any]]) -> list[int] | None:
        """Return the indices of rows that are not in the topic, None for all."""
        if not self._rows:
            return None
        present = [columns.get(name) for name in self._columns]
        n = len(next(iter(columns.values())))
        rows = [tuple(None if column is None else column[i] for column in present) for i in range(n)]
        keep = [i for i, row in enumerate(rows) if row not in self._rows]
        self._rows -= set(rows)
        return None if len(keep) == n else keep
