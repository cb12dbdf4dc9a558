"""Streams converted to lines of UTF-8: text in other encodings, and JSON arrays."""

from __future__ import annotations

import codecs
import functools
import io
import re
from collections.abc import Iterator

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
        self._codec, self._name, self._is_plain = codec, name, None if codec is None else False
        super().__init__(stream)

    @property
    def encoding(self) -> str:
        return self._codec or "utf-8"

    def _converted(self) -> Iterator[bytes]:
        head = b""
        while self._is_plain is None:
            data = self._more()
            head += data or b""
            if data is None or not any(mark.startswith(head) and mark != head for mark in _MARKS):
                self._codec = next((codec for mark, codec in _MARKS.items() if head.startswith(mark)), None)
                self._is_plain = self._codec is None
            else:
                yield b""
        yield from self._unchanged(head) if self._codec is None else self._decoded(self._codec, head)

    def _decoded(self, codec: str, head: bytes) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(codec)(_DAMAGED)
        data: bytes | None = head or self._more()
        while True:
            try:
                text = decoder.decode(data or b"", data is None).encode("utf-8", "surrogatepass")
            except UnicodeError as error:  # UTF-16 without a byte order mark
                what = f"{error}: set encoding={codec}-le or {codec}-be"
                raise ConnectorError(f"{self._name}: {what}", "byte order", option="encoding") from None
            if text or data == b"":  # an incomplete character yields no text yet
                yield text
            if data is None:
                return
            data = self._more()


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

    _size = 0  # of the array and the data after it, once all was read
    _is_open = False

    def __init__(self, stream: ByteStream, name: str, *, follow: bool) -> None:
        self._name, self._follow = name, follow
        super().__init__(stream)

    @property
    def is_array(self) -> bool:
        """Whether the stream begins with an array."""
        return self._is_plain is False

    @property
    def damage(self) -> str | None:
        if self._stream.damage is None and self._is_open:
            return "the array is truncated: the ] that closes it is missing"
        return self._stream.damage

    def _converted(self) -> Iterator[bytes]:
        held = bytearray()
        while not self._is_plain:
            data = self._more()
            held += data or b""
            if self._is_plain is None and (data is None or not _UNDECIDED.fullmatch(held)):
                self._is_plain = _OPENED.match(held) is None
            if self.is_array and (self._follow or len(held) > LARGEST):
                what = "in a growing file" if self._follow else f"of more than {LARGEST >> 20} MiB"
                remedy = "make each element a line: jq -c '.[]'"
                raise ConnectorError(f"{self._name}: is an array {what}: {remedy}", "array")
            if self.is_array and data is None:
                self._size, lines = len(held), io.BytesIO(self._as_lines(bytes(held)))
                yield from iter(functools.partial(lines.read, CHUNK), b"")
                return
            if self.live and not self._is_plain:
                yield b""
        yield from self._unchanged(bytes(held))

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
