"""Handle records of a worker: predict and learn events and delayed labels."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Imported first, because it hides deprecation warnings of the engine's dependencies.
from streamsvm.keyed.quix import ModelCache

# isort: split
import orjson
from quixstreams import message_context

from connectors.columns.cells import shown
from connectors.columns.nested import Flattening
from connectors.kafka.producer import too_large, without_value
from streamsvm.core.clock import working_time
from streamsvm.keyed.classifier import KeyedClassifier

logger = logging.getLogger("streamsvm.keyed")

RECORD_TIME = "streamsvm.time"
"""Name of the field or header with the time of an event's source record.

Repartitioned events have the header.
"""

_RECENT = 1000
_LOG_EVERY_S = 5.0
_ORIGIN = "streamsvm.origin"  # header of a repartitioned event with its source partition and offset


def read_event(value: bytes | None) -> dict[str, Any]:
    """Return the JSON object of a record.

    Raises
    ------
    ValueError
        If the value is not a JSON object.
    """
    if value is None:
        raise ValueError("the record has no value")
    try:
        event = orjson.loads(value)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if type(event) is not dict:
        raise ValueError(f"not a JSON object: {shown(escaped(value))}")
    return event


def key_bytes(name: str, value: Any) -> bytes:
    """Encode a key, a string or an integer, as a Kafka record key.

    Examples
    --------
    >>> key_bytes("customer", "c17"), key_bytes("customer", 17)
    (b'c17', b'17')
    """
    if type(value) not in (str, int) or value == "":
        raise ValueError(f"no key: {name!r} is {value!r}, not a text or a whole number")
    return str(value).encode()


def with_origin(value: Any, key: Any, timestamp: int, headers: Any) -> list[tuple[str, bytes]]:
    """Return headers of a repartitioned event: origin and time of the source record."""
    context = message_context()
    return [(_ORIGIN, b"%d:%d" % (context.partition, context.offset)), (RECORD_TIME, b"%d" % timestamp)]


def _header(headers: Iterable[tuple[str, bytes]] | None, name: str) -> bytes | None:
    return next((value for found, value in headers or () if found == name), None)


def origin_of(headers: Iterable[tuple[str, bytes]] | None) -> tuple[int, int] | None:
    """Return source partition and offset of a repartitioned event, else None."""
    found = _header(headers, _ORIGIN)
    if found is None:
        return None
    partition, _, offset = found.partition(b":")
    return int(partition), int(offset)


def source_time(value: Any, key: Any, timestamp: int, headers: Any) -> int:
    """Return the time of the source record of a repartitioned event.

    It is the time of the repartitioned record if an earlier version wrote it.
    """
    return int(_header(headers, RECORD_TIME) or timestamp)


def escaped(value: bytes | None) -> str | None:
    """Decode bytes as UTF-8, with escapes for invalid ones."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


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
    flattening
        Conversion of nested events to flat ones. None: nested values are rejected.
    """

    topic: str
    field: str
    labels: str | None = None
    out: str | None = None
    rejected: str | None = None
    repartition: bool = False
    flattening: Flattening | None = None

    @property
    def topics(self) -> list[str]:
        """The names of all topics."""
        return [name for name in (self.topic, self.labels, self.out, self.rejected) if name is not None]

    def event(self, value: bytes | None) -> dict[str, Any]:
        """Return the event in a record, without nested values.

        Raises
        ------
        ValueError
            If the value is not a JSON object, or cannot be flattened.
        """
        event = read_event(value)
        is_nested = any(type(item) in (dict, list) for item in event.values())
        return event if self.flattening is None or not is_nested else self.flattening.row(event)

    def take_key(self, event: dict[str, Any], key: bytes | None) -> bytes:
        """Remove the key from an event and return it; it must equal the record key."""
        own = event.pop(self.field, None)
        if own is None and key:  # repartitioned events without a key have an empty one
            return key
        name = key_bytes(self.field, own)
        if name != key:
            raise ValueError(f"its key in Kafka is {shown(escaped(key))}, its {self.field!r} is {shown(escaped(name))}")
        return name

    def key_of(self, value: bytes) -> bytes:
        """Return the key for repartitioning an event, empty if it has no valid key."""
        try:
            return key_bytes(self.field, self.event(value).get(self.field))
        except ValueError:
            return b""

    def event_time(self, value: bytes | None, keyed: KeyedClassifier, timestamp: int) -> int:
        """Return the time of an event in ms, or that of its record if the event has none."""
        try:
            return keyed.event_time(self.event(value))
        except (ValueError, KeyError):
            return timestamp


class Handler:
    """Predicts and learns the records of a worker, and writes the results.

    Parameters
    ----------
    stream
        The topics.
    keyed, cache
        The classifier, and the cache of its keys.
    send
        Function that writes a record, given its topic, value, key and the partition of its event.
    largest
        Maximum size of key and value of a record, by topic.

    Attributes
    ----------
    events, labelled, judged, right, rejected
        Number of predicted events, of those with a label, of events with a label and a prediction, of correct
        predictions, and of rejected records.
    seconds
        Time spent in models.
    """

    def __init__(
        self,
        stream: Stream,
        keyed: KeyedClassifier,
        cache: ModelCache,
        send: Callable[[str, bytes, bytes | None, int], None],
        largest: Mapping[str, int],
    ) -> None:
        self._stream, self._keyed, self._cache, self._send, self._largest = stream, keyed, cache, send, largest
        self.events = self.labelled = self.judged = self.right = self.rejected = 0
        self.seconds = 0.0
        self._recent: deque[bool] = deque(maxlen=_RECENT)
        self._log_at = working_time() + _LOG_EVERY_S

    @property
    def recent_accuracy(self) -> float:
        """Share of correct predictions over the last 1,000."""
        return sum(self._recent) / len(self._recent) if self._recent else float("nan")

    def process(self, value: bytes | None, key: bytes | None, timestamp: int, headers: Any, state: Any) -> None:
        """Predict and learn an event, or learn a delayed label; write the results."""
        context, keyed = message_context(), self._keyed
        topic, place = context.topic, origin_of(headers) or (context.partition, context.offset)
        try:
            event = self._stream.event(value)
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
        result = self._cache.step(name, event, state)
        now = working_time()
        self.seconds += now - began
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            self.log_progress()
        if "reason" in result:
            self._reject(result["reason"], topic, value, key, place)
        elif topic == self._stream.labels:
            self._judge(result["prediction"], result["label"])
        else:
            self.events += 1
            self.labelled += label is not None
            if self.events == _RECENT:
                self.check_labels()
            self._judge(result["prediction"], label)
            if self._stream.out is not None:
                record = {"partition": place[0], "offset": place[1], "time": timestamp, **result}
                if self._stream.labels is None:
                    record["label"] = label
                out, row = self._stream.out, orjson.dumps(record)
                if (size := len(row) + len(key or b"")) > self._largest[out]:
                    self._reject(f"the prediction is {too_large(size)}", topic, row, key, place)
                else:
                    self._send(out, row, key, place[0])

    def log_progress(self) -> None:
        """Log the counts of this worker."""
        text = f"{self.events:,} events of this worker"
        if self.judged:
            recent = f"recent accuracy {self.recent_accuracy:.4f} (last {len(self._recent):,})"
            text += f", accuracy {self.right / self.judged:.4f}, {recent}"
        logger.info("%s%s", text, f", {self.rejected:,} rejected" if self.rejected else "")

    def check_labels(self) -> None:
        """Warn if no event had a label: after 1,000 events, or at the end."""
        if self._stream.labels is None and not self.labelled and 0 < self.events <= _RECENT:
            what = f"none of {self.events:,} events had a label: nothing was learned"
            logger.warning("kafka topic %s: %s (does --label name the right field?)", self._stream.topic, what)

    def _label_of(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a label record that the model needs."""
        keyed = self._keyed
        for name in (keyed.join or "", keyed.label):
            if event.get(name) is None:
                raise ValueError(f"a label without {name!r}")
        return {name: event[name] for name in (keyed.join, keyed.label, keyed.time) if name in event}

    def _judge(self, prediction: Any, label: Any) -> None:
        if label is not None and prediction is not None:
            self.judged += 1
            self.right += prediction == label
            self._recent.append(prediction == label)

    def _reject(self, reason: str, topic: str, value: bytes | None, key: bytes | None, place: tuple[int, int]) -> None:
        self.rejected += 1
        if self._stream.repartition:
            topic, key = self._stream.topic, key or None  # an empty key stands for none
        if self.rejected == 1:
            logger.warning("%s: partition %d, offset %d: rejected: %s", topic, *place, reason)
        if (to := self._stream.rejected) is not None:
            record = {"topic": topic, "partition": place[0], "offset": place[1], "reason": reason}
            letter, largest = orjson.dumps(record | {"raw": escaped(value)}), self._largest[to]
            key = None if len(key or b"") > largest // 2 else key
            if len(letter) > (most := largest - len(key or b"")):
                letter = without_value(f"kafka topic {to}", letter, most)
            self._send(to, letter, key, place[0])
