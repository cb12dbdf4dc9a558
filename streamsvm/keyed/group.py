"""Data that all workers of a consumer group share in a topic: settings, and added partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# Imported first, because it hides deprecation warnings of the engine's dependencies.
from streamsvm.keyed.topics import ANSWER_S, client_options, consumer

# isort: split
import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from connectors.errors import ConnectorError, UnreachableError
from streamsvm.keyed.quix import Application

_SETTINGS, _GROWTH = b"settings", b"partitions"  # keys of records


def check_settings(app: Application, settings: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those of the group, which its first worker writes.

    Parameters
    ----------
    app
        The application.
    settings
        JSON values by name.

    Raises
    ------
    ConnectorError
        If settings differ. The message names them.
    UnreachableError
        If no broker is available.
    """
    group = app.config.consumer_group
    try:
        found = _records(app)
        if not found:
            _write(app, _SETTINGS, settings)
            found = _records(app)  # if two workers write first, the earlier record counts
    except KafkaException as error:
        raise UnreachableError(f"consumer group {group}: its settings cannot be read: {error.args[0].str()}") from error
    began = orjson.loads(found[0].value()) if found else settings
    names = [name for name in {**began, **settings} if began.get(name) != settings.get(name)]
    if names:
        differ = ", ".join(f"{name} {_shown(began, name)}, not {_shown(settings, name)}" for name in names)
        raise ConnectorError(
            f"consumer group {group}: its keys started with {differ}: use these settings, or another --consumer-group"
        )


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


def write_growth(app: Application, growth: Growth) -> None:
    """Store an increase in partitions with the settings of a group."""
    _write(app, _GROWTH, asdict(growth))


def read_growths(app: Application) -> list[Growth]:
    """Return all increases in partitions of a group, in order."""
    return [Growth(**orjson.loads(record.value())) for record in _records(app) if record.key() == _GROWTH]


def _topic(app: Application) -> str:
    return f"settings__{app.config.consumer_group}--streamsvm"


def _shown(settings: Mapping[str, Any], name: str) -> str:
    return orjson.dumps(settings[name]).decode() if name in settings else "unset"


def _records(app: Application) -> list[Any]:
    """All records of the topic, which is created if it is missing."""
    topic, records = _topic(app), []
    with consumer(app, app.config.consumer_group) as client:
        if topic not in client.list_topics(timeout=ANSWER_S).topics:
            _create(app, topic)
        client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (found := client.poll(ANSWER_S)) is not None:
            error = found.error()
            if error is None:
                records.append(found)
            elif error.code() == KafkaError._PARTITION_EOF:
                return records
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # a new topic takes a moment to appear
                raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def _create(app: Application, topic: str) -> None:
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    admin = AdminClient(client_options(app))  # keeps a reference until the future is done
    try:
        admin.create_topics([NewTopic(topic, 1, -1, config=config)])[topic].result(ANSWER_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _write(app: Application, key: bytes, content: Mapping[str, Any]) -> None:
    failed: list[KafkaError] = []
    producer = Producer(client_options(app) | {"acks": "all", "delivery.timeout.ms": round(ANSWER_S * 1000)})
    value = orjson.dumps(content)
    producer.produce(_topic(app), value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(2 * ANSWER_S) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
