"""JSON arrays as lines: each element becomes one, and no byte moves."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from connectors.bytestreams import ByteStream

_BOM = b"\xef\xbb\xbf"
_OPENED = re.compile(rb"\[\s*(?:[{\]]|$)")
_QUOTE, _BACKSLASH, _COMMA, _NEWLINE, _SPACE = b'"\\,\n '
_STRUCTURE = np.zeros(256, np.bool_)
_STRUCTURE[list(b'",\n[]{}')] = True
_DEPTH = np.zeros(256, np.int8)
_DEPTH[list(b"[{")], _DEPTH[list(b"]}")] = 1, -1


class ArrayLines(ByteStream):
    """A stream that may be one JSON array of objects: then each of its elements stands on a line of its own.

    The comma after an element becomes a newline, newlines and the outer brackets become spaces, so that offsets stay
    those of the stream. Whatever else the stream is passes as it is, as does what follows the array. An array is of one
    piece: where an element leaves a quote or a bracket open, what comes after it cannot be told apart.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors.bytestreams import open_bytes
    >>> path = os.path.join(tempfile.mkdtemp(), "a.json")
    >>> with open(path, "w") as file:
    ...     _ = file.write('[{"x": 1},\\n {"x":\\n 2}]')
    >>> ArrayLines(open_bytes(path, packed=False, follow=False)).read(0.0)
    b' {"x": 1}\\n  {"x":  2}\\n'
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream, self.live = stream, stream.live
        self._restart()

    def _restart(self) -> None:
        self.is_array = False
        self._head = b""  # as long as nothing but space came
        self._at = 0
        self._end: int | None = None  # where the array ends, or the stream has turned out to be none
        self._depth = 0
        self._in_text = False
        self._backslashes = 0  # with which the last bytes end
        self._ready = b""

    @property
    def damage(self) -> str | None:
        if self._stream.damage is None and self.is_array and self._end is None:
            return "the array is cut short: the ] that closes it is missing"
        return self._stream.damage

    def read(self, wait_s: float) -> bytes | None:
        if self._ready:
            ready, self._ready = self._ready, b""
            return ready
        data = self._stream.read(wait_s)
        if not data or self._end is not None:
            return data
        if not self.is_array:
            self._begin(data)
        if self.is_array:
            data = self._split(data)
        self._at += len(data)
        return data

    def _begin(self, data: bytes) -> None:
        """Find out, as soon as there is more than space, whether this is an array."""
        self._head += data
        text = self._head.removeprefix(_BOM).lstrip()
        if text and not _BOM.startswith(text):
            self.is_array = _OPENED.match(text) is not None
            self._end = None if self.is_array else 0
            self._head = b""

    def _split(self, data: bytes) -> bytes:
        """The same bytes with one element a line."""
        codes = np.frombuffer(data, np.uint8).copy()
        positions = np.flatnonzero(_STRUCTURE[codes])
        marks = codes[positions]
        newline = marks == _NEWLINE
        quotes = np.cumsum(self._opens_or_closes(codes, positions, marks), dtype=np.int64) + self._in_text
        # No text goes past the end of a line, so that a quote left open does no harm beyond.
        outside = (quotes - np.maximum.accumulate(np.where(newline, quotes, 0))) % 2 == 0
        steps = np.where(outside, _DEPTH[marks], 0)
        depth = self._depth + np.cumsum(steps, dtype=np.int64)
        closed = np.flatnonzero((depth <= 0) & (steps < 0))[:1]
        last = int(closed[0]) if len(closed) else len(positions)
        outside[last + 1 :] = newline[last + 1 :] = False
        codes[positions[newline]] = _SPACE
        codes[positions[outside & (steps > 0) & (depth == 1) & (marks == ord("["))]] = _SPACE
        codes[positions[outside & (marks == _COMMA) & (depth == 1)]] = _NEWLINE
        if len(closed):
            codes[positions[last]] = _NEWLINE
            self._end = self._at + int(positions[last]) + 1
        elif len(positions):
            self._depth, self._in_text = int(depth[-1]), not outside[-1]
        return codes.tobytes()

    def _opens_or_closes(
        self, codes: NDArray[np.uint8], positions: NDArray[np.intp], marks: NDArray[np.uint8]
    ) -> NDArray[np.bool_]:
        """Which marks are quotes that no backslash makes a part of a text."""
        quotes: NDArray[np.bool_] = marks == _QUOTE
        other = np.flatnonzero(codes != _BACKSLASH)
        if self._backslashes or len(other) < len(codes):
            before = np.searchsorted(other, positions) - 1  # of each, the last byte before it that is no backslash
            run = positions - 1 - np.where(before < 0, -1 - self._backslashes, other[before] if len(other) else 0)
            quotes &= run % 2 == 0
        self._backslashes = len(codes) - 1 - int(other[-1]) if len(other) else self._backslashes + len(codes)
        return quotes

    def seek(self, offset: int) -> bool:
        """Go there by reading from the start, as far as the array reaches."""
        self._stream.seek(0)
        self._restart()
        while self._at < offset and self._end is None:
            data = self.read(0.0)
            if not data:
                return False
            self._ready = data[len(data) - max(0, self._at - offset) :]
        if self._end is None or offset < self._end:
            return True
        self._ready = b""
        return self._stream.seek(offset)

    def fraction(self, offset: int) -> float | None:
        return self._stream.fraction(offset)

    def close(self) -> None:
        self._stream.close()
