"""Formats of record values: JSON, Avro and CSV, one event per record."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol

from connectors.cells import Bad, shown
from connectors.columns import Events, TextColumns
from connectors.dialect import Dialect
from connectors.errors import ConnectorError
from connectors.format_json import FEWEST_EVENTS, JsonFormat
from connectors.number_columns import NumberColumns
from connectors.options import Options, Roles
from connectors.times import Times

_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
_CONFLUENT = 5  # a zero byte and the number of a schema, as schema registries have it


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


class ValueFormat(Protocol):
    """Protocol of a value format."""

    times: Times
    """Reads the times of events, and knows the units of those that are numbers."""
    numbers: NumberColumns
    """Reads the numbers in texts, and knows their spelling."""

    def read(self, values: Sequence[bytes]) -> Decoded:
        """Decode values; malformed values do not affect the others."""


class JsonValues(ValueFormat):
    """Flat JSON objects, as in JSON lines."""

    def __init__(self, options: Options) -> None:
        self._format = JsonFormat(options)
        self.times, self.numbers = self._format.times, self._format.numbers

    def read(self, values: Sequence[bytes]) -> Decoded:
        rows = self._format.rows(values)
        if rows is not None:
            return Decoded(list(range(len(rows))), self._format.events(rows))
        return _read(values, self._row, self._format.events)

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
        self._undeclared = [name for name in roles.features(names) if name not in roles.types]
        roles.types = dict.fromkeys(self._undeclared, "number") | roles.types
        self._width = len(names)
        self._columns = TextColumns(names, roles)
        self.times, self.numbers = self._columns.times, self._columns.numbers
        self._first: list[list[str]] = []

    def read(self, values: Sequence[bytes]) -> Decoded:
        return _read(values, self._cells, self._events)

    def _events(self, rows: list[list[str]]) -> Events:
        if not self.numbers.is_sampled:
            self._first += rows
            if len(self._first) >= FEWEST_EVENTS:
                self.numbers.is_sampled = True
                self._columns.warn_of_counters(self._undeclared, self._first)
                self._first = []
        return self._columns.read(rows)

    def _cells(self, value: bytes) -> list[str]:
        rows = list(self._dialect.reader(io.StringIO(str(value, "utf-8"), newline=""), strict=True))
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} records in one value, not 1{_frame_hint(value)}")
        if len(rows[0]) != self._width:
            raise ValueError(f"{len(rows[0])} fields, not {self._width}{_frame_hint(value)}")
        return rows[0]


class AvroValues(ValueFormat):
    """Avro records with a schema from a file, with or without a schema-registry prefix."""

    def __init__(self, options: Options) -> None:
        path = options.text("schema")
        rows = JsonFormat(options)
        self._events, self.times, self.numbers = rows.events, rows.times, rows.numbers
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

    def read(self, values: Sequence[bytes]) -> Decoded:
        return _read(values, self._row, self._events)

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
        return {name: item if type(item) in _PLAIN else _simple(item) for name, item in row.items()}


FORMATS: dict[str, Callable[[Options], ValueFormat]] = {"json": JsonValues, "csv": CsvValues, "avro": AvroValues}
ALIASES = {"jsonl": "json"}


def _read(values: Sequence[bytes], row_of: Callable[[bytes], Any], events_of: Callable[[list[Any]], Events]) -> Decoded:
    try:
        return Decoded(list(range(len(values))), events_of([row_of(value) for value in values]))
    except (ValueError, csv.Error):
        pass
    good, rows, bad = [], [], {}
    for i, value in enumerate(values):
        try:
            rows.append(row_of(value))
        except UnicodeDecodeError:
            bad[i] = f"not valid utf-8{_frame_hint(values[i])}"
        except (ValueError, csv.Error) as error:
            bad[i] = str(error)
        else:
            good.append(i)
    return Decoded(good, events_of(rows), bad)


def _frame_hint(value: bytes) -> str:
    """Return a hint if a value starts with a schema-registry prefix, else an empty string."""
    if value[:1] != b"\0" or len(value) < _CONFLUENT:
        return ""
    schema = int.from_bytes(value[1:_CONFLUENT], "big")
    return (
        f"; the value begins with the frame of a schema registry (a zero byte and schema id {schema}): "
        "format=avro, schema=FILE and framed=yes read Avro in such frames"
    )


def _simple(value: Any) -> Any:
    """Convert a value of a logical type to a number or text; others are rejected later."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return [shown(value)] if isinstance(value, tuple) else str(value)
