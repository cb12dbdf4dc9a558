"""Templates: fast copies of a state and all its substates.

The memory of a copy is one block: that of the state, of its substates, and of the arrays bound to them. A copy writes
the words of the template that are not zero, and moves the addresses among them. Its substates become objects when they
are used.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.layout import Bound, Placed, aligned_zeros, array_address
from streamsvm.core.schema import ALIGNMENT, Number, i64, u64
from streamsvm.core.state import State, memory_of, place_of, state_at


class Template:
    """Copies of a state, which does not change afterwards.

    Parameters
    ----------
    state
        The state. Copies have their own substates and their own bound arrays, except those that are read-only.

    Attributes
    ----------
    placed : Placed
        The place of the state in this memory.
    """

    def __init__(self, state: State) -> None:
        self._regions: list[tuple[int, int, int]] = []  # start, end and new place of each array that is copied
        self._n_bytes = 0
        if len(set(map(id, state.all()))) < sum(1 for _ in state.all()):
            raise ValueError(f"a substate of {state.schema.name} has two places")
        contents: list[NDArray[np.uint8]] = []
        starts = [self._add(memory_of(part)[0], contents) for part in state.all()]
        self.placed = self._place(state, iter(starts), contents)
        fresh = np.zeros(self._n_bytes // 8, u64)
        content = fresh.view(np.uint8)
        for (_, _, at), part in zip(self._regions, contents, strict=True):
            content[at : at + part.size] = part
        moved = np.array(self._move_addresses(self.placed, fresh), np.intp)
        others = np.setdiff1d(fresh.nonzero()[0], moved)
        self._n_moved = len(moved)
        self._words = np.concatenate([moved, others])
        self._values = fresh[self._words].view(i64)

    def copy(self) -> State:
        """Return a copy of the state."""
        memory = aligned_zeros(self._n_bytes)
        self._write(memory)
        return state_at(self.placed, memory)

    def reset(self, state: State) -> None:
        """Give a copy the content of the template again."""
        _, memory = place_of(state)
        memory.fill(0)
        self._write(memory)

    def _write(self, memory: NDArray[np.uint8]) -> None:
        values = self._values.copy()
        values[: self._n_moved] += array_address(memory)
        memory.view(i64)[self._words] = values

    def fits(self, state: State) -> bool:
        """Return whether the memory of a state is arranged like that of a copy."""
        placed, _ = place_of(state)
        return placed is not None and [each.layout for each in placed.all()] == [
            each.layout for each in self.placed.all()
        ]

    @staticmethod
    def words_of(state: State) -> NDArray[np.uint64]:
        """Return the memory of a copy with all its substates as 8-byte words."""
        return place_of(state)[1].view(u64)

    @property
    def words(self) -> NDArray[np.uint64]:
        """The memory of a copy as 8-byte words, with addresses relative to its start."""
        words = np.zeros(self._n_bytes // 8, u64)
        words[self._words] = self._values.view(u64)
        return words

    @property
    def n_bytes(self) -> int:
        """Memory in bytes of a copy."""
        return self._n_bytes

    def _add(self, array: NDArray[np.uint8], contents: list[NDArray[np.uint8]]) -> int:
        """Add memory to the copies, and return its place."""
        at, start = self._n_bytes, array_address(array)
        self._regions.append((start, start + array.size, at))
        contents.append(array)
        self._n_bytes += -(-array.size // ALIGNMENT) * ALIGNMENT
        return at

    def _place(self, state: State, starts: Iterator[int], contents: list[NDArray[np.uint8]]) -> Placed:
        at = next(starts)
        parts = {name: self._place(part, starts, contents) for name, part in state.parts.items()}
        bound: dict[str, Bound | NDArray[np.generic]] = {}
        for name, array in state.bound.items():
            bound[name] = array
            if array.flags.writeable:
                place = self._find(array_address(array)) if array.size else 0
                if place is None:
                    place = self._add(array.reshape(-1).view(np.uint8), contents)
                bound[name] = Bound(place, array.shape, array.dtype)
        return Placed(at, state.schema, memory_of(state)[1], parts, bound)

    def _find(self, address: int) -> int | None:
        """Return the place of an address in a copy, None for other addresses."""
        found = (at + address - start for start, end, at in self._regions if start <= address < end)
        return next(found, None)

    def _move_addresses(self, placed: Placed, fresh: NDArray[np.uint64]) -> list[int]:
        """Make addresses relative to the memory, and return the indices of their words."""
        moved, first, schema, spans = list[int](), placed.start // 8, placed.schema, placed.layout.spans
        for name, word in schema.words.items():
            bound = placed.bound.get(name)
            if name in spans:
                start = placed.start + spans[name].start
            elif name in placed.parts:
                start = placed.parts[name].start
            elif isinstance(bound, Bound):
                start = bound.start
            else:
                continue
            fresh[first + word] = start
            moved.append(first + word)
        words = [schema.numbers[name][0] for name, number in schema.of(Number) if number.is_address]
        for name, array in schema.own_arrays.items():
            for key in array.addresses:
                offset = spans[name].start + array.element.fields[key][1]  # type: ignore[index]
                words += range(offset // 8, spans[name].end // 8, array.element.itemsize // 8)
        for word in words:
            place = self._find(int(fresh[first + word]))
            if place is not None:
                fresh[first + word] = place
                moved.append(first + word)
        return moved + [word for part in placed.parts.values() for word in self._move_addresses(part, fresh)]
