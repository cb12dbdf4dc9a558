"""Truncation of records that are larger than a topic accepts."""

from __future__ import annotations

from typing import Any

from connectors.errors import ConnectorError
from connectors.sinks import json_bytes

_LEAST = 1000  # bytes that are left for a value, whatever its key


def truncated(name: str, row: dict[str, Any], key: bytes | None, largest: int) -> tuple[bytes | None, bytes]:
    """Truncate the texts of a record, and its key if that alone is too long.

    Parameters
    ----------
    name
        Name of the sink in messages.
    row, key
        The record.
    largest
        Maximum size of the record in bytes, including the key.

    Returns
    -------
    key, value
        The record to send. The value contains `"cut":true`.

    Raises
    ------
    ConnectorError
        If the record is too long even without its texts.
    """
    if key is not None and len(key) > largest - _LEAST:
        key = key[: largest // 2]
    most = largest - len(key or b"")
    texts = {field: value for field, value in row.items() if isinstance(value, str)}
    long = [field for field, value in texts.items() if len(value) * 8 * len(texts) > most]
    cut = {field: texts[field][: most // (8 * len(long))] for field in long}  # a character takes up to six bytes
    value = json_bytes(row | cut | {"cut": True})
    if len(value) > most:
        raise ConnectorError(
            f"{name}: a record of {max(0, largest):,} bytes, which is what the topic and "
            f"`max_request_size` allow, cannot hold so much as its row: {value[:200]!r}; raise `max.message.bytes` "
            "of the topic"
        )
    return key, value
