"""The memory compiled steps work on: sections of one float64 buffer, and an int64 array that says where they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streamsvm.kernels.rows import COUNT_AT, N_CHANGING, N_COUNTERS, N_SECTIONS, WORK

Shape = tuple[int, ...]


class Arena:
    """Zeroed sections in one buffer.

    Parameters
    ----------
    shapes
        The sections' shapes.
    n_columns
        How many columns there is room for.
    dtypes
        The types of sections that are not float64.

    Attributes
    ----------
    values
        All sections, flat.
    buffer
        The same memory, for `struct.pack_into`.
    layout
        As `streamsvm.kernels.rows` has it.
    """

    def __init__(self, shapes: Sequence[Shape], n_columns: int, dtypes: Mapping[int, DTypeLike] | None = None) -> None:
        self.shapes = list(shapes)
        self.dtypes = [np.dtype((dtypes or {}).get(i, np.float64)) for i in range(len(self.shapes))]
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in zip(self.shapes, self.dtypes, strict=True)]
        offsets = np.cumsum([0] + [-(-size // 8) for size in sizes])
        if len(offsets) > N_SECTIONS:
            raise ValueError(f"{len(self.shapes)} sections, at most {N_SECTIONS - 1}")
        self.buffer = bytearray(8 * max(int(offsets[-1]), 1))
        self.values: NDArray[np.float64] = np.frombuffer(self.buffer, np.float64)
        count_at = WORK + n_columns + 1
        self.layout = np.zeros(count_at + n_columns + 1, np.int64)
        self.layout[N_COUNTERS : N_COUNTERS + len(offsets)] = offsets
        self.layout[COUNT_AT] = count_at
        self.layout[count_at:] = np.arange(n_columns + 1)

    def start(self, section: int) -> int:
        """Where a section begins in `values`."""
        return int(self.layout[N_COUNTERS + section])

    def __getitem__(self, section: int) -> NDArray[Any]:
        """A section, as a view in its shape and type."""
        shape, dtype = self.shapes[section], self.dtypes[section]
        whole = self.values[self.start(section) : self.start(section + 1)].view(dtype)
        return whole[: math.prod(shape)].reshape(shape)

    def take(self, other: Arena) -> None:
        """Take over what another arena has learned, as far as there is room."""
        self.layout[:N_CHANGING] = other.layout[:N_CHANGING]
        for i in range(len(self.shapes)):
            mine, theirs = self[i], other[i]
            common = tuple(slice(0, min(a, b)) for a, b in zip(mine.shape, theirs.shape, strict=True))
            mine[common] = theirs[common]
