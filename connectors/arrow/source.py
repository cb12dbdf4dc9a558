"""Sources of Arrow data: data frames of any library, Parquet and Arrow IPC files.

They require pyarrow.
"""

from __future__ import annotations

import contextlib
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from connectors.addresses import printable
from connectors.arrow.columns import ArrowColumns, ArrowFlattening, import_arrow
from connectors.columns.roles import Roles
from connectors.columns.typed import SAMPLE, RowSource
from connectors.errors import ConnectorError
from connectors.events import BATCH_EVENTS, Batch, Position
from connectors.options import Options

_READ_ROWS = 1 << 16
"""Number of rows of a lazy frame to compute at a time."""
# Upper limits of one read of a file. Smaller reads take about as long.
_FILE_ROWS, _FILE_VALUES, _FILE_BYTES = 1 << 13, 1 << 22, 1 << 24


class ArrowRows(RowSource):
    """Base class of sources of record batches.

    Parameters
    ----------
    name
        Name of the source.
    options
        `batch_size`, the options of roles such as `label`, and those of values such as `missing`.
    """

    _columns: ArrowColumns
    _fingerprint: str
    _parts: Iterator[Any]
    _most_first = SAMPLE
    """Number of rows to read before types are decided."""

    def __init__(self, name: str, options: Options) -> None:
        super().__init__()
        self.name, self._pa = name, import_arrow(name)
        self._wanted = options.integer("batch_size", BATCH_EVENTS, 1)
        self._roles = Roles.of(options)
        self._nested = ArrowFlattening(options, self._roles)
        self._held: list[Any] = []  # record batches that were read before their turn
        options.finish()

    def _take_schema(self, schema: Any, before: ArrowColumns | None = None) -> None:
        """Use the columns of a schema, with the decisions of those before."""
        self._columns = ArrowColumns(self.name, schema, self._roles, self._nested, before)
        self._batch_size = self._columns.most_events(self._wanted)

    @abstractmethod
    def _open(self, data: Any, before: ArrowColumns | None) -> None:
        """Open data, with the decisions about the columns of those before."""

    def _open_next(self, path: str) -> None:
        self._open(path, self._columns)

    @abstractmethod
    def _parts_from(self, row: int) -> Iterator[Any]:
        """Iterate over record batches from a row on; the first may be empty."""

    def _batches(self) -> Iterator[Batch]:
        if self._row == 0:
            self._inspect_first_rows()
        while (part := self._held.pop(0) if self._held else self._pulled()) is not None:
            self._check_schema(part.schema)
            for start in range(0, len(part), self._batch_size):
                rows = part.slice(start, self._batch_size)
                yield self._next(self._columns.flat(rows), len(rows))

    def _check_schema(self, schema: Any) -> None:
        """Refuse a batch whose columns differ in name or kind from the first batch."""

    def _inspect_first_rows(self) -> None:
        """Decide by the first rows which texts are numbers, wherever batches end."""
        wanted = self._most_first if self._columns.is_open else 1
        while sum(map(len, self._held)) < wanted and (part := self._pulled()) is not None:
            self._held.append(part)
        if alike := [part for part in self._held if part.schema.equals(self._held[0].schema)]:
            rows = self._pa.Table.from_batches(alike).slice(0, SAMPLE).unify_dictionaries().combine_chunks()
            self._columns.infer_types(self._columns.flat(self._batches_of(rows)[0]))

    def _batches_of(self, table: Any) -> list[Any]:
        found: list[Any] = table.to_batches() or [self._empty(table.schema)]
        return found

    def _empty(self, schema: Any) -> Any:
        """Return a batch without rows."""
        # `from_pylist` lacks some types of dictionaries, such as those of polars 1.
        return self._pa.RecordBatch.from_arrays([self._pa.nulls(0, kind) for kind in schema.types], schema=schema)

    def _pulled(self) -> Any:
        """Read the next record batch, None at the end."""
        try:
            return next(self._parts, None)
        except ConnectorError:
            raise
        except Exception as error:
            raise ConnectorError(f"{self.name}: cannot be read after row {self._row}: {error}", "read") from error

    @property
    def _mark(self) -> Position:
        return {"sha256": self._fingerprint}

    def _seek(self, position: Position) -> None:
        row = int(position["row"])
        if position.get("sha256") != self._fingerprint or not 0 <= row <= self._total:
            raise ConnectorError(f"{self.name}: is not what was read before", "another")
        self._row = row
        self.recall(position)
        self._held, self._parts = [], self._parts_from(row)

    def recall(self, position: Position) -> None:
        """Restore the types of columns."""
        self._columns.restore(position)


