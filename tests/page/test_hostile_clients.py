"""Clients with half a request or too many block nobody and do not slow the run."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from streamsvm.run import web
from streamsvm.run.errors import SetupError
from streamsvm.run.prometheus import Exporter
from streamsvm.run.web import HttpServer, ListenAddress, Response
from tests.commands import Command
from tests.errors import raises
from tests.page.looking import eager, free_port, get, wait_for
from tests.run.conftest import write_stream

MORE_THAN_IS_BUFFERED = bytes(1 << 24)
SMALL = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


ROUTES = {
    "/small": lambda _: Response(b"small"),
    "/events": lambda _: Response(itertools.repeat(MORE_THAN_IS_BUFFERED)),  # an endless stream
    "/": lambda _: Response(MORE_THAN_IS_BUFFERED),  # more than a client reads at once
}


@contextlib.contextmanager
def serving(place: str = "0") -> Iterator[HttpServer]:
    with contextlib.closing(HttpServer(ListenAddress(place, "--page"), ROUTES, "test", any_host=True)) as server:
        yield server


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving() as one:
        yield one


@pytest.fixture
def connect() -> Iterator[Callable[..., socket.socket]]:
    """Open connections that send some bytes. They are closed at the end."""
    with contextlib.ExitStack() as stack:

        def opened(port: int, say: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
            connection = stack.enter_context(socket.create_connection((address, port), timeout=30))
            connection.sendall(say)
            return connection

        yield opened


def is_closed(connection: socket.socket) -> bool:
    """Return whether the server closes a connection. Reads what was sent before."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 20):
            pass
    return True


