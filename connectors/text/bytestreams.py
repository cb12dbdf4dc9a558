"""Byte streams of files, growing files and pipes.

Offsets of compressed files count uncompressed bytes.
"""

from __future__ import annotations

import os
import select
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import IO

from connectors.errors import ConnectorError

CHUNK = 1 << 18
"""Bytes of one read."""
_POLL_S = 0.2
_KNOWN_BYTES = 4096


class ByteStream(ABC):
    """Base class of sequential byte streams."""

    live: bool = False
    """Whether more bytes may arrive after a pause."""
    version: str | None = None
    """Version of a remote file, which must not change. None for local files."""

    @property
    def encoding(self) -> str:
        """Encoding of the text, as messages name it."""
        return "utf-8"

    @property
    def damage(self) -> str | None:
        """Reason why the stream ended early, or None."""
        return None

    @abstractmethod
    def read(self, wait_s: float) -> bytes | None:
        """Return the next bytes, or None at the end of the stream.

        A live stream returns no bytes if nothing arrives within `wait_s` seconds.
        """

    @abstractmethod
    def seek(self, offset: int) -> bool:
        """Move to an offset; return False if the stream is shorter."""

    def fraction(self, offset: int) -> float | None:
        """Return the fraction of the stream before an offset, None if unknown."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Close the file."""


class FileStream(ByteStream):
    """Byte stream of a binary file with random access, up to its current end.

    Parameters
    ----------
    file
        The file. It is closed with the stream, also if `close` is never called.
    name
        Its name in messages.
    size
        Function that returns its size, None if unknown. By default, the one of the system.
    version
        Version of a remote file.
    """

    def __init__(
        self,
        file: IO[bytes],
        name: str,
        size: Callable[[], int | None] | None = None,
        version: str | None = None,
    ) -> None:
        self._file, self._name, self.version = file, name, version
        self._size: Callable[[], int | None] = size or (lambda: os.fstat(file.fileno()).st_size)
        self._close = weakref.finalize(self, file.close)

    def read(self, wait_s: float) -> bytes | None:
        return _read(self._file, self._name) or None

    def seek(self, offset: int) -> bool:
        self._file.seek(offset)
        size = self._size()
        return size is None or offset <= size

    def fraction(self, offset: int) -> float | None:
        size = self._size()
        return None if size is None else min(1.0, offset / (size or offset or 1))

    def close(self) -> None:
        self._close()


class GrowingFile(FileStream):
    """Byte stream of a file that another program appends to; waits at its end.

    The file may be truncated and then grow beyond the offset of the last read, so its size does not reveal the
    truncation. Each read therefore compares the first bytes and the last bytes read with the file.
    """

    live = True

    def __init__(self, file: IO[bytes], path: str) -> None:
        super().__init__(file, path)
        self._fd = file.fileno()
        self._head = self._before = b""

    def read(self, wait_s: float) -> bytes | None:
        deadline = time.monotonic() + wait_s
        while not (data := _read(self._file, self._name)):
            self._check_name()
            left = deadline - time.monotonic()
            if left <= 0:
                return data
            time.sleep(min(_POLL_S, left))
        # After the read, because the file could change between the check and the read.
        self._check_content(self._file.tell() - len(data))
        self._head += data[: _KNOWN_BYTES - len(self._head)]
        self._before = (self._before + data)[-_KNOWN_BYTES:]
        return data

    def seek(self, offset: int) -> bool:
        self._head = os.pread(self._fd, min(offset, _KNOWN_BYTES), 0)
        self._before = os.pread(self._fd, size := min(offset, _KNOWN_BYTES), offset - size)
        return super().seek(offset)

    def _check_content(self, offset: int) -> None:
        """Raise ConnectorError if the bytes before the offset have changed."""
        size = len(self._before)
        if (
            os.pread(self._fd, len(self._head), 0) != self._head
            or os.pread(self._fd, size, offset - size) != self._before
        ):
            raise self._truncated()

    def _truncated(self) -> ConnectorError:
        what = "the followed file was truncated; start the run again with --reset"
        return ConnectorError(f"{self._name}: {what}", "truncated")

    def _check_name(self) -> None:
        """Raise ConnectorError if the file was truncated, removed, renamed or replaced."""
        opened = os.fstat(self._fd)
        if opened.st_size < self._file.tell():
            raise self._truncated()
        try:
            named = os.stat(self._name)
        except OSError:
            raise ConnectorError(f"{self._name}: the followed file was removed or renamed", "removed") from None
        if (opened.st_dev, opened.st_ino) != (named.st_dev, named.st_ino):
            what = "the followed file was replaced by another (rotated); start the run again with --reset"
            raise ConnectorError(f"{self._name}: {what}", "replaced")

    def fraction(self, offset: int) -> float | None:
        return None


