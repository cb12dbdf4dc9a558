"""Worker of a consumer group that predicts and learns a Kafka topic with one model per key, for the command line."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Imported first, because it hides deprecation warnings of the engine's dependencies.
from streamsvm.keyed.quix import LARGEST_BYTES, Application, Live

# isort: split
import orjson
from confluent_kafka import KafkaError, KafkaException
from quixstreams import message_context
from quixstreams.exceptions import QuixException

from connectors.cells import shown
from connectors.errors import ConnectorError, UnreachableError
from connectors.kafka.producer import too_large, without_value
from streamsvm.core.clock import working_time
from streamsvm.features.names import FeatureMismatchError
from streamsvm.keyed.classifier import KeyedClassifier
from streamsvm.keyed.group import Growth, check_settings, read_growths, write_growth
from streamsvm.keyed.moved import Drained, MovedStates
from streamsvm.keyed.records import (
    RECORD_TIME,
    event_time,
    key_bytes,
    origin_of,
    read_event,
    shown_bytes,
    text_of,
    with_origin,
)
from streamsvm.keyed.sections import KeyStateError
from streamsvm.keyed.topics import ANSWER_S, Ending, consumer, ends, first_records, largest_records, partitions

logger = logging.getLogger("streamsvm.keyed")

_RECENT = 1000
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class Stream:
    """Input and output topics of a worker.

    Parameters
    ----------
    topic
        The topic of the events.
    field
        The field of an event with its key. The record key must be equal to it, as text.
    labels
        The topic of delayed labels, with the keys of their events; None without delayed labels.
    out, rejected
        The topics of predictions and of rejected records; None for no output.
    repartition
        Whether record keys differ from event keys, so that events go through a repartitioned topic.
    """

    topic: str
    field: str
    labels: str | None = None
    out: str | None = None
    rejected: str | None = None
    repartition: bool = False

    @property
    def topics(self) -> list[str]:
        """The names of all topics."""
        return [name for name in (self.topic, self.labels, self.out, self.rejected) if name is not None]

    def take_key(self, event: dict[str, Any], key: bytes | None) -> bytes:
        """Remove the key from an event and return it; the record key and the field must agree."""
        own = event.pop(self.field, None)
        if own is None and key is not None:
            return key
        name = key_bytes(self.field, own)
        if name != key:
            raise ValueError(f"its key in Kafka is {shown_bytes(key)}, its {self.field!r} is {shown_bytes(name)}")
        return name

    def key_of(self, value: bytes) -> bytes:
        """Return the key for repartitioning an event; events without a valid key share one."""
        try:
            return key_bytes(self.field, read_event(value).get(self.field))
        except ValueError:
            return b""


@dataclass(slots=True)
class Figures:
    """Metrics of a worker.

    Parameters
    ----------
    events, judged, right, rejected
        Number of predicted events, of events with a label and a prediction, of correct predictions, and of rejected
        records.
    seconds
        Time spent in models.
    recent
        Whether each of the last predictions was correct.
    """

    events: int = 0
    judged: int = 0
    right: int = 0
    rejected: int = 0
    seconds: float = 0.0
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def recent_accuracy(self) -> float:
        """Share of correct predictions over the last 1,000."""
        return sum(self.recent) / len(self.recent) if self.recent else float("nan")


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

    Raises
    ------
    ConnectorError
        If a topic is missing, the topics of labels and events differ in the number of partitions, record keys differ
        from event keys, the parent knows no feature of the events, or the group has other settings.
    """

    def __init__(self, app: Application, stream: Stream, keyed: KeyedClassifier) -> None:
        self.app, self.figures, self.keyed = app, Figures(), keyed
        self._stream = stream
        self._sizes = {topic: partitions(app, topic) for topic in stream.topics}
        self._largest = largest_records(app, [name for name in (stream.out, stream.rejected) if name is not None])
        self._check_labels()
        if not stream.repartition or keyed.parent is not None:
            check_first_events(stream, keyed, first_records(app, stream.topic, self._sizes[stream.topic]))
        shared = {"--field": stream.field, "--label": keyed.label, "--join": keyed.join}
        check_settings(app, keyed.settings | shared)
        app.before_enlarging.append(self._write_growth)
        self.live = Live(keyed, lasting=True)
        app.when_gone.append(self.live.drop)
        sdf = self._sdf(app)
        self._read = [topic.name for topic in sdf.topics]
        self._sources = list(dict.fromkeys((stream.topic, *self._read)))
        self._producer, self._consumer = sdf.processing_context.producer, sdf.processing_context.consumer
        sdf.processing_context.sink_manager.register(self.live)
        sdf.apply(self._take, stateful=True, metadata=True)
        self._growths = read_growths(app)

    def _sdf(self, app: Application) -> Any:
        """Stream of all records, keyed by event key."""
        stream = self._stream
        raw: dict[str, Any] = {"key_deserializer": "bytes", "value_deserializer": "bytes"}
        timed: dict[str, Any] = {}
        if self.keyed.forget_after is not None and self.keyed.time != RECORD_TIME:
            timed["timestamp_extractor"] = self._moment  # the engine removes inactive keys by this time
        sdf = app.dataframe(app.topic(stream.topic, **raw, **timed))
        if stream.labels is not None:
            return sdf.concat(app.dataframe(app.topic(stream.labels, **raw, **timed)))
        if stream.repartition:
            # Brokers delete or refuse records with old times, so the event time is in a header.
            sdf = sdf.set_headers(with_origin).set_timestamp(lambda *_: round(1000 * time.time()))
            raw |= {"key_serializer": "bytes", "value_serializer": "bytes"}
            return sdf.group_by(stream.key_of, stream.field, **raw).set_timestamp(event_time)
        return sdf

    # An event ----------------------------------------------------------------------------------------------------

    def _take(self, value: bytes | None, key: bytes | None, timestamp: int, headers: Any, state: Any) -> None:
        """Predict and learn an event, or learn a delayed label; write the results."""
        context, keyed = message_context(), self.keyed
        topic, place = context.topic, origin_of(headers) or (context.partition, context.offset)
        try:
            event = read_event(value)
            name = self._stream.take_key(event, key)
            if topic == self._stream.labels:
                event = self._label_of(event)
            elif self._stream.labels is not None:
                event.pop(keyed.label, None)  # labels come from their own topic
            label = event.get(keyed.label)
            if type(label) in (dict, list):
                raise ValueError(f"the label {keyed.label!r} is nested: {shown(label)}")
        except ValueError as error:
            self._reject(str(error), topic, value, key, place)
            return
        if keyed.time == RECORD_TIME:
            event[RECORD_TIME] = timestamp
        began = working_time()
        answer = self.live.step(name, event, state)
        self.figures.seconds += working_time() - began
        if "reason" in answer:
            self._reject(answer["reason"], topic, value, key, place)
        elif topic == self._stream.labels:
            self._judge(answer["prediction"], answer["label"])
        else:
            self.figures.events += 1
            self._judge(answer["prediction"], label)
            if self._stream.out is not None:
                record = {"partition": place[0], "offset": place[1], "time": timestamp, **answer}
                if self._stream.labels is None:
                    record["label"] = label
                out, row = self._stream.out, orjson.dumps(record)
                if (size := len(row) + len(key or b"")) > self._largest[out]:
                    self._reject(f"the prediction is {too_large(size)}", topic, row, key, place)
                else:
                    self._send(out, row, key, place[0])

    def _label_of(self, event: dict[str, Any]) -> dict[str, Any]:
        """Fields of a label record that the model needs."""
        keyed = self.keyed
        for name in (keyed.join or "", keyed.label):
            if event.get(name) is None:
                raise ValueError(f"a label without {name!r}")
        return {name: event[name] for name in (keyed.join, keyed.label, keyed.time) if name in event}

    def _judge(self, prediction: Any, label: Any) -> None:
        figures = self.figures
        if label is not None and prediction is not None:
            figures.judged += 1
            figures.right += prediction == label
            figures.recent.append(prediction == label)

    def _reject(self, reason: str, topic: str, value: bytes | None, key: bytes | None, place: tuple[int, int]) -> None:
        self.figures.rejected += 1
        topic = self._stream.topic if self._stream.repartition else topic
        if self.figures.rejected == 1:
            logger.warning("%s: partition %d, offset %d: rejected: %s", topic, *place, reason)
        if (to := self._stream.rejected) is not None:
            record = {"topic": topic, "partition": place[0], "offset": place[1], "reason": reason}
            letter, largest = orjson.dumps(record | {"raw": text_of(value)}), self._largest[to]
            key = None if len(key or b"") > largest // 2 else key
            if len(letter) > (most := largest - len(key or b"")):
                letter = without_value(f"kafka topic {to}", letter, most)
            self._send(to, letter, key, place[0])

    def _moment(self, value: bytes | None, headers: Any, timestamp: int, kind: Any) -> int:
        """Time of an event, or of its record if the event has none."""
        try:
            return self.keyed.moment(read_event(value))
        except (ValueError, KeyError):
            return timestamp

    def _send(self, topic: str, value: bytes, key: bytes | None, partition: int) -> None:
        """Write a record with the current time, because brokers delete or refuse records with old times.

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
        with consumer(self.app) as client:
            found = {topic: ends(client, topic, partitions) for topic in self._read}
        write_growth(self.app, Growth(partitions, found, time.time()))

    @contextlib.contextmanager
    def _moving_keys(self) -> Iterator[None]:
        """Load the states of moved keys while running, if partitions were added."""
        if not self._growths:
            yield
            return
        [changelog] = self.app.topics.changelog_topics_list
        path = Path(self.app.config.state_dir, f"{self.app.config.consumer_group}.moved.sqlite")
        with MovedStates(self.app, changelog.name, path, self._growths) as moved, Drained(self.app, moved) as drained:
            self.live.moved, self.app.first_held = moved.find, drained.first_held
            yield

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
        """
        watch = Ending(self.app, self._sources) if until_end else None
        try:
            with self._moving_keys(), watch or contextlib.nullcontext():
                self.app.run()
        except KeyStateError as error:
            raise ConnectorError(f"consumer group {self.app.config.consumer_group}: {error}") from error
        except (KafkaException, QuixException) as error:
            name = f"kafka topic {self._stream.topic}"
            if error.args and isinstance(error.args[0], KafkaError) and error.args[0].code() in _TOO_LARGE:
                raise ConnectorError(
                    f"{name}: the state of a key exceeds the record size of the changelog: use a smaller --model or "
                    f"effort, or raise `max.message.bytes` of the group's changelog topic, up to {LARGEST_BYTES}"
                ) from error
            raise UnreachableError(f"{name}: {error}") from error


