"""Byte streams of files, compressed files, growing files and pipes.

Offsets count uncompressed bytes.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
import time
import weakref
from abc import ABC, abstractmethod
from typing import Any

from connectors.errors import ConnectorError
from connectors.text.compression import (
    ZIP_SUFFIX,
    Codec,
    CorruptError,
    Decompressor,
    codec_of_bytes,
    codec_of_name,
    may_be_compressed,
)

logger = logging.getLogger("connectors")

_CHUNK = 1 << 18
_NO_TEXT = {
    b"PAR1\x15": "Parquet: set format=parquet",
    b"\x02\x21\x4c\x18": "lz4 in its legacy format: compress it again without -l",
}
"""First bytes of files that are not text."""
ZIP = b"PK\x03\x04"
"""First bytes of a ZIP archive."""
_NOT_GROWING = "at_end=wait is for growing files of plain text"
_POLL_S = 0.2
_KNOWN_BYTES = 4096


class ByteStream(ABC):
    """Base class of sequential byte streams."""

    live: bool = False
    """Whether more bytes may arrive after a pause."""

    @property
    def version(self) -> str | None:
        """Version of a remote file, which must not change. None for local files."""
        return None

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


def open_bytes(path: str, *, follow: bool = False) -> ByteStream:
    """Open a path as a byte stream: a file, a pipe, a device, ``-`` for stdin, or a URL of a remote file."""
    if follow and path == "-":
        raise ConnectorError(f"standard input: {_NOT_GROWING}", option="at_end")
    if "://" in path:
        from connectors.remote.files import open_remote_bytes

        return open_remote_bytes(path, follow=follow)
    if path == "-":
        if sys.stdin is None:  # sys.stdin was closed before Python started; descriptor 0 may be another file
            raise ConnectorError("standard input: is closed")
        return Unpacked(Pipe(0, "standard input", owned=False), "standard input")
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise ConnectorError(f"{path}: no such file", "missing") from None
    except OSError as error:
        raise ConnectorError(f"{path}: cannot be read: {error.strerror}") from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISDIR(mode):
        os.close(fd)
        raise ConnectorError(f"{path}: is a directory, not a file", "directory")
    if not stat.S_ISREG(mode):
        return Unpacked(Pipe(fd, path, owned=True), path)
    try:
        return _regular(fd, path, follow=follow)
    except BaseException:
        os.close(fd)
        raise


def _regular(fd: int, path: str, *, follow: bool) -> ByteStream:
    """Open a regular file by its first bytes; compression is detected whatever the name."""
    head = os.pread(fd, 16, 0)
    is_zip = head.startswith(ZIP)
    codec = None if is_zip else codec_of_head(path, head)
    if follow and (codec is not None or is_zip):
        what = f"is compressed by {'zip' if codec is None else codec.name}, but {_NOT_GROWING}"
        raise ConnectorError(f"{path}: {what}", "packed", option="at_end")
    if follow:
        return GrowingFile(fd, path)
    if is_zip:
        from connectors.text.zip_stream import ZipStream

        stream = ZipStream(os.fdopen(os.dup(fd), "rb"), path)
        os.close(fd)
        return stream
    return PlainFile(fd, path) if codec is None else Unpacked(PlainFile(fd, path), path, codec)


def codec_of_head(path: str, head: bytes) -> Codec | None:
    """Return the compression format of a file by its first bytes, or None; its package is loaded.

    Raises
    ------
    ConnectorError
        If the file is not text, or not compressed as its name says.
    """
    for mark, what in _NO_TEXT.items():
        if head.startswith(mark):
            raise ConnectorError(f"{path}: is {what}")
    if path.lower().endswith(ZIP_SUFFIX) and head:
        raise ConnectorError(f"{path}: ends in {ZIP_SUFFIX} but is not a ZIP archive", "not zip")
    named, found = codec_of_name(path), codec_of_bytes(head, path)
    if named and not found and not may_be_compressed(head[:16]):
        raise ConnectorError(f"{path}: ends in {named.suffix} but is not a {named.name} file", f"not {named.name}")
    if named and found and named is not found:
        logger.warning("%s: is compressed by %s, not by %s as its name says", path, found.name, named.name)
    codec = found or named
    if codec is not None:
        codec.load(path)
    return codec


class PlainFile(ByteStream):
    """Byte stream of a regular file, up to its current end."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self._path = fd, path
        self._close = weakref.finalize(self, os.close, fd)  # also if close() is never called

    def read(self, wait_s: float) -> bytes | None:
        return _read(self._fd, _CHUNK, self._path) or None

    def seek(self, offset: int) -> bool:
        os.lseek(self._fd, offset, os.SEEK_SET)
        return offset <= os.fstat(self._fd).st_size

    def fraction(self, offset: int) -> float | None:
        return min(1.0, offset / (os.fstat(self._fd).st_size or offset or 1))

    def close(self) -> None:
        self._close()


class GrowingFile(PlainFile):
    """Byte stream of a file that another program appends to; waits at its end.

    The file may be truncated and then grow beyond the offset of the last read, so its size does not reveal the
    truncation. Each read therefore compares the first bytes and the last bytes read with the file.
    """

    live = True

    def __init__(self, fd: int, path: str) -> None:
        super().__init__(fd, path)
        self._head = self._before = b""

    def read(self, wait_s: float) -> bytes | None:
        deadline = time.monotonic() + wait_s
        while not (data := _read(self._fd, _CHUNK, self._path)):
            self._check_name()
            left = deadline - time.monotonic()
            if left <= 0:
                return data
            time.sleep(min(_POLL_S, left))
        # After the read, because the file could change between the check and the read.
        self._check_content(os.lseek(self._fd, 0, os.SEEK_CUR) - len(data))
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
        return ConnectorError(f"{self._path}: {what}", "truncated")

    def _check_name(self) -> None:
        """Raise ConnectorError if the file was truncated, removed, renamed or replaced."""
        here = os.fstat(self._fd)
        if here.st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            raise self._truncated()
        try:
            there = os.stat(self._path)
        except OSError:
            raise ConnectorError(f"{self._path}: the followed file was removed or renamed", "removed") from None
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            what = "the followed file was replaced by another (rotated); start the run again with --reset"
            raise ConnectorError(f"{self._path}: {what}", "replaced")

    def fraction(self, offset: int) -> float | None:
        return None


