"""Serves the page, and what it shows, to whoever may see it: to read only.

On a loopback address whoever is on the machine may look; beyond it only who has the token. The page itself holds no
figures, and asks for them with the token in a header: it stands in no address, no log and no cookie.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from http import HTTPStatus
from importlib.resources import files
from typing import ClassVar, Protocol
from urllib.parse import parse_qs

from streamsvm.run.errors import SetupError
from streamsvm.run.page.broadcaster import Broadcaster
from streamsvm.run.page.dashboard import Busy
from streamsvm.run.web.messages import FIGURES, HTML, JSON, Answer, Request, head, refusal
from streamsvm.run.web.server import HttpServer, Place, Work

HEARTBEAT_S = 15.0
_ANSWER_S = 10.0

Send = Callable[[bytes], None]


class Shown(Protocol):
    """What a page shows."""

    feed: Broadcaster

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

    _OPEN: ClassVar = {"/": "_page", "/healthz": "_health"}  # hold no figures
    _CLOSED: ClassVar = {
        "/events": "_follow",
        "/state.json": "_state",
        "/series.json": "_series",
        "/event.json": "_event",
        "/metrics": "_metrics",
    }

    def __init__(self, shown: Shown, place: str, token: str | None, metrics: Callable[[], bytes]) -> None:
        self._place = Place(place, "--page")
        if token is not None and not re.fullmatch(r"[!-~]{8,}", token):
            raise SetupError(
                "the token of the page must have at least 8 letters, digits or signs of ASCII, and no blanks"
            )
        if not self._place.local and not token:
            raise SetupError(
                f"--page {place}: beyond this machine whoever sees the page must know a token: set "
                "STREAMSVM_PAGE_TOKEN in the environment, or page-token-file"
            )
        self.shown, self.metrics, self._token = shown, metrics, None if token is None else token.encode()
        self._http = HttpServer(self._place, self._route, "page")
        address = self._place.address
        self.url = f"http://{f'[{address}]' if ':' in address else address}:{self.port}"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._http.port

    @property
    def n_following(self) -> int:
        """How many viewers follow now."""
        return len(self._http.viewers)

    def close(self) -> None:
        """End all connections, once those who follow have what was said last."""
        self.shown.feed.close()
        self._http.close()

    def _route(self, request: Request) -> Answer | Work:
        path = request.path
        if not self._place.knows(request.headers.get("host", "")):
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, "this page is not served under that name")
        if path in self._OPEN:
            found: Answer | Work = getattr(self, self._OPEN[path])(request)
        elif path not in self._CLOSED:
            found = refusal(HTTPStatus.NOT_FOUND, f"there are {', '.join([*self._OPEN, *self._CLOSED])}")
        elif request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            found = refusal(HTTPStatus.FORBIDDEN, "pages of others may not ask")
        elif not self._admits(request):
            why = "the token is needed: Authorization: Bearer TOKEN"
            found = refusal(HTTPStatus.UNAUTHORIZED, why, {"WWW-Authenticate": "Bearer"})
        elif path == "/events":
            found = Work(functools.partial(self._follow, request), trusted=True, follows=True)
        else:
            found = Work(functools.partial(getattr(self, self._CLOSED[path]), request), trusted=True)
        return found

    def _admits(self, request: Request) -> bool:
        """Whether who asks knows the token."""
        if self._token is None:
            return True
        said = request.headers.get("authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(said.encode("utf-8"), self._token)

    # Without the token ------------------------------------------------------------------------------------------------

    def _page(self, request: Request) -> Work:
        return Work(lambda _: _page_for(request), trusted=self._admits(request))

    def _health(self, _: Request) -> Answer:
        wrong = self.shown.health()
        return refusal(HTTPStatus.SERVICE_UNAVAILABLE, wrong) if wrong else Answer(b"running\n")

    # With it, each in a thread of its own -----------------------------------------------------------------------------

    def _state(self, request: Request, _: Send) -> Answer:
        latest = self.shown.feed.latest
        return _json(latest, request) if latest else Answer(b"", JSON, HTTPStatus.NO_CONTENT)  # no batch was done yet

    def _series(self, request: Request, _: Send) -> Answer:
        return _json(self.shown.series(), request)

    def _metrics(self, _request: Request, _: Send) -> Answer:
        try:
            return Answer(self.metrics(), FIGURES)
        except SetupError as error:
            return refusal(HTTPStatus.NOT_IMPLEMENTED, str(error))

    def _event(self, request: Request, _: Send) -> Answer:
        number = parse_qs(request.query).get("id", [""])[0]
        if not number.isascii() or not number.isdigit() or len(number) > 15:
            return refusal(HTTPStatus.BAD_REQUEST, "which event? as in /event.json?id=17")
        try:
            return _json(self.shown.ask(int(number), _ANSWER_S), request)
        except LookupError:
            return refusal(HTTPStatus.NOT_FOUND, "this event is not remembered any more")
        except Busy:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "others are asking: try again")
        except Exception as error:  # such as that the run ended meanwhile
            return refusal(HTTPStatus.GATEWAY_TIMEOUT, f"no answer came: {type(error).__name__}")

    def _follow(self, request: Request, send: Send) -> None:
        """Server-sent events: the state whenever it is new, and a comment now and then where it is not."""
        feed, number = self.shown.feed, 0
        send(head("text/event-stream", HTTPStatus.OK, {"X-Accel-Buffering": "no"}))
        while request.method == "GET":
            number, message = feed.after(number, HEARTBEAT_S)
            if message is None and feed.closed:
                return
            send(b": here\n\n" if message is None else b"data: %b\n\n" % message)


def _json(content: bytes, request: Request) -> Answer:
    if len(content) > 1 << 14 and request.packs:
        return Answer(_gzipped(content), JSON, headers={"Content-Encoding": "gzip"})
    return Answer(content, JSON)


@lru_cache(maxsize=2)  # many ask for the same
def _gzipped(content: bytes) -> bytes:
    return gzip.compress(content, 1)


def _page_for(request: Request) -> Answer:
    html, policy = page()
    headers = {"Content-Security-Policy": policy}
    if request.packs:
        return Answer(html, HTML, headers=headers | {"Content-Encoding": "gzip"})
    return Answer(gzip.decompress(html), HTML, headers=headers)


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
