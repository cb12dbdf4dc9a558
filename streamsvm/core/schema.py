"""Schemas of states: all that a state holds, declared by name in one table beside the kernels of an algorithm.

A `Schema` lists *numbers*, *arrays* in named dimensions, arrays of *records*, and *substates* with schemas of their
own.
What is saved, what is checked of an archive, and the page of documentation follow from the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

f32, f64, i32, i64, u64 = np.float32, np.float64, np.int32, np.int64, np.uint64
ANY = (-math.inf, math.inf)
ALIGNMENT = 64  # bytes, a cache line


@dataclass(frozen=True)
class Number:
    """A scalar, of a state or of a record.

    Parameters
    ----------
    meaning
        What it is, in a line.
    dtype
        float64 or int64; in records int32, too.
    start
        What it begins with.
    saved
        Whether it is learned, and so a part of what is saved; what is not follows from the settings, or passes.
    bounds
        The least and the largest value that may come back from an archive.
    is_address
        Whether it is an address, which no other state takes over.
    """

    meaning: str
    dtype: Any = f64
    start: float = 0.0
    saved: bool = False
    bounds: tuple[float, float] = ANY
    is_address: bool = False


def address(meaning: str) -> Number:
    """An address of memory or code: each state has its own."""
    return Number(meaning, i64, is_address=True)


@dataclass(frozen=True)
class Array:
    """An array.

    Parameters
    ----------
    dims
        The names of its dimensions; several with `*` between are one for compiled code.
    meaning, saved, bounds, start
        As for a `Number`, of all elements.
    dtype
        The type of the elements.
    fields
        Where the elements are records, their fields.
    external
        Whether its memory belongs to somebody else and is bound by `State.bind`.
    """

    dims: tuple[str, ...]
    meaning: str
    dtype: Any = f64
    saved: bool = False
    bounds: tuple[float, float] = ANY
    start: float = 0.0
    fields: Mapping[str, Number] | None = None
    external: bool = False

    @cached_property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """For each dimension of compiled code the named ones it is the product of."""
        return tuple(tuple(dim.split("*")) for dim in self.dims)

    @cached_property
    def is_joined(self) -> bool:
        """Whether a dimension that compiled code sees is several named ones."""
        return any(len(names) > 1 for names in self.factors)

    @cached_property
    def addresses(self) -> frozenset[str]:
        """The fields of records that are addresses."""
        return frozenset(name for name, number in (self.fields or {}).items() if number.is_address)

    @cached_property
    def element(self) -> np.dtype[Any]:
        """The type of an element."""
        fields: Any = [(name, number.dtype) for name, number in (self.fields or {}).items()]
        found: np.dtype[Any] = np.dtype(fields or self.dtype)
        return found


def records(dims: tuple[str, ...], meaning: str, **fields: Number) -> Array:
    """An array of records."""
    return Array(dims, meaning, fields=fields)


@dataclass(frozen=True)
class Substate:
    """A state inside another, declared itself."""

    schema: Schema
    meaning: str


SchemaEntry = Number | Array | Substate


@dataclass(eq=False)
class Schema:
    """A table of all that a state holds.

    Parameters
    ----------
    name
        A name no other schema has.
    entries
        Numbers, arrays and parts by name.
    """

    name: str
    entries: dict[str, SchemaEntry]
    record: np.dtype[Any] = field(init=False)

    def __post_init__(self) -> None:
        fields: list[tuple[str, Any]] = []
        for name, entry in self.entries.items():
            if isinstance(entry, Number):
                fields.append((name, entry.dtype))
            else:
                n_dims = len(entry.dims) if isinstance(entry, Array) else 0
                fields += [(f"{name}@", i64), *((f"{name}@{k}", i64) for k in range(n_dims))]
        self.record = np.dtype(fields)
        SCHEMAS[self.name] = self

    @cached_property
    def numbers(self) -> dict[str, tuple[int, bool]]:
        """Where each number stands in the record, in words of eight bytes, and whether it is a float."""
        return {name: (self.offset(name) // 8, number.dtype is f64) for name, number in self.of(Number)}

    @cached_property
    def taken(self) -> NDArray[np.intp]:
        """Where the numbers stand that another state takes over."""
        return np.array([self.numbers[name][0] for name, number in self.of(Number) if not number.is_address], np.intp)

    @cached_property
    def own_arrays(self) -> dict[str, Array]:
        """The arrays that take memory."""
        return {name: array for name, array in self.of(Array) if not array.external}

    @cached_property
    def words(self) -> dict[str, int]:
        """Where the address of an array or part stands in the record, in words of eight bytes."""
        names = (name for name, entry in self.entries.items() if not isinstance(entry, Number))
        return {name: self.offset(f"{name}@") // 8 for name in names}

    @cached_property
    def array_starts(self) -> list[tuple[str, str | None, float]]:
        """Arrays, or fields of their records, that do not."""
        starts: list[tuple[str, str | None, float]] = []
        for name, array in self.own_arrays.items():
            starts += [(name, None, array.start)] if array.start else []
            starts += [(name, key, number.start) for key, number in (array.fields or {}).items() if number.start]
        return starts

    def offset(self, field: str) -> int:
        """Where a field of the record is, in bytes."""
        assert self.record.fields is not None
        return int(self.record.fields[field][1])

    def of(self, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        """The entries of a kind, by name."""
        return ((name, entry) for name, entry in self.entries.items() if isinstance(entry, kind))

    def n_bytes(self, dims: Mapping[str, int]) -> int:
        """The memory of a state of such dimensions, without its parts."""
        return self.record.itemsize + sum(_n_bytes(array, dims) for _, array in self.of(Array) if not array.external)

    def __reduce__(self) -> Any:
        return _schema_of, (self.name,)


SCHEMAS: dict[str, Schema] = {}


def _schema_of(name: str) -> Schema:
    return SCHEMAS[name]


def _split(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape, each named dimension by itself."""
    return tuple(sizes[name] for names in array.factors for name in names)


def _joined(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape compiled code sees."""
    return tuple(
        sizes[names[0]] if len(names) == 1 else math.prod(sizes[name] for name in names) for names in array.factors
    )


def _n_bytes(array: Array, sizes: Mapping[str, int]) -> int:
    size = math.prod(_joined(array, sizes)) * array.element.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