class Pipe(ByteStream):
    """Byte stream of standard input, a named pipe or a device; cannot seek back."""

    live = True

    def __init__(self, fd: int, name: str, *, owned: bool) -> None:
        self._fd, self._name, self._owned = fd, name, owned
        self._poll = select.poll()  # unlike select(), poll() accepts descriptors above 1023
        self._poll.register(fd, select.POLLIN)

    def read(self, wait_s: float) -> bytes | None:
        # Read the descriptor: a buffered reader would wait until its buffer is full.
        if not self._poll.poll(1000 * wait_s):
            return b""
        return _read(self._fd, _CHUNK, self._name) or None

    def seek(self, offset: int) -> bool:
        what = "cannot be read again from an earlier position; use a file instead"
        raise ConnectorError(f"{self._name}: {what}", "not seekable")

    def close(self) -> None:
        if self._owned:
            os.close(self._fd)


class Converted(ByteStream):
    """Base class of byte streams that convert another stream.

    Parameters
    ----------
    stream
        Stream to convert.
    """

    _ready = b""  # converted, but not returned yet

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self.live = stream, stream.live

    @property
    def version(self) -> str | None:
        return self._stream.version

    @property
    def damage(self) -> str | None:
        return self._stream.damage

    def read(self, wait_s: float) -> bytes | None:
        ready, self._ready = self._ready, b""
        return ready or self._next(wait_s)

    @abstractmethod
    def _next(self, wait_s: float) -> bytes | None:
        """Return the next converted bytes, as `read` does."""

    def seek(self, offset: int) -> bool:
        return self._stream.seek(offset)

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
        return self._stream.fraction(offset)

    def close(self) -> None:
        self._stream.close()


class Unpacked(Converted):
    """Decompressed content of a stream with one or more frames (members) of one compression format.

    If the stream is damaged, it ends after the last readable byte of gzip, and otherwise at most
    `Codec.piece` compressed bytes before it.

    Parameters
    ----------
    stream
        Stream to decompress.
    name
        Name of the stream in messages.
    codec
        Compression format. None: by the first bytes, if the stream is compressed at all.
    """

    damage: str | None = None

    def __init__(self, stream: ByteStream, name: str, codec: Codec | None = None) -> None:
        super().__init__(stream)
        self._name, self._codec, self._is_known = name, codec, codec is not None
        self._package: Any = None if codec is None else codec.load(name)
        self._restart()

    def _restart(self) -> None:
        self.damage = None
        self._taken = self._used = 0
        self._packed = self._ready = b""
        self._frame: Decompressor | None = None

    def _next(self, wait_s: float) -> bytes | None:
        while self.damage is None:
            if not self._is_known and not self._detect(wait_s):
                return b""
            if self._codec is None:
                head, self._packed = self._packed, b""
                return head or self._stream.read(wait_s)
            if self._used >= len(self._packed) and (self._frame is None or self._frame.needs_input):
                packed = self._stream.read(wait_s)
                if packed is None and self._frame is not None:
                    self.damage = f"{self._codec.name} file is truncated"
                if not packed:
                    return packed
                self._packed, self._used = packed, 0
                self._taken += len(packed)
            if data := self._step(self._codec):
                return data
        return None

    def _detect(self, wait_s: float) -> bool:
        """Detect the format by the first bytes. Return False if there are too few so far."""
        more = self._stream.read(wait_s)
        self._packed += more or b""
        self._taken = len(self._packed)
        self._codec = codec_of_bytes(self._packed)
        if self._codec is not None:
            self._package = self._codec.load(self._name)
        self._is_known = self._codec is not None or more is None or not may_be_compressed(self._packed)
        return self._is_known

    def _step(self, codec: Codec) -> bytes:
        """Decompress the next piece."""
        if self._frame is None:
            self._packed, self._used = self._packed[self._used :].lstrip(b"\0"), 0  # padding of gzip and xz
            if not self._packed:
                return b""
            self._frame = codec.decompressor(self._package)
        frame, piece = self._frame, b""
        if frame.needs_input:
            piece = self._packed[self._used : self._used + codec.piece]
            self._used += len(piece)
        try:
            data = frame.decompress(piece, _CHUNK)
        except CorruptError as error:
            self.damage = f"{codec.name} file is damaged: {error}"
            return error.data
        except codec.errors(self._package) as error:
            self.damage = f"{codec.name} file is damaged: {error}"
            return b""
        if frame.eof:
            self._used -= len(frame.unused_data or b"")
            self._frame = None
        return data

    def seek(self, offset: int) -> bool:
        if self._is_known and self._codec is None:
            return self._stream.seek(offset)
        self._stream.seek(0)
        self._restart()
        return self._skip(offset)

    def fraction(self, offset: int) -> float | None:
        return self._stream.fraction(self._taken)


def _read(fd: int, size: int, name: str) -> bytes:
    try:
        return os.read(fd, size)
    except OSError as error:
        raise ConnectorError(f"{name}: cannot be read: {error.strerror}") from error