class Pipe(ByteStream):
    """Byte stream of standard input, a named pipe or a device; cannot seek back.

    The file has no buffer, because a buffered reader would wait until its buffer is full.
    """

    live = True

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name
        self._poll = select.poll()  # unlike select(), poll() accepts descriptors above 1023
        self._poll.register(file, select.POLLIN)

    def read(self, wait_s: float) -> bytes | None:
        if not self._poll.poll(1000 * wait_s):
            return b""
        return _read(self._file, self._name) or None

    def seek(self, offset: int) -> bool:
        what = "cannot be read again from an earlier position; use a file instead"
        raise ConnectorError(f"{self._name}: {what}", "not seekable")

    def close(self) -> None:
        self._file.close()


class Converted(ByteStream):
    """Base class of byte streams that convert another stream.

    Parameters
    ----------
    stream
        Stream to convert.
    """

    _is_plain: bool | None = None  # needs no conversion; None until the first bytes tell

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self.live, self.version = stream, stream.live, stream.version
        self._restart()

    def _restart(self) -> None:
        """Convert from the start of the stream."""
        self._ready = b""  # converted, but not returned yet
        self._taken = 0  # bytes of the stream that were read
        self._wait_s = 0.0
        self._steps: Iterator[bytes] | None = self._converted()

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    @property
    def damage(self) -> str | None:
        return self._stream.damage

    def read(self, wait_s: float) -> bytes | None:
        ready, self._ready = self._ready, b""
        if ready:
            return ready
        steps, self._steps, self._wait_s = self._steps, None, wait_s
        if steps is None:
            raise ConnectorError("a stream cannot be read on after an error: open it again")
        found = next(steps, None)
        self._steps = steps
        return found

    @abstractmethod
    def _converted(self) -> Iterator[bytes]:
        """Yield the converted bytes, and no bytes where a live stream pauses."""

    def _more(self) -> bytes | None:
        """Return the next bytes of the stream, as `read` does."""
        data = self._stream.read(self._wait_s)
        self._taken += len(data or b"")
        return data

    def _unchanged(self, head: bytes) -> Iterator[bytes]:
        """Yield the stream as it is, after the first bytes."""
        if head:
            yield head
        yield from iter(self._more, None)

    def seek(self, offset: int) -> bool:
        """Move to an offset. A converted stream is read again from the start."""
        found = self._stream.seek(offset if self._is_plain else 0)
        self._restart()
        return found if self._is_plain else self._skip(offset)

    def _skip(self, n: int) -> bool:
        """Skip n bytes from the start; return False if the stream is shorter."""
        while n > 0:
            data = self.read(0.0)
            if not data:
                return False
            self._ready = data[n:]
            n -= min(n, len(data))
        return True

    def fraction(self, offset: int) -> float | None:
        return self._stream.fraction(offset if self._is_plain else self._taken)

    def close(self) -> None:
        self._stream.close()


def _read(file: IO[bytes], name: str) -> bytes:
    try:
        return file.read(CHUNK)
    except OSError as error:
        raise ConnectorError(f"{name}: cannot be read: {error.strerror or error}") from error
