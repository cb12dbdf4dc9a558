"""Snapshots: compact binary copies of the saved fields of a state.

They are fast to write and to load.

A snapshot has those 8-byte words of the saved fields, of a state and then of its substates, that are not zero. A bitmap
with one bit per word marks them. Of the bitmap, too, only the bytes that are not zero are stored, followed by one bit
per byte, so that arrays without values take little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import BYTES, INTEGERS, WORDS, StateType, kernel, uint
from streamsvm.core.schema import Array, Number, Schema, f32, f64, i64, u64
from streamsvm.core.state import State, array_address

Words = NDArray[np.uint64]

# Type of the values in a word, for the check of their bounds.
OTHER, REALS, WHOLE, SINGLES = 0, 1, 2, 3
_KINDS = {f64: REALS, i64: WHOLE, f32: SINGLES}

PLACES = Schema(
    "places",
    {
        "words": Array(("words",), "indices of the words with saved fields", i64),
        "kinds": Array(("words",), "the type of each value", np.uint8),
        "low": Array(("words",), "the lower bound of each value"),
        "high": Array(("words",), "the upper bound of each value"),
        "addresses": Array(("addresses",), "sorted indices of the words with addresses or shapes", i64),
    },
)


@kernel
def put_words(block, fresh, places, is_given, words, at):
    """Restore an untrained state, except its addresses, and load the saved words.

    The next saved word is words[at[1]] if bit at[0] of `there` is set, else zero; `at` is advanced. Returns the number
    of values that are out of bounds or not finite, or -1 if there are too few words.
    """
    reals, wholes, singles = words.view(np.float64), words.view(np.int64), words.view(np.float32)
    addresses, saved, kinds, low, high = places.addresses, places.words, places.kinds, places.low, places.high
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
        if (is_given[uint(bit >> 3)] >> (bit & 7)) & 1 == 0:
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
    "put_words": EntryPoint(put_words, (WORDS, WORDS, StateType(PLACES.name), BYTES, WORDS, INTEGERS)),
}


@cache
def _put() -> Any:
    """Return the compiled `put_words`."""
    return ENTRY_POINTS["put_words"].compile()


class Snapshots:
    """Snapshots of the saved fields in the memory of a state and its substates.

    It is created from an untrained state, and applies to all states with equal settings and dimensions. Loading a
    snapshot resets all other fields to those of the untrained state.

    Parameters
    ----------
    state
        An untrained state.

    Attributes
    ----------
    empty : bytes
        The snapshot of the untrained state.
    """

    def __init__(self, state: State) -> None:
        self._fresh = [block.copy() for block in state.blocks()]
        self._places = [_places(each.schema, tuple(each.dims.items())) for each in state.all()]
        self._saved = [place.words for place in self._places]  # an array of a state is looked up by name
        ends = np.cumsum([len(saved) for saved in self._saved])
        self._parts = [slice(int(end) - len(saved), int(end)) for saved, end in zip(self._saved, ends, strict=True)]
        self.n_words = int(ends[-1])
        self.empty = self.take(self._fresh)

    def take(self, blocks: Sequence[Words]) -> bytes:
        """Return a snapshot of the saved fields."""
        words = np.empty(self.n_words, u64)
        for block, saved, part in zip(blocks, self._saved, self._parts, strict=True):
            block.take(saved, out=words[part], mode="clip")
        is_given = words != 0
        bitmap = np.packbits(is_given, bitorder="little")
        marks = bitmap != 0
        packed: bytes = words[is_given].tobytes() + bitmap[marks].tobytes() + np.packbits(marks).tobytes()
        return packed

    def put(self, blocks: Sequence[Words], packed: bytes) -> None:
        """Load a snapshot, the result of `take`.

        Raises
        ------
        ValueError
            If a value is not finite or out of bounds, or the number of words is wrong.
        """
        put, content, at = _put(), np.frombuffer(packed, np.uint8).copy(), np.zeros(2, i64)
        n = math.ceil(self.n_words / 8)  # bytes of the bitmap
        n_marks = math.ceil(n / 8)
        marks = np.unpackbits(content[-n_marks:]).view(bool)[:n]
        n_marked = int(np.count_nonzero(marks))
        n_words, rest = divmod(len(content) - n_marks - n_marked, 8)
        if len(marks) < n or n_words < 0 or rest:
            raise ValueError(f"{len(packed)} bytes do not contain {self.n_words} words")
        words, is_given = content[: 8 * n_words].view(u64), np.zeros(n, np.uint8)
        is_given[marks] = content[8 * n_words :][:n_marked]
        for block, fresh, place in zip(blocks, self._fresh, self._places, strict=True):
            n_wrong = put(block, fresh, place, is_given, words, at)
            if n_wrong < 0:
                raise ValueError("there are fewer words than declared")
            if n_wrong:
                raise ValueError(f"{n_wrong} values are out of bounds or not finite")
        if at[1] != len(words):
            raise ValueError("there are more words than declared")


@lru_cache(maxsize=1024)
def _places(schema: Schema, dims: tuple[tuple[str, int], ...]) -> State:
    """Return the layout of the memory of states with these dimensions."""
    state = State(schema, dict(dims))
    kept = [(view.dtype.type, _offsets(view, state) // 8, bounds) for _, view, bounds in state.saved_entries()]
    saved = np.unique(np.concatenate([np.zeros(0, i64), *(words for _, words, _ in kept)]))
    addresses = np.unique(_address_words(schema, state))
    places = State(PLACES, {"words": len(saved), "addresses": len(addresses)})
    places.words[:], places.addresses[:], places.low[:], places.high[:] = saved, addresses, -math.inf, math.inf
    for kind, words, bounds in kept:
        most = float(np.finfo(kind).max) if kind in (f32, f64) else math.inf
        at = np.searchsorted(saved, words)
        places.kinds[at] = _KINDS.get(kind, OTHER)
        places.low[at], places.high[at] = np.clip(bounds, -most, most)
    return places


def _address_words(schema: Schema, state: State) -> NDArray[np.int64]:
    """Return indices of state words with addresses or shapes of external arrays."""
    names = [f"{name}@" for name, entry in schema.entries.items() if not isinstance(entry, Number)]
    names += [name for name, number in schema.of(Number) if number.is_address]
    names += [f"{n}@{k}" for n, array in schema.of(Array) if array.external for k in range(len(array.dims))]
    words = [np.array([schema.offset(name) // 8 for name in names], i64)]
    for name, array in schema.own_arrays.items():
        words += [_offsets(getattr(state, name)[key].view(np.ndarray), state) // 8 for key in array.addresses]
    return np.concatenate(words)


def _offsets(view: NDArray[Any], state: State) -> NDArray[np.int64]:
    """Return byte offsets of the elements of a view in the memory of a state."""
    offsets = np.full(view.shape, array_address(view) - state.address, i64)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        offsets += (np.arange(n) * stride).reshape([-1 if k == axis else 1 for k in range(view.ndim)])
    return offsets.reshape(-1)
