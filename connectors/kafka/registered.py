"""Values whose schemas are in a schema registry."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from connectors.errors import OptionError
from connectors.kafka.avro import AvroValues, import_avro, load_avro_schema, parse_avro, read_avro
from connectors.kafka.protobuf import SERIALIZED, check_protobuf, protobuf_reader
from connectors.kafka.schemas import RegisteredSchema, SchemaRegistry, UnknownSchemaError
from connectors.kafka.values import CsvValues, JsonValues, ValueFormat
from connectors.options import Options

Read: TypeAlias = Callable[[bytes], dict[str, Any]]

_FORMATS: dict[str, Callable[[Options], ValueFormat]] = {"json": JsonValues, "csv": CsvValues, "avro": AvroValues}
_FORMATS["jsonl"] = JsonValues
SURE_S = 2.0  # for which a new schema may be unknown to a part of the registry
_AGAIN_S = 30.0  # between two requests of an unknown schema
RETRY_S = 0.2  # between two requests before that
_MOST_ABSENT = 10_000


def value_format(options: Options) -> ValueFormat:
    """Create the value format that options ask for."""
    name = options.one_of("format", sorted(_FORMATS)) or "json"
    if not options.has("registry"):
        return _FORMATS[name](options)
    if name == "csv":
        raise OptionError(options.name, "registry", "is for Avro, JSON and Protobuf; remove format=csv")
    return RegistryValues(options)


class RegistryValues(JsonValues):
    """Values with a schema id in their prefix: Avro, JSON and Protobuf, also mixed.

    Values of each id are read with its schema, so that a topic may have several versions. With the option `schema`, the
    file of an Avro schema, Avro values are converted to that schema by Avro's rules.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        import_avro()  # schemas are parsed later, where a missing package would reject all values
        self._name, path = options.name, options.text("schema")
        self._reader_schema = None if path is None else load_avro_schema(options.name, path)
        self.registry: SchemaRegistry = SchemaRegistry(options)
        self._readers: dict[int, Read | str] = {}
        self._absent: dict[int, tuple[float, float, str]] = {}  # first and last request, and the reason

    def prepare(self, records: Sequence[Any]) -> bool:
        """Get the schemas of records; return False if an unknown one may still appear.

        Raises
        ------
        ConnectorError
            If values are Protobuf and protobuf is not installed.
        UnreachableError
            If the registry does not respond.
        """
        values = [record.value for record in records if not self._rejection_reason(record)]
        ids = {int.from_bytes(value[1 : self._prefix], "big") for value in values if value[:1] == b"\0"}
        are_sure = True
        for number in sorted(ids - self._readers.keys()):
            are_sure = self._ask(number, time.monotonic()) and are_sure
        return are_sure

    def _ask(self, number: int, now: float) -> bool:
        """Ask for a schema. Return False if it is unknown, but may be too new."""
        first, last, _ = self._absent.get(number, (now, float("-inf"), ""))
        is_sure = now - first >= SURE_S
        if now - last < (_AGAIN_S if is_sure else RETRY_S):
            return is_sure
        try:
            self._readers[number] = self._reader(number, self.registry.schema(number))
        except UnknownSchemaError as error:
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[number] = first, now, str(error)
            return is_sure
        self._absent.pop(number, None)
        return True

    def _row(self, value: bytes) -> dict[str, Any]:
        body = self._body(value)
        number = int.from_bytes(value[1 : self._prefix], "big")
        read = self._readers.get(number)
        if read is None:
            hint = "; set id_bytes=8 if ids have 8 bytes, as those of Apicurio" if number == 0 else ""
            reason = self._absent[number][2] if number in self._absent else "the schema is unknown"
            raise ValueError(f"schema id {number}: {reason}{hint}")
        if isinstance(read, str):
            raise ValueError(f"schema id {number}: {read}")
        try:
            return read(body)
        except ValueError as error:
            raise ValueError(f"schema id {number}: {error}") from error

    def _reader(self, number: int, schema: RegisteredSchema) -> Read | str:
        """Return the function that parses values of a schema, or an error."""
        if schema.kind == "JSON":
            return self._json
        if schema.kind not in ("AVRO", "PROTOBUF"):
            return f"values of {schema.kind} are not supported"
        is_protobuf = schema.kind == "PROTOBUF"
        if is_protobuf:
            check_protobuf(self._name)
            schema = self.registry.schema(number, SERIALIZED)
        try:
            if is_protobuf:
                return protobuf_reader(schema)
            parsed = parse_avro(schema.text, dict(schema.references))
        except Exception as error:  # of many types, most mean that the text is not a schema
            return f"the registry has no valid schema: {type(error).__name__}: {error}"
        return lambda value: read_avro(value, parsed, self._reader_schema)
