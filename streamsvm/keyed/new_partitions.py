"""States of keys that moved to another partition when partitions were added.

The state of a key is stored with the partition of its events. When a topic gets more partitions, producers send many
keys to another partition, and only producers know which. So each worker keeps a copy of the states of all partitions,
read from the changelog. It looks up keys in this copy for which it has no current state.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
import time
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streamsvm.keyed.topics import GroupMonitor, count_partitions, end_offset, query_consumer

# isort: split
import orjson
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from quixstreams.state.metadata import (
    CHANGELOG_CF_MESSAGE_HEADER,
    CHANGELOG_PROCESSED_OFFSETS_MESSAGE_HEADER,
    CHANGELOG_TTL_STAMPED_HEADER,
    SEPARATOR,
)
from quixstreams.state.rocksdb.ttl_codec import TTL_STAMP_BYTES

from connectors.errors import ConnectorError
from streamsvm.keyed.classifier import STATE
from streamsvm.keyed.quix import TRANSACTION_S, Application
from streamsvm.keyed.topics import Growth

logger = logging.getLogger("streamsvm.keyed")

SUFFIX = SEPARATOR + orjson.dumps(STATE)
_BATCH, _WAIT_S = 1000, 0.2  # most records at once, and seconds to wait for them
_FOLLOWED_S = 900.0  # from a start on; producers refresh the partitions of a topic every 5 minutes by default
EACH_S = 1.0
_PATIENCE_S = TRANSACTION_S + 30.0

_TABLE = """
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
CREATE TABLE states (
    key BLOB, partition INTEGER, written INTEGER, processed BLOB, state BLOB, PRIMARY KEY (key, partition)
);
"""


class MovedStates(contextlib.AbstractContextManager["MovedStates"]):
    """Copy on disk of the states of all keys, as last read from the changelog.

    The file has no name, so that it ends with the worker.

    Parameters
    ----------
    app
        The application.
    changelog
        The changelog topic of the application's states.
    folder
        The folder of the copy.
    growths
        The increases in partitions of the event topics.
    """

    def __init__(self, app: Application, changelog: str, folder: Path, growths: Sequence[Growth]) -> None:
        self.growths = growths
        self._app, self._changelog, self._folder = app, changelog, folder
        self._read: dict[int, int] = {}  # offset up to which each partition of the changelog was read
        self._until = time.monotonic() + _FOLLOWED_S  # workers start again after an increase
        self._next = 0.0

    def __enter__(self) -> MovedStates:
        with contextlib.ExitStack() as stack:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._db = stack.enter_context(contextlib.closing(self._open()))
            self._client = stack.enter_context(query_consumer(self._app))
            began = time.monotonic()
            n = self.catch_up()
            logger.info(
                "kafka topic %s: had %s partitions before: %d states were read in %.1f s, for keys that moved",
                *(self._changelog, " and ".join(str(growth.partitions) for growth in self.growths)),
                *(n, time.monotonic() - began),
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def find(self, partition: int, key: Hashable, own: bytes | None) -> bytes | None:
        """Return the state of a key that is not in the cache.

        If the partition's state differs from the copy, this worker has written it since, so the key has already moved
        here. Otherwise the newest state of all partitions counts.

        Parameters
        ----------
        partition
            The partition of the key's current event.
        key
            The key.
        own
            The state of the key in this partition, None if there is none.
        """
        if own is None and self._next <= time.monotonic() < self._until:
            self.catch_up()
        query = "SELECT partition, written, processed, state FROM states WHERE key = ? AND state IS NOT NULL"
        with self._working():
            rows = {row[0]: row for row in self._db.execute(query, (key,))}
        mine = rows.pop(partition, None)
        if own is not None and (mine is None or mine[3] != own):
            return own
        if not rows:
            return own
        newest = max(rows.values(), key=self._rank)
        return own if own is not None and self._rank(mine) >= self._rank(newest) else newest[3]

    def _rank(self, row: Any) -> tuple[int, int]:
        """Sort key of a state: number of partition increases before it, then its time.

        The times alone are not sufficient, because clocks of workers differ.
        """
        partition, written, processed, _ = row
        offsets = orjson.loads(processed or b"{}") or {}
        for i in range(len(self.growths), 0, -1):
            growth = self.growths[i - 1]
            if partition >= growth.partitions or any(
                offset >= growth.ends[topic][partition] for topic, offset in offsets.items() if topic in growth.ends
            ):
                return i, written
        return 0, written

    def catch_up(self) -> int:
        """Read records committed to the changelog since the last read; return a count."""
        n_partitions = count_partitions(self._app, self._changelog)
        ends = {p: end_offset(self._client, self._changelog, p) for p in range(n_partitions)}
        left = {p: stop for p, stop in ends.items() if self._read.get(p, 0) < stop}
        n, deadline = 0, time.monotonic() + _PATIENCE_S
        if left:
            self._client.assign([TopicPartition(self._changelog, p, self._read.get(p, 0)) for p in left])
        while left:
            found = self._client.consume(_BATCH, _WAIT_S)
            if not found and time.monotonic() > deadline:  # an open transaction, or no broker available
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            for one in found:
                if one.error() is not None and one.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(one.error())
                if one.offset() + (one.error() is None) >= left.get(one.partition(), 0):
                    left.pop(one.partition(), None)
            if records := [one for one in found if one.error() is None]:
                self._store(records)
                n, deadline = n + len(records), time.monotonic() + _PATIENCE_S
        self._client.unassign()
        self._next = time.monotonic() + EACH_S
        return n

    def _store(self, records: Sequence[Any]) -> None:
        """Store the last record of each key."""
        rows: dict[tuple[bytes, int], Any] = {}
        for record in records:
            partition, key, headers = record.partition(), record.key(), dict(record.headers() or ())
            self._read[partition] = record.offset() + 1
            if headers.get(CHANGELOG_CF_MESSAGE_HEADER) != b"default" or not key.endswith(SUFFIX):
                continue
            value, key = record.value(), key.removesuffix(SUFFIX)
            if value is not None and CHANGELOG_TTL_STAMPED_HEADER in headers:
                value = value[TTL_STAMP_BYTES:]
            processed = headers.get(CHANGELOG_PROCESSED_OFFSETS_MESSAGE_HEADER)
            rows[key, partition] = (key, partition, record.timestamp()[1], processed, value)
        with self._working(), self._db:  # commits, or rolls back
            self._db.executemany("REPLACE INTO states VALUES (?, ?, ?, ?, ?)", rows.values())

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Add the folder to errors."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            what = f"{self._folder}: the states of moved keys cannot be read or written: {error}"
            raise ConnectorError(what, "moved keys") from error

    def _open(self) -> sqlite3.Connection:
        with self._working(), tempfile.NamedTemporaryFile(dir=self._folder) as file, contextlib.ExitStack() as stack:
            db = stack.enter_context(contextlib.closing(sqlite3.connect(file.name)))
            db.executescript(_TABLE)
            stack.pop_all()
            return db


class PausedPartitions(GroupMonitor):
    """Pauses new partitions until all events before their creation are processed.

    Otherwise a moved key would start there before it has learned its earlier events.

    Parameters
    ----------
    app
        The application.
    moved
        The copy of the states, which is updated before a partition resumes.
    """

    def __init__(self, app: Application, moved: MovedStates) -> None:
        super().__init__(app)
        self._moved, self._done, self._seen = moved, 0, 0

    def first_paused(self) -> int | None:
        """Return the first paused partition, None if there is none."""
        growths, done = self._moved.growths, self._done
        if done > self._seen:
            self._seen = done
            self._moved.catch_up()
        return growths[done].partitions if done < len(growths) else None

    def _watch(self) -> None:
        with query_consumer(self._app, self._app.config.consumer_group) as client:
            for growth in self._moved.growths[self._done :]:
                for topic, ends in growth.ends.items():
                    if not self._wait_for_group(client, topic, dict(enumerate(ends))):
                        return
                self._done += 1
