"""Lines of a byte stream, with byte offset and line number to resume from."""

from __future__ import annotations

import bisect
import codecs
import hashlib
import io
import itertools
import logging
import math
import time
from collections.abc import Mapping
from typing import Any

from connectors.errors import ConnectorError
from connectors.text.bytestreams import ByteStream

logger = logging.getLogger("connectors")

MAX_LINE_BYTES = 1 << 24
_KEPT_BYTES = 1 << 10
_HEAD_BYTES = 4096
_BEFORE_BYTES = 1024
_IDLE_S = 1.0
_FEW_INVALID, _SHARE_INVALID = 3, 0.05  # of lines that are not UTF-8


class LineReader:
    """Read lines with `peek` and advance with `consume`.

    Of a line over `MAX_LINE_BYTES` only the start is kept. `long` maps its number to its size.
    """

    def __init__(self, stream: ByteStream, name: str) -> None:
        self._stream, self._name, self._warned = stream, name, False
        self._clear(0, 0, b"", b"")

    def _clear(self, offset: int, line: int, head: bytes, before: bytes) -> None:
        self.offset, self.line = offset, line
        """Bytes and lines consumed."""
        self.long: dict[int, int] = {}
        self._lines: list[bytes] = []
        self._n_bytes = 0
        self._tail: list[bytes] = []
        self._tail_size = 0
        self.head, self._before = head, before  # the first bytes of the stream, and the bytes before the offset
        self._ended = False

    def peek(self, most: int, least: int = 1, most_bytes: float = math.inf) -> list[bytes]:
        """Return up to `most` lines with their newlines.

        The result is shorter at the end of the stream, or if it would exceed `most_bytes`.

        A live stream returns as soon as there are `least` lines, and after one second in any case.
        """
        deadline = time.monotonic() + _IDLE_S
        while len(self._lines) < most and self._n_bytes < most_bytes and not self._ended:
            wait_s = 0.0 if len(self._lines) >= least else max(0.0, deadline - time.monotonic())
            data = self._stream.read(wait_s)
            if data:
                self._add(data)
            elif data is None:
                self._end()
            elif len(self._lines) >= least or time.monotonic() >= deadline:
                break
        if self._n_bytes <= most_bytes:
            return self._lines[:most]
        ends = list(itertools.accumulate(map(len, self._lines[:most])))
        return self._lines[: max(least, bisect.bisect_right(ends, most_bytes))]

    def consume(self, n: int) -> None:
        """Advance by `n` lines."""
        size = sum(map(len, self._lines[:n]))
        self.offset += size
        self._n_bytes -= size
        self._before = b"".join([self._before, *self._lines[max(0, n - _BEFORE_BYTES) : n]])[-_BEFORE_BYTES:]
        for number in [number for number in self.long if number <= self.line + n]:
            self.offset += self.long.pop(number) - _KEPT_BYTES
            self._before = b""  # not completely buffered
        self.line += n
        del self._lines[:n]

    def decode(self, lines: list[bytes]) -> tuple[list[str], dict[int, str]]:
        """Decode lines; return texts without newlines, and errors by line number.

        Byte order marks at their starts are removed; concatenated files have several.
        """
        bad: dict[int, str] = {}
        data = b"".join(lines)
        try:
            texts = data.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            texts = []
        if self.long or len(texts) != len(lines):
            texts = [self._decode_one(line, i, bad) for i, line in enumerate(lines)]
        if codecs.BOM_UTF8 in data:
            texts = [text.removeprefix("\ufeff") for text in texts]
        return texts, bad

    def _decode_one(self, line: bytes, i: int, bad: dict[int, str]) -> str:
        if self.line + i + 1 in self.long:
            bad[i] = f"longer than {MAX_LINE_BYTES >> 20} MiB"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            bad.setdefault(i, self._not_valid)
            text = line.decode(errors="replace")
        return text.removesuffix("\n")

    @property
    def _not_valid(self) -> str:
        """Reason for a line that cannot be decoded."""
        codec = self._stream.encoding
        hint = ": set encoding= if the file has another, such as latin-1 or cp1252" if codec == "utf-8" else ""
        return f"not valid {codec}{hint}"

    def refuse_encoding(self, bad: Mapping[int, str], n: int) -> None:
        """Refuse a stream if many of the next n lines have another encoding.

        Single damaged lines are rejected later.

        Raises
        ------
        ConnectorError
            With the option that names the encoding.
        """
        n_invalid = sum(reason == self._not_valid for reason in bad.values())
        if n_invalid >= _FEW_INVALID and n_invalid > _SHARE_INVALID * n:
            what = f"line {self.line + min(bad) + 1} and {n_invalid - 1:,} more of the first {n:,}"
            raise ConnectorError(f"{self._name}: {what} are {self._not_valid}", "encoding", option="encoding")

    def warn(self, bad: Mapping[int, str]) -> None:
        """Warn once that lines have another encoding."""
        first = next((i for i, reason in bad.items() if reason == self._not_valid), None)
        if first is not None and not self._warned:
            self._warned = True
            line = self.line + first + 1
            logger.warning("%s: line %d: %s. Other lines may have the same error", self._name, line, bad[first])

    def is_last(self, n: int) -> bool:
        """Return whether the stream ends after the next `n` lines."""
        return self._ended and n >= len(self._lines)

    @property
    def damage(self) -> str | None:
        """Why the stream is truncated, or None."""
        return self._stream.damage if self._ended else None

    @property
    def tail(self) -> bytes:
        """The bytes after the last complete line."""
        return b"".join(self._tail)

    @property
    def waiting(self) -> int:
        """Number of buffered lines."""
        return len(self._lines)

    @property
    def position(self) -> dict[str, Any]:
        """Offset, line and fingerprints.

        `seek` compares the first bytes and the bytes before the offset. The first bytes alone may be a header that many
        files share.
        """
        head, before = self.head[: self.offset], self._before
        return {"offset": self.offset, "line": self.line, "head": _fingerprint(head), "before": _fingerprint(before)}

    def seek(self, position: dict[str, Any]) -> None:
        """Resume at a position after a comparison of its fingerprints."""
        offset = int(position["offset"])
        first, last = int(position["head"]["bytes"]), int(position["before"]["bytes"])
        self._stream.seek(0)
        head = self._read(first)[:first]
        if _fingerprint(head) != position["head"]:
            raise self._differs(f"its first {first} bytes differ")
        reached = self._stream.seek(offset - last)
        data = self._read(last)
        if not reached or len(data) < last:
            raise ConnectorError(
                f"{self._name}: is shorter than what was read before ({offset} bytes): was it replaced?", "shorter"
            )
        if _fingerprint(data[:last]) != position["before"]:
            raise self._differs(f"the {last} bytes before byte {offset} differ")
        self._clear(offset, int(position["line"]), head, data[:last])
        self._add(data[last:])

    def _differs(self, difference: str) -> ConnectorError:
        return ConnectorError(f"{self._name}: is not the file that was read before: {difference}", "another")

    def _read(self, least: int) -> bytes:
        """Read at least `least` bytes, or up to the end of the stream."""
        data = b""
        while len(data) < least and (more := self._stream.read(0.0)):
            data += more
        return data

    def _add(self, data: bytes) -> None:
        if len(self.head) < _HEAD_BYTES:
            self.head += data[: _HEAD_BYTES - len(self.head)]
        end = data.rfind(b"\n") + 1
        if end:
            first, rest = data[: (cut := data.find(b"\n") + 1)], data[cut:end]
            self._extend_tail(first)
            self._finish_line()
            self._lines += io.BytesIO(rest).readlines()
            self._n_bytes += len(rest)
        self._extend_tail(data[end:])

    def _extend_tail(self, data: bytes) -> None:
        self._tail_size += len(data)
        self._tail.append(data)
        if self._tail_size > MAX_LINE_BYTES:
            self._tail = [b"".join(self._tail)[:_KEPT_BYTES]]

    def _finish_line(self) -> None:
        if not self._tail_size:
            return
        if self._tail_size > MAX_LINE_BYTES:
            self.long[self.line + len(self._lines) + 1] = self._tail_size
        self._lines.append(b"".join(self._tail))
        self._n_bytes += len(self._lines[-1])
        self._tail, self._tail_size = [], 0

    def _end(self) -> None:
        self._ended = True
        if self._stream.damage is None:
            self._finish_line()


def _fingerprint(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
