"""Avro values."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

from connectors.columns.cells import shown
from connectors.errors import ConnectorError, OptionError
from connectors.kafka.values import CONFLUENT, JsonValues, frame_hint
from connectors.options import Options

_PLAIN = frozenset({str, int, float, bool, type(None)})


class AvroValues(JsonValues):
    """Avro records with a schema from a file, with or without a registry prefix."""

    def __init__(self, options: Options) -> None:
        path = options.text("schema")
        super().__init__(options)
        if path is None:
            what = "is missing: format=avro needs the file of a schema (.avsc), or `registry`, a URL"
            raise OptionError(options.name, "schema", what, "needs")
        self._schema = load_avro_schema(options.name, path)

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        return None

    def _row(self, value: bytes) -> dict[str, Any]:
        body = self._body(value)
        try:
            return read_avro(body, self._schema)
        except ValueError as error:
            hint = "" if self._prefix else frame_hint(value)
            try:
                if hint:
                    read_avro(value[CONFLUENT:], self._schema)
            except ValueError:
                hint = ""
            raise ValueError(f"{error}{hint}") from error


def import_avro() -> Any:
    """Import fastavro with its schema module."""
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise ConnectorError("Avro needs fastavro: pip install 'streamsvm[kafka]'", "no fastavro") from error
    return fastavro


def load_avro_schema(name: str, path: str) -> dict[str, Any]:
    """Load the schema of a record from a file; raise OptionError if it is not one."""
    avro = import_avro()
    try:
        schema = avro.schema.load_schema(path)
    except Exception as error:  # of many types, for files without a valid schema
        raise OptionError(name, "schema", f"is {path}: {type(error).__name__}: {error}", "schema") from error
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise OptionError(name, "schema", f"is {path}, which is not the schema of a record", "schema")
    return schema


def parse_avro(text: str, references: Mapping[str, str]) -> Any:
    """Parse a schema with its references, given by name; raises if it is invalid."""
    from fastavro.repository.base import AbstractSchemaRepository

    class Given(AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            return json.loads(references[name] if name else text)

    # This defines types where they are used first. Types parsed one by one do not match all reader schemas.
    return import_avro().schema.load_schema("", repo=Given())


def read_avro(value: bytes, schema: Any, reader_schema: Any = None) -> dict[str, Any]:
    """Decode an Avro record, to JSON values.

    Raises
    ------
    ValueError
        If the bytes are malformed, or not a record.
    """
    stream = io.BytesIO(value)
    try:
        row = import_avro().schemaless_reader(stream, schema, reader_schema)
    except Exception as error:  # IndexError, EOFError, struct.error and more, all on malformed bytes
        why = str(error).replace(f" from {stream}", "")  # the address of an object would differ in each run
        raise ValueError(f"not Avro of this schema: {type(error).__name__}: {why}") from error
    if rest := stream.read():
        raise ValueError(f"not Avro of this schema: {len(rest)} bytes too many")
    if type(row) is not dict:
        raise ValueError(f"not an Avro record: {shown(row)}")
    return _json_object(row)


def _json_object(row: dict[str, Any]) -> dict[str, Any]:
    """Convert a record to JSON values."""
    return {name: item if type(item) in _PLAIN else _json_value(item) for name, item in row.items()}


def _json_value(value: Any) -> Any:
    """Convert a nested value, or one of a logical type, to JSON values."""
    if isinstance(value, dict):
        return _json_object(value)
    if isinstance(value, list):
        return [item if type(item) in _PLAIN else _json_value(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
