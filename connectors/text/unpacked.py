"""Decompressed content of byte streams."""

from __future__ import annotations

from typing import Any

from connectors.text.bytestreams import CHUNK, ByteStream, Converted
from connectors.text.compression import PIECE, Codec, Decompressor, codec_of_bytes, may_be_compressed


class Unpacked(Converted):
    """Decompressed content of a stream with one or more frames (members) of one compression format.

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
        super().__init__(stream)
        self._name, self._codec, self._is_known = name, codec, codec is not None
        self._package: Any = None if codec is None else codec.load(name)
        self._restart()

    def _restart(self) -> None:
        self.damage = None
        self._taken = self._used = 0
        self._packed = self._ready = b""
        self._frame: Decompressor | None = None

    def _next(self, wait_s: float) -> bytes | None:
        while self.damage is None:
            if not self._is_known and not self._detect(wait_s):
                return b""
            if self._codec is None:
                head, self._packed = self._packed, b""
                return head or self._stream.read(wait_s)
            if self._used >= len(self._packed) and (self._frame is None or self._frame.needs_input):
                packed = self._stream.read(wait_s)
                if packed is None and self._frame is not None:
                    self.damage = f"{self._codec.name} file is truncated"
                if not packed:
                    return packed
                self._packed, self._used = packed, 0
                self._taken += len(packed)
            if data := self._step(self._codec):
                return data
        return None

    def _detect(self, wait_s: float) -> bool:
        """Detect the format by the first bytes. Return False if there are too few so far."""
        more = self._stream.read(wait_s)
        self._packed += more or b""
        self._taken = len(self._packed)
        self._codec = codec_of_bytes(self._packed)
        if self._codec is not None:
            self._package = self._codec.load(self._name)
        self._is_known = self._codec is not None or more is None or not may_be_compressed(self._packed)
        return self._is_known

    def _step(self, codec: Codec) -> bytes:
        """Decompress the next piece."""
        if self._frame is None:
            self._packed, self._used = self._packed[self._used :].lstrip(b"\0"), 0  # padding of gzip and xz
            if not self._packed:
                return b""
            self._frame = codec.decompressor(self._package)
        frame, piece = self._frame, b""
        if frame.needs_input:
            piece = self._packed[self._used : self._used + PIECE]
            self._used += len(piece)
        try:
            data = frame.decompress(piece, CHUNK)
        except codec.errors(self._package) as error:
            self.damage = f"{codec.name} file is damaged: {error}"
            return b""
        if frame.eof:
            self._used -= len(frame.unused_data or b"")
            self._frame = None
        return data

    def seek(self, offset: int) -> bool:
        if self._is_known and self._codec is None:
            return self._stream.seek(offset)
        self._stream.seek(0)
        self._restart()
        return self._skip(offset)

    def fraction(self, offset: int) -> float | None:
        return self._stream.fraction(self._taken)