class ArrowSource(ArrowRows):
    """Read events from Arrow data, data frames, or an iterable of them.

    Frames in memory, lazy frames and DuckDB relations can be read again, so a run over them can be resumed. Lazy ones
    must give equal rows in equal order each time. Iterators, readers and other streams can be read once.

    Parameters
    ----------
    data
        A data frame or lazy frame that narwhals supports, an object with `__arrow_c_stream__` or `__arrow_c_array__`,
        or an iterable of such objects, whose columns have equal names and kinds.
    options
        `batch_size`, the options of roles such as `label`, and those of values such as `missing`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from connectors import open_source
    >>> table = pa.table({"size": [1.5, None], "colour": ["red", "blue"], "y": [0, 1]})
    >>> for batch in open_source(iter([table]), label="y"):
    ...     print(batch.rows(), batch.labels)
    [{'size': 1.5, 'colour': 'red'}, {'colour': 'blue'}] [0, 1]
    """

    def __init__(self, data: Any, options: Options) -> None:
        super().__init__(options.name, options)
        self._is_read_once, self._identity = False, b""
        self._open(data, None)

    def _open(self, data: Any, before: ArrowColumns | None) -> None:
        self._row, self._data = 0, self._opened(data)
        self._parts = self._parts_from(0)
        first = self._pulled()
        if first is None:
            raise ConnectorError(f"{self.name}: has no columns, because it has no batches", "empty")
        self._held, self._schema = [first], first.schema
        self._fingerprint = hashlib.sha256(self._identity or repr(self._schema.names).encode()).hexdigest()
        self._take_schema(self._schema, before)

    def _opened(self, data: Any) -> Any:
        """Return data to read. Tables in memory become Arrow tables."""
        import narwhals as nw

        with self._converting(data):
            frame = nw.from_native(data, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            if hasattr(data, "collect_batches") or hasattr(data, "__arrow_c_stream__"):
                return data
            frame = frame.collect("pyarrow")
        if isinstance(frame, nw.DataFrame) or hasattr(data, "__arrow_c_array__"):
            table = self._table(frame)
            self._total = len(table)
            return table
        if not (hasattr(data, "__arrow_c_stream__") or isinstance(data, Iterable)):
            what = "is not a source: give a URL, a data frame, Arrow data, or an iterable of them"
            raise ConnectorError(f"{self.name}: {what}", "type")
        self._is_read_once = not isinstance(data, list | tuple)
        return data

    def _parts_from(self, row: int) -> Iterator[Any]:
        """Iterate over record batches from a row on; the first may be empty."""
        if isinstance(self._data, self._pa.Table):
            yield from self._batches_of(self._data.slice(row))
            return
        for part in self._stream():
            skipped = min(row, len(part))
            row -= skipped
            yield part.slice(skipped)

    def _stream(self) -> Iterator[Any]:
        """Iterate over the record batches of data that are not in memory."""
        data = self._data
        if hasattr(data, "collect_batches"):  # polars
            yield from self._batches_of(self._table(data.head(0).collect()))
            for frame in data.collect_batches(chunk_size=_READ_ROWS, maintain_order=True):
                yield from self._batches_of(self._table(frame))
        elif hasattr(data, "__arrow_c_stream__"):
            reader = self._pa.RecordBatchReader.from_stream(data)
            yield self._empty(reader.schema)
            yield from reader
        else:
            for part in data:
                yield from self._batches_of(self._table(part))

    def _table(self, part: Any) -> Any:
        """Return a data frame or Arrow data as an Arrow table."""
        import narwhals as nw

        with self._converting(part):
            frame = nw.from_native(part, pass_through=True)
            return frame.to_arrow() if isinstance(frame, nw.DataFrame) else self._pa.table(part)

    @contextlib.contextmanager
    def _converting(self, part: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each library has its own
            what = f"a value of type {type(part).__name__} cannot be converted to an Arrow table: {error}"
            raise ConnectorError(f"{self.name}: {what}", "type") from error

    def _check_schema(self, schema: Any) -> None:
        if schema is self._schema or schema.equals(self._schema):
            return
        if schema.names != self._schema.names:
            what = f"after row {self._row}, the columns are {schema.names}, but were {self._schema.names}"
            raise ConnectorError(f"{self.name}: {what}", "columns differ")
        self._columns.check_types(schema, f"after row {self._row}")
        self._schema = schema

    def _seek(self, position: Position) -> None:
        if self._is_read_once:
            what = "can be read only once; use a table or a lazy frame"
            raise ConnectorError(f"{self.name}: {what}", "not seekable")
        super()._seek(position)

    def _close_files(self) -> None:
        self._parts, self._held = iter(()), []


class ParquetSource(ArrowRows):
    """Read events in batches of rows; see `TypedColumns`."""

    unit = "file"
    _most_first = 1

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
        self._held, self._parts = [], self._parts_from(self._row)
        yield from super()._batches()

    def _parts_from(self, row: int) -> Iterator[Any]:
        columns = self._columns.names_read
        read = max(self._batch_size, min(_FILE_ROWS, _FILE_VALUES // max(len(columns), 1)))
        start = 0
        for number in range(self._file.num_row_groups):
            about = self._file.metadata.row_group(number)
            skip, start = row - start, start + about.num_rows  # the rows that were read before
            if skip >= about.num_rows:
                continue
            n = max(1, min(read, _FILE_BYTES * about.num_rows // max(about.total_byte_size, 1)))
            for part in self._file.iter_batches(n, row_groups=[number], columns=columns):
                first, skip = min(max(skip, 0), len(part)), skip - len(part)
                yield part.slice(first)

    def _close_files(self) -> None:
        self._file.close()


class ArrowFileSource(ArrowSource):
    """Read the events of a file; see `ArrowSource`."""

    unit = "file"

    def _opened(self, data: str) -> Any:
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


def _bytes_of(path: str) -> Any:
    """Open a path or a URL as a binary file."""
    if "://" not in path:
        return open(path, "rb")
    from connectors.remote.files import open_random

    return open_random(path)


def _place_of(path: str) -> Any:
    """Return what pyarrow opens: the path, or the binary file of a URL."""
    return _bytes_of(path) if "://" in path else path
