"""What is published to whoever looks on, each waiting for the next."""

from __future__ import annotations

import threading
import time


class Feed:
    """The latest of a sequence of messages; who is slow misses those in between.

    Examples
    --------
    >>> feed = Feed()
    >>> feed.publish(b"first")
    >>> feed.publish(b"second")
    >>> feed.after(0, timeout=1.0)
    (2, b'second')
    >>> feed.after(2, timeout=0.0)
    (2, None)
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._number, self._message = 0, b""
        self.at = -float("inf")
        self.closed = False

    def publish(self, message: bytes) -> None:
        """Let all have this."""
        with self._condition:
            self._number, self._message, self.at = self._number + 1, message, time.monotonic()
            self._condition.notify_all()

    def close(self) -> None:
        """There will be no more."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()

    @property
    def latest(self) -> bytes:
        """The last message, empty before the first."""
        return self._message

    def after(self, number: int, timeout: float) -> tuple[int, bytes | None]:
        """The last message and its number; None in its place where it is not newer, after as long or at the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._number > number or self.closed, timeout)
            return self._number, self._message if self._number > number else None
