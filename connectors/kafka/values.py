"""Records to events: values are JSON, Avro or CSV, one event per record."""

from __future__ import annotations

import base64
import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from connectors.columns.cells import Bad
from connectors.columns.envelopes import TOMBSTONES
from connectors.columns.roles import Roles
from connectors.columns.strings import LazyStrings
from connectors.columns.text import Header, TextColumns
from connectors.errors import OptionError
from connectors.events import Batch, Events, Origins, Position
from connectors.options import Options
from connectors.text.csv import Dialect
from connectors.text.json import JsonColumns

if TYPE_CHECKING:
    from connectors.kafka.schemas import SchemaRegistry

_ID_BYTES = ("4", "8")  # of a schema id after a zero byte: Confluent, and the default of Apicurio before version 3
CONFLUENT = 5
"""Size of the prefix of a schema registry."""
_DECIDED = "column formats"  # beside the topic in positions; no topic can have this name
_ID_HEADER = "__value_schema_id"  # of Confluent's serializers with ids in headers
_HEADER_WAY = "which is not supported: let the producer write ids before values (Confluent's default)"
_SHOWN_BYTES = 1000  # of a value that is too long


class ValueFormat(ABC):
    """Base class of value formats, which convert the records of a topic to batches.

    Parameters
    ----------
    options
        `max_value_bytes` is the maximum size of a value; longer values are rejected.
    """

    _columns: TextColumns
    """Converts decoded values, and knows the formats found so far."""
    is_framed = False
    """Whether values begin with the prefix of a schema registry."""
    registry: SchemaRegistry | None = None
    """Where the schemas of values are, if they are not in a file."""

    def __init__(self, options: Options) -> None:
        self.max_value_bytes = options.integer("max_value_bytes", 1 << 20, 1)

    @property
    def decided(self) -> dict[str, Any]:
        """Column formats found so far; part of positions."""
        found = {name: value for name, value in self._columns.decided.items() if value}
        return {_DECIDED: found} if found else {}

    def restore(self, position: Mapping[str, Any]) -> None:
        """Restore the column formats that a position contains."""
        self._columns.restore(position.get(_DECIDED, {}))

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far, and what was skipped."""
        return self._columns.notices

    def _skip_tombstones(self, n: int) -> bool:
        """Count tombstones and return True; return False if they are errors."""
        return False

    def prepare(self, records: Sequence[Any]) -> bool:
        """Get the schemas of records. Return False to try again a little later."""
        return True

    def batch(self, topic: str, records: Sequence[Any], position: Position) -> Batch:
        """Convert records of a topic; the position includes the column formats."""
        tombstones = sum(1 for record in records if record.value is None)
        if tombstones and self._skip_tombstones(tombstones):
            records = [record for record in records if record.value is not None]
        bad = {i: reason for i, record in enumerate(records) if (reason := self._rejection_reason(record))}
        events = self.read([record.value for record in records], bad)
        if events.keys is None:
            events.keys = [_key(record.key) for record in records]
        if events.times is None:
            events.times = [record.timestamp for record in records]
        columns: dict[str, Sequence[Any]] = {
            name: [getattr(record, name) for record in records] for name in ("partition", "offset")
        }
        raw = LazyStrings([record.value for record in records], self._shown)
        headers = [record.headers for record in records]
        return events.batch(Origins({"topic": topic}, columns), position | self.decided, raw=raw, headers=headers)

    def _shown(self, value: Any) -> Any:
        """Return a value as text, shortened if it is too long, or None."""
        is_long = value is not None and len(value) > self.max_value_bytes
        return None if value is None else text_or_base64(value[:_SHOWN_BYTES] if is_long else value)

    def _rejection_reason(self, record: Any) -> str:
        """Return the reason for rejecting a record before it is decoded, else ""."""
        value = record.value
        if value is None:
            return "a tombstone: a record without a value"
        if len(value) <= self.max_value_bytes:
            # Its value has no prefix, and one that begins with a zero byte would be read with a wrong schema.
            if self.is_framed and record.headers and any(name == _ID_HEADER for name, _ in record.headers):
                return f"its schema id is in the header {_ID_HEADER}, {_HEADER_WAY}"
            return ""
        limit = f"max_value_bytes={self.max_value_bytes:,}"
        return f"a value of {len(value):,} bytes, longer than {limit} (only its beginning is kept here)"

    @abstractmethod
    def _row(self, value: bytes) -> Any:
        """Decode a value; ValueError or csv.Error tells why it is malformed."""

    def _rows(self, values: Sequence[bytes]) -> list[Any] | None:
        """Decode all values at once. None if they must be decoded one by one."""
        return None

    @abstractmethod
    def _blank(self) -> Any:
        """Return a row for a value that is rejected."""

    def read(self, values: Sequence[Any], bad: Bad | None = None) -> Events:
        """Convert values to events, except those that are in `bad` already.

        Malformed values do not affect the others. Their events are without values, and their reasons in `Events.bad`.
        """
        bad = {} if bad is None else bad
        rows = None if bad else self._rows(values)
        rows = [self._decoded(i, value, bad) for i, value in enumerate(values)] if rows is None else rows
        events = self._columns.read(rows)
        events.bad |= bad
        return events

    def _decoded(self, i: int, value: Any, bad: Bad) -> Any:
        if i in bad:
            return self._blank()
        try:
            return self._row(value)
        except UnicodeDecodeError:
            bad[i] = f"not valid utf-8{frame_hint(value)}"
        except (ValueError, csv.Error) as error:
            bad[i] = str(error)
        return self._blank()


class JsonValues(ValueFormat):
    """JSON objects, as in JSON lines, also with the prefix of a schema registry."""

    _columns: JsonColumns

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._columns = JsonColumns(options)
        self._prefix = _prefix_size(options)
        self.is_framed = self._prefix > 0

    def _skip_tombstones(self, n: int) -> bool:
        """Count tombstones of change events; return False if they are to be rejected."""
        if self._columns.envelope is None:
            return False
        self._columns.envelope.skipped[TOMBSTONES] += n
        return True

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        return None if self._prefix else self._columns.objects.all(values)

    def _blank(self) -> dict[str, Any]:
        return {}

    def _row(self, value: bytes) -> dict[str, Any]:
        return self._json(self._body(value), "" if self._prefix else frame_hint(value))

    def _json(self, value: bytes, hint: str = "") -> dict[str, Any]:
        """Parse an object. Raise ValueError with a hint for anything else."""
        row = self._columns.objects.one(str(value, "utf-8"))
        if isinstance(row, ValueError):
            raise ValueError(f"{row}{hint}")
        return row

    def _body(self, value: bytes) -> bytes:
        """Return a value without its prefix."""
        if not self._prefix:
            return value
        if value[:1] != b"\0" or len(value) < self._prefix:
            raise ValueError(f"not framed: the zero byte and the schema id of {self._prefix - 1} bytes are missing")
        return value[self._prefix :]


class CsvValues(ValueFormat):
    """CSV records without a header, with column names from the options.

    Columns are numeric unless `types` declares another type.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        names = options.names("names")
        self._dialect = Dialect.of(options, ",", single=True)
        roles = Roles.of(options)
        if not any(names):
            raise OptionError(options.name, "names", "is missing: the columns of a CSV record in order", "needs")
        roles.check(options.name, names)
        roles.types = dict.fromkeys(roles.features(names), "number") | roles.types
        self._width = len(names)
        self._columns = TextColumns(Header(names), roles)

    def _blank(self) -> list[str]:
        return [""] * self._width

    def _row(self, value: bytes) -> list[str]:
        rows = list(self._dialect.reader(io.StringIO(str(value, "utf-8"), newline=""), strict=True))
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} records in one value, not 1{frame_hint(value)}")
        if len(rows[0]) != self._width:
            raise ValueError(f"{len(rows[0])} fields, not {self._width}{frame_hint(value)}")
        return rows[0]


def _prefix_size(options: Options) -> int:
    """Return the size of the prefix of a schema registry, 0 without one."""
    is_framed = options.flag("framed", False) or options.has("registry")
    if options.has("id_bytes") and not is_framed:
        raise OptionError(options.name, "id_bytes", "is for framed=yes and for `registry`", "needs")
    size = 1 + int(options.one_of("id_bytes", _ID_BYTES) or _ID_BYTES[0])
    return size if is_framed else 0


def frame_hint(value: bytes) -> str:
    """Return a hint if a value starts with the prefix of a schema registry, else ""."""
    if value[:1] != b"\0" or len(value) < CONFLUENT:
        return ""
    schema = int.from_bytes(value[1:CONFLUENT], "big")
    return (
        f"; the value begins with the frame of a schema registry (a zero byte and schema id {schema}): registry=URL "
        "reads it; without the registry, framed=yes reads JSON and, with format=avro and schema=FILE, Avro"
    )


def text_or_base64(value: bytes) -> str:
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
