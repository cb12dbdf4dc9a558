"""Open files, pipes and URLs as byte streams, and detect compression."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable
from typing import IO

from connectors.errors import ConnectorError
from connectors.text.bytestreams import ByteStream, FileStream, GrowingFile, Pipe
from connectors.text.compression import ZIP_SUFFIX, Codec, Unpacked, codec_of_bytes, codec_of_name, may_be_compressed

logger = logging.getLogger("connectors")

_EXCEL = "an Excel workbook: save the sheet as CSV"
_AVRO = "an Avro container file: convert it to JSON lines, as python -m fastavro does, or to Parquet"
_SQLITE = "an SQLite database: use sqlite:///FILE?table=NAME"
_NO_TEXT = {
    b"PAR1\x15": "Parquet: set format=parquet",
    b"ARROW1": "Arrow IPC: set format=arrow",
    b"\x02\x21\x4c\x18": "lz4 in its legacy format: compress it again without -l",
    b"\xd0\xcf\x11\xe0": _EXCEL,
    b"Obj\x01": _AVRO,
    b"SQLite format 3": _SQLITE,
}
"""First bytes of files that are not text."""
FOREIGN_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls"), _EXCEL),
    **dict.fromkeys((".db", ".sqlite", ".sqlite3"), _SQLITE),
    ".avro": _AVRO,
}
"""What files are that no format reads, and what to do."""
_ZIP = b"PK\x03\x04"
"""First bytes of a ZIP archive."""
_NOT_GROWING = "at_end=wait is for growing files of plain text"


def open_bytes(path: str, *, follow: bool = False) -> ByteStream:
    """Open a path as a byte stream: a file, pipe, device, ``-`` for stdin, or a URL."""
    if follow and path == "-":
        raise ConnectorError(f"standard input: {_NOT_GROWING}", option="at_end")
    if "://" in path:
        from connectors.remote.files import open_remote_bytes

        return open_remote_bytes(path, follow=follow)
    if path == "-":
        if sys.stdin is None:  # sys.stdin was closed before Python started; descriptor 0 may be another file
            raise ConnectorError("standard input: is closed")
        return Unpacked(Pipe(open(0, "rb", buffering=0, closefd=False), "standard input"), "standard input")
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed with the stream
    except IsADirectoryError:
        raise ConnectorError(f"{path}: is a directory, not a file", "directory") from None
    except FileNotFoundError:
        raise ConnectorError(f"{path}: no such file", "missing") from None
    except OSError as error:
        raise ConnectorError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return Unpacked(Pipe(file, path), path)
    return opened(file, path, follow=follow)


def opened(
    file: IO[bytes],
    name: str,
    size: Callable[[], int | None] | None = None,
    version: str | None = None,
    *,
    follow: bool = False,
) -> ByteStream:
    """Open a file with random access as a byte stream, decompressed if necessary.

    Compression is detected by the first bytes, whatever the name.

    Parameters
    ----------
    file, name, size, version
        As for `FileStream`.
    follow
        Whether to wait at its end.
    """
    try:
        head = file.read(16)
        file.seek(0)
        is_zip = head.startswith(_ZIP)
        codec = None if is_zip else _codec_of_head(name, head)
        if follow and (codec is not None or is_zip):
            what = f"is compressed by {'zip' if codec is None else codec.name}, but {_NOT_GROWING}"
            raise ConnectorError(f"{name}: {what}", "packed", option="at_end")
        if is_zip:
            from connectors.text.zip_stream import ZipStream

            return ZipStream(file, name, version)
        stream = GrowingFile(file, name) if follow else FileStream(file, name, size, version)
        return stream if codec is None else Unpacked(stream, name, codec)
    except BaseException:
        file.close()
        raise


def _codec_of_head(path: str, head: bytes) -> Codec | None:
    """Return the compression format of a file by its first bytes, or None.

    Its package is loaded.

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
