"""What clients may take of a run: connections, descriptors and processor time."""

from __future__ import annotations

import contextlib
import ipaddress
import resource
import socket
import threading
import time
from collections import Counter
from functools import lru_cache

_MOST_RESERVED = 64


def most_descriptors() -> float:
    """From this descriptor on, the rest is for what the run opens itself, such as checkpoints."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else limit - min(_MOST_RESERVED, limit // 4)


@lru_cache(1 << 12)
def origin(address: str) -> str:
    """Whom limits count as one: this machine, an address of IPv4, or a network of IPv6, which one host owns.

    Examples
    --------
    >>> origin("127.0.0.1") == origin("127.9.9.9") == origin("::1") == origin("::ffff:127.0.0.1")
    True
    >>> origin("::ffff:192.0.2.7"), origin("2001:db8::1"), origin("fe80::1%eth0")
    ('192.0.2.7', '2001:db8::/64', 'fe80::/64')
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return "localhost" if found.is_loopback else str(ipaddress.IPv6Network((int(found), 64), strict=False))
        found = found.ipv4_mapped
    return "localhost" if found.is_loopback else str(found)


class Connection:
    """A connection to a client.

    Parameters
    ----------
    socket
        To write to; it does not block until `block`.
    origin
        Where it comes from, as `origin` has it.

    Attributes
    ----------
    since
        When it began to keep the server waiting; infinite while it does not.
    head
        What came of the request so far.
    """

    __slots__ = ("head", "origin", "since", "socket")

    def __init__(self, socket: socket.socket, origin: str) -> None:
        self.socket, self.origin = socket, origin
        self.since, self.head = time.monotonic(), b""

    def block(self, seconds: float) -> None:
        """From here on writing waits for the client, at most so long for each `send`."""
        self.since = float("inf")
        self.socket.settimeout(seconds)

    def send(self, content: bytes) -> None:
        """Write all of this.

        Raises
        ------
        OSError
            Where the client left, or does not read.
        """
        self.since = time.monotonic()
        self.socket.sendall(content)
        self.since = float("inf")

    def cut(self) -> None:
        """End what another thread sends."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Pool:
    """Connections in one state; where they are too many, one that keeps the server waiting leaves.

    Parameters
    ----------
    most
        Connections at a time.
    most_of_one
        Those of them from one origin.
    patience_s
        How long each may keep the server waiting before it leaves for another one.
    """

    def __init__(self, most: int, most_of_one: int, patience_s: float) -> None:
        self._most, self._most_of_one, self._patience_s = most, most_of_one, patience_s
        self._connections: dict[Connection, None] = {}
        self._left = threading.Condition()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: Connection) -> Connection | None:
        """Take this in; return the connection that has to leave for it, itself where no other one does."""
        with self._left:
            crowd = [other for other in self._connections if other.origin == connection.origin]
            if len(crowd) < self._most_of_one:
                if len(self._connections) < self._most:
                    self._connections[connection] = None
                    return None
                ((most, _),) = Counter(other.origin for other in self._connections).most_common(1)
                crowd = [other for other in self._connections if other.origin == most]
            oldest = min(crowd, key=lambda other: other.since)
            if time.monotonic() - oldest.since < self._patience_s:
                return connection
            del self._connections[oldest]
            self._connections[connection] = None
            return oldest

    def leave(self, connection: Connection) -> None:
        """Have it no longer."""
        with self._left:
            self._connections.pop(connection, None)
            self._left.notify_all()

    def oldest(self) -> Connection | None:
        """The one that came first."""
        return next(iter(self._connections), None)

    def wait_until_empty(self, seconds: float) -> None:
        """Wait until all have left, not for long."""
        with self._left:
            self._left.wait_for(lambda: not self._connections, seconds)

    def cut(self) -> None:
        """End what is sent to those that are left."""
        with self._left:
            for connection in self._connections:
                connection.cut()


class Share:
    """A share of the time of one processor, which work may exceed for a moment.

    Parameters
    ----------
    share
        Of the time.
    burst_s
        Seconds of a processor that may be used at once after a rest.
    """

    def __init__(self, share: float, burst_s: float) -> None:
        self._share, self._burst_s = share, burst_s
        self._credit, self._at = burst_s, time.monotonic()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> float:
        """Note that work took so long of a processor; return how long further work has to wait."""
        with self._lock:
            now = time.monotonic()
            self._credit = min(self._burst_s, self._credit + self._share * (now - self._at)) - seconds
            self._at = now
            return max(0.0, -self._credit / self._share)
