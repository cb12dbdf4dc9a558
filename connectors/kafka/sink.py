"""Results to a Kafka topic, in transactions that also say how far they reach."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.errors import ConnectorError
from connectors.events import Position, Results, Sink
from connectors.kafka.clients import (
    Topic,
    admin,
    client_options,
    describe_topic,
    import_kafka,
    largest_record,
    logger,
    safe_name,
    server_list,
    talking,
)
from connectors.kafka.failures import START_S
from connectors.kafka.fitting import shortened
from connectors.kafka.source import KafkaSource
from connectors.kafka.there import There
from connectors.kafka.transactions import Transactions
from connectors.options import Options
from connectors.sinks import columns_of, json_bytes

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
    source
        The Kafka source whose events the rows are about, on the same cluster, where the run is to be resumed after a
        crash. Without one there is no mark, and `rewind` is refused.
    beside
        Another Kafka sink, whose transactions this one joins if it is on the same brokers; options are those of the
        other and may be repeated.
    distinct
        Columns that tell rows apart which do not come in the order of the source's events. They keep no mark: what was
        committed after the last position is read back when the run is resumed, and left out.
    resume
        Whether there is a checkpoint, so that `rewind` will be called.
    fresh
        Forget the mark of an earlier run.
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

    def __init__(
        self,
        *,
        servers: str | Sequence[str],
        topic: str,
        source: KafkaSource | None = None,
        beside: object = None,
        distinct: Sequence[str] = (),
        resume: bool = False,
        fresh: bool = False,
        **options: Any,
    ) -> None:
        kafka = import_kafka()
        self.topic, listed = topic, server_list(servers, f"kafka topic {topic}")
        self.name = safe_name(listed, topic)
        self.can_rewind = source is not None or bool(distinct)
        self._there: There | None = None
        if distinct:
            source = None
        self._turn, self._closed, self._given = 0, False, options
        self._said = False  # that something was cut
        self._transactions: Transactions
        asked = Options(self.name, options)
        if isinstance(beside, KafkaSink) and beside._transactions.servers == listed:
            self._check_same(beside)
            self._transactions = beside._transactions.join()
            self._find_topic(listed, self._transactions.client, None)
            if distinct:
                self._there = There(self.name, listed, self._transactions.client, topic, distinct)
            return
        producer = dict(kafka.KafkaProducer.DEFAULT_CONFIG)
        default = f"streamsvm.{source.topic}.{topic}" if source else f"streamsvm.{topic}"
        identity = asked.text("transactional_id") or default
        group = asked.text("mark_group") or identity
        interval = asked.seconds("commit_interval", 0.01)
        patience = asked.seconds("broker_timeout", START_S) if asked.has("broker_timeout") else None
        trust = asked.choice("mark", ("check", "trust", "forget"), "check")
        del producer["transactional_id"]
        client = {} if patience is None else {"bootstrap_timeout_ms": patience * 1000}
        client |= client_options(asked, producer)
        asked.finish()
        self._transactions = Transactions(
            self.name,
            listed,
            client,
            transactional_id=identity,
            group=group,
            interval_s=interval,
            source=source,
            trust=trust,
            fresh=fresh,
            patience_s=patience,
        )
        self._find_topic(listed, client, source)
        if distinct:
            self._there = There(self.name, listed, client, topic, distinct)
        if source is not None and not resume:
            self._transactions.check_unmarked()

    def __repr__(self) -> str:
        return f"KafkaSink({self.name!r})"

    def _check_same(self, beside: KafkaSink) -> None:
        """Of sinks that share their transactions, no option can differ; the values may be secrets."""
        if differing := sorted(name for name, value in self._given.items() if beside._given.get(name) != value):
            raise ConnectorError(
                f"{self.name}: shares the transactions of {beside.name}, so option `{differing[0]}` must be as it is "
                "there, or be left out here"
            )

    def _find_topic(self, servers: list[str], client: Mapping[str, Any], source: KafkaSource | None) -> None:
        """What the topic takes; the mark of a source can only be kept in the cluster of the source."""
        with contextlib.closing(admin(self.name, servers, client)) as asking:
            found, cluster = self._transactions.starting.ask(functools.partial(self._ask_for_topic, asking))
            limit = largest_record(asking, self.topic)
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

    def _ask_for_topic(self, client: Any) -> tuple[Topic | None, str]:
        found = describe_topic(client, self.name, self.topic)
        with talking(self.name, "the cluster cannot be described"):
            return found, client.describe_cluster()["cluster_id"]

    @property
    def _largest(self) -> int:
        """The most bytes that a record may have, its key included."""
        return self._transactions.limits[self.topic]

    def write(self, table: Results) -> None:
        """Take rows, those of events before the mark left out."""
        self._transactions.open()
        columns = dict(zip(table, columns_of(table), strict=True))
        partitions = columns.get("partition")
        if self._there is not None:
            keep = self._there.missing(columns)
            if keep is not None:
                columns = {name: [column[i] for i in keep] for name, column in columns.items()}
                partitions = columns.get("partition")
        elif self.can_rewind:
            if partitions is None or "offset" not in columns:
                raise ConnectorError(f"{self.name}: rows without partition and offset cannot be kept from coming twice")
            keep = self._transactions.fresh_rows(partitions, columns["offset"])
            if keep is not None:
                columns = {name: [column[i] for i in keep] for name, column in columns.items()}
                partitions = columns["partition"]
        keys = [_key(key) for key in columns.pop("key", ())]
        values = self._encode(columns)
        keys = keys or [None] * len(values)
        self._fit(keys, values)
        targets = self._targets(partitions, keys)
        for target in sorted(set(targets)):
            rows = [i for i, each in enumerate(targets) if each == target]
            self._transactions.add(self.topic, target, [keys[i] for i in rows], [values[i] for i in rows])

    def _encode(self, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        return [json_bytes(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    def _fit(self, keys: list[bytes | None], values: list[bytes]) -> None:
        """Shorten what is longer than a record may be, its key included."""
        for i, (key, value) in enumerate(zip(keys, values, strict=True)):
            if len(value) + len(key or b"") > self._largest:
                keys[i], values[i] = shortened(self.name, json.loads(value), key, self._largest)
                if not self._said:
                    self._said = True
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
        return self._transactions.position | ({} if self._there is None else {"ends": self._there.ends()})

    def rewind(self, position: Position) -> None:
        """Go on after a checkpoint: what was committed since then is not written again."""
        if not self.can_rewind:
            raise ConnectorError(f"{self.name}: can only go on with the events of a Kafka source")
        self._transactions.rewind(position)
        if self._there is not None:
            self._there.read(position["ends"])

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
