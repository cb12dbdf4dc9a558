"""Directory of text files, rotated by size and partitioned by the time of events."""

from __future__ import annotations

import os

from connectors.events import Results
from connectors.options import Options
from connectors.outputs.files import convert_errors
from connectors.outputs.parts import Part, PartsSink
from connectors.outputs.results import LineWriter
from connectors.registry import SinkSettings
from connectors.text.compression import Frames


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
