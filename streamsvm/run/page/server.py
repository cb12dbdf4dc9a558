"""Read-only HTTP server of a dashboard.

On a loopback address every user of the machine has access, otherwise only viewers with the token. The page itself
contains no data and requests it with the token in a header. The token therefore appears in no URL, log or cookie.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import hmac
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import parse_qs

from streamsvm.run.errors import SetupError
from streamsvm.run.page.dashboard import Busy, DashboardState
from streamsvm.run.web import HTML, JSON, METRICS, HttpServer, ListenAddress, Request, Response, refusal

HEARTBEAT_S = 15.0
_RESPONSE_S = 10.0

logger = logging.getLogger("streamsvm.run")


class Server(HttpServer):
    """Serves a dashboard until it is closed.

    Parameters
    ----------
    shown
        State to show.
    place
        A port of 127.0.0.1, or ADDRESS:PORT; port 0 selects a free one.
    token
        Token of viewers; required unless the address is a loopback address.

    Attributes
    ----------
    url
        URL of the page.

    Raises
    ------
    SetupError
        If it cannot listen there, or the token is missing.
    """

    def __init__(self, shown: DashboardState, place: str, token: str | None) -> None:
        where = ListenAddress(place, "--page")
        if token is not None and not re.fullmatch(r"[!-~]{8,}", token):
            raise SetupError(
                "the token of the page must have at least 8 ASCII letters, digits or signs, and no spaces",
                "token",
            )
        if not where.local and not token:
            raise SetupError(
                f"--page {place}: access from other machines requires a token: set the environment variable "
                "STREAMSVM_PAGE_TOKEN, or page-token-file",
                "no token",
                option="--page",
            )
        self.shown, self._token = shown, None if token is None else token.encode()
        guarded: dict[str, Callable[[Request], Response]] = {
            "/events": lambda _: Response(self._updates(), "text/event-stream", headers={"X-Accel-Buffering": "no"}),
            "/state.json": self._state,
            "/series.json": lambda request: _json(self.shown.series(), request),
            "/event.json": self._event,
            "/metrics": self._metrics,
        }
        routes = {"/": _page, "/healthz": self._health}  # contain no data
        routes |= {path: functools.partial(self._admitted, route) for path, route in guarded.items()}
        super().__init__(where, routes, "page")
        address = where.address
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}"
        logger.info("the page: %s", self.url)

    def close(self) -> None:
        """End all connections, after sending the last message to viewers."""
        self.shown.feed.close()
        super().close()

    def _admitted(self, route: Callable[[Request], Response], request: Request) -> Response:
        """Answer a request of this page with the token; refuse others."""
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return refusal(HTTPStatus.FORBIDDEN, "requests from other sites are refused")
        token = request.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8")
        if self._token is not None and not hmac.compare_digest(token, self._token):
            why = "a token is required: Authorization: Bearer TOKEN"
            return refusal(HTTPStatus.UNAUTHORIZED, why, {"WWW-Authenticate": "Bearer"})
        return route(request)

    def _health(self, _: Request) -> Response:
        wrong = self.shown.health()
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, wrong) if wrong else Response(b"running\n")

    def _state(self, request: Request) -> Response:
        latest = self.shown.feed.latest
        return _json(latest, request) if latest else Response(b"", JSON, HTTPStatus.NO_CONTENT)  # no batch yet

    def _metrics(self, _: Request) -> Response:
        try:
            return Response(self.shown.metrics(), METRICS)
        except SetupError as error:
            return refusal(HTTPStatus.NOT_IMPLEMENTED, str(error))

    def _event(self, request: Request) -> Response:
        number = parse_qs(request.query).get("id", [""])[0]
        if not number.isascii() or not number.isdigit() or len(number) > 15:
            return refusal(HTTPStatus.BAD_REQUEST, "id is missing: use /event.json?id=17")
        try:
            return _json(self.shown.explain(int(number), _RESPONSE_S), request)
        except LookupError:
            return refusal(HTTPStatus.NOT_FOUND, "this event is no longer stored")
        except Busy:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests: try again")
        except Exception as error:  # for example if the run has ended
            return refusal(HTTPStatus.GATEWAY_TIMEOUT, f"no response: {type(error).__name__}")

    def _updates(self) -> Iterator[bytes]:
        """Yield states as server-sent events when they change, and heartbeat comments."""
        feed, number = self.shown.feed, 0
        while True:
            number, message = feed.after(number, HEARTBEAT_S)
            if message is None and feed.closed:
                return
            yield b": here\n\n" if message is None else b"data: %b\n\n" % message


def _json(content: bytes, request: Request) -> Response:
    if len(content) > 1 << 14 and request.accepts_gzip:
        return Response(_gzipped(content), JSON, headers={"Content-Encoding": "gzip"})
    return Response(content, JSON)


@functools.lru_cache(maxsize=2)  # several viewers request equal content
def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def _page(request: Request) -> Response:
    html, policy = page()
    headers = {"Content-Security-Policy": policy}
    if request.accepts_gzip:
        return Response(html, HTML, headers=headers | {"Content-Encoding": "gzip"})
    return Response(gzip.decompress(html), HTML, headers=headers)


@functools.cache
def page() -> tuple[bytes, str]:
    """Return the compressed page and a content security policy for its own code."""
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
