"""Directories of files, rotated by size and partitioned by the time of events."""

from __future__ import annotations

import bisect
import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.errors import ConnectorError, OptionError
from connectors.events import Position, Results
from connectors.options import Options
from connectors.outputs.files import FileSink, convert_errors
from connectors.outputs.part_files import SPANS, UNFINISHED, PartFiles, folder_of, split_spans
from connectors.outputs.results import LineWriter, columns_of, make_directory, sync_directory
from connectors.registry import SinkSettings
from connectors.text.compression import Frames

_ROWS = 1024  # most rows formatted at once, because a part may end within them


@dataclass(slots=True)
class Part:
    """A part that is being written.

    Parameters
    ----------
    path
        Name of the finished file.
    span
        Number of the time span of its folder.
    size
        Bytes before compression.
    n_rows
        Number of rows.
    durable
        Bytes on disk at the last flush; for Parquet, rows.
    frames
        Frames of the compression, for texts.
    """

    path: str
    span: int
    size: int = 0
    n_rows: int = 0
    durable: int = 0
    frames: Frames | None = None

    @property
    def unfinished(self) -> str:
        """Name while the part is being written."""
        return self.path + UNFINISHED


class PartsSink(FileSink):
    """Base class of sinks that write ``part-00000.csv``, ... of a directory.

    A part has the suffix ``.inprogress`` until it is complete. With `partition_by`, each day or hour (UTC) of event
    time has a folder. Its part is complete when an event of the second next day or hour arrives; later events begin
    another part. Names and rows of parts do not depend on batches and checkpoints.

    Parameters
    ----------
    path
        Path of the directory.
    options
        `rotate_bytes` is the maximum size of a part before compression, unless one row is larger; `partition_by` is
        date or hour.
    settings
        Settings of the run.
    suffix
        Suffix of the parts.

    Attributes
    ----------
    most_rows
        Maximum number of rows of a part.
    """

    most_rows: float = math.inf

    def __init__(self, path: str, options: Options, settings: SinkSettings, suffix: str) -> None:
        self._most = options.integer("rotate_bytes", 0, 1)
        self._by = options.one_of("partition_by", SPANS)
        super().__init__(path, options, settings, suffix)
        self._files = PartFiles(path, suffix)
        self._parts: dict[str, Part] = {}  # by folder
        self._finished: dict[str, int] = {}  # number of finished parts, by folder
        self._latest: int | None = None  # latest time span
        # With checkpoints, parts get their final names together with them, so that a resumed run need not undo this.
        self._keeps_checkpoints = settings.source is not None
        self._complete: list[Part] = []
        self._is_torn = False  # whether a write failed
        self._unsynced = set[str]()  # directories with new names
        self._make_directory()
        self._durable = self._state()

    @property
    def identity(self) -> str:
        """Directory and options, which determine the parts."""
        return f"{self.name}?rotate_bytes={self._most}&partition_by={self._by}"

    # Writing ------------------------------------------------------------------------------------------------------

    def write(self, table: Results) -> None:
        """Append rows to the current part."""
        if self._by is not None:
            what = "needs the times of events: name their column with --time NAME"
            raise OptionError(self.name, "partition_by", what, "no times")
        self._replace()
        self._check_columns(table)
        self._append("", 0, table)

    def write_at(self, table: Results, times: Sequence[int] | NDArray[np.int64]) -> None:
        """Append rows to the parts of their folders."""
        if self._by is None:
            self.write(table)
            return
        self._replace()
        self._check_columns(table)
        spans = np.asarray(times, np.int64) // SPANS[self._by]
        for rows in split_spans(spans, self._latest):
            latest = int(spans[rows].max())
            if self._latest is None or latest > self._latest:
                self._latest = latest
                for folder in [folder for folder, part in self._parts.items() if part.span < latest - 1]:
                    self._finish(folder)
            part, found = _rows(table, rows.start, rows.stop), np.unique(spans[rows]).tolist()
            for span in found:
                own = part if len(found) == 1 else _picked(part, np.flatnonzero(spans[rows] == span).tolist())
                self._append(folder_of(span, self._by), span, own)

    def _append(self, folder: str, span: int, table: Results) -> None:
        """Append rows to the part of a folder, and begin new parts where they do not fit."""
        n, start = len(next(iter(table.values()), ())), 0
        while start < n:
            part = self._parts.get(folder) or self._begin(folder, span)
            rows = _rows(table, start, min(n, start + _ROWS))
            count, data = self._fitting(part, rows)
            if count:
                self._put(part, data)
                part.n_rows += count
                start += count
            else:
                self._finish(folder)

    def _fitting(self, part: Part, rows: Results) -> tuple[int, Any]:
        """Return how many rows fit in a part, one or more if it is empty, and their data."""
        n = int(min(len(next(iter(rows.values()))), self.most_rows - part.n_rows))
        room = self._most - part.size if self._most else math.inf
        size, data = self._measure(_rows(rows, 0, n))
        if size > room:
            sizes = range(1, n + 1)
            n = bisect.bisect_right(sizes, room, key=lambda k: self._measure(_rows(rows, 0, k))[0])
            n = n if n or part.n_rows else 1
            size, data = self._measure(_rows(rows, 0, n)) if n else (0, None)
        part.size += size
        return n, data

    def _begin(self, folder: str, span: int) -> Part:
        part = Part(self._files.path(folder, self._finished.get(folder, 0)), span)
        directory = os.path.dirname(part.path)
        with convert_errors(part.path):
            make_directory(directory)
        self._unsynced.add(directory)
        self._parts[folder] = part
        self._create(part)
        return part

    @abstractmethod
    def _measure(self, rows: Results) -> tuple[int, Any]:
        """Return the size of rows, and their data for `_put`."""

    @abstractmethod
    def _create(self, part: Part) -> None:
        """Begin a part."""

    @abstractmethod
    def _put(self, part: Part, data: Any) -> None:
        """Append data to a part."""

    @abstractmethod
    def _sync(self, part: Part) -> None:
        """Make the rows of a part durable under its unfinished name."""

    @abstractmethod
    def _durable_size(self, part: Part) -> int:
        """Return how much of an unfinished part there is, as `Part.durable` counts."""

    @abstractmethod
    def _truncate(self, part: Part) -> None:
        """Continue an unfinished part after what was durable."""

    def _finish(self, folder: str) -> None:
        """Complete the part of a folder."""
        part = self._parts.pop(folder)
        self._sync(part)
        self._complete.append(part)
        if not self._keeps_checkpoints:
            self._publish()
        self._finished[folder] = self._finished.get(folder, 0) + 1

    def _publish(self) -> None:
        """Give complete parts their final names."""
        for part in self._complete:
            with convert_errors(part.path):
                os.replace(part.unfinished, part.path)
            self._unsynced.add(os.path.dirname(part.path))
        self._complete = []

    # Positions ----------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Make all written rows durable, and give complete parts their final names."""
        self._replace()
        self._publish()
        for part in self._parts.values():
            self._sync(part)
        while self._unsynced:
            sync_directory(self._unsynced.pop())
        self._durable = self._state()

    def _state(self) -> Position:
        parts = {
            folder: {"span": part.span, "size": part.size, "rows": part.n_rows, "durable": part.durable}
            for folder, part in self._parts.items()
        }
        finished = dict(self._finished)
        return {"columns": self._columns, "latest": self._latest, "parts": parts, "finished": finished}

    @property
    def position(self) -> Position:
        """Unfinished parts with their sizes, and numbers of finished parts."""
        return self._durable

    def rewind(self, position: Position) -> None:
        """Remove parts and rows written after `position`."""
        self._columns, self._latest = position["columns"], position["latest"]
        self._finished, self._parts, self._complete = dict(position["finished"]), {}, []
        for folder, about in position["parts"].items():
            path = self._files.path(folder, self._finished.get(folder, 0))
            part = Part(path, int(about["span"]), int(about["size"]), int(about["rows"]), int(about["durable"]))
            self._restore(part)
            self._parts[folder] = part
        kept = {part.unfinished for part in self._parts.values()}
        for path, folder, number in self._files.found():
            if path not in kept and (number >= self._finished.get(folder, 0) or UNFINISHED in path[-15:]):
                with convert_errors(path):
                    os.remove(path)
        self._files.remove_empty_folders()
        self._touched, self._fresh, self._durable = True, False, self._state()

    def _restore(self, part: Part) -> None:
        """Truncate a part to its durable size, also if it was completed later."""
        with convert_errors(part.path):
            if not os.path.exists(part.unfinished) and os.path.exists(part.path):
                os.replace(part.path, part.unfinished)
                sync_directory(os.path.dirname(part.path))
            size = self._durable_size(part)
            if size < part.durable:
                what = f"has a length of {size}, but {part.durable} was written before: it was changed"
                raise ConnectorError(f"{part.unfinished}: {what}", "changed")
            self._truncate(part)

    def _clear(self) -> None:
        for path, _, _ in reversed(self._files.found()):
            with convert_errors(path):
                os.remove(path)
        self._files.remove_empty_folders()

    def close(self) -> None:
        """Complete all parts, unless a write failed."""
        if self._touched and not self._is_torn:
            for folder in list(self._parts):
                self._finish(folder)
            self.flush()
        elif self._made and not self._touched:
            os.rmdir(self.name)
            self._made = False


