"""HTTP/1.1 requests and responses, one of each per connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

JSON, HTML, TEXT = "application/json", "text/html; charset=utf-8", "text/plain; charset=utf-8"
FIGURES = "text/plain; version=0.0.4; charset=utf-8"  # text format of Prometheus
MOST_BYTES = 1 << 15  # limit of the head of a request; browsers send all cookies of localhost
_MOST_LINES = 100
_FIRST = re.compile(r"([!-~]+) ([!-~]+) HTTP/1\.[01]")
_HEADERS = {
    "Server": "streamsvm",
    "Connection": "close",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Answer(NamedTuple):
    """A response.

    Parameters
    ----------
    content
        Body.
    kind
        Media type of the body.
    status
        Status code.
    headers
        Headers beyond those of all responses.
    """

    content: bytes
    kind: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = {}

    def bytes(self, whole: bool = True) -> bytes:
        """Return the response as bytes, without the body for HEAD requests."""
        fields = {"Content-Length": str(len(self.content)), **self.headers}
        return head(self.kind, self.status, fields) + (self.content if whole else b"")


def refusal(status: HTTPStatus, why: str = "", headers: Mapping[str, str] | None = None) -> Answer:
    """Return a response with an error message."""
    return Answer(f"{why or status.phrase}\n".encode(), TEXT, status, headers or {})


def head(kind: str, status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers of a response."""
    fields = {"Date": formatdate(usegmt=True), **_HEADERS, "Content-Type": kind, **headers}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


class Request(NamedTuple):
    """A request.

    Parameters
    ----------
    method
        GET or HEAD.
    path, query
        Path and query of the URL.
    headers
        Headers by lower-case name; the first of repeated ones.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def packs(self) -> bool:
        """Whether the client accepts gzip."""
        return "gzip" in self.headers.get("accept-encoding", "")


def read(head: bytes) -> Request | Answer:
    """Parse the head of a request; return an error response if it is invalid.

    Examples
    --------
    >>> read(b"GET /event.json?id=17 HTTP/1.1\\r\\nHost: localhost")
    Request(method='GET', path='/event.json', query='id=17', headers={'host': 'localhost'})
    >>> read(b"POST / HTTP/1.1").status.value
    405
    """
    if len(head) > MOST_BYTES or head.count(b"\r\n") > _MOST_LINES:
        return refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    first, *lines = head.decode("latin-1").split("\r\n")
    found = _FIRST.fullmatch(first)
    pairs = [line.partition(":") for line in lines]
    if found is None or not all(colon and name.strip() == name for name, colon, _ in pairs):
        return refusal(HTTPStatus.BAD_REQUEST)
    if found[1] not in ("GET", "HEAD"):
        return refusal(HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET, HEAD"})
    path, _, query = found[2].partition("?")
    return Request(found[1], path, query, {name.lower(): value.strip() for name, _, value in reversed(pairs)})