def answered(connection: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            found += more
    return found


class TestRequests:
    def test_half_open_connections_do_not_block_others(self, server, connect):
        hostile = [connect(server.port, half) for half in (b"", b"GET", WHOLE[:-2], b"\x16\x03\x01\x02\x00") * 20]
        for _ in range(3):
            assert get(server.port, "/small")[:2] == (200, b"small")
        assert is_closed(hostile[0])  # the oldest connections were closed for the others

    def test_a_slow_request_is_closed(self, server, connect, monkeypatch):
        monkeypatch.setattr(web, "HEAD_S", 0.3)
        slow = connect(server.port, b"GET / HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                slow.sendall(b"x")
                time.sleep(0.05)
            pytest.fail("it is waited for")

    def test_an_invalid_request_is_answered_and_closed(self, server, connect):
        for said, status in (
            (b"GET / HTTP/1.1\r\nCookie: %s\r\n\r\n" % bytes(40_000), 431),
            (b"GET / HTTP/1.1\r\n%s\r\n" % (b"a: b\r\n" * 101), 431),
            (b"GET /" + b"a" * 40_000, 431),
            (b"GET / HTTP/1.1\r\nnot a field\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
            (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
            (b"\0\xff\r\n\r\n", 400),
            (b"GET\r\n\r\n", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 505),
            (b"POST /small HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 405),
        ):
            assert answered(connect(server.port, said)).startswith(b"HTTP/1.1 %d " % status), said[:40]
        assert get(server.port, "/small")[0] == 200

    def test_one_request_of_a_connection_is_answered(self, server, connect):
        assert answered(connect(server.port, SMALL * 50)).count(b"HTTP/1.1 200") == 1

    def test_over_ipv6(self, connect):
        if not socket.has_ipv6:
            pytest.skip("no IPv6 here")
        with serving("[::1]:0") as server:
            hostile = [connect(server.port, address="::1") for _ in range(80)]
            assert answered(connect(server.port, b"GET /small HTTP/1.1\r\n\r\n", "::1")).endswith(b"small")
            assert is_closed(hostile[0])


class TestWhoDoesNotRead:
    @pytest.fixture(autouse=True)
    def _impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(web, "PATIENCE_S", 0.0)

    def test_one_that_was_waited_for_leaves_for_the_next(self, connect, monkeypatch):
        monkeypatch.setattr(web, "MOST", 1)
        with serving() as server:
            hostile = connect(server.port, WHOLE)
            assert hostile.recv(1)
            assert wait_for(lambda: answered(connect(server.port, SMALL)).endswith(b"small"), "the next is answered")
            assert is_closed(hostile)

    def test_viewers_too(self, server, connect, monkeypatch):
        monkeypatch.setattr(web, "MOST_VIEWERS", 1)
        following = b"GET /events HTTP/1.1\r\n\r\n"
        hostile = connect(server.port, following)
        wait_for(lambda: len(server.viewers) == 1, "it follows")
        assert wait_for(lambda: b"HTTP/1.1 200" in connect(server.port, following).recv(100), "the next follows")
        assert is_closed(hostile)

    def test_it_is_dropped(self, server, connect, monkeypatch):
        monkeypatch.setattr(web, "SEND_S", 0.1)
        assert connect(server.port, b"GET /events HTTP/1.1\r\n\r\n").recv(10)
        wait_for(lambda: not server.viewers, "it is dropped")


def test_a_flood_of_requests_gets_a_small_share_of_the_processor(server):
    # The server runs in this process, the clients in another one.
    flood = (
        "import http.client, sys\n"
        "while True:\n"
        "    c = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]), timeout=60)\n"
        "    c.request('GET', '/small'); c.getresponse().read(); c.close()\n"
    )

    def is_modest() -> bool:
        before, began = time.process_time(), time.monotonic()
        time.sleep(1.0)
        return time.process_time() - before < 0.1 * (time.monotonic() - began)

    clients = [subprocess.Popen([sys.executable, "-c", flood, str(server.port)]) for _ in range(2)]
    try:
        time.sleep(0.5)  # there is more for the burst after a rest
        wait_for(is_modest, "a small share")
    finally:
        for client in clients:
            client.kill()
            client.wait()


class TestMetricsPort:
    def test_it_is_for_this_machine(self):
        with contextlib.closing(Exporter("0")) as exporter:
            assert get(exporter.port, "/metrics")[0] == 200
            assert get(exporter.port, "/healthz")[:2] == (200, b"running\n")
            assert get(exporter.port, "/")[0] == 404
            assert get(exporter.port, "/metrics", {"Host": "evil.example"})[0] == 421
            with contextlib.closing(socket.socket()) as others:
                others.bind(("127.0.0.2", exporter.port))  # works if it listens on all addresses

    def test_it_may_be_for_others(self):
        with contextlib.closing(Exporter("0.0.0.0:0")) as exporter:
            assert get(exporter.port, "/metrics", {"Host": "streamsvm-0.streamsvm:9000"})[0] == 200

    @pytest.mark.parametrize("place", ["x", ":80"])
    def test_places_that_are_none(self, place):
        with raises(SetupError, reason="value", option="--set metrics-port", named=place):
            Exporter(place)


def few_descriptors() -> None:
    eager()
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else max(soft, 4096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_descriptors")
def test_a_run_succeeds_with_more_connections_than_file_descriptors(tmp_path, connect):
    stream = write_stream(tmp_path / "in.csv", 200)
    page, metrics, log = free_port(), free_port(), tmp_path / "log"
    kept = ("--checkpoint", "state", "--checkpoint-every", "100", "--out", "out.csv")
    served = ("--page", page, "--set", f"metrics-port={metrics}")
    asked = ("run", "in.csv", "--label", "y", "--model", "cpm", "--at-end", "wait", *kept, *served)

    def answers(port):
        assert run.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            return get(port, "/healthz")[0] == 200
        return False

    def events():
        status, content, _ = get(page, "/state.json")
        return int(json.loads(content)["events"]) if status == 200 else 0

    with Command(*asked, cwd=tmp_path, stdout=log, stderr=log, prepare=few_descriptors) as run:
        for port in (page, metrics):
            wait_for(lambda port=port: answers(port), "the run")
        for port in (page, metrics):
            for _ in range(200):
                connect(port, b"GET / HTTP/1.1\r\n")
        wait_for(lambda: events() == 200, "the events that were there")
        with open(stream, "a") as file:
            file.write("1,2,3,s0,UP\n" * 200)
        wait_for(lambda: events() == 400, "all events")
        assert get(metrics, "/metrics")[0] == 200
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(60) == 130, log.read_text()
    assert (tmp_path / "state" / "checkpoint.safetensors").exists()
    assert "Too many open files" not in log.read_text()
