"""HTTP server of a run for dashboard and metrics that does not slow the run down.

Each connection has its own thread and answers one request. All threads share a small part of one CPU: further
connections wait in the queue of the operating system.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import logging
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple, cast

from streamsvm.run.errors import SetupError

JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"  # text format of Prometheus
HEAD_S = 5.0  # limit for receiving a request, from the connection on
SEND_S = 10.0  # limit for a client to read what one call sends
MOST = 64  # open connections; the run needs file descriptors, too
MOST_VIEWERS = 32  # connections that receive updates
PATIENCE_S = 1.0  # how long a client may take to read before its connection may be closed for another
_MOST_BYTES = 1 << 15  # of a request; browsers send all cookies of localhost
_SEND_BUFFER = 1 << 16  # bytes; a larger buffer would hide slow readers
_SHARE, _BURST_S = 0.03, 0.1  # share of one CPU, and CPU time available at once after a rest
_CHECK_S, _CLOSING_S = 0.2, 1.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

logger = logging.getLogger("streamsvm.run")


class Response(NamedTuple):
    """A response.

    Parameters
    ----------
    content
        Body, or an iterator over the parts of a stream of updates.
    kind
        Media type of the body.
    status
        Status code.
    headers
        Headers beyond those of all responses.
    """

    content: bytes | Iterator[bytes]
    kind: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}


class Request(NamedTuple):
    """A GET or HEAD request: path and query of the URL, and the headers."""

    path: str
    query: str
    headers: Message

    @property
    def accepts_gzip(self) -> bool:
        """Whether the client accepts gzip."""
        return "gzip" in self.headers.get("accept-encoding", "")


def refusal(status: HTTPStatus, why: str = "", headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with an error message."""
    return Response(f"{why or status.phrase}\n".encode(), TEXT, status, headers or {})


