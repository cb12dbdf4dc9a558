"""Records to events: values are JSON, Avro or CSV, one event per record."""

from __future__ import annotations

import base64
import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from connectors.cells import Bad
from connectors.columns import Events, TextColumns
from connectors.errors import ConnectorError
from connectors.events import Batch, Origins, Position, Rejected
from connectors.format_csv import Dialect
from connectors.format_json import JsonFormat
from connectors.number_columns import NumberColumns
from connectors.options import Options, Roles
from connectors.string_columns import LazyStrings
from connectors.times import Times

_PLAIN = frozenset({str, int, float, bool, type(None)})
_CONFLUENT = 5  # a zero byte and the number of a schema, as schema registries have it
# Beside the topic in positions; no topic can have these names.
_UNITS, _NUMBERS, _NESTED = "time units", "spellings of numbers", "nested columns"
_SHOWN_BYTES = 1000  # of a value that is too long


@dataclass(slots=True)
class Decoded:
    """Decoded values.

    Parameters
    ----------
    good
        Indices of the valid values, ascending.
    events
        Their events; `events.bad` refers to indices among these.
    bad
        Reasons for rejecting the other values, by index.
    """

    good: list[int]
    events: Events
    bad: Bad = field(default_factory=dict)


class ValueFormat(ABC):
    """Base class of value formats."""

    times: Times
    """Reads the times of events, and knows the units of those that are numbers."""
    numbers: NumberColumns
    """Reads the numbers in texts, and knows their spelling."""

    @property
    def decided(self) -> dict[str, Any]:
        """Column formats found so far; part of positions."""
        units, numbers = self.times.guesses, self.numbers.decided
        return ({_UNITS: dict(units)} if units else {}) | ({_NUMBERS: numbers} if numbers else {})

    def restore(self, position: Mapping[str, Any]) -> None:
        """Restore the column formats that a position contains."""
        self.times.guesses = dict(position.get(_UNITS, {}))
        self.numbers.restore(position.get(_NUMBERS, {}))

    @abstractmethod
    def _row(self, value: bytes) -> Any:
        """Decode a value. Raise ValueError or csv.Error with the reason if it is malformed."""

    @abstractmethod
    def _events(self, rows: list[Any]) -> Events:
        """Convert decoded values."""

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Decode values; malformed values do not affect the others."""
        good, rows, bad = [], [], {}
        for i, value in enumerate(values):
            try:
                rows.append(self._row(value))
            except UnicodeDecodeError:
                bad[i] = f"not valid utf-8{_frame_hint(value)}"
            except (ValueError, csv.Error) as error:
                bad[i] = str(error)
            else:
                good.append(i)
        return Decoded(good, self._events(rows), bad)


class JsonValues(ValueFormat):
    """JSON objects, as in JSON lines."""

    def __init__(self, options: Options) -> None:
        self._format = JsonFormat(options)
        self.times, self.numbers = self._format.times, self._format.numbers

    @property
    def decided(self) -> dict[str, Any]:
        """Column formats found so far, and the columns of nested fields."""
        nested = self._format.nested
        return super().decided | ({_NESTED: nested.decided} if nested.known else {})

    def restore(self, position: Mapping[str, Any]) -> None:
        """Restore what a position contains."""
        super().restore(position)
        self._format.nested.restore(position.get(_NESTED, ()))

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        """Decode all values at once. None if they must be decoded one by one."""
        return self._format.rows(values)

    def read(self, values: Sequence[bytes]) -> Decoded:
        rows = self._rows(values)
        return super().read(values) if rows is None else Decoded(list(range(len(rows))), self._events(rows))

    def _events(self, rows: list[Any]) -> Events:
        return self._format.events(rows)

    def _row(self, value: bytes) -> dict[str, Any]:
        row = self._format.row(str(value, "utf-8"))
        if isinstance(row, ValueError):
            raise ValueError(f"{row}{_frame_hint(value)}")
        return row


class CsvValues(ValueFormat):
    """CSV records without a header, with column names from the options.

    Columns are numeric unless `types` declares another type.
    """

    def __init__(self, options: Options) -> None:
        names = options.names("names")
        self._dialect = Dialect.of(options, ",", single=True)
        roles = Roles.of(options)
        if not any(names):
            raise ConnectorError(
                f"{options.name}: format=csv needs `names`, the columns of a record in order", "needs", option="names"
            )
        roles.check(options.name, names)
        roles.types = dict.fromkeys(roles.features(names), "number") | roles.types
        self._width = len(names)
        self._columns = TextColumns(names, roles)
        self.times, self.numbers = self._columns.times, self._columns.numbers

    def _events(self, rows: list[Any]) -> Events:
        return self._columns.read(rows)

    def _row(self, value: bytes) -> list[str]:
        rows = list(self._dialect.reader(io.StringIO(str(value, "utf-8"), newline=""), strict=True))
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} records in one value, not 1{_frame_hint(value)}")
        if len(rows[0]) != self._width:
            raise ValueError(f"{len(rows[0])} fields, not {self._width}{_frame_hint(value)}")
        return rows[0]


class AvroValues(JsonValues):
    """Avro records with a schema from a file, with or without a schema-registry prefix."""

    def __init__(self, options: Options) -> None:
        path = options.text("schema")
        super().__init__(options)
        if path is None:
            raise ConnectorError(
                f"{options.name}: format=avro needs `schema`, the file of the schema (.avsc)", "needs", option="schema"
            )
        self._framed = options.flag("framed", False)
        try:
            import fastavro
            import fastavro.schema
        except ImportError as error:
            raise ConnectorError("Avro needs fastavro: pip install 'streamsvm[kafka]'") from error
        self._reader: Callable[..., Any] = fastavro.schemaless_reader
        try:
            self._schema = fastavro.schema.load_schema(path)
        except Exception as error:  # of many kinds, all say that the file is no schema
            what = f"option `schema`: {path}: {type(error).__name__}: {error}"
            raise ConnectorError(f"{options.name}: {what}", "schema", option="schema") from error
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise ConnectorError(
                f"{options.name}: option `schema`: {path} is not the schema of a record", "schema", option="schema"
            )

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        return None

    def _row(self, value: bytes) -> dict[str, Any]:
        if self._framed:
            if value[:1] != b"\0" or len(value) < _CONFLUENT:
                raise ValueError("not framed: the zero byte and the number of the schema are missing")
            return self._decoded(value[_CONFLUENT:])
        try:
            return self._decoded(value)
        except ValueError as error:
            hint = _frame_hint(value)
            try:
                if hint:
                    self._decoded(value[_CONFLUENT:])
            except ValueError:
                hint = ""
            raise ValueError(f"{error}{hint}") from error

    def _decoded(self, value: bytes) -> dict[str, Any]:
        stream = io.BytesIO(value)
        try:
            row = self._reader(stream, self._schema, None)
        except Exception as error:  # IndexError, EOFError, struct.error and more, all on malformed bytes
            raise ValueError(f"not Avro of this schema: {type(error).__name__}: {error}") from error
        if rest := stream.read():
            raise ValueError(f"not Avro of this schema: {len(rest)} bytes too many")
        return _plain(row)


FORMATS: dict[str, Callable[[Options], ValueFormat]] = {"json": JsonValues, "csv": CsvValues, "avro": AvroValues}
ALIASES = {"jsonl": "json"}


def _frame_hint(value: bytes) -> str:
    """Return a hint if a value starts with a schema-registry prefix, else an empty string."""
    if value[:1] != b"\0" or len(value) < _CONFLUENT:
        return ""
    schema = int.from_bytes(value[1:_CONFLUENT], "big")
    return (
        f"; the value begins with the frame of a schema registry (a zero byte and schema id {schema}): "
        "format=avro, schema=FILE and framed=yes read Avro in such frames"
    )


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a record to values as JSON has them."""
    return {name: item if type(item) in _PLAIN else _simple(item) for name, item in row.items()}


def _simple(value: Any) -> Any:
    """Convert a nested value, or one of a logical type, to values as JSON has them."""
    if isinstance(value, dict):
        return _plain(value)
    if isinstance(value, list):
        return [item if type(item) in _PLAIN else _simple(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


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
        self._values.restore(position)

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
        batch = Batch(
            events.features,
            events.labels,
            Origins({"topic": self._topic}, {**places}),
            position | self._values.decided,
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
