"""A web server in this process, with ranges and faults."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[Any, bytes], bytes | None]
"""Takes the handler and the body; returns the body to send, or None if sent."""


@dataclass
class Web:
    """Files by path, and how the server behaves.

    Parameters
    ----------
    port
        Port of the server.
    ranges
        Whether ranges are supported.
    etag
        Whether there is an ETag, and otherwise only the time of the last modification.
    sized
        Whether the size is known.
    faults
        Faults of the next answers.
    requests
        Headers of each request.
    """

    port: int = 0
    ranges: bool = True
    etag: bool = True
    sized: bool = True
    kind: str = "text/csv"
    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)

    def put(self, path: str, data: bytes) -> str:
        """Store a file and return its URL."""
        self.files[path] = data
        self.versions[path] = self.versions.get(path, 0) + 1
        return f"http://127.0.0.1:{self.port}{path}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer a GET request."""
        self.requests.append(dict(handler.headers))
        path = handler.path.partition("?")[0]
        if path not in self.files:
            return handler.send_error(404)
        data, start = self.files[path], 0
        if self.ranges and "Range" in handler.headers:
            start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                return handler.send_error(416)
        body: bytes | None = data[start:]
        if self.faults and (body := self.faults.pop(0)(handler, data[start:])) is None:
            return None
        handler.send_response(206 if self.ranges else 200)
        handler.send_header("Content-Type", self.kind)
        if self.sized:
            handler.send_header("Content-Length", str(len(data) - start))
        if self.ranges:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data) if self.sized else '*'}")
        if self.etag:
            handler.send_header("ETag", f'"v{self.versions[path]}"')
        else:
            handler.send_header("Last-Modified", f"Sat, 28 Nov 2026 01:00:{self.versions[path]:02d} GMT")
        handler.end_headers()
        handler.wfile.write(body or b"")
        return None


@contextlib.contextmanager
def listening(answer: Callable[[BaseHTTPRequestHandler], None], port: int = 0) -> Iterator[int]:
    """Run a server in this process that answers GET requests. Yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(ConnectionError):
                answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer.allow_reuse_address = True
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def serving() -> Iterator[Web]:
    """Run a server of files."""
    web = Web()
    with listening(web.answer) as web.port:
        yield web


def status(code: int) -> Fault:
    """Answer with an error."""
    return lambda handler, body: handler.send_error(code)


def cut(n: int) -> Fault:
    """Close the connection after n bytes."""
    return lambda handler, body: body[:n]


def reset(handler: Any, body: bytes) -> None:
    """Reset the connection."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()
