"""JSON arrays as lines: an array is read as a whole, and each of its elements becomes a line."""

from __future__ import annotations

import io
import re

from connectors.bytestreams import ByteStream, Converted
from connectors.errors import ConnectorError

LARGEST = 1 << 28
"""The most bytes of an array, which is held whole."""

_START = rb"\xef?\xbb?\xbf?\s*"
_UNDECIDED = re.compile(_START + rb"(?:\[\s*)?")
_OPENED = re.compile(_START + rb"\[\s*(?:[{\]]|\Z)")
# A text ends with its line at the latest, so that an open quote costs its own element alone.
_TEXT = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_MARK = re.compile(rb'\{[^"\[\]{}]*+(?:%b[^"\[\]{}]*+)*+\}|%b|[\[\]{},]' % (_TEXT, _TEXT))
_NEWLINE, _SPACE = b"\n "
_CHUNK = 1 << 18


class ArrayLines(Converted):
    """A stream that may be one JSON array of objects, each element of which becomes a line.

    The comma after an element becomes a newline, and newlines become spaces, so that offsets stay those of the stream.
    Other streams pass unchanged, and so does what follows an array.

    Parameters
    ----------
    stream
        The bytes.
    name
        What messages call it.
    follow
        Whether it is a growing file, in which an array is refused.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors.bytestreams import open_bytes
    >>> path = os.path.join(tempfile.mkdtemp(), "a.json")
    >>> with open(path, "w") as file:
    ...     _ = file.write('[{"x": 1},\\n {"x":\\n 2}]')
    >>> ArrayLines(open_bytes(path, packed=False, follow=False), "a.json", follow=False).read(0.0)
    b' {"x": 1}\\n  {"x":  2}\\n'
    """

    def __init__(self, stream: ByteStream, name: str, *, follow: bool) -> None:
        super().__init__(stream)
        self._name, self._follow = name, follow
        self._restart()

    def _restart(self) -> None:
        self.is_array: bool | None = None  # unknown until there is more than white space
        self._held, self._lines = bytearray(), io.BytesIO()
        self._size = 0  # of the array and what follows it, once all was read
        self._is_open = False

    @property
    def damage(self) -> str | None:
        if self._stream.damage is None and self._is_open:
            return "the array is cut short: the ] that closes it is missing"
        return self._stream.damage

    def _next(self, wait_s: float) -> bytes | None:
        while not self._is_told:
            data = self._stream.read(wait_s)
            self._hold(data)
            if self.live and data is not None and not self._is_told:
                return b""
        return self._lines.read(_CHUNK) or self._stream.read(wait_s)

    @property
    def _is_told(self) -> bool:
        """Whether this is no array, or all of it was read."""
        return self.is_array is False or self._size > 0

    def _hold(self, data: bytes | None) -> None:
        """Hold bytes until they turn out to be no array, or all of it was read."""
        self._held += data or b""
        if self.is_array is None and (data is None or not _UNDECIDED.fullmatch(self._held)):
            self.is_array = _OPENED.match(self._held) is not None
        if self.is_array and (self._follow or len(self._held) > LARGEST):
            what = "in a growing file" if self._follow else f"of more than {LARGEST >> 20} MiB"
            raise ConnectorError(f"{self._name}: is an array {what}: make each element a line: jq -c '.[]'")
        if self.is_array and data is None:
            self._size = len(self._held)
            self._held = self._as_lines(bytes(self._held))
        if self._is_told:
            self._lines, self._held = io.BytesIO(self._held), bytearray()

    def _as_lines(self, data: bytes) -> bytearray:
        """The bytes of an array with one element a line."""
        depth, commas, end = 0, [], len(data)
        for mark in _MARK.finditer(data):
            if mark[0] in (b"[", b"{"):
                depth += 1
            elif mark[0] in (b"]", b"}"):
                depth -= 1
                if depth <= 0:
                    end = mark.start()
                    break
            elif depth == 1 and mark[0] == b",":
                commas.append(mark.start())
        self._is_open = depth > 0
        lines = bytearray(data[:end].replace(b"\n", b" "))
        lines[data.index(b"[")] = _SPACE
        for at in commas:
            lines[at] = _NEWLINE
        return lines + b"\n"[: len(data) - end] + data[end + 1 :]

    def seek(self, offset: int) -> bool:
        """Go there; an array is read again from the start."""
        self._stream.seek(0)
        self._restart()
        self.read(0.0)
        if self.is_array:
            self._lines.seek(offset)
            return offset <= self._size
        self._held, self._lines = bytearray(), io.BytesIO()
        return self._stream.seek(offset)

    def fraction(self, offset: int) -> float | None:
        return offset / self._size if self._size else self._stream.fraction(offset)
