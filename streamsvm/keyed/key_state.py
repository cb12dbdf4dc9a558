"""State of a key as bytes: header with checksum, section lengths, and sections."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from streamsvm.models import ArchiveError

MAGIC = b"svmk"
VERSION = 4
_HEAD, _LENGTHS = struct.Struct("<4sHI"), struct.Struct("<5I")
_START = _HEAD.size + _LENGTHS.size


class KeyStateError(ArchiveError):
    """Error for bytes that are not a state of a key of this model and version."""


def seal(sections: Sequence[bytes]) -> bytes:
    """Join sections into one state.

    Parameters
    ----------
    sections
        Five sections.

    Examples
    --------
    >>> unseal(seal([b"one", b"", b"three", b"", b""]))
    [b'one', b'', b'three', b'', b'']
    """
    rest = b"".join([_LENGTHS.pack(*map(len, sections)), *sections])
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(rest)) + rest


def unseal(data: bytes) -> list[bytes]:
    """Split a state into its sections.

    Parameters
    ----------
    data
        The result of `seal`.

    Raises
    ------
    KeyStateError
        If the data are not a state, are corrupt, or have another version.
    TypeError
        If the data are not bytes.
    """
    if type(data) is not bytes:
        raise TypeError(f"the state of a key must be bytes or None, got {type(data).__name__}")
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise KeyStateError(f"not the state of a key: it begins with {data[:4]!r}, not with {MAGIC!r}", "foreign")
    _, version, checksum = _HEAD.unpack_from(data)
    if version != VERSION:
        raise KeyStateError(
            f"the state of a key has version {version}, this streamsvm reads {VERSION}: install the version "
            "of streamsvm that wrote it, or start over",
            "version",
        )
    if len(data) < _START or zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise KeyStateError(f"the state of a key is corrupt: its {len(data)} bytes fail the checksum", "damaged")
    sections, at = [], _START
    for length in _LENGTHS.unpack_from(data, _HEAD.size):
        sections.append(data[at : at + length])
        at += length
    if at != len(data):
        raise KeyStateError(f"the state of a key has {len(data)} bytes, its sections {at}", "damaged")
    return sections
