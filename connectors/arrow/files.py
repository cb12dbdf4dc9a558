"""Source of Arrow IPC files, also called Feather. Requires pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from connectors.addresses import printable
from connectors.arrow.parquet import bytes_of
from connectors.arrow.source import ArrowSource
from connectors.errors import ConnectorError
from connectors.events import Position


class ArrowFileSource(ArrowSource):
    """Read the events of a file; see `ArrowSource`."""

    unit = "file"

    def _opened(self, data: str) -> Any:
        self.name = printable(data)
        try:
            with bytes_of(data) as file:
                self._identity = file.read(4096) + (getattr(file.raw, "version", None) or "").encode()
            # Mapped, so that one batch may be larger than the memory.
            table = self._pa.ipc.open_file(bytes_of(data) if "://" in data else self._pa.memory_map(data))
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

    def recall(self, position: Position) -> None:
        """Restore the types of columns."""
        self._columns.restore(position)
