"""Layouts: where the entries of a state are in its memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.schema import ALIGNMENT, Array, Number, Schema, _joined, _n_bytes, i64

_Start = c_char * 0


def array_address(array: NDArray[Any]) -> int:
    """Return the address of the first element of an array."""
    try:
        buffer: Any = array  # three times as fast as `__array_interface__`
        return addressof(_Start.from_buffer(buffer))
    except (TypeError, ValueError):  # the array is read-only or not contiguous
        return int(array.__array_interface__["data"][0])


class Span(NamedTuple):
    """Position, shape and declaration of an array in the memory of a state."""

    start: int
    end: int
    shape: tuple[int, ...]
    array: Array


@dataclass(frozen=True, eq=False)
class Layout:
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
    spans: dict[str, Span]
    dims: dict[str, int]


@lru_cache(maxsize=1024)
def layout_of(schema: Schema, dims: tuple[tuple[str, int], ...]) -> Layout:
    """Return the layout of states with these dimensions."""
    sizes, spans = dict(dims), dict[str, Span]()
    record = np.zeros(1, schema.record)
    for name, number in schema.of(Number):
        record[name] = number.start
    words, addresses = record.view(i64), []
    at = -(-schema.record.itemsize // ALIGNMENT) * ALIGNMENT
    for name, array in schema.own_arrays.items():
        shape, word = _joined(array, sizes), schema.words[name]
        spans[name] = Span(at, at + math.prod(shape) * array.element.itemsize, shape, array)
        words[word : word + 1 + len(shape)] = (at, *shape)
        addresses.append(word)
        at += _n_bytes(array, sizes)
    return Layout(at, words, addresses, spans, sizes)


class Bound(NamedTuple):
    """Place, shape and type of a bound array in the memory of a copy."""

    start: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def view(self, whole: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the array in the memory of a copy with all substates."""
        end = self.start + math.prod(self.shape) * self.dtype.itemsize
        return whole[self.start : end].view(self.dtype).reshape(self.shape)


@dataclass(frozen=True, eq=False)
class Placed:
    """Place of a state in the memory of a copy, see `streamsvm.core.template`.

    Parameters
    ----------
    start
        Offset in the memory.
    schema, layout
        Schema and layout of the state.
    parts
        Substates by name.
    bound
        Bound arrays by name: in the memory, or shared by all copies.
    """

    start: int
    schema: Schema
    layout: Layout
    parts: dict[str, Placed]
    bound: dict[str, Bound | NDArray[Any]]

    @property
    def dims(self) -> dict[str, int]:
        """Size of each named dimension."""
        return self.layout.dims

    def all(self) -> Iterator[Placed]:
        """Iterate over this state and all substates, depth first."""
        yield self
        for part in self.parts.values():
            yield from part.all()


def aligned_zeros(n_bytes: int) -> NDArray[np.uint8]:
    """Return zeroed memory that starts at a cache line.

    Zeroed pages occupy no physical memory until they are written.
    """
    block = np.zeros(n_bytes + ALIGNMENT, np.uint8)
    first = -array_address(block) % ALIGNMENT
    return block[first : first + n_bytes]


@lru_cache(maxsize=1024)
def copies_between(mine: Layout, theirs: Layout) -> tuple[list[tuple[slice, slice]], list[str]]:
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
