"""The memory compiled steps work on: sections of one float64 buffer, and an int64 array that says where they are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streamsvm.kernels.rows import COUNT_AT, N_CHANGING, N_COUNTERS, N_SECTIONS, WORK

Shape = tuple[int, ...]

_most_bytes: ContextVar[float] = ContextVar("most_bytes", default=math.inf)


@contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """Refuse arenas of more bytes: what asks for them may not be trusted."""
    token = _most_bytes.set(n_bytes)
    try:
        yield
    finally:
        _most_bytes.reset(token)


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
        if sum(sizes) > _most_bytes.get():
            raise ValueError(f"an arena of {sum(sizes)} bytes, of which at most {_most_bytes.get()} are allowed")
        offsets = np.cumsum([0] + [-(-size // 8) for size in sizes])
        if len(offsets) > N_SECTIONS:
            raise ValueError(f"{len(self.shapes)} sections, at most {N_SECTIONS - 1}")
        # Memory that nothing is written to takes no room.
        self.values: NDArray[np.float64] = np.zeros(max(int(offsets[-1]), 1))
        self.buffer = self.values.data
        count_at = WORK + n_columns + 1
        self.layout = np.zeros(count_at + n_columns + 1, np.int64)
        self.layout[N_COUNTERS : N_COUNTERS + len(offsets)] = offsets
        self.layout[COUNT_AT] = count_at
        self.layout[count_at:] = np.arange(n_columns + 1)

    @property
    def counters(self) -> NDArray[np.int64]:
        """The counters that change, as a view."""
        return self.layout[:N_CHANGING]

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
        self.counters[...] = other.counters
        self._take_sections(other, len(self.shapes))

    def _take_sections(self, other: Arena, n: int) -> None:
        for i in range(n):
            mine, theirs = self[i], other[i]
            common = tuple(slice(0, min(a, b)) for a, b in zip(mine.shape, theirs.shape, strict=True))
            mine[common] = theirs[common]


class JoinedArena(Arena):
    """An arena with others inside: they move into its last section, and their layouts stand behind its own.

    Parameters
    ----------
    shapes, n_columns
        As for `Arena`, without the last section.
    parts
        The arenas to take in. They stay what they are, on other memory.
    """

    def __init__(self, shapes: Sequence[Shape], n_columns: int, parts: Sequence[Arena]) -> None:
        super().__init__([*shapes, (sum(part.values.size for part in parts),)], n_columns)
        # Parts may have room for fewer columns; all layouts are as long as the longest.
        whole = np.zeros((len(parts) + 1, max(len(arena.layout) for arena in (self, *parts))), np.int64)
        for row, arena in zip(whole, (self, *parts), strict=True):
            row[: len(arena.layout)] = arena.layout
        self.layout = whole.reshape(-1)
        _, *layouts = whole
        self.parts = list(parts)
        at = self.start(len(shapes))
        for part, layout in zip(parts, layouts, strict=True):
            # Most of a new arena is zero, and memory that nothing is written to takes no room.
            set_already = np.flatnonzero(part.values)
            self.values[at + set_already] = part.values[set_already]
            layout[N_COUNTERS : N_COUNTERS + len(part.shapes) + 1] += at
            at += part.values.size
            part.layout, part.values, part.buffer = layout, self.values, self.buffer

    @property
    def counters(self) -> NDArray[np.int64]:
        """The counters that change, a row for each layout, as a view."""
        return self.layout.reshape(len(self.parts) + 1, -1)[:, :N_CHANGING]

    def __getitem__(self, section: int | tuple[int, int]) -> NDArray[Any]:
        """A section, or (i, section) for one of part i."""
        if isinstance(section, tuple):
            return self.parts[section[0]][section[1]]
        return super().__getitem__(section)

    def take(self, other: Arena) -> None:
        """Take over what another arena of such parts has learned, as far as there is room."""
        assert isinstance(other, JoinedArena)
        self.counters[...] = other.counters
        self._take_sections(other, len(self.shapes) - 1)
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.take(theirs)
