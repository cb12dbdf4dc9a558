"""Directory of Parquet files, rotated by size and partitioned by event time.

Requires pyarrow.
"""

from __future__ import annotations

import os
from typing import Any

from connectors.arrow.columns import import_arrow
from connectors.arrow.parquet_sink import PART_ROWS, array_of, write_table
from connectors.events import Position, Results
from connectors.options import Options
from connectors.outputs.files import convert_errors
from connectors.outputs.parts import Part, PartsSink
from connectors.outputs.results import HeldRows, flat_columns
from connectors.registry import SinkSettings


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
        size = sum(len(v.encode(errors="replace")) if isinstance(v, str) else 8 for column in columns for v in column)
        return size, columns

    def _create(self, part: Part) -> None:
        self._rows[part.path] = HeldRows(self._columns or ())

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
        self._rows[part.path] = HeldRows(table.schema.names)
        self._rows[part.path].add(table.to_pydict().values())
