"""Proxy of a Kafka broker that loses, changes, cuts and delays messages."""

from __future__ import annotations

import contextlib
import functools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from unittest import mock

TRANSACTION = ("InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
"""Requests of a transaction."""

GROUP = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup")
"""Requests of a member of a consumer group."""

OTHERS = ("ApiVersions", "Metadata", "FindCoordinator", "ListOffsets", "Fetch", "OffsetFetch")

_WITH_ADDRESSES = ("MetadataResponse", "FindCoordinatorResponse", "DescribeClusterResponse")
_DELAY_S = 1.5
_PIECE = 7  # bytes


@dataclass
class Fault:
    """A disturbance of the n-th request of a kind, or of its answer.

    Parameters
    ----------
    api
        Kind of the request, as Kafka calls it.
    how
        "request", "answer": it is lost, and the connection closes. "cut": half of the answer arrives, and the
        connection closes. "delay", "slice": the answer arrives later, or in small pieces. "error": the broker does what
        was asked, and the answer has an error code. "refused": the same, and the broker does nothing.
    n
        Number of the request, from 1.
    code
        Error code of Kafka.
    lasting
        Whether later requests are disturbed, too.

    Attributes
    ----------
    n_fired
        Number of disturbed requests.
    """

    api: str
    how: str
    n: int = 1
    code: int = -1
    lasting: bool = False
    n_fired: int = 0

    def fires(self, api: str) -> bool:
        """Count a request; return whether it is disturbed."""
        if api != self.api:
            return False
        self.n -= 1
        fires = self.n == 0 or (self.lasting and self.n < 0)
        self.n_fired += fires
        return fires


class Proxy:
    """Forwards connections to a broker, with faults; answers name only the proxy.

    Parameters
    ----------
    broker
        Address of the broker.
    faults
        What is disturbed. At most one fault disturbs a request.

    Attributes
    ----------
    port
        Port of the proxy, on loopback.
    """

    def __init__(self, broker: str, *faults: Fault) -> None:
        host, _, port = broker.rpartition(":")
        self.broker, self.faults = (host, int(port)), faults
        self._lock = threading.Lock()
        self._wrong: list[Exception] = []
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in (self._server, *self._sockets):
            _end(one)
        for thread in self._threads:
            thread.join()
        for one in (self._server, *self._sockets):
            one.close()
        assert not self._wrong, self._wrong

    @contextlib.contextmanager
    def redirected(self) -> Iterator[None]:
        """Let the clients of this process connect to the proxy instead of the broker."""
        connect = socket.socket.connect_ex

        def through(one: socket.socket, address: tuple[str, int]) -> int:
            return connect(one, ("127.0.0.1", self.port) if address[1] == self.broker[1] else address)

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
            asked: dict[int, tuple[type[Any], int, Fault | None]] = {}
            self._start(self._requests, client, broker, asked)
            self._start(self._answers, broker, client, asked)

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, Any]) -> None:
        with self._ending(client, broker):
            while True:
                frame = _frame(client)
                key, version, number = struct.unpack(">hhi", frame[:8])
                request, answer = (_kinds().get((key, kind)) for kind in ("request", "response"))
                fault = None if request is None else self._fault(request.name.removesuffix("Request"))
                if fault is not None and fault.how == "request":
                    break
                if fault is not None and fault.how == "refused":
                    frame = _refusable(request, version, frame)
                asked[number] = answer, version, fault
                _send(broker, frame)

    def _answers(self, broker: socket.socket, client: socket.socket, asked: dict[int, Any]) -> None:
        with self._ending(client, broker):
            while True:
                frame = _frame(broker)
                answer, version, fault = asked.pop(struct.unpack(">i", frame[:4])[0])
                how = "" if fault is None else fault.how
                if how == "answer":
                    break
                if how == "cut":
                    client.sendall(struct.pack(">i", len(frame)) + frame[: len(frame) // 2])
                    break
                if how == "delay":
                    time.sleep(_DELAY_S)
                if answer is not None and answer.name in _WITH_ADDRESSES:
                    frame = _changed(answer, version, frame, "port", self._rewritten)
                if fault is not None and how in ("error", "refused"):
                    frame = _changed(answer, version, frame, "error_code", lambda _, code=fault.code: code)
                _send(client, frame, _PIECE if how == "slice" else len(frame) + 4)

    @contextlib.contextmanager
    def _ending(self, *sockets: socket.socket) -> Iterator[None]:
        """Close connections at the end, and keep an unexpected error."""
        try:
            yield
        except (OSError, EOFError):
            pass
        except Exception as error:
            self._wrong.append(error)
        finally:
            for one in sockets:
                _end(one)

    def _rewritten(self, port: int) -> int:
        return self.port if port == self.broker[1] else port

    def _fault(self, api: str) -> Fault | None:
        with self._lock:
            return next((fault for fault in self.faults if fault.fires(api)), None)


# Frames of Kafka's protocol ------------------------------------------------------------------------------------------


@functools.cache
def _kinds() -> dict[tuple[int, str], type[Any]]:
    """Return the classes of requests and answers by the number of the API."""
    from kafka.protocol.api_message import ApiMessage

    return {(one.API_KEY, one.type): one for one in ApiMessage.__subclasses__()}


def _refusable(request: type[Any], version: int, frame: bytes) -> bytes:
    """Return a request that the broker refuses without doing anything."""
    asked = request.decode(frame, version=version, header=True)
    changes = {"acks": 7, "group_id": "", "transactional_id": "", "v3_and_below_transactional_id": ""}
    name = next(name for name in changes if hasattr(asked, name))
    setattr(asked, name, changes[name])
    return bytes(asked.encode(version=version, header=True))


def _changed(answer: type[Any], version: int, frame: bytes, field: str, change: Callable[[int], int]) -> bytes:
    """Return an answer with other values of a field, wherever it occurs."""
    start = 5 if answer.flexible_version_q(version) and answer.name != "ApiVersionsResponse" else 4
    told = answer.decode(frame[start:], version=version)
    todo: list[Any] = [told]
    while todo:
        one = todo.pop()
        for name in one.to_dict() if hasattr(one, "to_dict") else ():
            value = getattr(one, name)
            if name.endswith(field):
                setattr(one, name, change(value))
            elif isinstance(value, list):
                todo += value
    told._header = None
    return frame[:start] + bytes(told.encode(version=version))


def _frame(source: socket.socket) -> bytes:
    return _read(source, struct.unpack(">i", _read(source, 4))[0])


def _read(source: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = source.recv(n - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _send(target: socket.socket, frame: bytes, piece: int = 1 << 30) -> None:
    data = struct.pack(">i", len(frame)) + frame
    for start in range(0, len(data), piece):
        target.sendall(data[start : start + piece])
        if len(data) > piece:
            time.sleep(0.001)


def _end(one: socket.socket) -> None:
    """End a connection, but keep its descriptor, which threads may still read."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
