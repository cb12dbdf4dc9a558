"""Compression formats of text files: gzip, bzip2, xz, zstd and lz4."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from connectors.errors import ConnectorError

PIECE = 1 << 12
"""Bytes to decompress in one call. After damage, nothing of the damaged piece is known."""


class Compressor(Protocol):
    """Compress one frame, also called member or stream."""

    def compress(self, data: bytes) -> bytes:
        """Return compressed bytes that are ready."""

    def flush(self) -> bytes:
        """Return the remaining compressed bytes and end the frame."""


class Decompressor(Protocol):
    """Decompress one frame, as `bz2.BZ2Decompressor` does."""

    eof: bool
    needs_input: bool
    unused_data: bytes | None

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return decompressed bytes."""


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
    compressor, decompressor
        Functions that start a frame. They receive the package.
    errors
        Errors of the decompressor. They receive the package.
    """

    name: str
    suffix: str
    magic: tuple[bytes, ...]
    package: str
    compressor: Callable[[Any], Compressor]
    decompressor: Callable[[Any], Decompressor]
    errors: Callable[[Any], tuple[type[Exception], ...]]

    def load(self, name: str) -> Any:
        """Import the package.

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
            return importlib.import_module(self.package)
        except ImportError as error:
            package = self.package.partition(".")[0]
            what = f"{self.name} needs {package}: pip install 'streamsvm[compression]'"
            raise ConnectorError(f"{name}: {what}", f"no {package}") from error


class _Pieces:
    """Decompress one frame of gzip or zstd. The size of a piece limits what one call returns."""

    eof, needs_input = False, True
    unused_data: bytes | None = b""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found: bytes = self._frame.decompress(data)
        self.eof, self.unused_data = self._frame.eof, self._frame.unused_data
        return found


class _Lz4Compressor:
    """Compress one lz4 frame; its header is written first."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame.LZ4FrameCompressor(content_checksum=True)
        self._head: bytes = self._frame.begin()

    def compress(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        return head + bytes(self._frame.compress(data))

    def flush(self) -> bytes:
        return self._head + bytes(self._frame.flush())


_BZIP2 = tuple(b"BZh%d%b" % (level, mark) for level in range(1, 10) for mark in (b"1AY&SY", b"\x17rE8P\x90"))
_ZSTD = (b"\x28\xb5\x2f\xfd", *(b"%c*M\x18" % (0x50 + i) for i in range(16)))  # the others are skippable frames

CODECS = (
    Codec(
        # The header has no timestamp, so that equal rows give equal bytes.
        *("gzip", ".gz", (b"\x1f\x8b",), "zlib"),
        compressor=lambda zlib: zlib.compressobj(wbits=31),
        decompressor=lambda zlib: _Pieces(zlib.decompressobj(wbits=31)),
        errors=lambda zlib: (zlib.error,),
    ),
    Codec(
        *("bzip2", ".bz2", _BZIP2, "bz2"),
        compressor=lambda bz2: bz2.BZ2Compressor(),
        decompressor=lambda bz2: bz2.BZ2Decompressor(),
        errors=lambda _: (OSError,),
    ),
    Codec(
        *("xz", ".xz", (b"\xfd7zXZ\x00",), "lzma"),
        compressor=lambda lzma: lzma.LZMACompressor(),
        decompressor=lambda lzma: lzma.LZMADecompressor(lzma.FORMAT_XZ),
        errors=lambda lzma: (lzma.LZMAError,),
    ),
    Codec(
        *("zstd", ".zst", _ZSTD, "zstandard"),
        compressor=lambda zstandard: zstandard.ZstdCompressor(write_checksum=True).compressobj(),
        decompressor=lambda zstandard: _Pieces(zstandard.ZstdDecompressor().decompressobj()),
        errors=lambda zstandard: (zstandard.ZstdError,),
    ),
    Codec(
        *("lz4", ".lz4", (b"\x04\x22\x4d\x18", *_ZSTD[1:]), "lz4.frame"),
        compressor=_Lz4Compressor,
        decompressor=lambda frame: frame.LZ4FrameDecompressor(),
        errors=lambda _: (RuntimeError,),
    ),
)
"""The supported formats. Skippable frames may start both zstd and lz4 files; the suffix tells which."""


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
    """Return a file name without the suffix of a compression format or of a ZIP archive."""
    suffixes = (ZIP_SUFFIX, *(codec.suffix for codec in CODECS))
    suffix = next((each for each in suffixes if path.lower().endswith(each)), "")
    return path[: len(path) - len(suffix)]


def codec_of_bytes(head: bytes, path: str = "") -> Codec | None:
    """Return the compression format of data by its first bytes, the one of the suffix first, or None."""
    named = codec_of_name(path)
    return next((codec for codec in (named, *CODECS) if codec is not None and head.startswith(codec.magic)), None)


def may_be_compressed(head: bytes) -> bool:
    """Return whether more bytes could make these the start of compressed data."""
    return any(mark.startswith(head) for codec in CODECS for mark in codec.magic)
