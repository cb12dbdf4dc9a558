"""What is saved of a state as the fewest bytes, to be taken out, and put back, at once.

Of the words of eight bytes that hold what is saved, of a state and then of its parts, those that are not zero; and then
for each word a bit that says whether it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import kernel
from streamsvm.core.schema import Array, Number, Schema, f32, f64, i64, u64
from streamsvm.core.signatures import BYTES, INTEGERS, NUMBERS, WORDS
from streamsvm.core.simd import uint
from streamsvm.core.state import State, array_address

Words = NDArray[np.uint64]

# What stands in a word, for its bounds.
OTHER, REALS, WHOLE, SINGLES = 0, 1, 2, 3
_KINDS = {f64: REALS, i64: WHOLE, f32: SINGLES}


@kernel
def put_words(block, fresh, addresses, saved, kinds, low, high, there, words, at):
    """Make a block as when nothing had been learned, but for the words that are saved.

    Of these, the next is words[at[1]] where bit at[0] is set in `there`, and else zero; `at` moves on. Returns how many
    values are beyond their bounds, or not finite; less than zero where there are not so many words.
    """
    reals, wholes, singles = words.view(np.float64), words.view(np.int64), words.view(np.float32)
    i = 0
    for k in range(addresses.size):
        end = addresses[uint(k)]
        for j in range(i, end):
            block[uint(j)] = fresh[uint(j)]
        i = end + 1
    for j in range(i, block.size):
        block[uint(j)] = fresh[uint(j)]
    bit, word, n_wrong = at[0], at[1], 0
    for k in range(saved.size):
        if (there[uint(bit >> 3)] >> (bit & 7)) & 1 == 0:
            block[uint(saved[uint(k)])] = 0
            n_wrong += not low[uint(k)] <= 0.0 <= high[uint(k)]
        else:
            if word >= words.size:
                return -1
            block[uint(saved[uint(k)])] = words[uint(word)]
            if kinds[uint(k)] == REALS:
                n_wrong += not low[uint(k)] <= reals[uint(word)] <= high[uint(k)]
            elif kinds[uint(k)] == WHOLE:
                n_wrong += not low[uint(k)] <= wholes[uint(word)] <= high[uint(k)]
            elif kinds[uint(k)] == SINGLES:
                n_wrong += not low[uint(k)] <= singles[uint(2 * word)] <= high[uint(k)]
                n_wrong += not low[uint(k)] <= singles[uint(2 * word + 1)] <= high[uint(k)]
            word += 1
        bit += 1
    at[0], at[1] = bit, word
    return n_wrong


ENTRY_POINTS = {
    "put_words": EntryPoint(
        put_words, (WORDS, WORDS, INTEGERS, INTEGERS, BYTES, NUMBERS, NUMBERS, BYTES, WORDS, INTEGERS)
    ),
}


@cache
def _put() -> Any:
    """The compiled function."""
    return ENTRY_POINTS["put_words"].compile()


class Image:
    """Where in the memory of a state and its parts that stands which is saved.

    It is made of a state that has learned nothing, and serves all states with the same settings and dimensions. Where
    something is put back, all that is not saved becomes as it was in that state.

    Parameters
    ----------
    state
        One that has learned nothing.
    """

    def __init__(self, state: State) -> None:
        self._fresh = [block.copy() for block in state.blocks()]
        self._places = [_places(each.schema, tuple(each.dims.items())) for each in state.all()]
        ends = np.cumsum([len(place.saved) for place in self._places])
        self._parts = [slice(int(end) - len(p.saved), int(end)) for p, end in zip(self._places, ends, strict=True)]
        self.n_words = int(ends[-1])

    def take(self, blocks: Sequence[Words]) -> bytes:
        """All that is saved."""
        words = np.empty(self.n_words, u64)
        for block, place, part in zip(blocks, self._places, self._parts, strict=True):
            block.take(place.saved, out=words[part], mode="clip")
        there = words != 0
        packed: bytes = words[there].tobytes() + np.packbits(there, bitorder="little").tobytes()
        return packed

    def clear(self, blocks: Sequence[Words]) -> None:
        """Make all as in the state that has learned nothing."""
        for block, fresh, place in zip(blocks, self._fresh, self._places, strict=True):
            own = block[place.addresses]
            block[:] = fresh
            block[place.addresses] = own

    def put(self, blocks: Sequence[Words], packed: bytes) -> None:
        """Take over what `take` gave.

        Raises
        ------
        ValueError
            Where a value is not finite, or beyond its bounds, or there are not as many as there should be.
        """
        n, put = -(-self.n_words // 8), _put()
        if len(packed) < n or (len(packed) - n) % 8:
            raise ValueError(f"{len(packed)} bytes do not hold {self.n_words} words")
        content, at, n_wrong = np.frombuffer(packed, np.uint8).copy(), np.zeros(2, i64), 0
        words, there = content[:-n].view(u64), content[-n:]
        for block, fresh, place in zip(blocks, self._fresh, self._places, strict=True):
            found = put(
                block, fresh, place.addresses, place.saved, place.kinds, place.low, place.high, there, words, at
            )
            if found < 0:
                raise ValueError("there are fewer words than are named")
            n_wrong += found
        if n_wrong:
            raise ValueError(f"{n_wrong} values are beyond their bounds, or not finite")
        if at[1] != len(words):
            raise ValueError("there are more words than are named")


@dataclass(frozen=True)
class _Places:
    """Where things are in the memory of states of certain dimensions.

    Parameters
    ----------
    saved
        The words with what is saved.
    kinds, low, high
        What stands in each, and between what.
    addresses
        The words that are addresses, or say what is found there, in order.
    """

    saved: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    addresses: NDArray[np.int64]


@lru_cache(maxsize=1024)
def _places(schema: Schema, dims: tuple[tuple[str, int], ...]) -> _Places:
    state = State(schema, dict(dims))
    kept = [(view.dtype.type, _offsets(view, state) // 8, bounds) for _, view, bounds in state.kept()]
    saved = np.unique(np.concatenate([np.zeros(0, i64), *(words for _, words, _ in kept)]))
    kinds, low, high = np.zeros(len(saved), np.uint8), np.full(len(saved), -math.inf), np.full(len(saved), math.inf)
    for kind, words, bounds in kept:
        most = float(np.finfo(kind).max) if kind in (f32, f64) else math.inf
        at = np.searchsorted(saved, words)
        kinds[at], low[at], high[at] = _KINDS.get(kind, OTHER), *np.clip(bounds, -most, most)
    return _Places(saved, kinds, low, high, np.unique(_address_words(schema, state)))


def _address_words(schema: Schema, state: State) -> NDArray[np.int64]:
    """The words of a state that are addresses, its own or another's, or the shapes that go with them."""
    names = [f"{name}@" for name, entry in schema.entries.items() if not isinstance(entry, Number)]
    names += [name for name, number in schema.of(Number) if number.is_address]
    names += [f"{n}@{k}" for n, array in schema.of(Array) if array.external for k in range(len(array.dims))]
    words = [np.array([schema.offset(name) // 8 for name in names], i64)]
    for name, array in schema.own_arrays.items():
        words += [_offsets(getattr(state, name)[key].view(np.ndarray), state) // 8 for key in array.addresses]
    return np.concatenate(words)


def _offsets(view: NDArray[Any], state: State) -> NDArray[np.int64]:
    """Where the elements of a view begin in the memory of a state, in bytes."""
    offsets = np.full(view.shape, array_address(view) - state.address, i64)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        offsets += (np.arange(n) * stride).reshape([-1 if k == axis else 1 for k in range(view.ndim)])
    return offsets.reshape(-1)
