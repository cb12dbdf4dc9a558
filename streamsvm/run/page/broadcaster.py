"""Broadcast of the latest message to many viewers."""

from __future__ import annotations

import threading
import time


class Broadcaster:
    """The latest of a sequence of messages; a slow viewer misses those in between.

    Examples
    --------
    >>> broadcaster = Broadcaster()
    >>> broadcaster.publish(b"first")
    >>> broadcaster.publish(b"second")
    >>> broadcaster.after(0, timeout=1.0)
    (2, b'second')
    >>> broadcaster.after(2, timeout=0.0)
    (2, None)
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number, self._message = 0, b""
        self.at = -float("inf")
        self.closed = False

    def publish(self, message: bytes) -> None:
        """Publish a message."""
        with self._condition:
            self._number, self._message, self.at = self._number + 1, message, time.monotonic()
            self._condition.notify_all()

    def close(self) -> None:
        """Stop publishing."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    def closes_within(self, seconds: float) -> bool:
        """Wait for the end of publishing; return whether it has come."""
        with self._condition:
            return self._condition.wait_for(lambda: self.closed, seconds)

    @property
    def latest(self) -> bytes:
        """The latest message; empty before the first."""
        return self._message

    def after(self, number: int, timeout: float) -> tuple[int, bytes | None]:
        """Return the latest message with a number above `number`; after `timeout` seconds the message is None."""
        with self._condition:
            self._condition.wait_for(lambda: self._number > number or self.closed, timeout)
            return self._number, self._message if self._number > number else None
