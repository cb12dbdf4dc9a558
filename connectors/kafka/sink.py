"""Results to a Kafka topic, in transactions that also say how far they reach."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.errors import ConnectorError
from connectors.events import Position, Results, Sink
from connectors.kafka.clients import (
    Brokers,
    client_options,
    import_kafka,
    largest_record,
    logger,
    safe_name,
    server_list,
)
from connectors.kafka.failures import START_S
from connectors.kafka.mark import Mark
from connectors.kafka.source import KafkaSource
from connectors.kafka.transactions import Transactions
from connectors.kafka.truncation import truncated
from connectors.kafka.written_rows import WrittenRows
from connectors.options import Options
from connectors.registry import Setting
from connectors.sinks import columns_of, json_bytes

_ALONE = Setting()
_SMALLEST = 200  # bytes that a row takes without its texts


class KafkaSink(Sink):
    """Rows as JSON records, by a transactional producer: a reader at read_committed sees each row once.

    A column `key` becomes the record's key; what is None is null. Rows of a Kafka partition go to the partition of
    the same number (modulo their count): events with one key stay together, in their order. Others go by their keys,
    or where they have none, a table at a time to one partition after the other.

    With a `source`, each transaction also commits up to where its events have been answered: the *mark*, offsets in
    the source's topic of a group that nobody else writes. After a crash, rows of events before the mark are dropped, as
    they are there already.

    Parameters
    ----------
    servers
        Brokers to ask first, as HOST:PORT with commas between, or a list.
    topic
        The topic, which must exist.
    setting
        The run around the sink. Its `source`, a Kafka source on the same cluster, is what the rows are about; without
        one there is no mark, and `rewind` is refused. The sink joins the transactions of `beside`, a Kafka sink on the
        same brokers, and options are those of that one. Rows that `distinct` columns tell apart keep no mark: what was
        committed after the last position is read back when the run is resumed, and left out.
    **options
        `transactional_id` (streamsvm.SOURCE.TOPIC; of two sinks with the same, the older is fenced off),
        `mark_group` (the same; the group that keeps the mark), `commit_interval` (seconds after which rows are
        committed; 0.01; more is faster, less is sooner), `mark` (check; where the checkpoint or the mark was lost:
        trust the mark, or forget it), `broker_timeout` (as of the source), `client` (a TOML file with options of the
        client, such as credentials), and any option of `kafka.KafkaProducer`.

    Raises
    ------
    ConnectorError
        Where no broker answers, there is no such topic, an option is wrong, or mark and checkpoint do not fit.
    """

    _transactions: Transactions

    def __init__(self, *, servers: str | Sequence[str], topic: str, setting: Setting = _ALONE, **options: Any) -> None:
        self.topic, self._given = topic, options
        listed = server_list(servers, f"kafka topic {topic}")
        self.name = safe_name(listed, topic)
        source = setting.source if isinstance(setting.source, KafkaSource) else None
        self.can_rewind = source is not None or bool(setting.distinct)
        self._turn, self._closed = 0, False
        self._warned = False  # that something was cut
        beside, about = setting.beside, None if setting.distinct else source
        if isinstance(beside, KafkaSink) and beside._transactions.brokers.servers == listed:
            self._check_same(beside)
            self._transactions = beside._transactions.join()
            brokers, about = replace(self._transactions.brokers, name=self.name), None
        else:
            self._transactions = self._begin(listed, about, setting)
            brokers = self._transactions.brokers
        self._find_topic(brokers, about)
        self._written = WrittenRows(brokers, topic, setting.distinct) if setting.distinct else None
        if about is not None and not setting.resume:
            self._transactions.check_unmarked()

    def _begin(self, servers: list[str], source: KafkaSource | None, setting: Setting) -> Transactions:
        """Transactions of its own, by the options."""
        asked, defaults = Options(self.name, self._given), dict(import_kafka().KafkaProducer.DEFAULT_CONFIG)
        del defaults["transactional_id"]
        default = f"streamsvm.{source.topic}.{self.topic}" if source else f"streamsvm.{self.topic}"
        identity = asked.text("transactional_id") or default
        group = asked.text("mark_group") or identity
        interval = asked.seconds("commit_interval", 0.01)
        timeout = asked.seconds("broker_timeout", START_S) if asked.has("broker_timeout") else None
        trust = asked.choice("mark", ("check", "trust", "forget"), "check")
        client = {} if timeout is None else {"bootstrap_timeout_ms": timeout * 1000}
        brokers = Brokers(self.name, servers, client | client_options(asked, defaults))
        asked.finish()
        mark = Mark(brokers, group, source, trust=trust, fresh=setting.fresh)
        return Transactions(brokers, mark, identity=identity, interval_s=interval, timeout_s=timeout)

    def __repr__(self) -> str:
        return f"KafkaSink({self.name!r})"

    def _check_same(self, beside: KafkaSink) -> None:
        """Of sinks that share their transactions, no option can differ; the values may be secrets."""
        if differing := sorted(name for name, value in self._given.items() if beside._given.get(name) != value):
            raise ConnectorError(
                f"{self.name}: shares the transactions of {beside.name}, so option `{differing[0]}` must be as it is "
                "there, or be left out here"
            )

    def _find_topic(self, brokers: Brokers, source: KafkaSource | None) -> None:
        """What the topic takes; the mark of a source can only be kept in the cluster of the source."""
        with contextlib.closing(brokers.admin()) as client:
            found, cluster = self._transactions.starting.ask(lambda: brokers.find_topic(client, self.topic))
            limit = largest_record(client, self.topic)
        if found is None:
            raise ConnectorError(f"{self.name}: there is no topic {self.topic!r}; create it first")
        if source is not None and source.cluster != cluster:
            raise ConnectorError(
                f"{self.name}: is not in the cluster of {source.name}, so no transaction can say how far its events "
                "were answered; write to a topic there or to a file, or leave out --checkpoint"
            )
        self._partitions = len(found.partitions)
        most = self._transactions.largest
        self._transactions.limits[self.topic] = most if limit is None else min(most, limit)
        self._transactions.fit[self.topic] = self._fit
        if self._largest < _SMALLEST:
            raise ConnectorError(
                f"{self.name}: the topic {self.topic!r} takes no record large enough for a row: raise its "
                "`max.message.bytes`"
                if limit is not None and limit < most
                else f"{self.name}: `max_request_size` leaves no room for a row: raise it"
            )

    @property
    def _largest(self) -> int:
        """The most bytes that a record may have, its key included."""
        return self._transactions.limits[self.topic]

    def write(self, table: Results) -> None:
        """Take rows, those of events before the mark left out."""
        self._transactions.open()
        columns = dict(zip(table, columns_of(table), strict=True))
        keep = self._fresh_rows(columns)
        if keep is not None:
            columns = {name: [column[i] for i in keep] for name, column in columns.items()}
        partitions = columns.get("partition")
        keys = [_key(key) for key in columns.pop("key", ())]
        values = self._encode(columns)
        keys = keys or [None] * len(values)
        self._fit(keys, values)
        targets = self._targets(partitions, keys)
        for target in sorted(set(targets)):
            rows = [i for i, each in enumerate(targets) if each == target]
            self._transactions.add(self.topic, target, [keys[i] for i in rows], [values[i] for i in rows])

    def _fresh_rows(self, columns: Mapping[str, Sequence[Any]]) -> list[int] | None:
        """The numbers of the rows that are not in the topic yet; None for all."""
        if self._written is not None:
            return self._written.missing(columns)
        if not self.can_rewind:
            return None
        if "partition" not in columns or "offset" not in columns:
            raise ConnectorError(f"{self.name}: rows without partition and offset cannot be kept from coming twice")
        return self._transactions.mark.fresh_rows(columns["partition"], columns["offset"])

    def _encode(self, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        return [json_bytes(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    def _fit(self, keys: list[bytes | None], values: list[bytes]) -> None:
        """Shorten what is longer than a record may be, its key included."""
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            if len(value) + len(key or b"") > self._largest:
                keys[i], values[i] = truncated(self.name, json.loads(value), key, self._largest)
                if not self._warned:
                    self._warned = True
                    logger.warning(
                        '%s: a record was too long; its texts or key are cut, and it says "cut":true', self.name
                    )

    def _targets(self, partitions: Sequence[int] | None, keys: Sequence[bytes | None]) -> list[int]:
        from kafka.partitioner.default import murmur2

        n = self._partitions
        if partitions is not None:
            return [partition % n for partition in partitions]
        self._turn = (self._turn + 1) % n
        return [self._turn if key is None else (murmur2(key) & 0x7FFFFFFF) % n for key in keys]

    def advance(self) -> None:
        """Commit in the background what has waited for `commit_interval`."""
        self._transactions.advance()

    def hurry(self) -> None:
        """Give up on brokers that do not answer within seconds, as the run is to end."""
        self._transactions.hurry()

    def flush(self) -> None:
        """Commit all rows, and where their events stand."""
        self._transactions.commit()

    @property
    def identity(self) -> str:
        """The topic: it may be reached by other brokers."""
        return f"the Kafka topic {self.topic}"

    @property
    def position(self) -> Position:
        """The mark."""
        ends = {} if self._written is None else {"ends": self._written.ends()}
        return self._transactions.mark.position | ends

    def rewind(self, position: Position) -> None:
        """Go on after a checkpoint: what was committed since then is not written again."""
        if not self.can_rewind:
            raise ConnectorError(f"{self.name}: can only go on with the events of a Kafka source")
        self._transactions.rewind(position)
        if self._written is not None:
            self._written.read(position["ends"])

    def close(self) -> None:
        """Drop what is not committed, and leave the brokers."""
        if not self._closed:
            self._closed = True
            self._transactions.close()


def _key(key: Any) -> bytes | None:
    """A key as bytes: text as UTF-8, others as the text they are written as."""
    if key is None or isinstance(key, bytes):
        return key
    return str(key).encode("utf-8", "replace")
