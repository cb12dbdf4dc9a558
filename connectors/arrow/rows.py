"""Sources of Arrow record batches. Require pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.arrow.columns import ArrowColumns
from connectors.arrow.nested import ArrowFlattening
from connectors.columns.roles import Roles
from connectors.columns.rows import RowSource
from connectors.errors import ConnectorError
from connectors.events import BATCH_EVENTS, Batch, Position
from connectors.options import Options


def import_arrow(name: str) -> Any:
    """Import pyarrow with its Parquet module."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConnectorError(
            f"{name}: Parquet needs pyarrow: pip install 'streamsvm[parquet]'", "no pyarrow"
        ) from error
    return pyarrow


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

    def __init__(self, name: str, options: Options) -> None:
        super().__init__()
        self.name, self._pa = name, import_arrow(name)
        self._wanted = options.integer("batch_size", BATCH_EVENTS, 1)
        self._roles = Roles.of(options)
        self._nested = ArrowFlattening(options, self._roles)
        options.finish()

    def _take_schema(self, schema: Any, before: ArrowColumns | None = None) -> None:
        """Use the columns of a schema, with the decisions of those before."""
        self._columns = ArrowColumns(self.name, schema, self._roles, self._nested, before)
        self._batch_size = self._columns.most_events(self._wanted)

    def _split(self, rows: Any, first: int = 0) -> Iterator[Batch]:
        """Yield the events of a record batch from a row on."""
        for start in range(first, len(rows), self._batch_size):
            part = rows.slice(start, self._batch_size)
            yield self._next(self._columns.flat(part), len(part))

    @property
    def _mark(self) -> Position:
        return {"sha256": self._fingerprint}

    def _go_to(self, position: Position) -> None:
        row = int(position["row"])
        if position.get("sha256") != self._fingerprint or not 0 <= row <= self._total:
            raise ConnectorError(f"{self.name}: is not what was read before", "another")
        self._row = row
        self._columns.restore(position)
