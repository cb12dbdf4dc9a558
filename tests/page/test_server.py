"""Access to the page, and the HTTP server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

from streamsvm.run import web
from streamsvm.run.errors import SetupError
from streamsvm.run.page import server as served
from streamsvm.run.page.dashboard import Broadcaster, Busy
from streamsvm.run.page.server import Server
from tests.errors import raises
from tests.page.looking import get, wait_for

TOKEN = "s3cret-and-long"


class Stub:
    """State set by a test."""

    def __init__(self) -> None:
        self.feed, self.wrong = Broadcaster(), ""
        self.feed.publish(b'{"events":1}')

    def series(self) -> bytes:
        return json.dumps({"columns": [0] * 20_000}).encode()

    def explain(self, number: int, timeout: float) -> bytes:
        if number == 1:
            raise Busy
        if number == 2:
            raise TimeoutError
        if number == 3:
            raise LookupError
        return b'{"event":%d}' % number

    def health(self) -> str:
        return self.wrong

    def metrics(self) -> bytes:
        return b"streamsvm_events_total 1.0\n"


@contextlib.contextmanager
def serving(token: str | None = None, place: str = "0") -> Iterator[Server]:
    server = Server(Stub(), place, token)
    with contextlib.closing(server):
        yield server


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as one:
        yield one


@pytest.fixture(scope="module")
def shared() -> Iterator[Server]:
    """A server that no test changes."""
    with serving() as one:
        yield one


def test_state_and_history_of_a_page(server):
    assert get(server.port, "/state.json")[:2] == (200, b'{"events":1}')
    assert get(server.port, "/metrics")[:2] == (200, b"streamsvm_events_total 1.0\n")
    assert get(server.port, "/healthz")[:2] == (200, b"running\n")
    assert get(server.port, "/event.json?id=17")[:2] == (200, b'{"event":17}')
    assert get(server.port, "/../../etc/passwd")[0] == 404
    with serving() as early:
        early.shown.feed = Broadcaster()
        assert get(early.port, "/state.json")[:2] == (204, b"")
    assert get(server.port, "/state.json", method="HEAD")[:2] == (200, b"")
    server.shown.wrong = "ended: error"  # type: ignore[attr-defined]
    assert get(server.port, "/healthz")[:2] == (503, b"ended: error\n")


def test_what_cannot_be_told(shared):
    for path, status in (("?id=1", 503), ("?id=2", 504), ("?id=3", 404), ("?id=x", 400), ("", 400)):
        assert get(shared.port, f"/event.json{path}")[0] == status, path


def test_it_is_read_only(shared):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "<b>"):
        status, content, headers = get(shared.port, "/state.json", method=method)
        assert (status, headers["Allow"]) == (405, "GET, HEAD"), method
        assert b"<b>" not in content


def test_the_headers_of_every_answer(shared):
    for path in ("/", "/state.json", "/nowhere", "/series.json", "/healthz"):
        _, _, headers = get(shared.port, path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Set-Cookie" not in headers
        assert "Python" not in headers["Server"]


def test_the_policy_lets_the_own_script_run_and_nothing_else(shared):
    _, html, headers = get(shared.port, "/")
    policy = headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "http" not in policy
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", html.decode(), re.DOTALL)
        hashes = {f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts}
        assert len(hashes) == 2
        assert set(re.findall(rf"{kind} ([^;]*)", policy)[0].split()) == hashes


def test_the_page_asks_nobody_else_and_sets_no_markup():
    html = (files("streamsvm.run.page") / "page.html").read_text()
    assert set(re.findall(r"https?://[^'\" ]+", html)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|srcdoc", html)
    assert "document.cookie" not in html
    assert not re.search(r"<[a-z][^>]* (on[a-z]+|style)=", html)  # the policy forbids these as well


def test_names_of_others_lead_nowhere(shared):
    own = ("localhost", "localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST", "127.1.2.3")
    others = ("evil.example", "127.0.0.1.evil.example", "", "192.0.2.7", "localhost.evil:80")
    for host in own + others:
        for path in ("/", "/state.json", "/healthz", "/events"):
            status = get(shared.port, path, {"Host": host}, "HEAD")[0]
            assert status == (200 if host in own else 421), (host, path)


def test_pages_of_others_may_not_ask(shared):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert get(shared.port, "/state.json", {"Sec-Fetch-Site": site})[0] == status
    assert get(shared.port, "/", {"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link that a user follows


def test_figures_need_the_token_if_there_is_one():
    with serving(TOKEN) as server:
        for path in ("/state.json", "/series.json", "/events", "/metrics", "/event.json?id=4"):
            for wrong in ({}, {"Authorization": "Bearer s3cret"}, {"Authorization": "Bearer "}, {"Cookie": TOKEN}):
                status, content, headers = get(server.port, path, wrong)
                assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
                assert b"events" not in content
            assert get(server.port, f"{path}?token={TOKEN}")[0] == 401
        right = {"Authorization": f"Bearer {TOKEN}"}
        assert get(server.port, "/state.json", right)[0] == 200
        assert get(server.port, "/")[0] == 200  # the page contains no figures
        assert get(server.port, "/healthz")[:2] == (200, b"running\n")


@pytest.mark.parametrize("token", ["short", "with a blank in it", "späte Müh", ""])
def test_tokens_that_are_none(token):
    with raises(SetupError, reason="token"), serving(token):
        pass


def test_other_machines_require_a_token():
    with raises(SetupError, reason="no token", named="STREAMSVM_PAGE_TOKEN"), serving(place="0.0.0.0:0"):
        pass
    with serving(TOKEN, "0.0.0.0:0") as server:
        right = {"Authorization": f"Bearer {TOKEN}"}
        for host, status in (("192.0.2.7:80", 200), (socket.gethostname(), 200), ("evil.example", 421)):
            assert get(server.port, "/state.json", right | {"Host": host})[0] == status


@pytest.mark.parametrize("place", ["99999", ":80", "127.0.0.1:", "no.such.host.invalid:80", "٣"])
def test_places_that_are_none(place):
    with raises(SetupError, option="--page", named=place), serving(TOKEN, place):
        pass


def test_a_port_in_use(shared):
    with raises(SetupError, reason="listen", option="--page"), serving(place=str(shared.port)):
        pass


def follow(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


def heard(connection: socket.socket, what: bytes) -> bytes:
    """Return all messages up to this one."""
    found = b""
    while what not in found:
        more = connection.recv(65536)
        assert more, found
        found += more
    return found


def test_viewers_receive_updates_and_the_end(server):
    viewers = [follow(server.port) for _ in range(3)]
    for viewer in viewers:
        heard(viewer, b'data: {"events":1}\n\n')
    server.shown.feed.publish(b'{"events":2}')
    for viewer in viewers:
        heard(viewer, b'data: {"events":2}\n\n')
    server.shown.feed.publish(b'{"ended":"yes"}')
    server.close()
    for viewer in viewers:
        heard(viewer, b'data: {"ended":"yes"}\n\n')
        assert viewer.recv(100) == b""
        viewer.close()


def test_a_sign_of_life(server, monkeypatch):
    monkeypatch.setattr(served, "HEARTBEAT_S", 0.05)
    with contextlib.closing(follow(server.port)) as viewer:
        heard(viewer, b": here\n\n: here\n\n")


def test_the_number_of_viewers_is_bounded(server, monkeypatch):
    monkeypatch.setattr(web, "MOST_VIEWERS", 2)
    viewers = [follow(server.port) for _ in range(2)]
    for viewer in viewers:
        heard(viewer, b"events")
    assert get(server.port, "/events")[0] == 503
    assert get(server.port, "/state.json")[0] == 200
    for viewer in viewers:
        viewer.close()


def test_nothing_is_left_when_it_is_closed():
    before = threading.active_count()
    with serving() as server:
        viewer = follow(server.port)
        heard(viewer, b"events")
    viewer.close()
    wait_for(lambda: threading.active_count() <= before, "the end of all threads")


def test_large_answers_are_packed(shared):
    _, content, headers = get(shared.port, "/series.json", {"Accept-Encoding": "gzip"})
    assert headers["Content-Encoding"] == "gzip"
    assert len(content) < 1_000
    found: Any = json.loads(get(shared.port, "/series.json")[1])
    assert len(found["columns"]) == 20_000
