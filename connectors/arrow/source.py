"""Source of Arrow data and data frames of any library. Requires pyarrow."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

from connectors.arrow.columns import ArrowColumns, ArrowRows
from connectors.columns.typed import SAMPLE
from connectors.errors import ConnectorError
from connectors.events import Batch, Position
from connectors.options import Options

_READ_ROWS = 1 << 16
"""Number of rows of a lazy frame to compute at a time."""


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
            yield from self._batches_of(data.head(0).collect())
            for frame in data.collect_batches(chunk_size=_READ_ROWS, maintain_order=True):
                yield from self._batches_of(frame)
        elif hasattr(data, "__arrow_c_stream__"):
            reader = self._pa.RecordBatchReader.from_stream(data)
            yield self._empty(reader.schema)
            yield from reader
        else:
            for part in data:
                yield from self._batches_of(part)

    def _batches_of(self, part: Any) -> list[Any]:
        table = self._table(part)
        found: list[Any] = table.to_batches() or [self._empty(table.schema)]
        return found

    def _empty(self, schema: Any) -> Any:
        """Return a batch without rows."""
        # `from_pylist` lacks some types of dictionaries, such as those of polars 1.
        return self._pa.RecordBatch.from_arrays([self._pa.nulls(0, kind) for kind in schema.types], schema=schema)

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

    def _batches(self) -> Iterator[Batch]:
        if self._row == 0:
            self._look_at_first()
        while (part := self._held.pop(0) if self._held else self._pulled()) is not None:
            self._check_schema(part.schema)
            yield from self._split(part)

    def _look_at_first(self) -> None:
        """Decide by the first rows which texts are numbers, wherever batches end."""
        wanted = SAMPLE if self._columns.is_open else 1
        while sum(map(len, self._held)) < wanted and (part := self._pulled()) is not None:
            self._held.append(part)
        alike = [part for part in self._held if part.schema.equals(self._schema)]
        rows = self._pa.Table.from_batches(alike).slice(0, SAMPLE).unify_dictionaries().combine_chunks()
        self._columns.look_at(self._columns.flat(self._batches_of(rows)[0]))

    def _pulled(self) -> Any:
        """Read the next record batch, None at the end."""
        try:
            return next(self._parts, None)
        except ConnectorError:
            raise
        except Exception as error:
            raise ConnectorError(f"{self.name}: cannot be read after row {self._row}: {error}", "read") from error

    def _check_schema(self, schema: Any) -> None:
        """Refuse a batch whose columns differ in name or kind from the first batch."""
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
        self._held, self._parts = [], self._parts_from(self._row)

    def _close_files(self) -> None:
        self._parts, self._held = iter(()), []
