"""Errors of fetch responses, which the client repeats without a message."""

from __future__ import annotations

import time
from typing import Any

from connectors.kafka.clients import talking
from connectors.kafka.failures import passes

_GRACE_S = 2.0
"""Time in which errors are expected, for example while a partition gets another leader."""


class FetchErrors:
    """Errors in the last fetch response of each partition.

    The client raises the errors of partitions that are not transient. It repeats all other requests without limit, so
    a source would wait in silence for records that never arrive. There is no public interface for these errors; with
    versions of the client that work otherwise, none is found.

    Parameters
    ----------
    name
        Name of the source in messages.
    consumer
        The client.
    """

    def __init__(self, name: str, consumer: Any) -> None:
        self._name = name
        self._since: dict[Any, tuple[float, Exception]] = {}
        fetcher: Any = getattr(consumer, "_fetcher", None)
        self._handle = getattr(fetcher, "_handle_fetch_response", None)
        if self._handle is not None:
            fetcher._handle_fetch_response = self._handled

    def _handled(self, node: int, offsets: Any, sent: float, response: Any) -> None:
        """Note the errors of a response, and give it to the client."""
        self._note(list(offsets), response)
        self._handle(node, offsets, sent, response)  # type: ignore[misc]

    def _note(self, asked: list[Any], response: Any) -> None:
        from kafka import TopicPartition
        from kafka.errors import for_code

        whole = getattr(response, "error_code", 0)
        codes = dict.fromkeys(asked, whole) if whole else {}
        for topic in () if whole else response.responses:
            codes |= {TopicPartition(topic.topic, each.partition_index): each.error_code for each in topic.partitions}
        for tp in asked:
            error = for_code(codes[tp])() if codes.get(tp) else None
            if error is None or not (whole or passes(error)):
                self._since.pop(tp, None)
            else:
                self._since[tp] = (self._since[tp][0] if tp in self._since else time.monotonic()), error

    def clear(self) -> None:
        """Forget all errors, because other partitions or offsets are fetched."""
        self._since.clear()

    @property
    def lasting(self) -> Exception | None:
        """An error that is not transient or lasts, else None."""
        now = time.monotonic()
        some = list(self._since.values())
        return next((error for since, error in some if now - since >= _GRACE_S or not passes(error)), None)

    def check(self) -> None:
        """Raise ConnectorError for an error that is not transient, and UnreachableError for one that lasts."""
        if (error := self.lasting) is not None:
            with talking(self._name, "records cannot be fetched"):
                raise error
