"""Broker queries about topics and groups, and the topic of shared settings."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

# Imported first, because it hides deprecation warnings of the engine's dependencies.
from streamsvm.keyed.quix import LARGEST_BYTES, Application

# isort: split
import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from connectors.errors import ConnectorError, UnreachableError
from connectors.kafka.clients import unknown_hosts
from streamsvm.keyed.packing import TABLES
from streamsvm.online.saving import decode_param

RESPONSE_S = 10.0
CHECK_S = 0.5
_SETTINGS, _GROWTH = b"settings", b"partitions"  # keys of the records that a group shares
_USUAL_BYTES, _FRAME = 1_000_000, 1024  # default maximum record size of a topic; overhead of a record

silent = logging.getLogger("streamsvm.keyed.client")
silent.propagate = False
silent.addHandler(logging.NullHandler())  # our own messages replace those of the client


def client_options(app: Application) -> dict[str, Any]:
    """Return the options of clients for queries."""
    return {**app.config.broker_address.as_librdkafka_dict(), "logger": silent}


@contextlib.contextmanager
def query_consumer(app: Application, group: str | None = None) -> Iterator[Any]:
    """Open a consumer for queries, which reads committed records and commits nothing."""
    options = {"enable.auto.commit": False, "group.id": group or "streamsvm", "isolation.level": "read_committed"}
    options |= {"enable.partition.eof": True, "fetch.wait.max.ms": 20}
    client = Consumer(client_options(app) | options)
    try:
        yield client
    finally:
        client.close()


def count_partitions(app: Application, topic: str) -> int:
    """Return the number of partitions of a topic."""
    with query_consumer(app) as client:
        try:
            found = client.list_topics(topic, timeout=RESPONSE_S).topics[topic]
        except KafkaException as error:
            servers = client_options(app)["bootstrap.servers"]
            unknown = unknown_hosts(servers.split(","))
            why = f"unknown host {' and '.join(unknown)}" if unknown else f"{servers}: {error.args[0].str()}"
            raise UnreachableError(f"kafka topic {topic}: no broker responds: {why}") from error
    if found.error is not None or not found.partitions:
        reason = "it does not exist" if found.error is None else found.error.str()
        raise ConnectorError(f"kafka topic {topic}: {reason}: create the topic first")
    return len(found.partitions)


def topic_settings(app: Application, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings of topics; none of a topic if the query is denied."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    client = AdminClient(client_options(app))
    settings: dict[str, dict[str, str]] = {topic: {} for topic in topics}
    for resource, found in client.describe_configs(resources, request_timeout=RESPONSE_S).items() if resources else ():
        with contextlib.suppress(KafkaException):
            settings[resource.name] = {name: entry.value for name, entry in found.result().items()}
    return settings


def largest_records(settings: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Return the maximum record size of each topic, or the default if unknown.

    It is the size of key and value together.
    """
    most = dict.fromkeys(settings, _USUAL_BYTES)
    for topic, found in settings.items():
        with contextlib.suppress(KeyError, TypeError, ValueError):
            most[topic] = int(found["max.message.bytes"])
    return {topic: min(size, LARGEST_BYTES) - _FRAME for topic, size in most.items()}


