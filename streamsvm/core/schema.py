"""State schemas: tables that declare the memory of each algorithm by name.

A `Schema` is defined next to the kernels that use it. It lists *numbers*, *arrays* with named dimensions, arrays of
*records*, and *substates* with their own schemas. Archives, their validation and the documentation page of states
follow from the table.
"""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

f32, f64, i16, i32, i64, u64 = np.float32, np.float64, np.int16, np.int32, np.int64, np.uint64
ANY = (-math.inf, math.inf)
ALIGNMENT = 64  # bytes: one cache line


@dataclass(frozen=True)
class Number:
    """Scalar of a state or of a record.

    Parameters
    ----------
    meaning
        Description in one line.
    dtype
        float64 or int64; records also allow int32.
    start
        Initial value.
    saved
        Whether it is learned and therefore saved. Other entries follow from the settings or are temporary.
    bounds
        Smallest and largest value accepted from an archive.
    is_address
        Whether it is an address, which other states do not copy.
    """

    meaning: str
    dtype: Any = f64
    start: float = 0.0
    saved: bool = False
    bounds: tuple[float, float] = ANY
    is_address: bool = False


def address(meaning: str) -> Number:
    """Declare an address of memory or code, which differs in each state."""
    return Number(meaning, i64, is_address=True)


@dataclass(frozen=True)
class Array:
    """Array of numbers or records.

    Parameters
    ----------
    dims
        Names of the dimensions, or fixed sizes. Names joined by `*` form one dimension in compiled code.
    meaning, saved, bounds, start
        As for a `Number`, for all elements.
    dtype
        Type of the elements.
    fields
        Fields of the elements if these are records.
    external
        Whether the memory belongs to another object and is bound by `State.bind`.
    """

    dims: tuple[str | int, ...]
    meaning: str
    dtype: Any = f64
    saved: bool = False
    bounds: tuple[float, float] = ANY
    start: float = 0.0
    fields: Mapping[str, Number] | None = None
    external: bool = False

    @cached_property
    def factors(self) -> tuple[tuple[str, ...], ...]:
        """For each dimension in compiled code, the named dimensions it is the product of."""
        return tuple(tuple(str(dim).split("*")) for dim in self.dims)

    @cached_property
    def is_joined(self) -> bool:
        """Whether a dimension in compiled code is a product of several named ones."""
        return any(len(names) > 1 for names in self.factors)

    @cached_property
    def addresses(self) -> frozenset[str]:
        """Record fields that are addresses."""
        return frozenset(name for name, number in (self.fields or {}).items() if number.is_address)

    @cached_property
    def element(self) -> np.dtype[Any]:
        """Type of an element."""
        fields: Any = [(name, number.dtype) for name, number in (self.fields or {}).items()]
        found: np.dtype[Any] = np.dtype(fields or self.dtype)
        return found


def records(dims: tuple[str | int, ...], meaning: str, **fields: Number) -> Array:
    """Declare an array of records."""
    return Array(dims, meaning, fields=fields)


@dataclass(frozen=True)
class Substate:
    """State inside another state, with its own schema."""

    schema: Schema
    meaning: str


SchemaEntry = Number | Array | Substate


@dataclass(eq=False)
class Schema:
    """Declaration of everything a state holds.

    Parameters
    ----------
    name
        Unique name.
    entries
        Numbers, arrays and substates by name.
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
        """Index of each number in the record, in 8-byte words, and whether it is a float."""
        return {name: (self.offset(name) // 8, number.dtype is f64) for name, number in self.of(Number)}

    @cached_property
    def taken(self) -> NDArray[np.intp]:
        """Record indices of the numbers that `State.take` copies."""
        return np.array([self.numbers[name][0] for name, number in self.of(Number) if not number.is_address], np.intp)

    @cached_property
    def own_arrays(self) -> dict[str, Array]:
        """Arrays stored in the memory of the state."""
        return {name: array for name, array in self.of(Array) if not array.external}

    @cached_property
    def words(self) -> dict[str, int]:
        """For each array and substate, the record index of its address in 8-byte words."""
        names = (name for name, entry in self.entries.items() if not isinstance(entry, Number))
        return {name: self.offset(f"{name}@") // 8 for name in names}

    @cached_property
    def array_starts(self) -> list[tuple[str, str | None, float]]:
        """Arrays, or fields of their records, with a start value other than 0."""
        starts: list[tuple[str, str | None, float]] = []
        for name, array in self.own_arrays.items():
            starts += [(name, None, array.start)] if array.start else []
            starts += [(name, key, number.start) for key, number in (array.fields or {}).items() if number.start]
        return starts

    def offset(self, field: str) -> int:
        """Return the offset of a record field in bytes."""
        assert self.record.fields is not None
        return int(self.record.fields[field][1])

    def of(self, kind: type[Any]) -> Iterator[tuple[str, Any]]:
        """Iterate over the entries of a kind, as pairs of name and entry."""
        return ((name, entry) for name, entry in self.entries.items() if isinstance(entry, kind))

    def n_bytes(self, dims: Mapping[str, int]) -> int:
        """Return the memory in bytes of a state with these dimensions, without substates."""
        return self.record.itemsize + sum(_n_bytes(array, dims) for _, array in self.of(Array) if not array.external)

    @cached_property
    def digest(self) -> str:
        """Digest of all names, types and dimensions, and so of the memory layout."""
        arrays = [(name, array.dims, array.element.descr, array.external) for name, array in self.of(Array)]
        return hashlib.blake2b(repr((self.record.descr, arrays)).encode(), digest_size=8).hexdigest()

    def __reduce__(self) -> Any:
        # A pickled state is bytes of memory, which another version may arrange differently.
        return _schema_of, (self.name, self.digest)


SCHEMAS: dict[str, Schema] = {}


def _schema_of(name: str, digest: str = "") -> Schema:
    """Return a schema for unpickling, if it still has the pickled layout."""
    found = SCHEMAS.get(name)
    if found is None or found.digest != digest:
        raise pickle.UnpicklingError(
            "the pickle was written by another version of streamsvm: use that version, or train the model again"
        )
    return found


def _split(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape with one axis for each named dimension."""
    return tuple(_size(name, sizes) for names in array.factors for name in names)


def _joined(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape that compiled code sees."""
    return tuple(math.prod(_size(name, sizes) for name in names) for names in array.factors)


def _size(name: str, sizes: Mapping[str, int]) -> int:
    return int(name) if name.isdecimal() else sizes[name]


def _n_bytes(array: Array, sizes: Mapping[str, int]) -> int:
    size = math.prod(_joined(array, sizes)) * array.element.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
