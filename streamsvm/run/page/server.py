"""Serves the page, and what it shows, to whoever may see it: to read only.

On a loopback address whoever is on the machine may look; beyond it only who has the token. The page itself holds no
figures, and asks for them with the token in a header: it stands in no address, no log and no cookie.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import hmac
import ipaddress
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, ClassVar, Protocol
from urllib.parse import parse_qs, urlsplit

from streamsvm.run.errors import SetupError
from streamsvm.run.page.board import Busy
from streamsvm.run.page.feed import Feed

HEARTBEAT_S = 15.0
MOST_VIEWERS = 32  # who follow at a time; others may ask for single things
_MOST_CONNECTIONS = 64
_PATIENCE_S = 10.0  # with a viewer that does not ask, or does not read
_ANSWER_S = 10.0
_JSON, _HTML, _TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"

logger = logging.getLogger("streamsvm.run")


class Shown(Protocol):
    """What a page shows."""

    feed: Feed

    def series(self) -> bytes:
        """All points over time, as JSON."""

    def ask(self, number: int, timeout: float) -> bytes:
        """Why an event was predicted as it was, as JSON."""

    def health(self) -> str:
        """What is wrong, empty where nothing is."""


class Server:
    """Serves a page until it is closed.

    Parameters
    ----------
    shown
        What the page shows.
    place
        A port, or ADDRESS:PORT to listen elsewhere than on 127.0.0.1; port 0 takes any that is free.
    token
        What viewers must know; needed beyond loopback addresses.
    metrics
        Gives what Prometheus reads.

    Attributes
    ----------
    url
        Where the page is.

    Raises
    ------
    SetupError
        Where it cannot listen there, or the token is missing.
    """

    def __init__(self, shown: Shown, place: str, token: str | None, metrics: Callable[[], bytes]) -> None:
        address, port = place_of(place)
        if token is not None and not re.fullmatch(r"[!-~]{8,}", token):
            raise SetupError("--page-token: must have at least 8 letters, digits or signs of ASCII, and no blanks")
        self.shown, self.metrics, self._token = shown, metrics, None if token is None else token.encode()
        try:
            found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            self._local = ipaddress.ip_address(found[4][0]).is_loopback
            if not self._local and not token:
                raise SetupError(
                    f"--page {place}: beyond this machine whoever sees the page must know a token: set "
                    "STREAMSVM_PAGE_TOKEN in the environment, or --page-token"
                )
            self._http = _Http(self, found[0], found[4])
        except (OSError, OverflowError) as error:
            raise SetupError(
                f"--page {place}: cannot listen there: {getattr(error, 'strerror', None) or error}"
            ) from error
        self._names = _LOOPBACK | {address} | (set() if self._local else {socket.gethostname().lower()})
        shown_address = f"[{address}]" if ":" in address else address
        self.url = f"http://{shown_address}:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.2,), name="page", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._http.server_address[1])

    @property
    def n_following(self) -> int:
        """How many viewers follow now."""
        return self._http.n_following

    def knows(self, host: str) -> bool:
        """Whether a request to this host is meant for here, and was not led here by a name of somebody else's."""
        name = re.sub(r":\d+$", "", host).strip("[]").lower()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._local

    def admits(self, authorization: str) -> bool:
        """Whether who asks knows the token."""
        if self._token is None:
            return True
        return hmac.compare_digest(authorization.removeprefix("Bearer ").encode("utf-8"), self._token)

    def close(self) -> None:
        """End all connections, once those who follow have what was said last."""
        self.shown.feed.close()
        self._http.wait_for_viewers(1.0)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def place_of(place: str) -> tuple[str, int]:
    """Address and port.

    Examples
    --------
    >>> place_of("8080"), place_of("0.0.0.0:80"), place_of("[::1]:8080")
    (('127.0.0.1', 8080), ('0.0.0.0', 80), ('::1', 8080))
    """
    address, colon, port = place.rpartition(":")
    address = address.strip("[]").lower() if colon else "127.0.0.1"
    if not address or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SetupError(f"--page {place}: must be a port, or ADDRESS:PORT such as 0.0.0.0:8080")
    return address, int(port)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, page: Server, family: Any, address: Any) -> None:
        self.page, self.address_family = page, family
        self.viewers = threading.BoundedSemaphore(MOST_VIEWERS)
        self._connections = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.n_following, self._left = 0, threading.Condition()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Not that of HTTPServer, which asks for the machine's full name over the network.
        if self.allow_reuse_address:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a viewer of the page was lost", exc_info=True)

    @contextlib.contextmanager
    def following(self) -> Any:
        """Counts who follows."""
        with self._left:
            self.n_following += 1
        try:
            yield
        finally:
            with self._left:
                self.n_following -= 1
                self._left.notify_all()

    def wait_for_viewers(self, seconds: float) -> None:
        """Wait until nobody follows, not for long."""
        with self._left:
            self._left.wait_for(lambda: not self.n_following, seconds)


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "streamsvm", ""
    timeout = _PATIENCE_S
    _OPEN: ClassVar = {"/": "_page", "/healthz": "_health"}  # hold no figures
    _CLOSED: ClassVar = {
        "/events": "_follow",
        "/state.json": "_state",
        "/series.json": "_series",
        "/event.json": "_event",
        "/metrics": "_metrics",
    }

    def do_GET(self) -> None:
        """Answer one request."""
        self.close_connection = True
        page, path = self.server.page, urlsplit(self.path).path
        if not page.knows(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this page is not served under that name")
        elif path in self._OPEN:
            getattr(self, self._OPEN[path])()
        elif path not in self._CLOSED:
            self._refuse(HTTPStatus.NOT_FOUND, f"there are {', '.join([*self._OPEN, *self._CLOSED])}")
        elif self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._refuse(HTTPStatus.FORBIDDEN, "pages of others may not ask")
        elif not page.admits(self.headers.get("Authorization", "")):
            self._refuse(HTTPStatus.UNAUTHORIZED, "the token is needed: Authorization: Bearer TOKEN")
        else:
            getattr(self, self._CLOSED[path])()

    do_HEAD = do_GET

    def _page(self) -> None:
        html, policy = page()
        plain = "gzip" not in self.headers.get("Accept-Encoding", "")
        headers = {"Content-Security-Policy": policy} | ({} if plain else {"Content-Encoding": "gzip"})
        self._send(gzip.decompress(html) if plain else html, _HTML, headers=headers)

    def _health(self) -> None:
        wrong, status = self.server.page.shown.health(), HTTPStatus.OK
        if wrong:
            status = HTTPStatus.SERVICE_UNAVAILABLE
        self._send((wrong or "running").encode() + b"\n", _TEXT, status)

    def _state(self) -> None:
        latest = self.server.page.shown.feed.latest
        self._send(latest, _JSON, HTTPStatus.OK if latest else HTTPStatus.NO_CONTENT)  # no batch was done yet

    def _series(self) -> None:
        self._send(self.server.page.shown.series(), _JSON)

    def _metrics(self) -> None:
        try:
            self._send(self.server.page.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        except SetupError as error:
            self._refuse(HTTPStatus.NOT_IMPLEMENTED, str(error))

    def _event(self) -> None:
        number = parse_qs(urlsplit(self.path).query).get("id", [""])[0]
        if not number.isascii() or not number.isdigit() or len(number) > 15:
            self._refuse(HTTPStatus.BAD_REQUEST, "which event? as in /event.json?id=17")
            return
        try:
            self._send(self.server.page.shown.ask(int(number), _ANSWER_S), _JSON)
        except LookupError:
            self._refuse(HTTPStatus.NOT_FOUND, "this event is not remembered any more")
        except Busy:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "others are asking: try again")
        except Exception as error:  # such as that the run ended meanwhile
            self._refuse(HTTPStatus.GATEWAY_TIMEOUT, f"no answer came: {type(error).__name__}")

    def _follow(self) -> None:
        """Server-sent events: the state whenever it is new, and a comment now and then where it is not."""
        if not self.server.viewers.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_VIEWERS} viewers follow already")
            return
        feed, number = self.server.page.shown.feed, 0
        try:
            with self.server.following():
                self._head(HTTPStatus.OK, "text/event-stream", {"X-Accel-Buffering": "no"})
                while self.command == "GET":
                    number, message = feed.after(number, HEARTBEAT_S)
                    if message is None and feed.closed:
                        return
                    self.wfile.write(b": here\n\n" if message is None else b"data: %b\n\n" % message)
        except OSError:
            pass  # the viewer left, or does not read
        finally:
            self.server.viewers.release()

    # Answers ----------------------------------------------------------------------------------------------------------

    def _head(self, status: HTTPStatus, kind: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (_HEADERS | {"Content-Type": kind} | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _send(
        self, content: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
    ) -> None:
        if kind == _JSON and len(content) > 1 << 14 and "gzip" in self.headers.get("Accept-Encoding", ""):
            content, headers = gzip.compress(content, 1), {"Content-Encoding": "gzip"}
        self._head(status, kind, {"Content-Length": str(len(content)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        more = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
        self._send(f"{why}\n".encode(), _TEXT, status, more)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses, such as other methods than GET: without saying again what was asked."""
        self.close_connection = True
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.command = getattr(self, "command", None) or "GET"
        self.headers = getattr(self, "headers", None) or {}  # type: ignore[assignment]
        self._send(f"{status.phrase}\n".encode(), _TEXT, status, {"Allow": "GET, HEAD"})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: who looks on is no matter of the run."""


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


@cache
def page() -> tuple[bytes, str]:
    """The page, packed, and the policy that lets its own script and style run and nothing else."""
    folder = files(__package__)
    html = (folder / "page.html").read_text(encoding="utf-8")
    for mark, name in (("/* uPlot.min.css */", "uPlot.min.css"), ("/* uPlot.iife.min.js */", "uPlot.iife.min.js")):
        html = html.replace(mark, (folder / name).read_text(encoding="utf-8"))
    scripts = _hashes(re.findall(r"<script>(.*?)</script>", html, re.DOTALL))
    styles = _hashes(re.findall(r"<style>(.*?)</style>", html, re.DOTALL))
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return gzip.compress(html.encode(), 9, mtime=0), policy


def _hashes(texts: Iterable[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
