"""Kafka sink: transactional writes of results and of the mark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.errors import ConnectorError
from connectors.events import Position, Results
from connectors.kafka.clients import (
    Brokers,
    client_options,
    import_kafka,
    largest_record,
    named_servers,
    split_address,
    topic_setting,
)
from connectors.kafka.failures import START_S
from connectors.kafka.mark import Mark
from connectors.kafka.producer import too_large, without_value
from connectors.kafka.source import KafkaSource
from connectors.kafka.transactions import Transactions
from connectors.options import Options
from connectors.outputs.results import columns_of, json_bytes
from connectors.registry import SinkSettings
from connectors.streams import Sink

_MOST_S = 60.0  # maximum time without a record although some remain
_LARGEST = 1 << 30  # bytes of a row

Identity = tuple[Any, ...]


_ALONE = SinkSettings()


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
        self._brokers, self._topic, self._columns = brokers, topic, tuple(columns)
        self._rows: set[Identity] = set()

    def _source(self, **options: Any) -> KafkaSource:
        """Open the topic up to its current end."""
        known = import_kafka().KafkaConsumer.DEFAULT_CONFIG
        options |= {key: value for key, value in self._brokers.client.items() if key in known}
        options |= {"at_end": "stop", "gap": "skip", "bare": True, "max_value_bytes": _LARGEST, "group_id": ""}
        return KafkaSource(servers=self._brokers.servers, topic=self._topic, broker_timeout=_MOST_S, **options)

    def ends(self) -> dict[str, int]:
        """Return the offsets from which a resumed run reads back.

        These are the ends of the partitions, or the previous start if known rows are still pending.
        """
        if self._rows:
            return self._since
        with contextlib.closing(self._source(auto_offset_reset="latest")) as source:
            found: dict[str, int] = source.position[self._topic]
            return found

    def read(self, since: Mapping[str, int]) -> None:
        """Read the rows committed after these offsets."""
        self._since = dict(since)
        with contextlib.closing(self._source()) as source:
            try:
                source.seek({self._topic: self._since})
            except ConnectorError as error:
                if error.reason in ("recreated", "position"):  # of a topic that was created again
                    return
                raise
            for value in (value for batch in source for value in batch.raw or ()):
                self._note(value)

    def _note(self, value: str) -> None:
        """Store the identity of a row, if the record contains one."""
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            row = json.loads(value)  # perhaps of another program, and no object
            place = tuple(row.get(name) for name in self._columns)
            if any(one is not None for one in place):
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


class KafkaSink(Sink):
    """Write rows as JSON records in transactions.

    Consumers with ``isolation_level=read_committed`` read each row once.

    The column `key` is the record key, and None is null. Rows of a Kafka partition are written to the partition with
    this number, modulo the number of partitions. Events with one key therefore keep their partition and order. Other
    rows are distributed by key, or without keys by round robin per table.

    With a `source`, each transaction also commits the *mark*: the offsets of processed events, in a dedicated group.
    After a crash, rows of events before the mark are dropped, because the topic already contains them.

    A row that is larger than the topic accepts is passed to `reject`, which a run sets to write it to the dead-letter
    output. A dead letter (a row with the column `raw`) is written without `raw` instead.

    Parameters
    ----------
    servers
        Bootstrap brokers as HOST:PORT, separated by commas, or a list.
    topic
        Name of an existing topic.
    settings
        Settings of the run. `source` is the Kafka source of the events, on the same cluster; without it there is no
        mark, and `rewind` raises an error. The sink shares the transactions and options of `beside`, a Kafka sink on
        the same brokers. Rows identified by `distinct` columns have no mark: a resumed run reads back what was
        committed after the last position and skips it.
    **options
        `transactional_id` (default streamsvm.SOURCE.TOPIC; a newer sink fences off an older one with this id),
        `mark_group` (default: the transactional id; the group of the mark), `commit_interval` (default 0.01 s; longer
        intervals increase throughput and latency), `mark` (default check; trust or forget the mark if it or the
        checkpoint was lost), `broker_timeout` (see `KafkaSource`), `client` (TOML file with client options, such as
        credentials), and any option of `kafka.KafkaProducer`.

    Raises
    ------
    ConnectorError
        If no broker responds, the topic does not exist, an option is invalid, or mark and checkpoint do not match.
    """

    is_live = True
    _transactions: Transactions

    def __init__(
        self, *, servers: str | Sequence[str], topic: str, settings: SinkSettings = _ALONE, **options: Any
    ) -> None:
        self.topic, self._given = topic, options
        listed, self.name = named_servers(servers, topic)
        source = settings.source if isinstance(settings.source, KafkaSource) else None
        self.can_rewind = source is not None or bool(settings.distinct)
        self._turn, self._closed = 0, False
        beside, about = settings.beside, None if settings.distinct else source
        if isinstance(beside, KafkaSink) and beside._transactions.brokers.servers == listed:
            self._check_same(beside)
            self._transactions = beside._transactions.register()
            brokers, about = replace(self._transactions.brokers, name=self.name), None
        else:
            self._transactions = self._begin(listed, about, settings)
            brokers = self._transactions.brokers
        self._find_topic(brokers, about)
        self._written = WrittenRows(brokers, topic, settings.distinct) if settings.distinct else None
        if about is not None and not settings.resume:
            self._transactions.mark.check_unmarked(self._transactions.mark_at_start)

    def _begin(self, servers: list[str], source: KafkaSource | None, settings: SinkSettings) -> Transactions:
        """Create transactions from the options."""
        options = Options(self.name, self._given)
        default = f"streamsvm.{source.topic}.{self.topic}" if source else f"streamsvm.{self.topic}"
        identity = options.text("transactional_id") or default
        group = options.text("mark_group") or identity
        interval = options.seconds("commit_interval", 0.01)
        timeout = options.seconds("broker_timeout", START_S) if options.has("broker_timeout") else None
        trust = options.one_of("mark", ("check", "trust", "forget")) or "check"
        client = {} if timeout is None else {"bootstrap_timeout_ms": timeout * 1000}
        brokers = Brokers(
            self.name, servers, client | client_options(options, import_kafka().KafkaProducer.DEFAULT_CONFIG)
        )
        options.finish()
        mark = Mark(brokers, group, source, trust=trust, fresh=settings.fresh)
        return Transactions(brokers, mark, identity=identity, interval_s=interval, timeout_s=timeout)

    def __repr__(self) -> str:
        return f"KafkaSink({self.name!r})"

    def _check_same(self, beside: KafkaSink) -> None:
        """Raise ConnectorError if an option differs from that of the shared sink.

        The message omits the values, which may be secrets.
        """
        if differing := sorted(name for name, value in self._given.items() if beside._given.get(name) != value):
            what = f"so option `{differing[0]}` must be as it is there, or be left out here"
            message = f"{self.name}: shares the transactions of {beside.name}, {what}"
            raise ConnectorError(message, "differs", option=differing[0])

    def _find_topic(self, brokers: Brokers, source: KafkaSource | None) -> None:
        """Check the topic, its maximum record size and its cluster.

        A mark requires that source and sink are in one cluster.
        """
        with contextlib.closing(brokers.admin()) as client:
            found, cluster = self._transactions.starting.retry(lambda: brokers.find_topic(client, self.topic))
            limit = largest_record(client, self.topic)
            self._is_compacted = "compact" in topic_setting(client, self.topic, "cleanup.policy")
        if found is None:
            raise ConnectorError(f"{self.name}: there is no topic {self.topic!r}; create it first", "no topic")
        if source is not None and source.cluster != cluster:
            what = f"is not in the cluster of {source.name}, so no transaction can say how far its events were answered"
            way = "write to a topic there or to a file, or leave out --checkpoint"
            raise ConnectorError(f"{self.name}: {what}; {way}", "cluster")
        self._partitions = len(found.partitions)
        self._transactions.limits.add(self.topic, limit)
        self._transactions.topics[self.topic] = found
        self._transactions.exclude[self.topic] = self._exclude

    def write(self, table: Results) -> None:
        """Write rows, except rows of events before the mark."""
        self._transactions.open()
        columns = columns_of(table)
        keep = self._fresh_rows(columns)
        partitions = columns.get("partition")
        keys = [_key(key) for key in columns.pop("key", ())]
        values = [json_bytes(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        keys = keys or [None] * len(values)
        self._check_keys(keys)
        # A resumed run rejects rows before the mark again: the dead-letter output knows which of them it has.
        excluded = self._exclude(keys, values)
        targets = self._targets(partitions, keys)
        rows_of: dict[int, list[int]] = {}
        for i in range(len(values)) if keep is None else keep:
            if i not in excluded:
                rows_of.setdefault(targets[i], []).append(i)
        for target, rows in sorted(rows_of.items()):
            self._transactions.add(self.topic, target, [keys[i] for i in rows], [values[i] for i in rows])

    def check_replaced(self) -> None:
        """Raise ConnectorError if dead letters, which have no keys, cannot be written."""
        if self.reject is None:
            self._check_keys([None])

    def _check_keys(self, keys: Sequence[bytes | None]) -> None:
        """Raise ConnectorError if a compacted topic would get records without keys."""
        if self._is_compacted and None in keys:
            what = f"the topic {self.topic!r} is compacted (cleanup.policy) and takes no records without a key"
            raise ConnectorError(f"{self.name}: {what}: name another topic, or set cleanup.policy=delete", "compacted")

    def _fresh_rows(self, columns: Mapping[str, Sequence[Any]]) -> list[int] | None:
        """Return the indices of rows that are not in the topic yet, None for all."""
        if self._written is not None:
            return self._written.missing(columns)
        if not self.can_rewind:
            return None
        if "partition" not in columns or "offset" not in columns:
            raise ConnectorError(
                f"{self.name}: rows need `partition` and `offset`, so that a resumed run can skip rows already written"
            )
        return self._transactions.mark.fresh_rows(columns["partition"], columns["offset"])

    def _exclude(self, keys: list[bytes | None], values: list[bytes]) -> set[int]:
        """Reject records that are too large, and return their indices.

        A dead letter is shortened and kept instead.
        """
        excluded, largest = set(), self._transactions.limits.by_topic[self.topic]
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            size = len(value) + len(key or b"")
            if size <= largest:
                continue
            if self.reject is None:
                values[i] = without_value(self.name, value, largest - len(key or b""))
            else:
                excluded.add(i)
                self.reject(too_large(size), value.decode())
        return excluded

    def _targets(self, partitions: Sequence[int] | None, keys: Sequence[bytes | None]) -> list[int]:
        from kafka.partitioner.default import murmur2

        n = self._partitions
        if partitions is not None:
            return [partition % n for partition in partitions]
        self._turn = (self._turn + 1) % n
        return [self._turn if key is None else (murmur2(key) & 0x7FFFFFFF) % n for key in keys]

    def advance(self) -> None:
        """Start a background commit if rows have waited for `commit_interval`."""
        self._transactions.advance()

    def hurry(self) -> None:
        """Wait only a few seconds for brokers from now on, because the run is ending."""
        self._transactions.hurry()

    def flush(self) -> None:
        """Commit all rows and the mark."""
        self._transactions.commit()

    @property
    def identity(self) -> str:
        """Name of the topic, independent of the broker addresses."""
        return f"the Kafka topic {self.topic}"

    @property
    def position(self) -> Position:
        """Position of the mark, and the ends of the partitions if rows have no mark."""
        ends = {} if self._written is None else {"ends": self._written.ends()}
        return self._transactions.mark.position | ends

    def rewind(self, position: Position) -> None:
        """Resume from a checkpoint; rows committed since then are not written again."""
        if not self.can_rewind:
            raise ConnectorError(f"{self.name}: can only go on with the events of a Kafka source", "not seekable")
        self._transactions.rewind(position)
        if self._written is not None:
            self._written.read(position["ends"])

    def close(self) -> None:
        """Discard uncommitted rows and disconnect."""
        if not self._closed:
            self._closed = True
            self._transactions.close()


def _key(key: Any) -> bytes | None:
    """Convert a key to bytes."""
    if key is None or isinstance(key, bytes):
        return key
    return str(key).encode("utf-8", "replace")


def open_sink(path: str, options: Options, settings: SinkSettings) -> Sink:
    """Open a topic as a sink."""
    servers, topic = split_address(path)
    return KafkaSink(servers=servers, topic=topic, settings=settings, **options.rest())
