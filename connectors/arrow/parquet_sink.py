"""Parquet sinks, which write directories of parts. Requires pyarrow."""

from __future__ import annotations

import glob
import os
from itertools import chain
from typing import Any

from connectors.arrow.columns import import_arrow
from connectors.events import Position, Results
from connectors.options import Options
from connectors.outputs.files import FileSink, convert_errors
from connectors.outputs.parts import Part, PartsSink
from connectors.outputs.results import HeldRows, flat_columns, sync_directory
from connectors.registry import SinkSettings
from connectors.streams import Sink

PART_ROWS = 1 << 17


def array_of(pa: Any, values: list[Any], before: Any) -> Any:
    """Convert values to an Arrow array.

    The type is that of earlier parts. If the values do not fit, it is inferred from them; mixed values become text.

    Parameters
    ----------
    pa
        The package pyarrow.
    values
        Values of built-in types.
    before
        Type in earlier parts, null if unknown.
    """
    for kind in () if before == pa.string() else (before, None):
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError):
            continue
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def write_table(pa: Any, table: Any, path: str) -> None:
    """Write a table to a file, atomically and durably."""
    with open(path + ".tmp", "wb") as file:
        pa.parquet.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


class ParquetSink(FileSink):
    """Write a directory of Parquet files.

    Rows are buffered until a flush or the maximum size of a part.

    The parts depend on the flushes. Two runs with equal rows write equal content. The bytes are equal only if both
    flushed at the same rows.
    """

    def __init__(self, path: str, options: Options, settings: SinkSettings) -> None:
        super().__init__(path, options, settings, ".parquet")
        self._pa = import_arrow(path)
        self._make_directory()
        self._parts = self._durable = self._count() if settings.resume else 0
        self._take_last_schema()

    def _part(self, number: int) -> str:
        return os.path.join(self.name, f"part-{number:06d}.parquet")

    def _existing(self) -> list[str]:
        """Return the names of parts, also of temporary ones."""
        return glob.glob(os.path.join(glob.escape(self.name), "part-*.parquet*"))

    def _count(self) -> int:
        number, existing = 0, set(self._existing())
        while self._part(number) in existing:
            number += 1
        return number

    def _opened(self, path: str) -> Any:
        """Return what pyarrow reads a part from."""
        return path

    def _take_last_schema(self) -> None:
        """Continue after the last part."""
        last = self._opened(self._part(self._parts - 1)) if self._parts else None
        self._schema = None if last is None else self._pa.parquet.read_schema(last)
        self._columns, self._held = None if self._schema is None else self._schema.names, HeldRows()

    def write(self, table: Results) -> None:
        """Buffer rows."""
        self._check_columns(table)
        self._held.add(flat_columns(table))
        if self._held.n >= PART_ROWS:
            self._write_part()

    def _write_part(self) -> None:
        self._replace()
        if not self._held.n:
            return
        arrays = {name: self._array(name, values) for name, values in self._held.items()}
        part = self._part(self._parts)
        table = self._pa.table(arrays)
        with convert_errors(part):
            self._retype(table.schema)
            self._write_table(table, part)
        self._parts += 1
        self._schema, self._held = table.schema, HeldRows()

    def _write_table(self, table: Any, path: str) -> None:
        write_table(self._pa, table, path)

    def _retype(self, schema: Any) -> None:
        """Rewrite earlier parts in which a column was empty, with its current type.

        Readers use the schema of the first part.
        """
        null = self._pa.null()
        before = [] if self._schema is None else self._schema.types
        typed = [i for i, kind in enumerate(before) if kind == null != schema.types[i]]
        for number in range(self._parts if typed else 0):  # an interrupted rewrite leaves the last part as it was
            table = self._pa.parquet.read_table(self._opened(self._part(number)))
            for i in typed:
                table = table.set_column(i, schema.field(i), table.column(i).cast(schema.types[i]))
            self._write_table(table, self._part(number))

    def _array(self, name: str, values: list[Any]) -> Any:
        return array_of(self._pa, values, self._pa.null() if self._schema is None else self._schema.field(name).type)

    def _clear(self) -> None:
        self._drop(0)

    def _drop(self, first: int) -> None:
        """Remove the parts from a number on, and temporary files of a killed run."""
        for path in self._existing():
            if not first or path.endswith(".tmp") or path >= self._part(first):
                self._remove(path)

    def _remove(self, path: str) -> None:
        os.remove(path)

    def _sync(self) -> None:
        """Make the names of parts durable."""
        sync_directory(self.name)

    def _remove_directory(self) -> None:
        os.rmdir(self.name)

    def flush(self) -> None:
        """Write the buffered rows as a part."""
        self._write_part()
        self._sync()
        self._durable = self._parts

    @property
    def position(self) -> Position:
        """Number of durable parts."""
        return {"parts": self._durable}

    def rewind(self, position: Position) -> None:
        """Remove the parts written after `position`."""
        parts = int(position["parts"])
        self._check_left(parts, self._count(), "parts")
        self._touched = True  # the next flush makes the removal durable
        self._drop(parts)
        self._fresh, self._parts, self._durable = False, parts, parts
        self._take_last_schema()

    def close(self) -> None:
        """Write the buffered rows, if any were ever written."""
        if self._touched:
            self.flush()
        elif self._made:
            self._remove_directory()
            self._made = False


