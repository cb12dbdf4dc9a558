"""HTTP server in separate threads that does not slow down the run.

One thread accepts connections, reads requests of all clients, and directly sends responses that need no work: errors
and `/healthz`. Each request that needs work, or a stream of updates, has its own thread, within limits.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import selectors
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from streamsvm.run.errors import SetupError
from streamsvm.run.web.limits import Connection, Pool, Share, most_descriptors, origin
from streamsvm.run.web.messages import MOST_BYTES, Answer, Request, read, refusal

HEAD_S = 5.0  # limit for receiving a request, from the connection on
SEND_S = 10.0  # limit for a client to read what one call sends
MOST_VIEWERS = 32  # viewers that receive updates; others may send single requests
_BACKLOG = 256
_LOOK_S = 0.2
_CLOSING_S = 1.0
_SEND_BUFFER = 1 << 16  # bytes; a larger buffer would hide slow readers
_SHARE, _BURST_S = 0.01, 0.1  # CPU share of reading requests and of each kind of work
_FOLLOWING_S = 0.01  # CPU seconds counted for a viewer; messages are limited where they are created

_RETRY = {"Retry-After": "1"}
_CROWDED = refusal(HTTPStatus.SERVICE_UNAVAILABLE, "others are asking: try again", _RETRY)
_FOLLOWED = refusal(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} viewers follow already", _RETRY)

logger = logging.getLogger("streamsvm.run")


class Work(NamedTuple):
    """Work that answers a request in its own thread.

    Parameters
    ----------
    answer
        Called with a function that sends bytes. Returns the response, or None if everything was sent.
    trusted
        Whether the client shares its limits with trusted clients only.
    follows
        Whether the connection stays open for updates.
    """

    answer: Callable[[Callable[[bytes], None]], Answer | None]
    trusted: bool
    follows: bool = False


class Place:
    """Address to listen on.

    Parameters
    ----------
    place
        A port of 127.0.0.1, or ADDRESS:PORT; port 0 selects a free one.
    option
        Option that gives the address, for messages.

    Attributes
    ----------
    local
        Whether it is a loopback address.

    Raises
    ------
    SetupError
        If the address is invalid.
    """

    def __init__(self, place: str, option: str) -> None:
        self._place, self._option = place, option
        self.address, self.port = place_of(place, option)
        try:
            found = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            raise self._refused(error) from error
        self._family, self._bound = found[0], found[4]
        self.local = ipaddress.ip_address(str(self._bound[0]).partition("%")[0]).is_loopback
        self._names = _LOOPBACK | {self.address} | (set() if self.local else {socket.gethostname().lower()})

    def knows(self, host: str) -> bool:
        """Return whether a host name is ours, which prevents DNS rebinding."""
        name = re.sub(r":\d+$", "", host).strip("[]").lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.local

    def listen(self) -> socket.socket:
        """Return a listening socket."""
        listener = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self._bound)
            listener.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            listener.close()
            raise self._refused(error) from error
        return listener

    def _refused(self, error: Exception) -> SetupError:
        what = f"cannot listen there: {getattr(error, 'strerror', None) or error}"
        return SetupError(f"{self._option} {self._place}: {what}", "listen", option=self._option)


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def place_of(place: str, option: str) -> tuple[str, int]:
    """Return address and port.

    Examples
    --------
    >>> [place_of(place, "--page") for place in ("8080", "0.0.0.0:80", "[::1]:8080")]
    [('127.0.0.1', 8080), ('0.0.0.0', 80), ('::1', 8080)]
    """
    address, colon, port = place.rpartition(":")
    address = address.strip("[]").lower() if colon else "127.0.0.1"
    if not address or not port.isascii() or not port.isdigit() or int(port) > 65535:
        what = f"{option} {place}: must be a port, or ADDRESS:PORT such as 0.0.0.0:8080"
        raise SetupError(what, "value", option=option)
    return address, int(port)


class HttpServer:
    """Serves requests until it is closed.

    Parameters
    ----------
    place
        Address to listen on.
    route
        Returns the response to a request, or the work that creates it; must be fast.
    name
        Name of the thread.

    Attributes
    ----------
    port
        The port in use.
    waiting, workers, viewers
        Connections that have not sent a request, that have work (by trust), and that receive updates.
    """

    def __init__(self, place: Place, route: Callable[[Request], Answer | Work], name: str) -> None:
        self._route, self._name = route, name
        self.waiting = Pool(64, 32, patience_s=0.0)
        self.workers = {True: Pool(16, 16, patience_s=1.0), False: Pool(16, 8, patience_s=1.0)}
        self.viewers = Pool(MOST_VIEWERS, MOST_VIEWERS, patience_s=1.0)
        self._reading = Share(_SHARE, _BURST_S)
        self._working = {trusted: Share(_SHARE, _BURST_S) for trusted in self.workers}
        self._most_descriptors = most_descriptors()
        self._listener = place.listen()
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections, after a moment for responses to be read."""
        self._closing = True
        self._thread.join()
        until = time.monotonic() + _CLOSING_S
        for pool in (self.viewers, *self.workers.values()):
            pool.wait_until_empty(until - time.monotonic())
            pool.cut()

    # In the thread that reads requests --------------------------------------------------------------------------------

    def _serve(self) -> None:
        spent = time.thread_time()
        with self._selector, self._listener:
            while not self._closing:
                for key, _ in self._selector.select(_LOOK_S):
                    if key.data is None:
                        self._accept()
                    elif key.data.socket.fileno() >= 0:  # another connection of this round may have replaced it
                        self._read(key.data)
                while (oldest := self.waiting.oldest()) and time.monotonic() - oldest.since > HEAD_S:
                    self._drop(oldest)
                before, spent = spent, time.thread_time()
                time.sleep(self._reading.spend(spent - before))
            while oldest := self.waiting.oldest():
                self._drop(oldest)

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:  # no descriptor is left, because the run uses them all
                time.sleep(_LOOK_S)
                return
            accepted.setblocking(False)
            connection = Connection(accepted, origin(address[0]))
            leaving = self.waiting.enter(connection)
            if leaving is None and accepted.fileno() >= self._most_descriptors:
                leaving = self.waiting.oldest()
            if leaving is not None:
                self._drop(leaving)
            if leaving is not connection:
                self._selector.register(accepted, selectors.EVENT_READ, connection)
                self._read(connection)

    def _read(self, connection: Connection) -> None:
        """Read part of a request, and answer it once it is complete."""
        try:
            found = connection.socket.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            found = b""
        connection.head += found
        head, end, _ = connection.head.partition(b"\r\n\r\n")
        if not found:
            self._drop(connection)
        elif end or len(head) > MOST_BYTES:
            self._selector.unregister(connection.socket)
            try:
                self._answer(connection, head)
            except Exception:  # for example if no thread can be started
                logger.debug("a request was lost", exc_info=True)
                connection.socket.close()
            self.waiting.leave(connection)

    def _answer(self, connection: Connection, head: bytes) -> None:
        request = read(head)
        found = self._route(request) if isinstance(request, Request) else request
        whole = not head.startswith(b"HEAD ")
        answer = self._begin(connection, found, whole) if isinstance(found, Work) else found
        if answer is not None:
            with contextlib.suppress(OSError):
                connection.socket.send(answer.bytes(whole))
            _close(connection.socket)

    def _begin(self, connection: Connection, work: Work, whole: bool) -> Answer | None:
        pool = self.viewers if work.follows else self.workers[work.trusted]
        connection.since = float("inf")
        leaving = pool.enter(connection)
        if leaving is connection:
            return _FOLLOWED if work.follows else _CROWDED
        if leaving is not None:
            leaving.cut()
        try:
            threading.Thread(target=self._work, args=(connection, work, pool, whole), daemon=True).start()
        except RuntimeError:
            pool.leave(connection)
            raise
        return None

    def _drop(self, connection: Connection) -> None:
        """Close a waiting connection."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        self.waiting.leave(connection)
        connection.socket.close()

    # In the threads that answer ---------------------------------------------------------------------------------------

    def _work(self, connection: Connection, work: Work, pool: Pool, whole: bool) -> None:
        share = self._working[work.trusted]
        try:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            connection.block(SEND_S)
            answer = work.answer(connection.send) if _waited(share) else _CROWDED
            if answer is not None:
                connection.send(answer.bytes(whole))
        except Exception:  # usually the client has left, or does not read
            logger.debug("a client was lost", exc_info=True)
        finally:
            spent = time.thread_time()
            share.spend(min(spent, _FOLLOWING_S) if work.follows else spent)
            pool.leave(connection)
            _close(connection.socket)


def _waited(share: Share) -> bool:
    """Wait until there is CPU time for further work; return False if that would take too long."""
    until = time.monotonic() + SEND_S
    while wait := share.spend(0.0):
        if time.monotonic() + wait > until:
            return False
        time.sleep(wait)
    return True


def _close(connection: socket.socket) -> None:
    """Close a connection without losing sent data, even if bytes of the client are unread."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.setblocking(False)
        connection.recv(1 << 16)
    connection.close()
