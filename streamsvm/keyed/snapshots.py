"""Snapshots: compact binary copies of the saved fields of a state.

They are fast to write and to load.

A snapshot has those 8-byte words of the saved fields, of a state and then of its substates, that differ from an
untrained state. A bitmap with one bit per word marks them. Of the bitmap, too, only the bytes that are not zero are
stored, followed by one bit per byte, so that arrays without values take little.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import BYTES, WORDS, StateType, kernel, uint
from streamsvm.core.layout import array_address
from streamsvm.core.schema import Array, Schema, f32, f64, i64, u64
from streamsvm.core.state import State
from streamsvm.core.template import Template

# Type of the values in a word, for the check of their bounds.
OTHER, REALS, WHOLE, SINGLES = 0, 1, 2, 3
_KINDS = {f64: REALS, i64: WHOLE, f32: SINGLES}

PLACES = Schema(
    "places",
    {
        "words": Array(("words",), "indices of the words with saved fields", i64),
        "fresh": Array(("words",), "these words in an untrained state", u64),
        "kinds": Array(("words",), "the type of each value", np.uint8),
        "low": Array(("words",), "the lower bound of each value"),
        "high": Array(("words",), "the upper bound of each value"),
    },
)


@kernel
def put_words(memory, places, is_given, words):
    """Write the words that a bitmap marks to the memory of an untrained state.

    Returns the number of values that are out of bounds or not finite, or -1 if the numbers of words and marks differ.
    """
    reals, wholes, singles = words.view(np.float64), words.view(np.int64), words.view(np.float32)
    saved, kinds, low, high = places.words, places.kinds, places.low, places.high
    word, n_wrong = 0, 0
    for i in range(is_given.size):
        bits = is_given[uint(i)]
        for bit in range(8 if bits else 0):
            if (bits >> bit) & 1 == 0:
                continue
            k = 8 * i + bit
            if k >= saved.size or word >= words.size:
                return -1
            memory[uint(saved[uint(k)])] = words[uint(word)]
            if kinds[uint(k)] == REALS:
                n_wrong += not low[uint(k)] <= reals[uint(word)] <= high[uint(k)]
            elif kinds[uint(k)] == WHOLE:
                n_wrong += not low[uint(k)] <= wholes[uint(word)] <= high[uint(k)]
            elif kinds[uint(k)] == SINGLES:
                n_wrong += not low[uint(k)] <= singles[uint(2 * word)] <= high[uint(k)]
                n_wrong += not low[uint(k)] <= singles[uint(2 * word + 1)] <= high[uint(k)]
            word += 1
    return n_wrong if word == words.size else -1


@kernel
def take_words(memory, places, is_given, words):
    """Write the saved words that differ from an untrained state, with a bitmap.

    Returns the number of words.
    """
    saved, fresh = places.words, places.fresh
    n = 0
    for k in range(saved.size):
        word = memory[uint(saved[uint(k)])]
        if word != fresh[uint(k)]:
            words[uint(n)] = word
            is_given[uint(k >> 3)] |= 1 << (k & 7)
            n += 1
    return n


_ARGUMENTS = (WORDS, StateType(PLACES.name), BYTES, WORDS)
ENTRY_POINTS = {
    "put_words": EntryPoint(put_words, _ARGUMENTS),
    "take_words": EntryPoint(take_words, _ARGUMENTS),
}


@cache
def _compiled(name: str) -> Any:
    return ENTRY_POINTS[name].compile()


class Snapshots:
    """Snapshots of the saved fields of copies of a template, with all substates.

    Parameters
    ----------
    template
        The template of untrained states.
    """

    def __init__(self, template: Template) -> None:
        each = [
            (placed.start // 8, _places(placed.schema, tuple(placed.dims.items()))) for placed in template.placed.all()
        ]
        n_words = sum(len(places.words) for _, places in each)
        self._places, at = State(PLACES, {"words": n_words}), 0
        for start, places in each:
            part = slice(at, at + len(places.words))
            self._places.words[part] = places.words + start
            for name in ("kinds", "low", "high"):
                getattr(self._places, name)[part] = getattr(places, name)
            at = part.stop
        self._places.fresh[:] = template.words[self._places.words]
        self.n_words = n_words

    def take(self, state: State) -> bytes:
        """Return a snapshot of the saved fields."""
        words, bitmap = np.empty(self.n_words, u64), np.zeros(math.ceil(self.n_words / 8), np.uint8)
        n = _compiled("take_words")(Template.words_of(state), self._places, bitmap, words)
        marks = bitmap != 0
        packed: bytes = words[:n].tobytes() + bitmap[marks].tobytes() + np.packbits(marks).tobytes()
        return packed

    def put(self, state: State, packed: bytes) -> None:
        """Load a snapshot, the result of `take`, into an untrained state.

        Raises
        ------
        ValueError
            If a value is not finite or out of bounds, or the number of words is wrong.
        """
        content = np.frombuffer(packed, np.uint8).copy()
        n = math.ceil(self.n_words / 8)  # bytes of the bitmap
        n_marks = math.ceil(n / 8)
        marks = np.unpackbits(content[-n_marks:]).view(bool)[:n]
        n_marked = int(np.count_nonzero(marks))
        n_words, rest = divmod(len(content) - n_marks - n_marked, 8)
        if len(marks) < n or n_words < 0 or rest:
            raise ValueError(f"{len(packed)} bytes do not contain {self.n_words} words")
        words, is_given = content[: 8 * n_words].view(u64), np.zeros(n, np.uint8)
        is_given[marks] = content[8 * n_words :][:n_marked]
        n_wrong = _compiled("put_words")(Template.words_of(state), self._places, is_given, words)
        if n_wrong < 0:
            raise ValueError("the number of words is not the declared one")
        if n_wrong:
            raise ValueError(f"{n_wrong} values are out of bounds or not finite")


@lru_cache(maxsize=1024)
def _places(schema: Schema, dims: tuple[tuple[str, int], ...]) -> State:
    """Return the layout of the memory of states with these dimensions."""
    state = State(schema, dict(dims))
    kept = [(view.dtype.type, _offsets(view, state) // 8, bounds) for _, view, bounds in state.saved_entries()]
    saved = np.unique(np.concatenate([np.zeros(0, i64), *(words for _, words, _ in kept)]))
    places = State(PLACES, {"words": len(saved)})
    places.words[:], places.low[:], places.high[:] = saved, -math.inf, math.inf
    for kind, words, bounds in kept:
        most = float(np.finfo(kind).max) if kind in (f32, f64) else math.inf
        at = np.searchsorted(saved, words)
        places.kinds[at] = _KINDS.get(kind, OTHER)
        places.low[at], places.high[at] = np.clip(bounds, -most, most)
    return places


def _offsets(view: NDArray[Any], state: State) -> NDArray[np.int64]:
    """Return byte offsets of the elements of a view in the memory of a state."""
    offsets = np.full(view.shape, array_address(view) - state.address, i64)
    for axis, (n, stride) in enumerate(zip(view.shape, view.strides, strict=True)):
        offsets += (np.arange(n) * stride).reshape([-1 if k == axis else 1 for k in range(view.ndim)])
    return offsets.reshape(-1)
