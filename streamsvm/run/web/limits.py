"""Limits on what clients may use: connections, descriptors and CPU time."""

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
    """Return the first descriptor that is reserved for files of the run, such as checkpoints."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return float("inf") if limit == resource.RLIM_INFINITY else limit - min(_MOST_RESERVED, limit // 4)


@lru_cache(1 << 12)
def origin(address: str) -> str:
    """Return the unit that limits apply to: this machine, an IPv4 address, or an IPv6 network of one host.

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
        Socket for writing; non-blocking until `block`.
    origin
        Result of `origin` for the client.

    Attributes
    ----------
    since
        Time since which the server waits for the client; infinite if it does not wait.
    head
        Received part of the request.
    """

    __slots__ = ("head", "origin", "since", "socket")

    def __init__(self, socket: socket.socket, origin: str) -> None:
        self.socket, self.origin = socket, origin
        self.since, self.head = time.monotonic(), b""

    def block(self, seconds: float) -> None:
        """Make writes blocking, for at most `seconds` per `send`."""
        self.since = float("inf")
        self.socket.settimeout(seconds)

    def send(self, content: bytes) -> None:
        """Send all bytes.

        Raises
        ------
        OSError
            If the client has left, or does not read.
        """
        self.since = time.monotonic()
        self.socket.sendall(content)
        self.since = float("inf")

    def cut(self) -> None:
        """Interrupt a `send` of another thread."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Pool:
    """Connections in one state. If there are too many, one that keeps the server waiting is closed.

    Parameters
    ----------
    most
        Greatest number of connections.
    most_of_one
        Greatest number of connections from one origin.
    patience_s
        How long each may keep the server waiting before it is closed in favour of another.
    """

    def __init__(self, most: int, most_of_one: int, patience_s: float) -> None:
        self._most, self._most_of_one, self._patience_s = most, most_of_one, patience_s
        self._connections: dict[Connection, None] = {}
        self._left = threading.Condition()

    def __len__(self) -> int:
        return len(self._connections)

    def enter(self, connection: Connection) -> Connection | None:
        """Add a connection; return the one to close for it, possibly the new one itself."""
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
        """Remove a connection."""
        with self._left:
            self._connections.pop(connection, None)
            self._left.notify_all()

    def oldest(self) -> Connection | None:
        """Return the oldest connection."""
        return next(iter(self._connections), None)

    def wait_until_empty(self, seconds: float) -> None:
        """Wait until all connections have left, for at most `seconds`."""
        with self._left:
            self._left.wait_for(lambda: not self._connections, seconds)

    def cut(self) -> None:
        """Interrupt sending to all remaining connections."""
        with self._left:
            for connection in self._connections:
                connection.cut()


class Share:
    """A share of the time of one CPU, with short bursts.

    Parameters
    ----------
    share
        Share of the time.
    burst_s
        Seconds of CPU time available at once after a rest.
    """

    def __init__(self, share: float, burst_s: float) -> None:
        self._share, self._burst_s = share, burst_s
        self._credit, self._at = burst_s, time.monotonic()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> float:
        """Record CPU time of work; return how long further work has to wait."""
        with self._lock:
            now = time.monotonic()
            self._credit = min(self._burst_s, self._credit + self._share * (now - self._at)) - seconds
            self._at = now
            return max(0.0, -self._credit / self._share)
