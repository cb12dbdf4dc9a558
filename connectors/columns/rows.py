"""Sources of rows whose columns have types: data frames, Parquet and databases."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.columns.typed import TypedColumns
from connectors.events import Batch, Origins, Position
from connectors.streams import PrefetchSource


class RowSource(PrefetchSource):
    """Base class of sources that count rows from 0 and convert them by `TypedColumns`.

    Attributes
    ----------
    unit
        Name of the source in the origins of events.
    """

    unit: str = "source"
    _columns: TypedColumns
    _batch_size: int

    def __init__(self) -> None:
        super().__init__()
        self._row = 0
        self._total = math.inf  # unknown

    def _next(self, columns: Mapping[str, Any], n: int) -> Batch:
        """Count the next n rows as read, and return their events."""
        start, self._row = self._row, self._row + n
        origins = Origins({self.unit: self.name}, {"row": range(start, self._row)})
        return self._columns.batch(columns, n, origins, lambda: self._read_position)

    @property
    @abstractmethod
    def _mark(self) -> Position:
        """What identifies the rows read so far, beside their number."""

    @property
    def _read_position(self) -> Position:
        """Number of rows read, what identifies them, and the decisions about texts and times."""
        return {"row": self._row} | self._mark | self._columns.decided

    @property
    def _read_fraction(self) -> float | None:
        if self._total == math.inf:
            return None
        return self._row / self._total if self._total else 1.0

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return self._columns.notices