class TextPartsSink(PartsSink):
    """Write lines to parts.

    Parameters
    ----------
    path
        Path of the directory. A suffix of a compression format compresses the parts.
    lines
        Writer of lines.
    options, settings
        As for `PartsSink`.
    """

    def __init__(self, path: str, lines: LineWriter, options: Options, settings: SinkSettings) -> None:
        self._lines = lines
        super().__init__(path, options, settings, lines.suffix + Frames(path.rstrip("/")).suffix)

    def _measure(self, rows: Results) -> tuple[int, bytes]:
        data = self._lines.body(rows)
        return len(data), data

    def _create(self, part: Part) -> None:
        with convert_errors(part.path):
            open(part.unfinished, "wb").close()
        head = self._lines.head(list(self._columns or ()))
        part.size = len(head)
        self._put(part, head)

    def _put(self, part: Part, data: bytes) -> None:
        part.frames = part.frames or Frames(part.path)
        self._write(part, part.frames.add(data))

    def _write(self, part: Part, data: bytes) -> None:
        self._is_torn = True
        with convert_errors(part.path), open(part.unfinished, "ab") as file:
            file.write(data)
        self._is_torn = False

    def _sync(self, part: Part) -> None:
        if part.frames is not None:
            self._write(part, part.frames.end())
        with convert_errors(part.path), open(part.unfinished, "rb+") as file:
            os.fsync(file.fileno())
            part.durable = os.fstat(file.fileno()).st_size

    def _durable_size(self, part: Part) -> int:
        return os.path.getsize(part.unfinished) if os.path.exists(part.unfinished) else 0

    def _truncate(self, part: Part) -> None:
        os.truncate(part.unfinished, part.durable)


def _picked(table: Results, rows: list[int]) -> dict[str, Any]:
    return {name: [column[i] for i in rows] for name, column in columns_of(table).items()}


def _rows(table: Results, start: int, end: int) -> dict[str, Any]:
    return {name: column[start:end] for name, column in table.items()}
