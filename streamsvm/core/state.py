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
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.schema import ALIGNMENT, Array, Number, Schema, _joined, _n_bytes, _split, f64, i64, u64

_Start = c_char * 0


def array_address(array: NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    try:
        buffer: Any = array  # three times as fast as `__array_interface__`
        return addressof(_Start.from_buffer(buffer))
    except (TypeError, ValueError):  # the array is read-only or not contiguous
        return int(array.__array_interface__["data"][0])


class _Span(NamedTuple):
    """Position, shape and declaration of an array in the memory of a state."""

    start: int
    end: int
    shape: tuple[int, ...]
    array: Array


@dataclass(frozen=True, eq=False)
class _Layout:
    """Memory layout of a state for given dimensions.

    Parameters
    ----------
    n_bytes
        Size of the memory.
    record
        Initial record, with addresses relative to the start of the memory.
    addresses
        Indices of the record words that are addresses.
    spans
        Arrays stored in the memory.
    dims
        Dimensions, shared by all states with this layout.
    """

    n_bytes: int
    record: NDArray[np.int64]
    addresses: list[int]
    spans: dict[str, _Span]
    dims: dict[str, int]


@lru_cache(maxsize=1024)
def _layout(schema: Schema, dims: tuple[tuple[str, int], ...]) -> _Layout:
    sizes, spans = dict(dims), dict[str, _Span]()
    record = np.zeros(1, schema.record)
    for name, number in schema.of(Number):
        record[name] = number.start
    words, addresses = record.view(i64), []
    at = -(-schema.record.itemsize // ALIGNMENT) * ALIGNMENT
    for name, array in schema.own_arrays.items():
        shape, word = _joined(array, sizes), schema.words[name]
        spans[name] = _Span(at, at + math.prod(shape) * array.element.itemsize, shape, array)
        words[word : word + 1 + len(shape)] = (at, *shape)
        addresses.append(word)
        at += _n_bytes(array, sizes)
    return _Layout(at, words, addresses, spans, sizes)


@lru_cache(maxsize=1024)
def _copies(mine: _Layout, theirs: _Layout) -> tuple[list[tuple[slice, slice]], list[str]]:
    """Plan a copy between two layouts of a schema.

    Returns
    -------
    tuple
        Byte ranges of arrays that are copied whole, in both memories, and names of arrays that are cut to a common
        shape or have addresses. Adjacent arrays share a range.
    """
    whole: list[tuple[slice, slice]] = []
    cut = []
    for name, (start, end, shape, array) in mine.spans.items():
        other = theirs.spans[name]
        if shape != other.shape or array.addresses:
            cut += [name] if other.end > other.start else []
        elif whole and start - whole[-1][0].stop == other.start - whole[-1][1].stop < ALIGNMENT:
            whole[-1] = slice(whole[-1][0].start, end), slice(whole[-1][1].start, other.end)
        else:
            whole.append((slice(start, end), slice(other.start, other.end)))
    return whole, cut


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

    __slots__ = (*("_arrays", "_block", "_floats", "_layout", "_words"), *("address", "schema", "dims", "parts"))

    schema: Schema
    dims: dict[str, int]
    parts: dict[str, State]
    address: int
    _arrays: dict[str, NDArray[Any]]
    _block: NDArray[np.uint8]
    _floats: NDArray[np.float64]
    _layout: _Layout
    _words: NDArray[np.int64]

    def __init__(
        self, schema: Schema, dims: Mapping[str, int] | None = None, *, parts: Mapping[str, State] | None = None
    ) -> None:
        layout, own = _layout(schema, tuple((dims or {}).items())), object.__setattr__
        if layout.n_bytes > _most_bytes.get():
            raise ValueError(f"a state of {layout.n_bytes} bytes exceeds the limit of {_most_bytes.get()} bytes")
        # Zeroed pages occupy no physical memory until they are written.
        block = np.zeros(layout.n_bytes + ALIGNMENT, np.uint8)
        first = -array_address(block) % ALIGNMENT
        block = block[first : first + layout.n_bytes]
        words = block[: schema.record.itemsize].view(i64)
        address = array_address(block)
        words[:] = layout.record
        words[layout.addresses] += address
        own(self, "schema", schema)
        own(self, "dims", layout.dims)
        own(self, "parts", dict(parts or {}))
        own(self, "address", address)
        own(self, "_layout", layout)
        own(self, "_block", block)
        own(self, "_words", words)
        own(self, "_floats", words.view(f64))
        own(self, "_arrays", {})
        for name, part in self.parts.items():
            if name in schema.entries:
                words[schema.words[name]] = part.address
        for name, key, start in schema.array_starts:
            array = self._view(name)
            (array if key is None else array[key])[...] = start

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
        if name in self._arrays:
            return self._arrays[name]
        if name in self.schema.numbers:
            word, is_float = self.schema.numbers[name]
            return (self._floats if is_float else self._words)[word]
        if name in self.parts:
            return self.parts[name]
        if name in self._layout.spans:
            self._arrays[name] = found = self._view(name)
            return found
        raise AttributeError(f"a state of {self.schema.name} has no {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.schema.numbers:
            raise AttributeError(f"a state of {self.schema.name} has no number {name!r}")
        word, is_float = self.schema.numbers[name]
        (self._floats if is_float else self._words)[word] = value

    def bind(self, **arrays: NDArray[Any]) -> None:
        """Bind external arrays: write their addresses and shapes to the record."""
        held, first = self._words.data, self.schema.words  # a memoryview writes elements faster than an array
        for name, array in arrays.items():
            self._arrays[name], word = array, first[name]
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
        whole, cut = _copies(self._layout, other._layout)
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

    # Words -------------------------------------------------------------------------------------------------------

    def blocks(self) -> list[NDArray[np.uint64]]:
        """Return the memory of this state and its substates as 8-byte words."""
        return [state._block.view(u64) for state in self.all()]

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
