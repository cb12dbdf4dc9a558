"""Protobuf values, with the descriptors of a schema registry."""

from __future__ import annotations

import base64
import binascii
import io
from collections.abc import Callable, Mapping
from typing import Any

from connectors.errors import ConnectorError
from connectors.kafka.avro import import_avro
from connectors.kafka.schemas import RegisteredSchema

SERIALIZED = "serialized"
"""Format in which a registry returns descriptors."""
_STANDARD = "google.protobuf."
_MOST_INDICES = 100  # levels of nested message types


def check_protobuf(name: str) -> None:
    """Raise ConnectorError with the name of the stream if protobuf is not installed."""
    try:
        from google.protobuf import message_factory  # noqa: F401
    except ImportError as error:
        what = "its values are Protobuf, which needs pip install 'streamsvm[protobuf]'"
        raise ConnectorError(f"{name}: {what}", "no protobuf") from error


def protobuf_reader(schema: RegisteredSchema) -> Callable[[bytes], dict[str, Any]]:
    """Return a function that parses values: message indices, then the message.

    Parameters
    ----------
    schema
        The schema and its references as `SERIALIZED` descriptors.

    Raises
    ------
    ValueError
        If the schema is not valid.
    """
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    file, pool = _pool_of(schema)

    def read(value: bytes) -> dict[str, Any]:
        indices, start = _indices(value)
        kind, names = file, [file.package] if file.package else []
        for i, index in enumerate(indices):
            kinds = kind.nested_type if i else kind.message_type
            if not 0 <= index < len(kinds):
                raise ValueError(f"the schema has no message type with the indices {indices}")
            kind = kinds[index]
            names.append(kind.name)
        message = message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))()
        try:
            message.ParseFromString(value[start:])
        except DecodeError as error:
            raise ValueError(f"not Protobuf of this schema: {error}") from None
        return _json_object(message)

    return read


def _pool_of(schema: RegisteredSchema) -> tuple[Any, Any]:
    """Return the descriptor of a schema, and a pool with the types of its references."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    pool = descriptor_pool.DescriptorPool()
    files = []
    for name, text in [*schema.references, ("", schema.text)]:
        file = descriptor_pb2.FileDescriptorProto()
        try:
            file.ParseFromString(base64.b64decode(text, validate=True))
        except (binascii.Error, DecodeError):
            raise ValueError("no serialized descriptors of Protobuf, as Confluent's registry returns") from None
        file.name = name or "streamsvm/value.proto"  # not that of a reference
        files.append(file)
    try:
        _add_standard(pool, {path for file in files for path in file.dependency})
        for file in files:
            pool.Add(file)
        pool.FindFileByName(files[-1].name)
    except (ImportError, KeyError, TypeError) as error:
        raise ValueError(f"incomplete descriptors: {error}") from None
    return files[-1], pool


def _add_standard(pool: Any, paths: set[str]) -> None:
    """Add the imported files that the library contains, with those that they import."""
    import importlib

    from google.protobuf import descriptor_pb2, descriptor_pool

    for path in sorted(paths):
        if path.startswith("google/protobuf/"):
            importlib.import_module(path.removesuffix(".proto").replace("/", ".") + "_pb2")
            file = descriptor_pb2.FileDescriptorProto()
            descriptor_pool.Default().FindFileByName(path).CopyToProto(file)
            _add_standard(pool, set(file.dependency))
            pool.Add(file)


def _indices(value: bytes) -> tuple[list[int], int]:
    """Return the zigzag-encoded indices of a message type, and the message's offset."""
    stream, read = io.BytesIO(value), import_avro().schemaless_reader
    try:
        count = read(stream, "long", None)
        if not 0 <= count <= _MOST_INDICES:
            raise ValueError(f"not Protobuf with a prefix: {count} indices of the message type")
        return [read(stream, "long", None) for _ in range(count)] or [0], stream.tell()
    except (EOFError, IndexError):
        raise ValueError("not Protobuf with a prefix: the indices of the message type are cut off") from None


def _json_object(message: Any) -> dict[str, Any]:
    """Return a message as JSON values. Fields without a value are absent."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, Mapping):
            kind = field.message_type.fields_by_name["value"]
            found[field.name] = {str(key): _json_value(kind, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_json_value(field, item) for item in value]
        elif not field.has_presence or message.HasField(field.name):
            found[field.name] = _json_value(field, value)
    return found


def _json_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if not field.message_type.full_name.startswith(_STANDARD):
            return _json_object(value)
        from google.protobuf import json_format

        try:
            return json_format.MessageToDict(value)
        except (json_format.Error, TypeError, ValueError) as error:
            raise ValueError(f"'{field.name}' cannot be converted: {error}") from None
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value.hex() if isinstance(value, bytes) else value
