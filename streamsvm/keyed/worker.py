"""Worker of a consumer group with one model per key, for the command line."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

# Imported first, because it hides deprecation warnings of the engine's dependencies.
from streamsvm.keyed.quix import LARGEST_BYTES, Application, ModelCache

# isort: split
from confluent_kafka import KafkaError, KafkaException
from quixstreams.exceptions import QuixException

from connectors.errors import ConnectorError, UnreachableError
from streamsvm.features.mismatches import FeatureMismatchError
from streamsvm.keyed.classifier import KeyedClassifier
from streamsvm.keyed.handler import RECORD_TIME, Handler, Stream, source_time, with_origin
from streamsvm.keyed.key_state import KeyStateError
from streamsvm.keyed.new_partitions import MovedStates, PausedPartitions
from streamsvm.keyed.topics import (
    RESPONSE_S,
    Growth,
    StopAtEnd,
    check_letters,
    check_settings,
    count_partitions,
    end_offsets,
    first_records,
    largest_records,
    query_consumer,
    read_growths,
    topic_settings,
    write_growth,
)

logger = logging.getLogger("streamsvm.keyed")

_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_INVALID_TIME = (KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_RECORD)  # the second for batches of several records


class Worker:
    """Predicts and learns the events of its assigned partitions.

    Parameters
    ----------
    app
        The application.
    stream
        The topics.
    keyed
        The classifier. If its `time` is `RECORD_TIME`, the time of the record is the event time.

    Attributes
    ----------
    handler
        Processes the records, and counts them.
    cache
        The cache of keys.

    Raises
    ------
    ConnectorError
        If a topic is missing, the topics of labels and events differ in the number of partitions, record keys differ
        from event keys, the prior model knows no feature of the events, or the group has other settings.
    """

    def __init__(self, app: Application, stream: Stream, keyed: KeyedClassifier) -> None:
        self.app, self.keyed, self._stream = app, keyed, stream
        self._sizes = {topic: count_partitions(app, topic) for topic in stream.topics}
        self._check_labels()
        if not stream.repartition or keyed.prior_model is not None:
            check_first_events(stream, keyed, first_records(app, stream.topic, self._sizes[stream.topic]))
        shared = {"--field": stream.field, "--label": keyed.label, "--join": keyed.join}
        check_settings(app, keyed.settings | shared)
        app.before_enlarging.append(self._write_growth)
        self.cache = ModelCache(keyed, lasting=True)
        settings = topic_settings(app, [name for name in (stream.out, stream.rejected) if name is not None])
        check_letters(stream.rejected, settings)
        self.handler = Handler(stream, keyed, self.cache, self._send, largest_records(settings))
        app.when_gone.append(self.cache.drop)
        sdf = self._sdf(app)
        self._read = [topic.name for topic in sdf.topics]
        self._sources = list(dict.fromkeys((stream.topic, *self._read)))
        self._producer, self._consumer = sdf.processing_context.producer, sdf.processing_context.consumer
        sdf.processing_context.sink_manager.register(self.cache)
        sdf.apply(self.handler.process, stateful=True, metadata=True)
        self._growths = read_growths(app)

    def _sdf(self, app: Application) -> Any:
        """Return the stream of all records, keyed by event key."""
        stream = self._stream
        raw: dict[str, Any] = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
        timed: dict[str, Any] = {}
        if self.keyed.key_ttl is not None and self.keyed.time != RECORD_TIME:
            # The engine removes inactive keys by this time.
            timed["timestamp_extractor"] = lambda value, _, time, __: stream.event_time(value, self.keyed, time)
        sdf = app.dataframe(app.topic(stream.topic, **raw, **timed))
        if stream.labels is not None:
            return sdf.concat(app.dataframe(app.topic(stream.labels, **raw, **timed)))
        if stream.repartition:
            # Brokers delete or refuse records with old times, so the event time is in a header.
            sdf = sdf.set_headers(with_origin).set_timestamp(lambda *_: round(1000 * time.time()))
            raw |= {"key_serializer": "bytes", "value_serializer": "bytes"}
            return sdf.group_by(stream.key_of, stream.field, **raw).set_timestamp(source_time)
        return sdf

    def _send(self, topic: str, value: bytes, key: bytes | None, partition: int) -> None:
        """Write a record with the current time; brokers may refuse or delete old times.

        Events of one partition keep their order.
        """
        self._producer.produce(topic, value, key, partition=partition % self._sizes[topic])

    def lag(self) -> dict[int, int]:
        """Return the number of unprocessed events of each partition of this worker."""
        return lag_of(self._consumer, self._read)

    # Checks and run ----------------------------------------------------------------------------------------------

    def _check_labels(self) -> None:
        """Check that labels have as many partitions as events, which the join requires."""
        events, labels = self._stream.topic, self._stream.labels
        if labels is not None and self._sizes[labels] != self._sizes[events]:
            raise ConnectorError(
                f"kafka topic {labels}: has {self._sizes[labels]} partitions, {events} has {self._sizes[events]}: "
                "create both with the same number, and send labels with the key of their event"
            )

    def _write_growth(self, partitions: int) -> None:
        with query_consumer(self.app) as client:
            found = {topic: end_offsets(client, topic, partitions) for topic in self._read}
        write_growth(self.app, Growth(partitions, found, time.time()))

    @contextlib.contextmanager
    def _moving_keys(self) -> Iterator[None]:
        """Load the states of moved keys while running, if partitions were added."""
        if not self._growths:
            yield
            return
        [changelog] = self.app.topics.changelog_topics_list
        with (
            MovedStates(self.app, changelog.name, Path(self.app.config.state_dir), self._growths) as moved,
            PausedPartitions(self.app, moved) as paused,
        ):
            self.cache.moved, self.app.first_paused = moved.find, paused.first_paused
            yield

    def _reason(self, error: Exception) -> Exception:
        """Return why a record was refused.

        Later calls report only that the producer is in an erroneous state.
        """
        try:
            self._producer.flush(0)
        except (KafkaException, QuixException) as refused:
            return refused
        return error

    def run(self, *, until_end: bool = False) -> None:
        """Process events until a signal arrives.

        Parameters
        ----------
        until_end
            Whether to stop when the group has processed all events that existed at the start.

        Raises
        ------
        UnreachableError
            If no broker is available, or this worker lost its partitions. The worker can be restarted.
        ConnectorError
            If the state of a key is too large, or states cannot be read or written.
        """
        watch = StopAtEnd(self.app, self._sources) if until_end else None
        try:
            with self._moving_keys(), watch or contextlib.nullcontext():
                self.app.run()
            self.handler.check_labels()
            self.handler.log_progress()
        except KeyStateError as error:
            raise ConnectorError(f"consumer group {self.app.config.consumer_group}: {error}") from error
        except (KafkaException, QuixException) as error:
            reason, name = self._reason(error), f"kafka topic {self._stream.topic}"
            if reason.args and isinstance(reason.args[0], KafkaError) and reason.args[0].code() in _TOO_LARGE:
                raise ConnectorError(
                    f"{name}: the state of a key exceeds the record size of the changelog: use a smaller --model or "
                    f"effort, or raise `max.message.bytes` of the group's changelog topic, up to {LARGEST_BYTES}"
                ) from error
            if reason.args and isinstance(reason.args[0], KafkaError) and reason.args[0].code() in _INVALID_TIME:
                now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
                name += f": check the clock of this machine: its time is {now} UTC"
            raise UnreachableError(f"{name}: {reason}") from error
        except Exception as error:
            if type(error) is not Exception:
                raise
            # The database of the engine has no classes of errors.
            what = f"{self.app.config.state_dir}: the states of keys cannot be read or written: {error}"
            raise ConnectorError(what, "states") from error


def lag_of(consumer: Any, topics: Sequence[str]) -> dict[int, int]:
    """Return the number of unprocessed records of each assigned partition."""
    found: dict[int, int] = {}
    with contextlib.suppress(KafkaException, RuntimeError):  # not connected yet, or already closed
        for tp in consumer.assignment():
            if tp.topic in topics:
                [place] = consumer.position([tp])
                low, high = consumer.get_watermark_offsets(tp, cached=True)
                if place.offset < 0 or high < 0:  # nothing consumed or fetched since the start
                    [place] = consumer.committed([tp], timeout=RESPONSE_S)
                    low, high = consumer.get_watermark_offsets(tp, timeout=RESPONSE_S)
                found[tp.partition] = found.get(tp.partition, 0) + max(0, high - max(place.offset, low, 0))
    return found


def check_first_events(stream: Stream, keyed: KeyedClassifier, records: Iterable[Any]) -> None:
    """Check the keys of the first records, and that the prior model knows them.

    Parameters
    ----------
    stream
        The topic of events and the field of keys.
    keyed
        The classifier; its prior model, if any, must know a feature.
    records
        First record of each partition.

    Raises
    ------
    ConnectorError
        If no record has the field, or none has it as its key.
    FeatureMismatchError
        If the prior model knows no feature.
    """
    is_keyed = has_field = stream.repartition
    has_prior = keyed.prior_model is not None
    events, reasons = [], []
    for record in records:
        try:
            event = stream.event(record.value())
        except ValueError:
            continue
        events.append(event)
        has_field = has_field or event.get(stream.field) is not None
        try:
            stream.take_key(event, record.key())
            is_keyed = True
        except ValueError as error:
            reasons.append(f"partition {record.partition()}, offset {record.offset()}: {error}")
        if is_keyed and has_field and not has_prior:
            return
    if reasons and not is_keyed:
        raise ConnectorError(
            f"kafka topic {stream.topic}: {reasons[0]}: events of one key may be in several partitions; send "
            "them with their key, or add --repartition, which takes them through a topic of their own"
        )
    if events and not has_field:
        what = f"no event at the start of a partition has the field {stream.field!r}: the keys in Kafka are used"
        logger.warning("kafka topic %s: %s (does --field name the right field?)", stream.topic, what)
    try:
        keyed.check_prior_model(events)
    except FeatureMismatchError as error:
        message = f"kafka topic {stream.topic}: --prior-model: {error}"
        raise ConnectorError(message, "features", option="--prior-model") from error
