"""Working set of the rows near a hyperplane."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.rows import MemoryRows, Rows, bytes_of, stack

# Share of all rows from which a working set saves no time.
MANY = 0.25


class WorkingSet:
    """Collector of the rows within `limit` of a hyperplane during a pass.

    It holds up to `memory` bytes of rows and writes more to disk. A set of too many rows is discarded.
    """

    def __init__(self, index: MetricForest, limit: float, memory: float) -> None:
        self.index, self.limit, self.memory = index, limit, memory
        self.positions: list[Ints] = []
        self.parts: list[Any] = []
        self.n_rows = self.n_bytes = 0
        self.on_disk: Any = None

    @property
    def is_of_use(self) -> bool:
        """Whether the set has rows, but not too many."""
        return 0 < self.n_rows <= largest_working_set(self.index, self.memory)

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        """Collect rows with scores z near 0 from a block that begins at position `start`."""
        near = np.flatnonzero(np.abs(z) <= self.limit)
        if not len(near) or (self.n_rows and not self.is_of_use):
            return
        self.n_rows += len(near)
        if not self.is_of_use:
            self.close()
            return
        self.positions.append(_compact(start + near))
        self.parts.append(matrix.rows(near).X)
        self.n_bytes += bytes_of(self.parts[-1])
        if self.n_bytes > self.memory:
            self._spill()

    def _spill(self) -> None:
        self.on_disk = self.on_disk or self.index.spill()
        for part in self.parts:
            self.on_disk.add(part)
        self.parts.clear()
        self.n_bytes = 0

    def rows(self) -> tuple[Ints, Rows]:
        """Return the positions and the rows, and clear the set."""
        kept = np.concatenate(self.positions)
        self.positions.clear()
        if self.on_disk is not None:
            self._spill()
            return kept, self.on_disk
        rows = MemoryRows(stack(self.parts, self.index.shape[1]))
        self.parts.clear()
        return kept, rows

    def close(self) -> None:
        """Discard all rows, in memory and on disk."""
        self.parts.clear()
        self.positions.clear()
        if self.on_disk is not None:
            self.on_disk.close()
            self.on_disk = None


def largest_working_set(rows: Rows, memory: float) -> float:
    """Return the maximum number of rows of a working set."""
    return max(MANY * rows.shape[0], memory / max(1.0, rows.row_bytes))


def _compact(positions: Ints) -> Ints:
    return positions.astype(np.min_scalar_type(int(positions[-1])))
