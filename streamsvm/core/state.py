"""States: the memory that a schema declares.

A `State` is one block of memory. It starts with a record of all numbers and, for each array and substate, its address
and shape. Compiled code takes a state as the address of that record, and reads and writes

    state.n_vectors        state.coefs[h, c, b]        state.heads[h].eta        state.ranks.seen

as loads and stores at fixed offsets. Array views are built from the addresses without reference counts. The module
`access_numba` implements this.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.layout import Bound, Layout, Placed, aligned_zeros, array_address, copies_between, layout_of
from streamsvm.core.schema import ALIGNMENT, Array, Number, Schema, _split, f64, i64

_most_bytes: ContextVar[float] = ContextVar("most_bytes", default=math.inf)


@contextmanager
def at_most(n_bytes: int) -> Iterator[None]:
    """Refuse states larger than `n_bytes` within the block, for untrusted input."""
    token = _most_bytes.set(n_bytes)
    try:
        yield
    finally:
        _most_bytes.reset(token)


class State:
    """Memory of everything a schema declares.

    Numbers are read and written as attributes. Arrays are attributes with the shape that compiled code sees. Entries
    start at 0, or at the start value of the schema.

    Parameters
    ----------
    schema
        Declaration of the contents.
    dims
        Size of each named dimension.
    parts
        Substates by name.
    """

    __slots__ = (
        "_block",
        "_cached",
        "_floats",
        "_layout",
        "_parts",
        "_placed",
        "_whole",
        "_words",
        "address",
        "schema",
    )

    schema: Schema
    address: int
    _block: NDArray[np.uint8]
    _cached: dict[str, Any]  # arrays and substates by name
    _floats: NDArray[np.float64]
    _layout: Layout
    _parts: dict[str, State] | None  # None for a copy until all are needed
    _placed: Placed | None
    _whole: NDArray[np.uint8]
    _words: NDArray[np.int64]

    def __init__(
        self, schema: Schema, dims: Mapping[str, int] | None = None, *, parts: Mapping[str, State] | None = None
    ) -> None:
        layout = layout_of(schema, tuple((dims or {}).items()))
        if layout.n_bytes > _most_bytes.get():
            raise ValueError(f"a state of {layout.n_bytes} bytes exceeds the limit of {_most_bytes.get()} bytes")
        substates, memory = dict(parts or {}), aligned_zeros(layout.n_bytes)
        self._use(schema, layout, memory, memory, substates)
        words = self._words
        words[:] = layout.record
        words[layout.addresses] += self.address
        for name, part in substates.items():
            if name in schema.entries:
                words[schema.words[name]] = part.address
        for name, key, start in schema.array_starts:
            array = self._view(name)
            (array if key is None else array[key])[...] = start

    def _use(
        self,
        schema: Schema,
        layout: Layout,
        memory: NDArray[np.uint8],
        whole: NDArray[np.uint8],
        parts: dict[str, State] | None,
        placed: Placed | None = None,
    ) -> None:
        own, words = object.__setattr__, memory[: schema.record.itemsize].view(i64)
        own(self, "schema", schema)
        own(self, "address", array_address(memory))
        own(self, "_layout", layout)
        own(self, "_block", memory)
        own(self, "_whole", whole)
        own(self, "_placed", placed)
        own(self, "_parts", parts)
        own(self, "_words", words)
        own(self, "_floats", words.view(f64))
        own(self, "_cached", {**parts} if parts else {})

    @property
    def dims(self) -> dict[str, int]:
        """Size of each named dimension."""
        return self._layout.dims

    @property
    def parts(self) -> dict[str, State]:
        """Substates by name."""
        if self._parts is None:
            assert self._placed is not None
            object.__setattr__(self, "_parts", {name: getattr(self, name) for name in self._placed.parts})
        return self._parts  # type: ignore[return-value]

    @property
    def bound(self) -> dict[str, NDArray[Any]]:
        """Bound arrays by name."""
        names = [name for name, array in self.schema.of(Array) if array.external]
        return {name: getattr(self, name) for name in names if self._words[self.schema.words[name]]}

    def _view(self, name: str) -> NDArray[Any]:
        """Return a view of an array."""
        start, end, shape, array = self._layout.spans[name]
        found = self._block[start:end].view(array.element).reshape(shape)
        return found.view(np.recarray) if array.fields else found

    def number(self, name: str) -> NDArray[Any]:
        """Return a zero-dimensional view of a number."""
        word, is_float = self.schema.numbers[name]
        return (self._floats if is_float else self._words)[word : word + 1].reshape(())

    def __getattr__(self, name: str) -> Any:
        if name in self._cached:
            return self._cached[name]
        if name in self.schema.numbers:
            word, is_float = self.schema.numbers[name]
            return (self._floats if is_float else self._words)[word]
        found = self._view(name) if name in self._layout.spans else self._found(name)
        if found is None:
            raise AttributeError(f"a state of {self.schema.name} has no {name!r}")
        self._cached[name] = found
        return found

    def _found(self, name: str) -> Any:
        """Return a substate or bound array of a copy, None if it has none of this name."""
        if self._placed is None or name not in self._placed.parts:
            bound = None if self._placed is None else self._placed.bound.get(name)
            return bound.view(self._whole) if isinstance(bound, Bound) else bound
        return state_at(self._placed.parts[name], self._whole)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.schema.numbers:
            raise AttributeError(f"a state of {self.schema.name} has no number {name!r}")
        word, is_float = self.schema.numbers[name]
        (self._floats if is_float else self._words)[word] = value

    def bind(self, **arrays: NDArray[Any]) -> None:
        """Bind external arrays: write their addresses and shapes to the record."""
        held, first = self._words.data, self.schema.words  # a memoryview writes elements faster than an array
        for name, array in arrays.items():
            self._cached[name], word = array, first[name]
            held[word] = array_address(array)
            for size in array.shape:
                word += 1
                held[word] = size

    def split(self, name: str) -> NDArray[Any]:
        """Return an array with one axis for each named dimension."""
        entry = self.schema.entries[name]
        assert isinstance(entry, Array)
        found = self._view(name)
        return found.reshape(_split(entry, self.dims)) if entry.is_joined else found

    @property
    def n_bytes(self) -> int:
        """Memory in bytes, including substates."""
        return self._block.nbytes + sum(part.n_bytes for part in self.parts.values())

    def take(self, other: State) -> None:
        """Copy everything from another state, cut to the dimensions of this one."""
        taken = self.schema.taken
        self._words[taken] = other._words[taken]
        whole, cut = copies_between(self._layout, other._layout)
        for mine, theirs in whole:
            self._block[mine] = other._block[theirs]
        for name in cut:
            _copy_common(self.schema.own_arrays[name], self.split(name), other.split(name))
        for name, part in self.parts.items():
            part.take(other.parts[name])

    def take_learned(self, other: State) -> None:
        """Copy what another state has learned, but none of its settings.

        Arrays are cut to the dimensions of this state.
        """
        learned = {name: view for name, view, _ in other.saved_entries()}
        for name, mine, _ in self.saved_entries():
            if name in learned:
                common = tuple(map(slice, map(min, mine.shape, learned[name].shape)))
                mine[common] = learned[name][common]
        for name, part in self.parts.items():
            part.take_learned(other.parts[name])

    # Saving ------------------------------------------------------------------------------------------------------

    def saved_entries(self) -> Iterator[tuple[str, NDArray[Any], tuple[float, float]]]:
        """Yield name, view and bounds of each saved entry, without substates."""
        for name, entry in self.schema.entries.items():
            if isinstance(entry, Number) and entry.saved:
                yield name, self.number(name), entry.bounds
            elif isinstance(entry, Array) and entry.saved and self._view(name).size:
                yield name, self.split(name), entry.bounds
            elif isinstance(entry, Array):
                for key, number in (entry.fields or {}).items():
                    if number.saved:
                        yield f"{name}.{key}", self.split(name)[key].view(np.ndarray), number.bounds

    def names(self) -> list[str]:
        """Return the names of all saved entries, including substates."""
        own = [name for name, _, _ in self.saved_entries()]
        return own + [f"{name}.{key}" for name, part in self.parts.items() for key in part.names()]

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return copies of all saved entries by name.

        Names of entries in substates have the prefix `part.`. Negative zeros become positive ones, so that equal states
        give equal bytes.
        """
        arrays = {name: np.asarray(view + view.dtype.type(0)) for name, view, _ in self.saved_entries()}
        for name, part in self.parts.items():
            arrays |= {f"{name}.{key}": array for key, array in part.saved().items()}
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], under: str = "") -> None:
        """Restore what `saved` returned.

        Parameters
        ----------
        arrays
            Arrays by name.
        under
            Prefix of the names.

        Raises
        ------
        ValueError
            If an array is missing, has another shape or type, is not finite, or exceeds its bounds.
        """
        for key, view, (low, high) in self.saved_entries():
            name = under + key
            if name not in arrays:
                raise ValueError(f"the array {name!r} is missing")
            given = arrays[name]
            if given.shape != view.shape or given.dtype != view.dtype:
                raise ValueError(
                    f"array {name!r} has shape {given.shape} and type {given.dtype}, not {view.shape} and {view.dtype}"
                )
            if given.dtype.kind == "f" and not np.isfinite(given).all():
                raise ValueError(f"array {name!r} contains values that are not finite")
            if not ((given >= low) & (given <= high)).all():
                raise ValueError(f"array {name!r} contains values that are not between {low:g} and {high:g}")
            view[...] = given
        for key, part in self.parts.items():
            part.restore(arrays, f"{under}{key}.")

    def all(self) -> Iterator[State]:
        """Iterate over this state and all substates, depth first."""
        yield self
        for part in self.parts.values():
            yield from part.all()

    # Copies in memory ---------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        return _rebuild, (self.schema, self.dims, self.parts, self._without_addresses())

    def _without_addresses(self) -> NDArray[np.uint8]:
        """Return a copy of the memory with all addresses set to 0.

        Equal states then give equal bytes.
        """
        block, head = self._block.copy(), self.schema.record.itemsize
        words = np.zeros(head // 8, i64)
        words[self.schema.taken] = self._words[self.schema.taken]
        block[:head] = words.view(np.uint8)
        for name, array in self.schema.own_arrays.items():
            if array.addresses:
                start, end, _, _ = self._layout.spans[name]
                records = block[start:end].view(array.element)
                for field_ in array.addresses:
                    records[field_] = 0
        return block


def state_at(placed: Placed, whole: NDArray[np.uint8]) -> State:
    """Return the state at a place in the memory of a copy."""
    state = object.__new__(State)
    memory = whole[placed.start : placed.start + placed.layout.n_bytes]
    state._use(placed.schema, placed.layout, memory, whole, None, placed)
    return state


def memory_of(state: State) -> tuple[NDArray[np.uint8], Layout]:
    """Return the memory of a state without its substates, and its layout."""
    return state._block, state._layout


def place_of(state: State) -> tuple[Placed | None, NDArray[np.uint8]]:
    """Return the place of a copy, and its memory with all substates.

    The place of other states is None.
    """
    return state._placed, state._whole


def _rebuild(schema: Schema, dims: dict[str, int], parts: dict[str, State], block: NDArray[Any]) -> State:
    """Rebuild an unpickled state, without addresses of code and external memory."""
    state, head = State(schema, dims, parts=parts), schema.record.itemsize
    state._words[schema.taken] = block[:head].view(i64)[schema.taken]
    first = -(-head // ALIGNMENT) * ALIGNMENT
    state._block[first:] = block[first:]
    return state


def _copy_common(array: Array, mine: NDArray[Any], theirs: NDArray[Any]) -> None:
    common = tuple(map(slice, map(min, mine.shape, theirs.shape)))
    if not array.addresses:
        mine[common] = theirs[common]
        return
    assert array.fields is not None
    for name in array.fields:
        if name not in array.addresses:
            mine[name][common] = theirs[name][common]
