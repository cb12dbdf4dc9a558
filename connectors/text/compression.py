"""Compression formats of text files: gzip, bzip2, xz, zstd and lz4."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from connectors.errors import ConnectorError
from connectors.text.bytestreams import CHUNK, ByteStream, Converted

PIECE = 1 << 12
"""Bytes to decompress in one call; a damaged piece is lost as a whole."""
_FRAME = 1 << 20
"""Least bytes of a frame that is written before the end of the data."""


class Tools(NamedTuple):
    """What compresses and decompresses a format.

    Parameters
    ----------
    compress
        Function that returns a frame of data.
    decompressor
        Function that starts to decompress a frame, as `bz2.BZ2Decompressor` does.
    error
        Error of the decompressor.
    """

    compress: Callable[[bytes], bytes]
    decompressor: Callable[[], Any]
    error: type[Exception]


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression format.

    Parameters
    ----------
    name
        Name in messages.
    suffix
        Suffix of file names.
    magic
        Possible first bytes of a frame.
    package
        Package that implements it.
    tools
        Function of the package that returns its tools.
    """

    name: str
    suffix: str
    magic: tuple[bytes, ...]
    package: str
    tools: Callable[[Any], Tools]

    def load(self, name: str) -> Tools:
        """Import the package and return its tools.

        Parameters
        ----------
        name
            Name of the file in messages.

        Raises
        ------
        ConnectorError
            If it is not installed.
        """
        try:
            return self.tools(importlib.import_module(self.package))
        except ImportError as error:
            package = self.package.partition(".")[0]
            what = f"{self.name} needs {package}: pip install 'streamsvm[compression]'"
            raise ConnectorError(f"{name}: {what}", f"no {package}") from error


class _Pieces:
    """Decompress one frame of gzip or zstd in pieces of limited size."""

    eof, needs_input = False, True
    unused_data: bytes | None = b""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found: bytes = self._frame.decompress(data)
        self.eof, self.unused_data = self._frame.eof, self._frame.unused_data
        return found


_BZIP2 = tuple(b"BZh%d%b" % (level, mark) for level in range(1, 10) for mark in (b"1AY&SY", b"\x17rE8P\x90"))
_ZSTD = (b"\x28\xb5\x2f\xfd", *(b"%c*M\x18" % (0x50 + i) for i in range(16)))  # the others are skippable frames


def _zstd_tools(zstd: Any) -> Tools:
    compressor = zstd.ZstdCompressor(write_checksum=True)
    return Tools(compressor.compress, lambda: _Pieces(zstd.ZstdDecompressor().decompressobj()), zstd.ZstdError)


CODECS = (
    Codec(
        # The header has no timestamp, so that equal rows give equal bytes.
        *("gzip", ".gz", (b"\x1f\x8b",), "zlib"),
        lambda zlib: Tools(partial(zlib.compress, wbits=31), lambda: _Pieces(zlib.decompressobj(wbits=31)), zlib.error),
    ),
    Codec("bzip2", ".bz2", _BZIP2, "bz2", lambda bz2: Tools(bz2.compress, bz2.BZ2Decompressor, OSError)),
    Codec(
        *("xz", ".xz", (b"\xfd7zXZ\x00",), "lzma"),
        lambda lzma: Tools(lzma.compress, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ), lzma.LZMAError),
    ),
    Codec("zstd", ".zst", _ZSTD, "zstandard", _zstd_tools),
    Codec(
        *("lz4", ".lz4", (b"\x04\x22\x4d\x18", *_ZSTD[1:]), "lz4.frame"),
        lambda lz4: Tools(partial(lz4.compress, content_checksum=True), lz4.LZ4FrameDecompressor, RuntimeError),
    ),
)
"""Supported formats.

Skippable frames may start both zstd and lz4 files; the suffix decides.
"""


