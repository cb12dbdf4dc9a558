"""Consumer group whose committed offsets show the lag of a run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

from connectors.errors import ConnectorError
from connectors.kafka.clients import ANSWER_S, Brokers, describe, logger
from connectors.kafka.failures import passes

_AGAIN_S = 0.2  # after which a broker is asked again that only begins to keep offsets
_END_S = 2.0  # for the last offsets to be there at the end
_NO_RIGHT = ("GroupAuthorizationFailedError", "TopicAuthorizationFailedError")


class Lag:
    """Commit offsets to a group in the background, so that monitoring shows the lag.

    Failures only cause a warning, and the offsets are never read. The consumer itself has no group, because it would
    query the group before each fetch and fail with it.

    Parameters
    ----------
    brokers
        Brokers of the group.
    group
        Name of the group; empty for none.
    """

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers, self._name, self._group = brokers, brokers.name, group
        self._change = threading.Condition()
        self._waiting: Mapping[Any, Any] = {}
        self._busy = self._said = self._closed = False

    def publish(self, offsets: Mapping[Any, Any]) -> None:
        """Commit offsets in the background; newer offsets replace pending ones."""
        with self._change:
            if not self._group or self._closed:
                return
            self._waiting = offsets
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._run, name=f"{self._group} shows the lag", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._change:
                offsets, self._waiting = self._waiting, {}
                if not offsets:
                    self._busy = False
                    self._change.notify_all()
                    return
            try:
                self._commit(offsets)
                self._said = False
            except Exception as error:  # whatever it is, only the sight of the lag is lost
                self._warn(error)

    def _commit(self, offsets: Mapping[Any, Any]) -> None:
        from kafka.errors import KafkaError, NoError

        deadline = time.monotonic() + ANSWER_S
        with contextlib.closing(self._brokers.admin()) as client:
            while True:
                try:
                    found = client.alter_group_offsets(self._group, offsets)
                    for kind in set(found.values()) - {NoError}:
                        raise kind(self._group)
                    return
                except KafkaError as error:
                    if not passes(error) or self._closed or time.monotonic() > deadline:
                        raise
                time.sleep(_AGAIN_S)

    def _warn(self, error: Exception) -> None:
        if type(error).__name__ in _NO_RIGHT:
            logger.warning(
                "%s: the lag is not published: there is no right to READ the group %s (group_id=NAME names another, "
                "`group_id=` none)",
                self._name,
                self._group,
            )
            self._group = ""
        elif not self._said:
            self._said = True
            reason = error if isinstance(error, ConnectorError) else f"{self._name}: {describe(error)}"
            logger.warning("%s; the lag is not published to the group %s for now", reason, self._group)

    def close(self) -> None:
        """Wait up to two seconds for pending offsets."""
        with self._change:
            self._change.wait_for(lambda: not self._busy, _END_S)
            self._closed = True