class ListenAddress:
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

    Examples
    --------
    >>> places = [ListenAddress(place, "--page") for place in ("8080", "0.0.0.0:80", "[::1]:8080")]
    >>> [(place.address, place.port) for place in places]
    [('127.0.0.1', 8080), ('0.0.0.0', 80), ('::1', 8080)]
    """

    def __init__(self, place: str, option: str) -> None:
        self._place, self._option = place, option
        address, colon, port = place.rpartition(":")
        self.address = address.strip("[]").lower() if colon else "127.0.0.1"
        if not self.address or not port.isascii() or not port.isdigit() or int(port) > 65535:
            what = f"{option} {place}: must be a port, or ADDRESS:PORT such as 0.0.0.0:8080"
            raise SetupError(what, "value", option=option)
        self.port = int(port)
        try:
            found = socket.getaddrinfo(self.address, self.port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            raise self.refused(error) from error
        self.family, self.bound = found[0], cast("tuple[str, int]", found[4])
        self.local = ipaddress.ip_address(self.bound[0].partition("%")[0]).is_loopback
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

    def refused(self, error: Exception) -> SetupError:
        """Return the error of an address that cannot be listened on."""
        what = f"cannot listen there: {getattr(error, 'strerror', None) or error}"
        return SetupError(f"{self._option} {self._place}: {what}", "listen", option=self._option)


class HttpServer(ThreadingMixIn, TCPServer):
    """Serves requests until it is closed.

    Beyond the limits of connections, the one that has kept the server waiting longest is closed for a new one.

    Parameters
    ----------
    place
        Address to listen on.
    routes
        Functions that return the response to a request, by path; called in the thread of the connection.
    name
        Name of the thread that accepts connections.
    any_host
        Whether clients may use names of this machine that are unknown here.

    Attributes
    ----------
    port
        The port in use.
    viewers
        Connections that receive updates.
    """

    daemon_threads = allow_reuse_address = True
    request_queue_size = 256

    def __init__(
        self,
        place: ListenAddress,
        routes: Mapping[str, Callable[[Request], Response]],
        name: str,
        *,
        any_host: bool = False,
    ) -> None:
        self._place, self._routes, self._any_host, self.address_family = place, routes, any_host, place.family
        self._changed, self._closing = threading.Condition(), threading.Event()
        self._since: dict[socket.socket, float] = {}  # time after which each connection may be closed for another
        self.viewers: set[socket.socket] = set()
        self._free_at = self._spent = 0.0
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = MOST if limit == resource.RLIM_INFINITY else min(MOST, limit // 4)
        try:
            super().__init__(place.bound, _Handler)
        except OSError as error:
            raise place.refused(error) from error
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, args=(_CHECK_S,), name=name, daemon=True).start()

    def close(self) -> None:
        """Close all connections, after a moment for responses to be read."""
        self._closing.set()
        self.shutdown()
        self.server_close()
        with self._changed:
            now = time.monotonic()
            for connection in [one for one, since in self._since.items() if since <= now]:
                self._cut(connection)
            self._changed.wait_for(lambda: not self._since, _CLOSING_S)
            for connection in list(self._since):
                self._cut(connection)

    def route(self, request: Request) -> Response:
        """Return the response to a request."""
        if not self._any_host and not self._place.knows(request.headers.get("host", "")):
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "nothing is served here under that name")
        if request.path not in self._routes:
            return refusal(HTTPStatus.NOT_FOUND, f"there are {', '.join(self._routes)}")
        return self._routes[request.path](request)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Admit a connection if there is room for it."""
        with self._changed:
            if len(self._since) >= self._most and not self._make_room(self._since):
                return False
            self._since[request] = time.monotonic()
        return True

    def follows(self, request: socket.socket) -> bool:
        """Return whether there is room for a connection that receives updates."""
        with self._changed:
            if len(self.viewers) >= MOST_VIEWERS and not self._make_room(self.viewers):
                return False
            self.viewers.add(request)
        return True

    def wait_from(self, request: socket.socket, since: float) -> None:
        """Set the time from which on a connection may be closed for another."""
        with self._changed:
            if request in self._since:
                self._since[request] = since

    def _make_room(self, among: Collection[socket.socket]) -> bool:
        oldest = min(among, key=self._since.__getitem__)
        if self._since[oldest] > time.monotonic():
            return False
        self._cut(oldest)
        self._leave(oldest)
        return True

    def _cut(self, request: socket.socket) -> None:
        """End the wait of another thread for a client."""
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _leave(self, request: socket.socket) -> None:
        self._since.pop(request, None)
        self.viewers.discard(request)
        self._changed.notify_all()

    def shutdown_request(self, request: Any) -> None:
        """Close a connection without losing sent data, even with unread input."""
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            request.setblocking(False)
            request.recv(1 << 16)
        request.close()
        with self._changed:
            self._leave(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a request, and count the CPU time."""
        request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._spend(time.thread_time())

    def service_actions(self) -> None:
        """Wait until there is CPU time for further connections."""
        before, self._spent = self._spent, time.thread_time()
        self._spend(self._spent - before)
        self._closing.wait(max(0.0, self._free_at - time.monotonic()))

    def _spend(self, seconds: float) -> None:
        with self._changed:
            self._free_at = max(self._free_at, time.monotonic() - _BURST_S / _SHARE) + seconds / _SHARE

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error; usually the client has left, or does not read."""
        logger.debug("lost connection to a client", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    default_request_version = request_version = protocol_version = "HTTP/1.1"
    command = requestline = ""  # until the request is parsed
    disable_nagle_algorithm = True
    server: HttpServer

    def handle(self) -> None:
        """Answer one request."""
        head = self._head()
        self.server.wait_from(self.connection, float("inf"))
        self.connection.settimeout(SEND_S)
        self.rfile = io.BytesIO(head)
        self.raw_requestline = self.rfile.readline()
        if len(head) > _MOST_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        elif self.parse_request():
            self._send(self._answer())

    def _head(self) -> bytes:
        """Receive a request without its body."""
        head, until = b"", time.monotonic() + HEAD_S
        while b"\r\n\r\n" not in head and len(head) <= _MOST_BYTES:
            self.connection.settimeout(max(until - time.monotonic(), 1e-3))
            part = self.connection.recv(_MOST_BYTES)
            if not part:
                raise ConnectionError("the client has left")
            head += part
        return head

    def _answer(self) -> Response:
        if self.headers.defects:
            return refusal(HTTPStatus.BAD_REQUEST)
        if self.command not in ("GET", "HEAD"):
            return refusal(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
        path, _, query = self.path.partition("?")
        answer = self.server.route(Request(path, query, self.headers))
        if isinstance(answer.content, bytes) or self.command == "HEAD" or self.server.follows(self.connection):
            return answer
        why = f"{MOST_VIEWERS} viewers are connected already"
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, why, {"Retry-After": "1"})

    def _send(self, answer: Response) -> None:
        self.send_response(answer.status)
        headers = _HEADERS | {"Content-Type": answer.kind} | dict(answer.headers)
        content = answer.content
        if isinstance(content, bytes):
            headers["Content-Length"] = str(len(content))
            content = iter([content])
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for part in content if self.command != "HEAD" else ():
            self.server.wait_from(self.connection, time.monotonic() + PATIENCE_S)
            self.connection.sendall(part)
            self.server.wait_from(self.connection, float("inf"))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request that cannot be parsed."""
        self._send(refusal(HTTPStatus(code)))

    def version_string(self) -> str:
        """Return the name of the server."""
        return "streamsvm"

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: requests are not logged."""
