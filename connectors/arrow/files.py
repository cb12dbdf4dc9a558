"""Sources of Parquet files and Arrow IPC files (Feather). Requires pyarrow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from connectors.addresses import printable
from connectors.arrow.columns import ArrowColumns, ArrowRows
from connectors.arrow.source import ArrowSource
from connectors.columns.typed import SAMPLE
from connectors.errors import ConnectorError
from connectors.events import Batch
from connectors.options import Options

# Upper limits of one read. Smaller reads take about as long.
_READ_ROWS, _READ_VALUES, _READ_BYTES = 1 << 13, 1 << 22, 1 << 24


class ParquetSource(ArrowRows):
    """Read events in batches of rows; see `TypedColumns`."""

    unit = "file"

    def __init__(self, path: str, options: Options) -> None:
        super().__init__(printable(path), options)
        self._open(path, None)

    def _open(self, path: str, before: ArrowColumns | None) -> None:
        try:
            with _bytes_of(path) as file:
                version = getattr(file.raw, "version", None) or ""  # of a remote file
                self._fingerprint = hashlib.sha256(file.read(4096) + version.encode()).hexdigest()
            self._file = self._opened(path)
        except FileNotFoundError:
            raise ConnectorError(f"{self.name}: no such file", "missing") from None
        except (OSError, self._pa.ArrowException) as error:
            raise ConnectorError(f"{self.name}: cannot be read as Parquet: {error}", "not Parquet") from error
        self._take_schema(self._file.schema_arrow, before)
        self._total, self._row = self._file.metadata.num_rows, 0

    def _open_next(self, path: str) -> None:
        self._close_files()
        self.name = printable(path)
        self._open(path, self._columns)

    def _opened(self, path: str) -> Any:
        """Open a file and keep dictionary-encoded texts as dictionaries.

        Each distinct text is decoded once.
        """
        kinds = self._pa.types
        file = self._pa.parquet.ParquetFile(_place_of(path), pre_buffer="://" in path)
        texts = [one.name for one in file.schema_arrow if kinds.is_string(one.type) or kinds.is_large_string(one.type)]
        texts = [name for name in texts if self._is_dictionary(file, name)]
        if not texts:
            return file
        with file:
            return self._pa.parquet.ParquetFile(
                _place_of(path), metadata=file.metadata, read_dictionary=texts, pre_buffer="://" in path
            )

    def _is_dictionary(self, file: Any, name: str) -> bool:
        """Return whether any row group stores a column as a dictionary."""
        column = file.metadata.schema.names.index(name)
        groups = (file.metadata.row_group(i).column(column) for i in range(file.num_row_groups))
        return any("DICTIONARY" in encoding for group in groups for encoding in group.encodings)

    def _batches(self) -> Iterator[Batch]:
        columns = self._columns.names_read
        read = max(self._batch_size, min(_READ_ROWS, _READ_VALUES // max(len(columns), 1)))
        start = 0
        for number in range(self._file.num_row_groups):
            about = self._file.metadata.row_group(number)
            skip, start = self._row - start, start + about.num_rows  # the rows that were read before
            if skip >= about.num_rows:
                continue
            n = max(1, min(read, _READ_BYTES * about.num_rows // max(about.total_byte_size, 1)))
            try:
                for part in self._file.iter_batches(n, row_groups=[number], columns=columns):
                    first, skip = min(skip, len(part)), max(0, skip - len(part))
                    if self._row == 0:
                        self._columns.look_at(self._columns.flat(part.slice(0, SAMPLE)))
                    yield from self._split(part, first)
            except (OSError, self._pa.ArrowException) as error:
                raise ConnectorError(f"{self.name}: cannot be read after row {self._row}: {error}") from error

    def _close_files(self) -> None:
        self._file.close()


class ArrowFileSource(ArrowSource):
    """Read the events of a file; see `ArrowSource`."""

    unit = "file"

    def _opened(self, data: str) -> Any:
        self.name = printable(data)
        try:
            with _bytes_of(data) as file:
                self._identity = file.read(4096) + (getattr(file.raw, "version", None) or "").encode()
            # Mapped, so that one batch may be larger than the memory.
            table = self._pa.ipc.open_file(_bytes_of(data) if "://" in data else self._pa.memory_map(data))
            _ = table.schema.names  # raises an error if they are not UTF-8
            return table
        except FileNotFoundError:
            raise ConnectorError(f"{self.name}: no such file", "missing") from None
        except (OSError, ValueError, self._pa.ArrowException) as error:
            what = f"cannot be read as an Arrow IPC file (Feather version 2): {error}"
            raise ConnectorError(f"{self.name}: {what}", "not Arrow") from error

    def _stream(self) -> Iterator[Any]:
        yield self._empty(self._data.schema)
        for i in range(self._data.num_record_batches):
            batch = self._data.get_batch(i)
            batch.validate(full=True)  # damaged offsets would end the process
            yield batch

    def _open_next(self, path: str) -> None:
        self._open(path, self._columns)


def _bytes_of(path: str) -> Any:
    """Open a path or a URL as a binary file."""
    if "://" not in path:
        return open(path, "rb")
    from connectors.remote.files import open_random

    return open_random(path)


def _place_of(path: str) -> Any:
    """Return what pyarrow opens: the path, or the binary file of a URL."""
    return _bytes_of(path) if "://" in path else path
