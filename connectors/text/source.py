"""Source of all text formats, which reads lines in batches."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from connectors.addresses import printable
from connectors.columns.strings import LazyStrings
from connectors.errors import ConnectorError
from connectors.events import BATCH_BYTES, BATCH_EVENTS, Batch, Events, Origins, Position, Rejected
from connectors.options import Options
from connectors.streams import PrefetchSource
from connectors.text.bytestreams import ByteStream
from connectors.text.conversions import ArrayLines, Transcoded, codec_of
from connectors.text.formats import SAMPLE, Records, TextFormat
from connectors.text.lines import LineReader
from connectors.text.opening import open_bytes

MakeFormat: TypeAlias = "Callable[[Options], TextFormat]"

logger = logging.getLogger("connectors")


class TextSource(PrefetchSource):
    """Events from text, one or more lines each.

    The first thousand lines determine the column types and the label column when the source is created. A live source
    determines them by the lines of the first second after its header, before it returns any of them.

    Parameters
    ----------
    path
        Path of the file, or ``-`` for standard input.
    options
        Options of the URL.
    make
        Function that creates the format from its options.
    elements
        Whether the events may be the elements of one JSON array.
    """

    def __init__(self, path: str, options: Options, *, make: MakeFormat, elements: bool = False) -> None:
        super().__init__()
        self.name = "standard input" if path == "-" else printable(path)
        self._batch_size = options.integer("batch_size", BATCH_EVENTS, 1)
        self._codec = codec_of(self.name, options.text("encoding") or "utf-8")
        self._follow = options.one_of("at_end", ("stop", "wait")) == "wait"
        self._elements = elements
        self._format = make(options)
        options.finish()
        self._open(path)

    def _open(self, path: str) -> None:
        """Open a file and read its header."""
        self._stream: ByteStream = Transcoded(open_bytes(path, follow=self._follow), self._codec, self.name)
        if self._elements:
            self._stream = ArrayLines(self._stream, self.name, follow=self._follow)
        self._reader = LineReader(self._stream, self.name)
        self._begun = self._sampled = self._done = self._cut = False
        self._tried = 0
        try:
            self._begin(0 if self._stream.live else 1)
        except BaseException:
            self.close()
            raise

    def _open_next(self, path: str) -> None:
        self._format.next_file(self.name)
        self._open(path)

    def _begin(self, least: int) -> bool:
        """Read the header and inspect the first events; False if it is incomplete."""
        reader = self._reader
        most = SAMPLE
        while True:
            lines = reader.peek(most, least)
            if fault := _no_lines(reader.head):
                raise ConnectorError(f"{self.name}: {fault}", "no lines")
            texts, bad = reader.decode(lines)
            last = reader.is_last(len(lines))
            if last and not lines and reader.damage:
                raise ConnectorError(f"{self.name}: {reader.damage}: nothing can be read", "damaged")
            try:
                size = self._format.header(texts, last) if lines or last else None
            except ConnectorError as error:
                raise (ConnectorError(f"{error}; the header is {bad[0]}", "header") if 0 in bad else error) from None
            if size is not None:
                break
            if len(lines) < most:
                return False
            most *= 2
        if any(i < size for i in bad):
            raise ConnectorError(f"{self.name}: the header is {next(iter(bad.values()))}", "header")
        self._begun = True
        reader.consume(size)
        self._start = reader.position
        if not self._format.is_first and self._format.columns.is_settled:
            self._sampled = True
        elif not self._stream.live:
            texts, bad = reader.decode(reader.peek(SAMPLE))
            reader.refuse_encoding(bad, len(texts))
            self._sample(self._find(texts, bad, SAMPLE), True)
        return True

    def _sample(self, found: Records, whole: bool) -> None:
        if found.rows:
            self._format.inspect(found.rows, whole)
            self._sampled = True

    def _find(self, texts: list[str], bad: Mapping[int, str], limit: int) -> Records:
        return self._format.records(texts, bad, self._reader.is_last(len(texts)), limit)

    def _batches(self) -> Iterator[Batch]:
        while not self._done:
            batch = self._next()
            if batch is not None:
                yield batch

    def _next(self) -> Batch | None:
        """Return the next batch, or None to try again or at the end."""
        reader = self._reader
        if not self._begun and not self._begin(reader.waiting + 1):
            return self._batch(Records(), reader.line)
        # Retry an incomplete record only with more lines than before.
        bound = math.inf if self._tried else BATCH_BYTES
        lines = reader.peek(self._batch_size + self._tried, self._tried + 1, bound)
        if not lines and reader.is_last(0):
            return self._finish()
        if lines and not self._sampled:  # of a live stream, those that arrive within a second
            texts, bad = reader.decode(reader.peek(SAMPLE, SAMPLE if self._format.needs_sample else 1))
            self._sample(self._find(texts, bad, SAMPLE), False)
        line = reader.line
        if (batch := self._at_once(lines)) is not None:
            return batch
        texts, bad = reader.decode(lines)
        reader.warn(bad)
        found = self._find(texts, bad, self._batch_size)
        self._tried = 0 if found.consumed else len(lines)
        reader.consume(found.consumed)
        if not found.rows and not found.rejected and not self._stream.live:
            return None
        return self._batch(found, line)

    def _at_once(self, lines: list[bytes]) -> Batch | None:
        """Parse lines with one record each at once; None if this is not possible."""
        reader = self._reader
        if not self._sampled or reader.long or not 0 < len(lines) <= self._batch_size:
            return None
        events = self._format.at_once(lines)
        if events is None:
            return None
        line, self._tried = reader.line, 0
        reader.consume(len(lines))
        return self._made(events, range(line + 1, reader.line + 1), LazyStrings(lines, _text_of), [])

    def _batch(self, found: Records, line: int) -> Batch:
        events: Events = self._format.columns.read(found.rows) if self._begun else Events([], [])
        starts = found.starts
        numbers = (
            range(line + 1, line + 1 + len(starts)) if isinstance(starts, range) else [line + 1 + i for i in starts]
        )
        raw = [text.removesuffix("\r") for text in found.raw]
        rejected = [
            Rejected(reason, self._origin(line + 1 + i), text.removesuffix("\r")) for i, reason, text in found.rejected
        ]
        return self._made(events, numbers, raw, rejected)

    def _made(self, events: Events, numbers: Sequence[int], raw: Sequence[str], rejected: list[Rejected]) -> Batch:
        origins = Origins({"file": self.name}, {self._unit: numbers})
        batch = events.batch(origins, self._read_position, rejected=rejected, raw=raw)
        batch.rejected.sort(key=lambda one: one.origin[self._unit])
        return batch

    def _finish(self) -> Batch | None:
        """Return None at the end, or report once that the stream is truncated."""
        self._done = True
        damage = self._reader.damage
        if damage is None and not self._reader.offset:
            logger.warning("%s: is empty", self.name)
        if damage is None or self._cut:
            return None
        self._cut = True
        logger.warning("%s: %s; what follows %s %d is not read", self.name, damage, self._unit, self._reader.line)
        batch = self._batch(Records(), self._reader.line)
        tail = self._reader.tail.decode(errors="replace")
        batch.rejected.append(Rejected(damage, self._origin(self._reader.line + 1), tail))
        return batch

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._format.columns.notices

    @property
    def categories(self) -> Sequence[str]:
        """Features whose values the file declares, as in ARFF."""
        return self._format.columns.categories

    @property
    def _unit(self) -> str:
        """Unit of positions in messages."""
        return "element" if isinstance(self._stream, ArrayLines) and self._stream.is_array else "line"

    def _origin(self, line: int) -> dict[str, Any]:
        return {"file": self.name, self._unit: line}

    @property
    def _read_position(self) -> Position:
        """Position to resume from: offset, line, decisions and fingerprints of bytes."""
        version = {} if self._stream.version is None else {"version": self._stream.version}
        return self._reader.position | self._format.columns.decided | {"cut": self._cut} | version

    @property
    def is_apart(self) -> bool:
        """Whether reading mostly runs without the GIL. False for live streams."""
        return not self._stream.live and self._format.is_apart

    @property
    def _read_fraction(self) -> float | None:
        return 1.0 if self._done else self._stream.fraction(self._reader.offset)

    def _seek(self, position: Position) -> None:
        self._done, self._tried = False, 0
        if position.get("version") != self._stream.version:
            what = "changed since the checkpoint; start the run again with --reset"
            raise ConnectorError(f"{self.name}: {what}", "changed", option="--reset")
        if self._begun and int(position["offset"]) < self._start["offset"]:
            self._reader.seek(self._start)
            return
        self._reader.seek(position)
        self._format.columns.restore(position)
        self._sampled, self._cut = bool(position["types"]), bool(position["cut"])

    def recall(self, position: Position) -> None:
        """Restore the types of columns."""
        self._format.columns.restore(position)

    def _close_files(self) -> None:
        self._stream.close()


def _text_of(line: bytes) -> str:
    return line.decode().removesuffix("\n").removesuffix("\r")


def _no_lines(head: bytes) -> str | None:
    """Return why a stream with this start is not lines of text, and the remedy."""
    for width in (2, 4):
        if _are_zeros_apart(head, width):
            order = "be" if head[::width].count(0) > head[width - 1 :: width].count(0) else "le"
            return f"the header is not valid utf-8 but UTF-{8 * width}: set encoding=utf-{8 * width}-{order}"
    if head.count(b"\r") > 1 and b"\n" not in head and not head.lstrip().startswith(b"["):
        return "lines end only in carriage returns: convert them first: tr '\\r' '\\n' < FILE"
    return None


def _are_zeros_apart(head: bytes, width: int) -> bool:
    """Return whether bytes look like ASCII text in `width` bytes per character."""
    zeros = [head[i::width].count(0) for i in range(width)]
    return min(zeros) == 0 and sum(zeros) > 0.8 * (width - 1) / width * len(head)
