"""Encodings of text files: all but UTF-8 are converted to it."""

from __future__ import annotations

import codecs

from connectors.bytestreams import ByteStream, Converted
from connectors.errors import ConnectorError

_DAMAGED = "streamsvm-damaged"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# A lone surrogate is not valid UTF-8, so the line reader rejects the line that contains it.
codecs.register_error(_DAMAGED, lambda error: ("\udcff", getattr(error, "end", 0)))


def codec_of(source: str, name: str) -> str | None:
    """Return the name of a codec, None for UTF-8."""
    try:
        codec = codecs.lookup(name)
        is_known = codec.incrementaldecoder is not None and "a\n".encode(name).decode(name) == "a\n"
    except (LookupError, UnicodeError, ValueError):
        is_known = False
    if not is_known:
        raise ConnectorError(
            f"{source}: unknown encoding {name!r}; examples are utf-8, latin-1, cp1252, utf-16",
            "value",
            option="encoding",
        ) from None
    return None if codec.name.startswith("utf-8") else codec.name


class Transcoded(Converted):
    """Byte stream converted to UTF-8; offsets count UTF-8 bytes.

    Parameters
    ----------
    stream
        Stream to convert.
    codec
        Encoding. None: UTF-16 if the stream starts with its byte order mark, else no conversion.
    name
        Name of the stream in messages.

    Examples
    --------
    >>> import os, tempfile
    >>> from connectors.bytestreams import open_bytes
    >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
    >>> with open(path, "w", encoding="utf-16") as file:
    ...     _ = file.write("x,y")
    >>> Transcoded(open_bytes(path, packed=False, follow=False)).read(0.0)
    b'x,y'
    """

    def __init__(self, stream: ByteStream, codec: str | None = None, name: str = "") -> None:
        super().__init__(stream)
        self.codec, self._name = codec, name
        self._is_plain: bool | None = None if codec is None else False
        self._restart()

    def _restart(self) -> None:
        self._taken = 0
        self._head = self._ready = b""
        self._ended = False
        self._decoder = None if self.codec is None else codecs.getincrementaldecoder(self.codec)(_DAMAGED)

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
        """Detect UTF-16 by the first two bytes."""
        self._head += data or b""
        if len(self._head) < 2 and data is not None:
            return b""
        head, self._head = self._head, b""
        self._is_plain = not head.startswith(_UTF_16)
        if not self._is_plain:
            self.codec = "utf-16"
            self._restart()
        return head or data

    def _decode(self, data: bytes | None) -> bytes:
        if self._decoder is None:
            return b""
        self._taken += len(data or b"")
        try:
            return self._decoder.decode(data or b"", data is None).encode("utf-8", "surrogatepass")
        except UnicodeError as error:  # UTF-16 without a byte order mark
            what = f"{error}: say encoding={self.codec}-le or {self.codec}-be"
            raise ConnectorError(f"{self._name}: {what}", "byte order", option="encoding") from None

    def seek(self, offset: int) -> bool:
        """Move to an offset. A converted stream is read again from the start."""
        self._stream.seek(0)
        self._restart()
        if self._is_plain:
            return self._stream.seek(offset)
        return self._skip(offset)

    def fraction(self, offset: int) -> float | None:
        return self._stream.fraction(offset if self._is_plain else self._taken)
