"""Records that are larger than a topic accepts."""

from __future__ import annotations

import json

from connectors.errors import ConnectorError
from connectors.sinks import json_bytes


def too_large(size: int) -> str:
    """Return the reason for rejecting a record; a resumed run must find an equal one."""
    return f"too large for its topic: {size:,} bytes"


def without_value(name: str, letter: bytes, largest: int) -> bytes:
    """Return a dead letter without the value that it contains.

    Parameters
    ----------
    name
        Name of the sink in messages.
    letter
        The dead letter as JSON, with the value in `raw`.
    largest
        Maximum size in bytes.

    Returns
    -------
    bytes
        The dead letter with null as `raw`, and the size of the value in `raw_too_large`.

    Raises
    ------
    ConnectorError
        If it is not a dead letter, or still too large.
    """
    row = json.loads(letter)
    if raw := row.get("raw"):
        row |= {"raw": None, "raw_too_large": f"{len(raw):,} characters"}
        if len(short := json_bytes(row)) <= largest:
            return short
    raise ConnectorError(
        f"{name}: a record of {len(letter):,} bytes is larger than the topic and `max_request_size` allow "
        f"({max(0, largest):,} bytes): {letter[:200]!r}; raise `max.message.bytes` of the topic"
    )
