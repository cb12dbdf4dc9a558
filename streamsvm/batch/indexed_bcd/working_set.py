"""Working set of the rows near a hyperplane."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.rows import MemoryRows, Rows, stack


class WorkingSet:
    """Collector of the rows within `limit` of a hyperplane during a pass.

    A set that exceeds `memory` bytes is discarded.
    """

    def __init__(self, index: Rows, limit: float, memory: float) -> None:
        self.index, self.limit, self.memory = index, limit, memory
        self.positions: list[Ints] = []
        self.parts: list[Any] = []
        self.n_rows = 0

    @property
    def is_of_use(self) -> bool:
        """Whether the set has rows, and they fit in memory."""
        return 0 < self.n_rows <= self.memory / max(1.0, self.index.row_bytes)

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        """Collect rows with scores z near 0 from a block that begins at position `start`."""
        near = np.flatnonzero(np.abs(z) <= self.limit)
        if not len(near) or (self.n_rows and not self.is_of_use):
            return
        self.n_rows += len(near)
        if self.is_of_use:
            self.positions.append(_compact(start + near))
            self.parts.append(matrix.rows(near).X)
        else:
            self.close()

    def rows(self) -> tuple[Ints, Rows]:
        """Return the positions and the rows, and clear the set."""
        kept = np.concatenate(self.positions)
        rows = MemoryRows(stack(self.parts, self.index.shape[1]))
        self.close()
        return kept, rows

    def close(self) -> None:
        """Discard all rows."""
        self.parts.clear()
        self.positions.clear()


def _compact(positions: Ints) -> Ints:
    return positions.astype(np.min_scalar_type(int(positions[-1])))
