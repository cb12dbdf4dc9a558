"""State of a key as bytes: a header with a checksum, the lengths of the sections, and the sections."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cache

from streamsvm.models import ArchiveError

MAGIC = b"svmk"
VERSION = 1
_HEAD = struct.Struct("<4sHHI")


class KeyStateError(ArchiveError):
    """Error for bytes that are not the state of a key, are corrupt, or are from another model or a newer version."""


def seal(sections: Sequence[bytes]) -> bytes:
    """Join sections into one state.

    Parameters
    ----------
    sections
        At most 65,535 sections.

    Examples
    --------
    >>> unseal(seal([b"one", b"", b"three"]), 3)
    [b'one', b'', b'three']
    """
    rest = b"".join([_lengths(len(sections)).pack(*map(len, sections)), *sections])
    return _HEAD.pack(MAGIC, VERSION, len(sections), zlib.crc32(rest)) + rest


def unseal(data: bytes, n: int) -> list[bytes]:
    """Split a state into its n sections.

    Parameters
    ----------
    data
        The result of `seal`.
    n
        The required number of sections.

    Raises
    ------
    KeyStateError
        If the data are not a state, are corrupt, or have a newer version.
    TypeError
        If the data are not bytes.
    """
    if type(data) is not bytes:
        raise TypeError(f"the state of a key must be bytes or None, got {type(data).__name__}")
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise KeyStateError(f"not the state of a key: it begins with {data[:4]!r}, not with {MAGIC!r}", "foreign")
    _, version, n_sections, checksum = _HEAD.unpack_from(data)
    if not 1 <= version <= VERSION:
        raise KeyStateError(
            f"the state of a key has version {version}, this streamsvm reads up to {VERSION}: install a newer one",
            "version",
        )
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        what = f"the state of a key is damaged: its {len(data)} bytes do not have their checksum"
        raise KeyStateError(what, "damaged")
    at = _HEAD.size + 4 * n_sections
    if n_sections != n or len(data) < at:
        raise KeyStateError(f"the state of a key has {n_sections} sections, not {n}", "damaged")
    sections = []
    for length in _lengths(n).unpack_from(data, _HEAD.size):
        sections.append(data[at : at + length])
        at += length
    if at != len(data):
        raise KeyStateError(f"the state of a key has {len(data)} bytes, its sections say {at}", "damaged")
    return sections


@cache
def _lengths(n: int) -> struct.Struct:
    return struct.Struct(f"<{n}I")
