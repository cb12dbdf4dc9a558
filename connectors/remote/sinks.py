"""Sinks in object stores and on SFTP servers, through fsspec."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import weakref
from typing import Any

from connectors.addresses import printable
from connectors.arrow.parquet_sink import ParquetSink
from connectors.errors import ConnectorError, OptionError
from connectors.events import Position
from connectors.options import Options
from connectors.outputs.files import TextSink
from connectors.outputs.results import LineWriter, are_results, names_in, names_in_parquet
from connectors.registry import SinkSettings
from connectors.remote.files import WEB, StorePath


def check_options(url: str, options: Options) -> None:
    """Refuse web servers, and the options of local folders of parts.

    Raises
    ------
    ConnectorError
        For the URL of a web server, or one of these options.
    """
    if url.partition("://")[0].lower() in WEB:
        what = "results cannot be written to a web server: use a local file or an object store"
        raise ConnectorError(f"{printable(url)}: {what}", "no sink")
    for name in ("rotate_bytes", "partition_by"):
        if options.has(name):
            what = "is for local folders: write to one, and copy its files to the store"
            raise OptionError(printable(url), name, what, "unknown")


class RemoteTextSink(TextSink):
    """Write one object, uploaded from a temporary local file when the sink is closed.

    Objects cannot be extended. A run with a checkpoint is therefore refused.
    """

    can_rewind = False

    def __init__(self, lines: LineWriter, url: str, options: Options, settings: SinkSettings) -> None:
        self._place, self._url = StorePath(url), url
        if settings.source is not None:
            what = "an object cannot be continued after a crash: with --checkpoint, write Parquet, which has parts"
            raise ConnectorError(f"{self._place.name}: {what}", "not seekable", option="--checkpoint")
        self._place.exists()  # refused credentials end the run before the first event
        folder = tempfile.mkdtemp(prefix="streamsvm-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # also if it is not closed
        self._local = os.path.join(folder, os.path.basename(self._place.path))
        super().__init__(self._local, lines, options, SinkSettings(overwrite=settings.overwrite))
        self.name = self._place.name

    def _is_replaceable(self) -> bool:
        return not self._place.exists() or any(map(are_results, names_in(self._url)))

    def flush(self) -> None:
        """Do nothing: the object appears at the end."""
        self._touched = True

    @property
    def position(self) -> Position:
        """Nothing is durable before the end."""
        return {}

    def close(self) -> None:
        """Upload the object; if this fails, keep the local file and name it."""
        if self._file.closed:
            return
        with self._file:
            if self._touched:
                super().flush()
        if self._touched:
            try:
                self._place.retry(lambda: self._place.system.put_file(self._local, self._place.path))
            except ConnectorError as error:
                self._remove.detach()
                error.args = (f"{error}; the results are in {self._local}",)
                raise
        self._remove()


class RemoteParquetSink(ParquetSink):
    """A directory of parts in a store. Each part appears as a whole."""

    def _make_directory(self) -> None:
        self._place = StorePath(self.name)
        self.name = self._place.name
        self._made = not self._existing()

    def _existing(self) -> list[str]:
        def listed() -> list[str]:
            with contextlib.suppress(FileNotFoundError):
                return list(self._place.system.ls(self._place.path, detail=False))
            return []

        names = map(os.path.basename, self._place.retry(listed))
        return [f"{self.name}/{name}" for name in names if name.startswith("part-") and ".parquet" in name]

    def _part(self, number: int) -> str:
        return f"{self.name}/part-{number:06d}.parquet"

    def _path(self, part: str) -> str:
        return f"{self._place.path.rstrip('/')}/{os.path.basename(part)}"

    def _opened(self, path: str) -> Any:
        return io.BytesIO(self._place.retry(lambda: self._place.system.cat_file(self._path(path))))

    def _write_table(self, table: Any, path: str) -> None:
        self._pa.parquet.write_table(table, file := io.BytesIO())
        self._place.retry(lambda: self._place.system.pipe_file(self._path(path), file.getvalue()))

    def _remove(self, path: str) -> None:
        self._place.retry(lambda: self._place.system.rm_file(self._path(path)))

    def _sync(self) -> None:
        """Do nothing: a written part is durable."""

    def _remove_directory(self) -> None:
        """Do nothing: stores have no empty directories."""

    def _is_replaceable(self) -> bool:
        return all(any(map(are_results, names_in_parquet(self._opened(part)))) for part in self._existing())
