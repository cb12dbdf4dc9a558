"""Maximum sizes of the records of topics, and what becomes of larger ones."""

from __future__ import annotations

import contextlib
import json

from connectors.errors import ConnectorError
from connectors.kafka.clients import Brokers, largest_record, logger
from connectors.results import json_bytes

_SMALLEST = 200  # bytes of a row without its texts


class SizeLimits:
    """Maximum sizes of the records of topics in bytes, including the key.

    Parameters
    ----------
    brokers
        Brokers of the topics.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers, self.by_topic = brokers, dict[str, int]()
        self._most = int(brokers.client.get("max_request_size", 1 << 20)) - 1024

    def add(self, topic: str, size: int | None) -> None:
        """Set the maximum of a topic, None if unknown; raise ConnectorError if no row fits."""
        self.by_topic[topic] = size = self._most if size is None else min(size, self._most)
        if size < _SMALLEST:
            what, option = f"the topic {topic!r} takes no record large enough for a row", "max.message.bytes"
            if size == self._most:
                what, option = "no row fits into a request", "max_request_size"
            raise ConnectorError(f"{self._brokers.name}: {what}: raise `{option}`", "too small", option=option)

    def lower(self) -> None:
        """Set the reduced maxima after a broker refused a record."""
        with contextlib.closing(self._brokers.admin()) as client:
            found = {topic: largest_record(client, topic) for topic in self.by_topic}
        less = {topic: size for topic, size in found.items() if size is not None and size < self.by_topic[topic]}
        # Where the query is denied, or does not explain the error, half as much is tried.
        for topic, size in (less or {topic: size // 2 for topic, size in self.by_topic.items()}).items():
            logger.warning(
                *("%s: the topic %s takes less than at first: now %d bytes a record", self._brokers.name, topic, size)
            )
            self.add(topic, size)


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
