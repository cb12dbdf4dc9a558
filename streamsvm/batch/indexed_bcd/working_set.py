"""Rows near a hyperplane, apart from all others."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.rows import Index, MemoryRows, Rows, bytes_of, stack

# Rows near the hyperplane are of no use apart where they are more than this share of all.
MANY = 0.25


class WorkingSet:
    """Rows within `limit` of a hyperplane, as one pass meets them.

    They are held in memory up to so many bytes; if they are more they go to disk, and if they are many they are given
    up, as a pass over them costs no less than one over all rows.
    """

    def __init__(self, index: Index, limit: float, memory: float) -> None:
        self.index, self.limit, self.memory = index, limit, memory
        self.positions: list[Ints] = []
        self.parts: list[Any] = []
        self.n_rows = self.n_bytes = 0
        self.on_disk: Any = None

    @property
    def is_of_use(self) -> bool:
        """Whether there are rows, and not too many."""
        return 0 < self.n_rows <= most_apart(self.index, self.memory)

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        """Keep those rows of a block, which begins at position `start`, whose scores z, shape (n,), are near 0."""
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
        """Their positions, and they themselves."""
        kept = np.concatenate(self.positions)
        self.positions.clear()
        if self.on_disk is not None:
            self._spill()
            return kept, self.on_disk
        rows = MemoryRows(stack(self.parts, self.index.shape[1]))
        self.parts.clear()
        return kept, rows

    def close(self) -> None:
        """Let go of all rows, on disk too."""
        self.parts.clear()
        self.positions.clear()
        if self.on_disk is not None:
            self.on_disk.close()
            self.on_disk = None


def most_apart(rows: Rows, memory: float) -> float:
    """How many rows near the hyperplane are worth going through apart from others, as passes over them are cheaper."""
    return max(MANY * rows.shape[0], memory / max(1.0, rows.row_bytes))


def _compact(positions: Ints) -> Ints:
    return positions.astype(np.min_scalar_type(int(positions[-1])))
