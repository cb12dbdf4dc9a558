"""Streams converted to lines of UTF-8: text in other encodings, and JSON arrays."""

from __future__ import annotations

import codecs
import io
import re

from connectors.errors import ConnectorError
from connectors.text.bytestreams import CHUNK, ByteStream, Converted

_DAMAGED = "streamsvm-damaged"
_MARKS = {  # the byte order mark of UTF-32 may start with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# A lone surrogate is not valid UTF-8, so the line reader rejects the line that contains it.
codecs.register_error(_DAMAGED, lambda error: ("\udcff", getattr(error, "end", 0)))


LARGEST = 1 << 28
"""The most bytes of an array, which is held whole."""
_START = rb"\xef?\xbb?\xbf?\s*"
_UNDECIDED = re.compile(_START + rb"(?:\[\s*)?")
_OPENED = re.compile(_START + rb"\[\s*(?:[{\]]|\Z)")
# A string ends at the end of its line at the latest, so that an unclosed quote affects one element only.
_TEXT = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_MARK = re.compile(rb'\{[^"\[\]{}]*+(?:%b[^"\[\]{}]*+)*+\}|%b|[\[\]{},]' % (_TEXT, _TEXT))
_NEWLINE, _SPACE = b"\n "


def codec_of(source: str, name: str) -> str | None:
    """Return the name of a codec, None for UTF-8."""
    try:
        codec = codecs.lookup(name)
        is_known = codec.incrementaldecoder is not None and "a\n".encode(name).decode(name) == "a\n"
    except (LookupError, UnicodeError, ValueError):
        is_known = False
    if not is_known:
        what = f"unknown encoding {name!r}; examples are utf-8, latin-1, cp1252, utf-16"
        raise ConnectorError(f"{source}: {what}", "value", option="encoding") from None
    return None if codec.name.startswith("utf-8") else codec.name


class Transcoded(Converted):
    """Byte stream converted to UTF-8; offsets count UTF-8 bytes.

    Parameters
    ----------
    stream
        Stream to convert.
    codec
        Encoding. None: UTF-16 or UTF-32 if the stream starts with the byte order mark, else no conversion.
    name
        Name of the stream in messages.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors.text.opening import open_bytes
    >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
    >>> with open(path, "w", encoding="utf-16") as file:
    ...     _ = file.write("x,y")
    >>> Transcoded(open_bytes(path)).read(0.0)
    b'x,y'
    """

    def __init__(self, stream: ByteStream, codec: str | None = None, name: str = "") -> None:
        super().__init__(stream)
        self._codec, self._name = codec, name
        self._is_plain = None if codec is None else False
        self._restart()

    @property
    def encoding(self) -> str:
        return self._codec or "utf-8"

    def _restart(self) -> None:
        self._taken = 0
        self._head = b""
        self._ended = False
        self._decoder = None if self._codec is None else codecs.getincrementaldecoder(self._codec)(_DAMAGED)

    def _next(self, wait_s: float) -> bytes | None:
        while True:
            data = self._stream.read(wait_s)
            if self._is_plain is None:
                data = self._begin(data)
            if self._is_plain or (data is None and self._ended):
                return data
            if data is None:
                self._ended = True
            text = self._decode(data)
            if text or not data:  # an incomplete character yields no text yet
                return text if text or data is not None else None

    def _begin(self, data: bytes | None) -> bytes | None:
        """Detect UTF-16 and UTF-32 by the first bytes."""
        self._head += data or b""
        if data is not None and any(len(self._head) < len(mark) and mark.startswith(self._head) for mark in _MARKS):
            return b""
        head, self._head = self._head, b""
        self._codec = next((codec for mark, codec in _MARKS.items() if head.startswith(mark)), None)
        self._is_plain = self._codec is None
        if not self._is_plain:
            self._restart()
        return head or data

    def _decode(self, data: bytes | None) -> bytes:
        if self._decoder is None:
            return b""
        self._taken += len(data or b"")
        try:
            return self._decoder.decode(data or b"", data is None).encode("utf-8", "surrogatepass")
        except UnicodeError as error:  # UTF-16 without a byte order mark
            what = f"{error}: set encoding={self._codec}-le or {self._codec}-be"
            raise ConnectorError(f"{self._name}: {what}", "byte order", option="encoding") from None


class ArrayLines(Converted):
    """Byte stream that converts a JSON array of objects to one element per line.

    The comma after an element is replaced by a newline, and newlines by spaces, so that byte offsets do not change.
    Data after the array and streams without an array pass unchanged.

    Parameters
    ----------
    stream
        Stream to convert.
    name
        Name of the stream in messages.
    follow
        Whether the stream is a growing file, in which arrays are not allowed.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors.text.opening import open_bytes
    >>> path = os.path.join(tempfile.mkdtemp(), "a.json")
    >>> with open(path, "w") as file:
    ...     _ = file.write('[{"x": 1},\\n {"x":\\n 2}]')
    >>> ArrayLines(open_bytes(path), "a.json", follow=False).read(0.0)
    b' {"x": 1}\\n  {"x":  2}\\n'
    """

    def __init__(self, stream: ByteStream, name: str, *, follow: bool) -> None:
        super().__init__(stream)
        self._name, self._follow = name, follow
        self._restart()

    def _restart(self) -> None:
        self._is_plain = None  # until more than white space was read
        self._held, self._lines = bytearray(), io.BytesIO()
        self._size = 0  # of the array and the data after it, once all was read
        self._is_open = False

    @property
    def is_array(self) -> bool:
        """Whether the stream begins with an array."""
        return self._is_plain is False

    @property
    def damage(self) -> str | None:
        if self._stream.damage is None and self._is_open:
            return "the array is truncated: the ] that closes it is missing"
        return self._stream.damage

    def _next(self, wait_s: float) -> bytes | None:
        while not (self._is_plain or self._size):
            data = self._stream.read(wait_s)
            self._held += data or b""
            if self._is_plain is None and (data is None or not _UNDECIDED.fullmatch(self._held)):
                self._is_plain = _OPENED.match(self._held) is None
            if self._is_plain:
                held, self._held = bytes(self._held), bytearray()
                return held or data
            if self.is_array and (self._follow or len(self._held) > LARGEST):
                what = "in a growing file" if self._follow else f"of more than {LARGEST >> 20} MiB"
                remedy = "make each element a line: jq -c '.[]'"
                raise ConnectorError(f"{self._name}: is an array {what}: {remedy}", "array")
            if data is None:
                self._size, held = len(self._held), bytes(self._held)
                self._held, self._lines = bytearray(), io.BytesIO(self._as_lines(held))
            elif self.live:
                return b""
        return self._lines.read(CHUNK) or self._stream.read(wait_s)

    def _as_lines(self, data: bytes) -> bytearray:
        """Return the bytes of an array with one element per line."""
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

    def fraction(self, offset: int) -> float | None:
        return offset / self._size if self._size else super().fraction(offset)
