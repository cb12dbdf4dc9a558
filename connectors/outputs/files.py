"""Sinks that write result tables to files and can be rewound."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from abc import abstractmethod
from collections.abc import Iterator

from connectors.errors import ConnectorError
from connectors.events import Position, Results
from connectors.options import Options
from connectors.outputs.results import (
    LineWriter,
    ReplacingSink,
    check_link,
    is_replaceable,
    make_directory,
    names_in,
    parts_in,
    sync_directory,
)
from connectors.registry import SinkSettings, is_pipe
from connectors.streams import Sink
from connectors.text.compression import ZIP_SUFFIX, Frames


class FileSink(ReplacingSink):
    """Base class of file sinks.

    An existing file is replaced at the first write or flush, unless the run resumes.

    Parameters
    ----------
    path
        Path of the file, or of the directory of parts.
    options
        Options of the URL; file sinks have none.
    settings
        Settings of the run.
    suffix
        Suffix of the parts of a directory.
    """

    def __init__(self, path: str, options: Options, settings: SinkSettings, suffix: str = "") -> None:
        super().__init__(settings)
        self.name, self._made, self._suffix = path, not os.path.exists(path), suffix
        options.finish()

    def _is_replaceable(self) -> bool:
        return is_replaceable(self.name)

    def check_replaced(self) -> None:
        """Raise ConnectorError if what exists is not results, or parts of another format.

        Readers of the directory would read these parts as well.
        """
        super().check_replaced()
        others = (part for part in parts_in(self.name) if not part.endswith(self._suffix))
        if self._fresh and (other := next(others, None)):
            what = (
                f"has parts of another format, such as {os.path.basename(other)}: remove them, or use another directory"
            )
            raise ConnectorError(f"{self.name}: {what}", "another format")

    @abstractmethod
    def _clear(self) -> None:
        """Remove the results of an earlier run."""

    def _replace(self) -> None:
        """Remove the results of an earlier run before anything is written."""
        self._touched = True
        if self._fresh:
            self._fresh = False
            self._clear()

    def _make_directory(self) -> None:
        """Create the directory of parts."""
        try:
            check_link(self.name.rstrip("/"))
            make_directory(self.name)
        except OSError as error:
            raise ConnectorError(f"{self.name}: cannot be made a directory for parts: {error.strerror}") from error

    def _check_left(self, n: int, size: int, unit: str) -> None:
        """Raise an error if fewer than n bytes or parts exist."""
        way = "restore it, or start over with --reset"
        if n and self._made:
            raise ConnectorError(f"{self.name}: is missing, but {n} {unit} were written before; {way}", "missing")
        if n > size:
            what = f"has {size} {unit}, but {n} were written before: it was changed; {way}"
            raise ConnectorError(f"{self.name}: {what}", "changed")


class TextSink(FileSink):
    """Append lines to a file, compressed as its suffix says.

    The constructor creates the file. Without `resume`, the first write or flush replaces an existing file. If the sink
    is closed before that, the file does not change.

    Each flush ends a frame (a member of gzip), so that the file can be truncated at every position. Two runs with
    equal rows write equal content. The compressed bytes are equal only if both flushed at the same rows.
    """

    def __init__(self, path: str, lines: LineWriter, options: Options, settings: SinkSettings) -> None:
        super().__init__(path, options, settings)
        self._lines = lines
        if path.lower().endswith(ZIP_SUFFIX):
            raise ConnectorError(f"{path}: ZIP archives are not written: use .gz or .zst", "no sink")
        self._frames = Frames(path)
        with convert_errors(path):
            check_link(path)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - held until close
        self._durable = self._size() if settings.resume else 0
        self._has_name = os.fstat(self._file.fileno()).st_nlink > 0  # unlike a temporary file as /dev/stdout
        sync_directory(os.path.dirname(os.path.realpath(path)))

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def write(self, table: Results) -> None:
        """Append rows. Write a header first if the file is empty and the format has one."""
        self._replace()
        if self._columns is None and not self._size():
            self._append(self._lines.head(list(table)))
        self._check_columns(table)
        self._append(self._lines.body(table))

    def _clear(self) -> None:
        self._cut(0)

    def _cut(self, size: int) -> None:
        with convert_errors(self.name):
            self._file.truncate(size)

    def _sync(self) -> None:
        with convert_errors(self.name):
            os.fsync(self._file.fileno())

    def _append(self, data: bytes) -> None:
        _write_all(self._file, self._frames.add(data), self.name)

    def flush(self) -> None:
        """Make all written rows durable."""
        self._replace()
        _write_all(self._file, self._frames.end(), self.name)
        self._sync()
        self._check_kept()
        self._durable = self._size()

    def _check_kept(self) -> None:
        """Raise an error if another program has removed or truncated the file."""
        about = os.fstat(self._file.fileno())
        is_removed = self._has_name and not about.st_nlink
        if is_removed or about.st_size < self._durable:
            what = "was removed" if is_removed else "was truncated"
            way = "start the run over, with --reset if it has a checkpoint"
            raise ConnectorError(f"{self.name}: {what} by another program, so that results are lost; {way}", "changed")

    @property
    def position(self) -> Position:
        """Number of durable bytes, and the columns."""
        return {"bytes": self._durable, "columns": self._columns}

    def rewind(self, position: Position) -> None:
        """Truncate the file to its size at `position`."""
        size = int(position["bytes"])
        self._check_left(size, self._size(), "bytes")
        if size and position["columns"] not in names_in(self.name):
            raise ConnectorError(
                f"{self.name}: does not begin with what was written before: the file was changed", "changed"
            )
        self._cut(size)
        self._sync()
        self._frames.end()  # of rows after the position
        self._touched, self._fresh, self._durable = True, False, size
        self._columns = position["columns"]

    def close(self) -> None:
        """Flush the written rows and close the file."""
        if self._file.closed:
            return
        with self._file:
            if self._touched:
                self.flush()
        if self._made and not self._touched:
            os.remove(os.path.realpath(self.name))


class OutputPipe(Sink):
    """Write lines to standard output, a pipe or a device. It cannot be rewound."""

    can_rewind = False

    def __init__(self, path: str, lines: LineWriter, options: Options) -> None:
        self.name = "standard output" if path == "-" else path
        options.finish()
        self._lines = lines
        self._written = 0
        with convert_errors(self.name):
            check_link(path)
            self._file = _open_standard_output() if path == "-" else open(path, "wb", buffering=0)  # noqa: SIM115

    def write(self, table: Results) -> None:
        """Write rows."""
        data = self._lines.body(table)
        if not self._written:
            data = self._lines.head(list(table)) + data
        _write_all(self._file, data, self.name)
        self._written += len(data)

    def flush(self) -> None:
        """Do nothing: rows are not buffered."""

    @property
    def position(self) -> Position:
        """Number of bytes written."""
        return {"bytes": self._written}

    def close(self) -> None:
        """Close the file. Standard output stays open."""
        self._file.close()


class NullSink(Sink):
    """Discard all rows."""

    name = "null:"
    can_rewind = True

    def write(self, table: Results) -> None:
        """Discard the rows."""

    def flush(self) -> None:
        """Do nothing."""

    @property
    def position(self) -> Position:
        """Always empty."""
        return {}

    def rewind(self, position: Position) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _write_all(file: io.FileIO, data: bytes, name: str) -> None:
    view = memoryview(data)
    with convert_errors(name):
        while view:
            view = view[file.write(view) :]


@contextlib.contextmanager
def convert_errors(name: str) -> Iterator[None]:
    """Convert an OSError to a `ConnectorError` that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the pipe, such as `head`, has exited
    except OSError as error:
        folder = os.path.dirname(name)
        absent = isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder)
        what = f"no such directory: {folder}" if absent else error.strerror or error
        raise ConnectorError(f"{name}: cannot be written: {what}", "write") from error


def _open_standard_output() -> io.FileIO:
    if sys.stdout is None:  # closed before Python started: its file descriptor may now be another file
        raise OSError(errno.EBADF, "it is closed")
    sys.stdout.flush()
    return open(1, "wb", buffering=0, closefd=False)


def open_lines(lines: LineWriter, path: str, options: Options, settings: SinkSettings) -> Sink:
    """Open a sink that writes lines to a file, directory of parts, object or pipe."""
    if "://" in path:
        from connectors.remote.sinks import RemoteTextSink, check_options

        check_options(path, options)
        return RemoteTextSink(lines, path, options, settings)
    if not is_pipe(path) and (options.has("rotate_bytes") or options.has("partition_by")):
        from connectors.outputs.parts import TextPartsSink

        return TextPartsSink(path, lines, options, settings)
    return OutputPipe(path, lines, options) if is_pipe(path) else TextSink(path, lines, options, settings)


def open_null(path: str, options: Options, _: SinkSettings) -> Sink:
    """Open a sink that discards all rows."""
    if path != NullSink.name:
        raise ConnectorError(f"{path}: use only {NullSink.name}")
    options.finish()
    return NullSink()