def lag_of(consumer: Any, topics: Sequence[str]) -> dict[int, int]:
    """Return the number of unprocessed records of each assigned partition of some topics."""
    found: dict[int, int] = {}
    with contextlib.suppress(KafkaException, RuntimeError):  # not connected yet, or already closed
        for tp in consumer.assignment():
            if tp.topic in topics:
                [place] = consumer.position([tp])
                low, high = consumer.get_watermark_offsets(tp, cached=True)
                if place.offset < 0 or high < 0:  # nothing consumed or fetched since the start
                    [place] = consumer.committed([tp], timeout=ANSWER_S)
                    low, high = consumer.get_watermark_offsets(tp, timeout=ANSWER_S)
                found[tp.partition] = found.get(tp.partition, 0) + max(0, high - max(place.offset, low, 0))
    return found


def check_first_events(stream: Stream, keyed: KeyedClassifier, records: Iterable[Any]) -> None:
    """Check the first record of each partition: is any keyed by the field, and does the parent know its features?"""
    is_keyed, has_parent = stream.repartition, keyed.parent is not None
    events, reasons = [], []
    for record in records:
        try:
            event = read_event(record.value())
        except ValueError:
            continue
        events.append(event)
        try:
            stream.take_key(event, record.key())
            is_keyed = True
        except ValueError as error:
            reasons.append(f"partition {record.partition()}, offset {record.offset()}: {error}")
        if is_keyed and not has_parent:
            return
    if reasons and not is_keyed:
        raise ConnectorError(
            f"kafka topic {stream.topic}: {reasons[0]}: events of one key may be in several partitions; send "
            "them with their key, or add --repartition, which takes them through a topic of their own"
        )
    try:
        keyed.check_parent(events)
    except FeatureMismatchError as error:
        message = f"kafka topic {stream.topic}: --prior-model: {error}"
        raise ConnectorError(message, "features", option="--prior-model") from error
