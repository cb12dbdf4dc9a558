"""Records of a worker: events as JSON, their keys, and the origin of repartitioned records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# First, because it hides deprecation warnings of the engine's dependencies.
import streamsvm.keyed.quix  # noqa: F401

# isort: split
import orjson
from quixstreams import message_context

RECORD_TIME = "streamsvm.time"
"""Name of the field, or of the header of a repartitioned event, with the time of its source record."""

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
        raise ValueError(f"not a JSON object: {shown_bytes(value)}")
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
    """Return the headers of a repartitioned event: its origin and the time of its source record."""
    context = message_context()
    return [(_ORIGIN, b"%d:%d" % (context.partition, context.offset)), (RECORD_TIME, b"%d" % timestamp)]


def _header(headers: Iterable[tuple[str, bytes]] | None, name: str) -> bytes | None:
    return next((value for found, value in headers or () if found == name), None)


def origin_of(headers: Iterable[tuple[str, bytes]] | None) -> tuple[int, int] | None:
    """Return the source partition and offset of a repartitioned event; None for others."""
    found = _header(headers, _ORIGIN)
    if found is None:
        return None
    partition, _, offset = found.partition(b":")
    return int(partition), int(offset)


def event_time(value: Any, key: Any, timestamp: int, headers: Any) -> int:
    """Time of a repartitioned event, or of its record if an earlier version wrote it."""
    return int(_header(headers, RECORD_TIME) or timestamp)


def text_of(value: bytes | None) -> str | None:
    """Decode bytes as UTF-8, with escapes for invalid ones."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def shown_bytes(value: bytes | None) -> str:
    """Return bytes as a short text for messages."""
    text = repr(text_of(value))
    return text if len(text) <= 60 else text[:60] + "…"