def check_letters(topic: str | None, settings: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse a compacted topic for dead letters; it keeps only the last per key."""
    if topic is not None and "compact" in (settings[topic].get("cleanup.policy") or ""):
        what = "is compacted (cleanup.policy), which would remove all dead letters but the last of each key"
        todo = "name another topic, or set cleanup.policy=delete"
        raise ConnectorError(f"kafka topic {topic}: {what}: {todo}", "compacted")


def end_offset(client: Any, topic: str, partition: int) -> int:
    """Return the end offset of a partition."""
    return int(client.get_watermark_offsets(TopicPartition(topic, partition), timeout=RESPONSE_S)[1])


def end_offsets(client: Any, topic: str, n: int) -> list[int]:
    """Return the end offsets of the first n partitions."""
    return [end_offset(client, topic, partition) for partition in range(n)]


def is_unprocessed(client: Any, topic: str, partition: int, stop: int) -> bool:
    """Return whether the group has not yet processed all records before an offset.

    Offsets without a record, such as transaction markers, do not count.
    """
    try:
        [place] = client.committed([TopicPartition(topic, partition)], timeout=RESPONSE_S)
    except KafkaException:
        return True
    if place.offset >= stop or not stop:
        return False
    client.assign([TopicPartition(topic, partition, place.offset if place.offset >= 0 else OFFSET_BEGINNING)])
    found = client.poll(RESPONSE_S)
    if found is None:
        return True
    return found.error() is None and found.offset() < stop


def first_records(app: Application, topic: str, partitions: int) -> Iterator[Any]:
    """Yield the first record of each non-empty partition."""
    with query_consumer(app) as client:
        left = set(range(partitions))
        client.list_topics(topic, timeout=RESPONSE_S)  # a client that does not know the leaders waits for 0.5 s
        client.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
        while left and (found := client.poll(RESPONSE_S)) is not None:
            if found.partition() in left and found.error() is None:
                yield found
            left.discard(found.partition())


class GroupMonitor(contextlib.AbstractContextManager["GroupMonitor"]):
    """Context manager with a thread that monitors the progress of a consumer group."""

    def __init__(self, app: Application) -> None:
        self._app, self._over = app, threading.Event()
        self._thread = threading.Thread(target=self._keep_watching, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _keep_watching(self) -> None:
        """Watch until the end, and continue after errors of brokers."""
        is_over = False
        while not is_over:
            try:
                self._watch()
                return
            except (KafkaException, UnreachableError):  # the engine reports brokers that remain unreachable
                is_over = self._over.wait(CHECK_S)

    def _watch(self) -> None:
        raise NotImplementedError

    def _wait_for_group(self, client: Any, topic: str, ends: Mapping[int, int]) -> bool:
        """Wait for the group to reach offsets; return False if the context ended before."""
        left = dict(ends)
        while left := {p: stop for p, stop in left.items() if is_unprocessed(client, topic, p, stop)}:
            if self._over.wait(CHECK_S):
                return False
        return True


class StopAtEnd(GroupMonitor):
    """Stops an application when all records that existed at the start are processed."""

    def __init__(self, app: Application, topics: Sequence[str]) -> None:
        super().__init__(app)
        self._topics, self._ends = topics, dict[str, list[int]]()

    def _watch(self) -> None:
        with query_consumer(self._app, self._app.config.consumer_group) as client:
            for topic in self._topics:  # in order: when the source is done, all repartitioned records exist
                if topic not in self._ends:
                    self._ends[topic] = end_offsets(client, topic, count_partitions(self._app, topic))
                if not self._wait_for_group(client, topic, dict(enumerate(self._ends[topic]))):
                    return
        while not self._over.is_set():  # repeated, because an application that is still starting ignores it
            self._app.stop()
            self._over.wait(CHECK_S)


def check_settings(app: Application, settings: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those of the group, set by its first worker.

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
    differ = [name for name in settings if name in began and began[name] != settings[name]]
    names = [name for name in differ if name != TABLES]
    if "class" not in differ and (differ == [TABLES] or began.keys() != settings.keys()):
        raise ConnectorError(
            f"consumer group {group}: its keys were written by another version of streamsvm: use that version, or "
            "another --consumer-group",
            "version",
        )
    if names:
        shown = ", ".join(
            f"{name} {decode_param(began[name])!r}, not {decode_param(settings[name])!r}" for name in names
        )
        raise ConnectorError(
            f"consumer group {group}: its keys started with {shown}: use these settings, or another --consumer-group",
            "settings",
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


def _records(app: Application) -> list[Any]:
    """Return all records of the topic, which is created if it is missing."""
    topic, records = _topic(app), []
    with query_consumer(app, app.config.consumer_group) as client:
        if topic not in client.list_topics(timeout=RESPONSE_S).topics:
            _create(app, topic)
            client.list_topics(topic, timeout=RESPONSE_S)
        client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (found := client.poll(RESPONSE_S)) is not None:
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
        admin.create_topics([NewTopic(topic, 1, -1, config=config)])[topic].result(RESPONSE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _write(app: Application, key: bytes, content: Mapping[str, Any]) -> None:
    failed: list[KafkaError] = []
    producer = Producer(client_options(app) | {"acks": "all", "delivery.timeout.ms": round(RESPONSE_S * 1000)})
    value = orjson.dumps(content)
    producer.produce(_topic(app), value, key, on_delivery=lambda error, _: failed.append(error) if error else None)
    if producer.flush(2 * RESPONSE_S) or failed:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
