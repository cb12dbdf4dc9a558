"""Counts of a monitor: events per block."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from streamsvm.core.deferred import from_numba
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import NUMBERS, WORD_TABLE, inlined, kernel, uint
from streamsvm.core.precompile import prepare

BLOCK = 64
"""Number of events in a block, as the number of bits in a word."""
RATIO = 4
"""Ratio of the sizes of windows."""
_LARGEST = 1e30  # bound of sums, which have 32 bits


@inlined
def count_up_to(numbers, start, edge):
    """Count the numbers of a block that are at most `edge`."""
    n = 0
    for i in range(BLOCK):
        n += numbers[uint(start + i)] <= edge
    return n


@inlined
def bits_up_to(numbers, start, edge):
    """Return a word with a bit per number of a block that is at most `edge`."""
    word = uint(0)
    for i in range(BLOCK):
        word |= uint(numbers[uint(start + i)] <= edge) << uint(i)
    return word


@inlined
def count_repeats(numbers, start, previous):
    """Count the numbers of a block that equal the one before."""
    n = np.int64(numbers[uint(start)] == previous)
    for i in range(1, BLOCK):
        n += numbers[uint(start + i)] == numbers[uint(start + i - 1)]
    return n


@inlined
def bounded(value):
    """Return a number within the bounds of sums, and 0 for one that is not finite."""
    return min(max(value, -_LARGEST), _LARGEST) if math.isfinite(value) else 0.0


@inlined
def sum_of_block(numbers, start):
    """Return the sum of the numbers of a block, without those that are not finite.

    Eight partial sums are added up in a fixed order, as numpy does.
    """
    a = b = c = d = e = f = g = h = 0.0
    for i in range(start, start + BLOCK, 8):
        a, b = a + numbers[uint(i)], b + numbers[uint(i + 1)]
        c, d = c + numbers[uint(i + 2)], d + numbers[uint(i + 3)]
        e, f = e + numbers[uint(i + 4)], f + numbers[uint(i + 5)]
        g, h = g + numbers[uint(i + 6)], h + numbers[uint(i + 7)]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    if not math.isfinite(total):
        a = b = c = d = e = f = g = h = 0.0
        for i in range(start, start + BLOCK, 8):
            a, b = a + bounded(numbers[uint(i)]), b + bounded(numbers[uint(i + 1)])
            c, d = c + bounded(numbers[uint(i + 2)]), d + bounded(numbers[uint(i + 3)])
            e, f = e + bounded(numbers[uint(i + 4)]), f + bounded(numbers[uint(i + 5)])
            g, h = g + bounded(numbers[uint(i + 6)]), h + bounded(numbers[uint(i + 7)])
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    return min(max(total, -_LARGEST), _LARGEST)


@kernel
def count_numbers(numbers, previous, edges, splits, counts, words):
    """Count the numbers of columns per block; see `bins.count_blocks`.

    `counts` has the shape (n_blocks, n_columns * width), with the positions of `streamsvm.monitor.positions`.
    `words` has the shape (n_blocks, 2 * n_columns + 1).
    """
    n_cuts, width = edges.shape[1] - 2, counts.shape[1] // max(1, numbers.shape[0])
    for c in range(numbers.shape[0]):
        own, ends, before = numbers[uint(c)], edges[uint(c)], previous[uint(c)]
        is_numeric = not math.isnan(ends[0])
        for b in range(counts.shape[0]):
            found, start = counts[uint(b), c * width : (c + 1) * width], b * BLOCK
            n_present = 0
            if is_numeric:
                for k in range(n_cuts):
                    found[uint(k)] = count_up_to(own, start, ends[uint(k + 1)])
                n_present = count_up_to(own, start, math.inf)
                found[uint(n_cuts)] = count_up_to(own, start, ends[0])
                found[uint(n_cuts + 1)] = n_present - found[uint(n_cuts - 1)]
                median, low, high = splits[uint(c), 0], splits[uint(c), 1], splits[uint(c), 2]
                words[uint(b), uint(2 * c)] = bits_up_to(own, start, ends[uint(median)])
                words[uint(b), uint(2 * c + 1)] = bits_up_to(own, start, ends[uint(low)]) ^ bits_up_to(
                    own, start, ends[uint(high)]
                )
            found[uint(n_cuts + 2)] = count_repeats(own, start, before)
            found[uint(n_cuts + 3)] = BLOCK - n_present
            found[uint(n_cuts + 5)] = sum_of_block(own, start)
            before = own[uint(start + BLOCK - 1)]


@inlined
def n_bits(word):
    """Count the bits of a word."""
    word -= (word >> uint(1)) & uint(0x5555555555555555)
    word = (word & uint(0x3333333333333333)) + ((word >> uint(2)) & uint(0x3333333333333333))
    word = (word + (word >> uint(4))) & uint(0x0F0F0F0F0F0F0F0F)
    return (word * uint(0x0101010101010101)) >> uint(56)


@kernel
def count_relations(words, relations, counts):
    """Count events per block with an odd number of set bits per relation."""
    last = words.shape[1] - 1
    for b in range(counts.shape[0]):
        own = words[uint(b)]
        for p in range(relations.shape[0]):
            third = relations[uint(p), 2]
            odd = own[uint(relations[uint(p), 0])] ^ own[uint(relations[uint(p), 1])]
            counts[uint(b), uint(p)] = n_bits(odd ^ own[uint(third if third >= 0 else last)])


types = from_numba("numba", "types")
TABLE, INTEGER_TABLE, COUNTS = types.float64[:, ::1], types.int64[:, ::1], types.float32[:, ::1]

ENTRY_POINTS = {
    "count_numbers": EntryPoint(count_numbers, (TABLE, NUMBERS, TABLE, INTEGER_TABLE, COUNTS, WORD_TABLE)),
    "count_relations": EntryPoint(count_relations, (WORD_TABLE, INTEGER_TABLE, COUNTS)),
}


@cache
def compiled(name: str) -> Any:
    """Compile all entry points at the first call, and return one of them."""
    prepare(list(ENTRY_POINTS.values()))
    return ENTRY_POINTS[name].compile()