class ParquetPartsSink(PartsSink):
    """Write Parquet parts of at most 131,072 rows; see `PartsSink`.

    Each flush writes the rows of unfinished parts to their files, from which a resumed run reads them. The size of a
    part counts 8 bytes for a number and the bytes of texts.

    Parameters
    ----------
    path, options, settings
        As for `PartsSink`.
    """

    most_rows = PART_ROWS

    def __init__(self, path: str, options: Options, settings: SinkSettings) -> None:
        self._pa = import_arrow(path)
        self._rows: dict[str, HeldRows] = {}  # by part
        self._types: dict[str, str] = {}  # of the columns of finished parts
        super().__init__(path, options, settings, ".parquet")

    def _measure(self, rows: Results) -> tuple[int, Any]:
        columns = flat_columns(rows)
        cells = chain.from_iterable(columns.values())
        size = sum(len(cell.encode(errors="replace")) if isinstance(cell, str) else 8 for cell in cells)
        return size, columns

    def _create(self, part: Part) -> None:
        self._rows[part.path] = HeldRows()

    def _put(self, part: Part, data: Any) -> None:
        self._rows[part.path].add(data)

    def _table(self, part: Part) -> Any:
        null = self._pa.null()
        kinds = {name: self._pa.type_for_alias(kind) for name, kind in self._types.items()}
        rows = self._rows[part.path].items()
        arrays = {name: array_of(self._pa, values, kinds.get(name, null)) for name, values in rows}
        # Readers cannot combine columns of texts with columns without a type.
        return self._pa.table({name: a if a.type != null else a.cast(self._pa.string()) for name, a in arrays.items()})

    def _sync(self, part: Part) -> None:
        with convert_errors(part.path):
            write_table(self._pa, self._table(part), part.unfinished)
        self._unsynced.add(os.path.dirname(part.path))  # a new file has replaced the one of the last flush
        part.durable = part.n_rows

    def _finish(self, folder: str) -> None:
        part = self._parts[folder]
        table = self._table(part)
        super()._finish(folder)
        del self._rows[part.path]
        columns = zip(table.schema, table.columns, strict=True)
        self._types |= {one.name: str(one.type) for one, column in columns if column.null_count < len(column)}

    def _state(self) -> Position:
        return super()._state() | {"types": dict(self._types)}

    def rewind(self, position: Position) -> None:
        """Remove parts and rows written after `position`."""
        self._types, self._rows = dict(position["types"]), {}
        super().rewind(position)

    def _durable_size(self, part: Part) -> int:
        exists = os.path.exists(part.unfinished)
        return int(self._pa.parquet.read_metadata(part.unfinished).num_rows) if exists else 0

    def _truncate(self, part: Part) -> None:
        # Without `partitioning=None`, pyarrow before 24 adds columns for folders such as "hour=5".
        table = self._pa.parquet.read_table(part.unfinished, partitioning=None).slice(0, part.durable)
        self._rows[part.path] = HeldRows(table.to_pydict())


def open_parquet(path: str, options: Options, settings: SinkSettings) -> Sink:
    """Open a directory of parts, local or in a store."""
    if "://" not in path:
        if options.has("rotate_bytes") or options.has("partition_by"):
            return ParquetPartsSink(path, options, settings)
        return ParquetSink(path, options, settings)
    from connectors.remote.sinks import RemoteParquetSink, check_options

    check_options(path, options)
    return RemoteParquetSink(path, options, settings)
