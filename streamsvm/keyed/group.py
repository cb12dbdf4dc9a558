"""Data that all workers of a consumer group share in a topic: settings, and added partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.errors import ConnectorError, UnreachableError
from streamsvm.keyed.classifier import KeyedClassifier

_ANSWER_S = 10.0
_SETTINGS, _GROWTH = b"settings", b"partitions"  # keys of records


def check_settings(client: dict[str, Any], group: str, keyed: KeyedClassifier, more: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those of the group, which its first worker writes.

    Parameters
    ----------
    client
        Options of the Kafka client.
    group
        The consumer group.
    keyed
        The classifier.
    more
        Further settings that must not change, by option name.

    Raises
    ------
    ConnectorError
        If settings differ. The message names them.
    UnreachableError
        If no broker is available.
    """
    topic, settings = _topic(group), keyed.settings | dict(more)
    consumer = _reader(client, group)
    try:
        if topic not in consumer.list_topics(timeout=_ANSWER_S).topics:
            _create(client, topic)
        first = _first(consumer, topic, 0)
        if first is None:
            _write(client, topic, _SETTINGS, orjson.dumps(settings))
            first = _first(consumer, topic, 0)  # if two workers write first, the earlier record counts
        if first is not None:
            _compare(group, orjson.loads(first.value()), settings)
    except KafkaException as error:
        raise UnreachableError(f"consumer group {group}: its settings cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


@dataclass(frozen=True, slots=True)
class Growth:
    """Record of an increase in the number of partitions of the event topics.

    Parameters
    ----------
    partitions
        Number of partitions before.
    ends
        End offsets of these partitions when a worker first read the new ones, by topic.
    at
        Time of the record, in seconds since 1970.
    """

    partitions: int
    ends: Mapping[str, Sequence[int]]
    at: float


def write_growth(client: dict[str, Any], group: str, growth: Growth) -> None:
    """Store an increase in partitions with the settings of a group."""
    _write(client, _topic(group), _GROWTH, orjson.dumps(asdict(growth)))


def read_growths(client: dict[str, Any], group: str) -> list[Growth]:
    """Return all increases in partitions of a group, in order."""
    consumer = _reader(client, group)
    try:
        records = list(_records(consumer, _topic(group), 0))
    finally:
        consumer.close()
    return [Growth(**orjson.loads(record.value())) for record in records if record.key() == _GROWTH]


def _topic(group: str) -> str:
    return f"settings__{group}--streamsvm"


def _reader(client: dict[str, Any], group: str) -> Any:
    options = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    return Consumer(client | options | {"isolation.level": "read_committed"})


def _compare(group: str, began: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    names = [name for name in {**began, **settings} if began.get(name) != settings.get(name)]
    if names:
        differ = ", ".join(f"{name} {_shown(began, name)}, not {_shown(settings, name)}" for name in names)
        raise ConnectorError(
            f"consumer group {group}: its keys began with {differ}: start with these settings, or use "
            "another --consumer-group"
        )


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return orjson.dumps(settings[name]).decode() if name in settings else "unset"


def _first(consumer: Consumer, topic: str, partition: int) -> Any:
    """The first record of a partition; None if there is none."""
    return next(_records(consumer, topic, partition), None)


def _records(consumer: Consumer, topic: str, partition: int) -> Any:
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while (found := consumer.poll(_ANSWER_S)) is not None:
        if found.error() is None:
            yield found
        elif found.error().code() == KafkaError._PARTITION_EOF:
            return
        elif found.error().code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # a new topic takes a moment to appear
            raise KafkaException(found.error())
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _create(client: dict[str, Any], topic: str) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    admin = AdminClient(client)  # keeps a reference until the future is done
    try:
        admin.create_topics([NewTopic(topic, 1, -1, config=config)])[topic].result(_ANSWER_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _write(client: dict[str, Any], topic: str, key: bytes, value: bytes) -> None:
    failed: list[KafkaError] = []
    producer = Producer(client | {"acks": "all", "delivery.timeout.ms": round(_ANSWER_S * 1000)})
    producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(2 * _ANSWER_S) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
