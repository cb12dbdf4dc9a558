"""Files of web servers and object stores, read by ranges of bytes.

Web servers are read by `connectors.remote.web`, all others through fsspec by `connectors.remote.store`.
"""

from __future__ import annotations

import io
import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from connectors.addresses import printable
from connectors.errors import ConnectorError, UnreachableError
from connectors.text.bytestreams import CHUNK, ByteStream
from connectors.text.opening import opened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
RETRY_S = 60.0
"""How long failed requests are repeated before the run ends."""
PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0
WEB = ("http", "https")

WARNED_FILES: set[str] = set()  # files whose failed requests were reported

logger = logging.getLogger("connectors")


class TransientError(Exception):
    """Raised for a failed request that may succeed later."""


def attempt(name: str, request: Callable[[], T]) -> T:
    """Return the result of a request, which is repeated after transient errors.

    Parameters
    ----------
    name
        Name of the file in messages.
    request
        Function that sends the request.

    Raises
    ------
    UnreachableError
        If requests failed for `RETRY_S` seconds.
    """
    started, pause = time.monotonic(), PAUSE_S
    while True:
        try:
            return request()
        except TransientError as error:
            if time.monotonic() - started + pause > RETRY_S:
                what = f"no answer for {RETRY_S:.0f} s: {error}: start the run again to continue"
                raise UnreachableError(f"{name}: {what}", "unreachable") from error
            level = logging.DEBUG if name in WARNED_FILES or pause > PAUSE_S else logging.WARNING
            WARNED_FILES.add(name)
            logger.log(level, "%s: %s; failed requests are retried for up to %.0f s each", name, error, RETRY_S)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class RemoteFile(io.RawIOBase):
    """Binary file on a server, with random access.

    It must not change while it is read.

    Attributes
    ----------
    name
        URL without credentials and query.
    size
        Size in bytes; None if unknown.
    version
        What the server tells of its version: the ETag, or size and time of the last modification. None if unknown.
    block
        Bytes to read sequentially in one request.
    """

    size: int | None = None
    version: str | None = None
    block: int = CHUNK

    def __init__(self, url: str) -> None:
        super().__init__()
        self.name = printable(url)
        self._offset = self._start = 0
        self._block = b""

    def _read_at(self, start: int, n: int) -> bytes:
        """Return up to `n` bytes from an offset, none only at the end.

        Raises
        ------
        ConnectorError
            If the file changed or cannot be read.
        UnreachableError
            If requests failed for `RETRY_S` seconds.
        """
        if self.size is not None:
            n = min(n, self.size - start)
        return attempt(self.name, lambda: self._fetch(start, n)) if n > 0 else b""

    @abstractmethod
    def _fetch(self, start: int, n: int) -> bytes:
        """Return up to n > 0 bytes of one request; TransientError if it fails early."""

    def _check(self, version: str | None) -> None:
        """Raise ConnectorError if this is not the version that was opened."""
        if version != self.version:
            what = "changed while it was read; start the run again, with --reset if it has a checkpoint"
            raise ConnectorError(f"{self.name}: {what}", "changed")

    def _disconnect(self) -> None:
        """Close connections."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        if whence == io.SEEK_END and self.size is None:
            what = "the server does not tell the size: download the file first"
            raise ConnectorError(f"{self.name}: {what}", "no size")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}[whence] or 0
        self._offset = start + offset
        return self._offset

    def tell(self) -> int:
        """Return the offset."""
        return self._offset

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into a buffer; return their number."""
        view = memoryview(buffer).cast("B")
        if not self._start <= self._offset < self._start + len(self._block):
            self._block, self._start = self._read_at(self._offset, self.block), self._offset
        first = self._offset - self._start
        data = self._block[first : first + len(view)]
        view[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        """Close connections."""
        if not self.closed:
            self._disconnect()
        super().close()


def open_remote(url: str) -> RemoteFile:
    """Open a URL of a web server or an object store.

    Raises
    ------
    ConnectorError
        If there is no such file, or it cannot be read.
    """
    if url.partition("://")[0].lower() in WEB:
        from connectors.remote.web import WebFile

        return WebFile(url)
    from connectors.remote.store import StoreFile

    return StoreFile(url)


def open_remote_bytes(url: str, *, follow: bool = False) -> ByteStream:
    """Open a URL as a byte stream, decompressed if it is compressed."""
    name = printable(url)
    if follow:
        raise ConnectorError(f"{name}: at_end=wait is for growing local files", "packed", option="at_end")
    file = open_remote(url)
    return opened(file, name, lambda: file.size, file.version)  # type: ignore[arg-type] # a raw file


def open_random(url: str) -> io.BufferedReader:
    """Open a URL as a binary file with random access.

    Raises
    ------
    ConnectorError
        If it cannot be read, or the server does not tell its size.
    """
    return io.BufferedReader(open_remote(url), 1 << 20)
