"""Convert Kafka records to batches of events."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.events import Batch, Origins, Position, Rejected
from connectors.kafka.values import ValueFormat
from connectors.string_columns import LazyStrings

# Beside the topic in positions; no topic can have these names.
_UNITS, _NUMBERS = "time units", "spellings of numbers"
_SHOWN_BYTES = 1000  # of a value that is too long


class Decoder:
    """Convert the records of a topic to batches.

    Parameters
    ----------
    topic
        Name of the topic.
    values
        Format of the values.
    max_value_bytes
        Maximum size of a value; longer values are rejected.
    """

    def __init__(self, topic: str, values: ValueFormat, max_value_bytes: int) -> None:
        self._topic, self._values, self._most = topic, values, max_value_bytes

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._values.numbers.notices.texts

    def restore(self, position: Mapping[str, Any]) -> None:
        """Restore the column formats that a position contains."""
        self._values.times.guesses = dict(position.get(_UNITS, {}))
        self._values.numbers.restore(position.get(_NUMBERS, {}))

    def batch(self, records: Sequence[Any], position: Position) -> Batch:
        """Convert records to a batch; its position includes the column formats."""
        rejected = [self._rejected(record, reason) for record in records if (reason := self._oddity(record.value))]
        if rejected:
            records = [record for record in records if not self._oddity(record.value)]
        decoded = self._values.read([record.value for record in records])
        if decoded.bad:
            rejected += [self._rejected(records[i], reason) for i, reason in decoded.bad.items()]
            records = [records[i] for i in decoded.good]
        events = decoded.events
        rejected += [self._rejected(records[i], reason) for i, reason in sorted(events.bad.items())]
        places = {
            "partition": [record.partition for record in records],
            "offset": [record.offset for record in records],
        }
        units, numbers = self._values.times.guesses, self._values.numbers.decided
        batch = Batch(
            events.features,
            events.labels,
            Origins({"topic": self._topic}, {**places}),
            position | ({_UNITS: dict(units)} if units else {}) | ({_NUMBERS: numbers} if numbers else {}),
            raw=LazyStrings([record.value for record in records], text_of),
            keys=[_key(record.key) for record in records] if events.keys is None else events.keys,
            times=[record.timestamp for record in records] if events.times is None else events.times,
            headers=[record.headers for record in records],
        ).without(events.bad)
        batch.rejected = rejected
        return batch

    def _rejected(self, record: Any, reason: str) -> Rejected:
        value = record.value
        raw = None if value is None else text_of(value[:_SHOWN_BYTES] if len(value) > self._most else value)
        return Rejected(reason, {"topic": self._topic, "partition": record.partition, "offset": record.offset}, raw)

    def _oddity(self, value: bytes | None) -> str:
        """Return the reason for rejecting a value, else an empty string."""
        if value is None:
            return "a tombstone: a record without a value"
        if len(value) <= self._most:
            return ""
        limit = f"max_value_bytes={self._most:,}"
        return f"a value of {len(value):,} bytes, longer than {limit} (only its beginning is kept here)"


def text_of(value: bytes) -> str:
    """Decode bytes as UTF-8, or encode them as base64 with the prefix ``base64:``."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _key(key: bytes | None) -> str | bytes | None:
    """Decode a key as UTF-8; return it unchanged if it is not valid."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return key