class Frames:
    """Data in frames of the compression format of a file, if any.

    Parameters
    ----------
    path
        Path of the file, which tells the format by its suffix.

    Examples
    --------
    >>> frames = Frames("out.csv.gz")
    >>> frames.add(b"x,y"), len(frames.end()) > 0, Frames("out.csv").add(b"x,y")
    (b'', True, b'x,y')
    """

    def __init__(self, path: str) -> None:
        codec = codec_of_name(path)
        self.suffix = "" if codec is None else codec.suffix
        self._compress = None if codec is None else codec.load(path).compress
        self._held = bytearray()

    def add(self, data: bytes) -> bytes:
        """Return the bytes to write now for further data."""
        if self._compress is None:
            return data
        self._held += data
        return self.end() if len(self._held) >= _FRAME else b""

    def end(self) -> bytes:
        """Return the bytes to write for all data that were held back."""
        held, self._held = bytes(self._held), bytearray()
        return self._compress(held) if self._compress is not None and held else held


ZIP_SUFFIX = ".zip"
"""Suffix of ZIP archives, which are read and not written."""


def codec_of_name(path: str) -> Codec | None:
    """Return the compression format that a file name ends in, or None.

    Examples
    --------
    >>> codec_of_name("events.csv.ZST").name, codec_of_name("events.csv")
    ('zstd', None)
    """
    return next((codec for codec in CODECS if path.lower().endswith(codec.suffix)), None)


def uncompressed_name(path: str) -> str:
    """Return a file name without the suffix of a compression format or ZIP archive."""
    suffixes = (ZIP_SUFFIX, *(codec.suffix for codec in CODECS))
    suffix = next((each for each in suffixes if path.lower().endswith(each)), "")
    return path[: len(path) - len(suffix)]


def codec_of_bytes(head: bytes, path: str = "") -> Codec | None:
    """Return the compression format of data by its first bytes, or None.

    The format of the file's suffix is tried first.
    """
    named = codec_of_name(path)
    return next((codec for codec in (named, *CODECS) if codec is not None and head.startswith(codec.magic)), None)


def may_be_compressed(head: bytes) -> bool:
    """Return whether more bytes could make these the start of compressed data."""
    return any(mark.startswith(head) for codec in CODECS for mark in codec.magic)


class Unpacked(Converted):
    """Decompressed content of a stream with one or more frames of one format.

    Frames are also called members.

    A damaged stream ends at most `PIECE` compressed bytes before the damage.

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
        self._name, self._codec, self._is_plain = name, codec, None if codec is None else False
        super().__init__(stream)

    def _converted(self) -> Iterator[bytes]:
        self.damage = None
        packed = b""
        while self._is_plain is None:
            more = self._more()
            packed += more or b""
            self._codec = codec_of_bytes(packed)
            if self._codec is not None or more is None or not may_be_compressed(packed):
                self._is_plain = self._codec is None
            else:
                yield b""
        yield from self._unchanged(packed) if self._codec is None else self._unpacked(self._codec, packed)

    def _unpacked(self, codec: Codec, packed: bytes) -> Iterator[bytes]:
        tools, frame, used = codec.load(self._name), None, 0
        while True:
            if used >= len(packed) and (frame is None or frame.needs_input):
                more = self._more()
                if more is None:
                    self.damage = None if frame is None else f"{codec.name} file is truncated"
                    return
                packed, used = more, 0
                if not more:
                    yield b""
                    continue
            if frame is None:
                packed, used = packed[used:].lstrip(b"\0"), 0  # padding of gzip and xz
                if not packed:
                    continue
                frame = tools.decompressor()
            piece = packed[used : used + PIECE] if frame.needs_input else b""
            used += len(piece)
            try:
                data = frame.decompress(piece, CHUNK)
            except tools.error as error:
                self.damage = f"{codec.name} file is damaged: {error}"
                return
            if frame.eof:
                used -= len(frame.unused_data or b"")
                frame = None
            if data:
                yield data
