"""A proxy that loses one answer of a Kafka broker, or one request, and closes the connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from unittest import mock

APIS = {
    "Produce": 0,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
}
"""Requests of a transaction, with their numbers in Kafka's protocol."""


class Proxy:
    """Forwards connections to a broker, except the n-th request of a kind or its answer.

    Parameters
    ----------
    broker
        Address of the broker.
    api
        Kind of the request.
    lost
        "answer": the broker has done what was asked. "request": it has not.
    n
        Number of the request, from 1.

    Attributes
    ----------
    n_lost
        Number of lost answers or requests.
    """

    def __init__(self, broker: str, api: str, lost: str, n: int) -> None:
        host, _, port = broker.rpartition(":")
        self.broker, self._api, self._lost, self._n = (host, int(port)), APIS[api], lost, n
        self.n_lost = 0
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in (self._server, *self._sockets):
            _close(one)
        for thread in self._threads:
            thread.join()

    @contextlib.contextmanager
    def redirected(self) -> Iterator[None]:
        """Let the clients of this process connect to the proxy instead of the broker."""
        connect, port = socket.socket.connect_ex, self._server.getsockname()[1]

        def through(one: socket.socket, address: tuple[str, int]) -> int:
            return connect(one, ("127.0.0.1", port) if address[1] == self.broker[1] else address)

        with mock.patch.object(socket.socket, "connect_ex", through):
            yield

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(self.broker)
            self._sockets += [client, broker]
            asked: dict[int, int] = {}
            self._start(self._forward, client, broker, asked, True)
            self._start(self._forward, broker, client, asked, False)

    def _forward(self, source: socket.socket, target: socket.socket, asked: dict[int, int], is_request: bool) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _read(source, struct.unpack(">i", head := _read(source, 4))[0])
                if is_request:
                    api, _, number = struct.unpack(">hhi", frame[:8])
                    asked[number] = api
                else:
                    api = asked.pop(struct.unpack(">i", frame[:4])[0], -1)
                if self._is_lost(api, is_request):
                    break
                target.sendall(head + frame)
        _close(source)
        _close(target)

    def _is_lost(self, api: int, is_request: bool) -> bool:
        if api != self._api or is_request != (self._lost == "request"):
            return False
        with self._lock:
            self._n -= 1
            self.n_lost += not self._n
            return not self._n


def _read(source: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = source.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
