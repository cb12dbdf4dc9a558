"""Codes: columns of few distinct integers, categories for the linear member.

Whole numbers with few different values are often codes, such as an airline or an education, and their order says
little. A column counts as a code while all its values are whole numbers and the number of different values lies between
LEAST_DISTINCT and about 500. This number is estimated with a bitmap of hashes, which bounds the memory. Each value of
such a column has a slot in a hashed table of weights. The column remains a number for all members. The first
FIRST_EVENTS events are not considered.

Notes
-----
Linear counting: K. Whang et al., "A linear-time probabilistic counting algorithm for database applications", ACM TODS
15, 1990. Hashed features: K. Weinberger et al., "Feature hashing for large scale multitask learning", ICML 2009.
"""

from __future__ import annotations

from streamsvm.core.jit import inlined, kernel, uint
from streamsvm.core.schema import Array, Schema, i64

# Slots of the table of weights, and maximum number of classes and columns.
SLOTS = 1024
# Codes are considered after this many events, so that small models stay small.
FIRST_EVENTS = 1024
MOST_CLASSES, MOST_COLUMNS = 16, 2_048
# Bits of a bitmap and of a word, and the word after them, which counts the bits that are set. With MOST_SET bits set, a
# column has about 500 different values.
BITS, WORD, COUNT = 512, 64, 8
LEAST_DISTINCT, MOST_SET = 3, 320
LARGEST_CODE = 1e9

CODES = Schema(
    "codes",
    {
        "bitmaps": Array(
            ("code_columns", "words"),
            "hashes of the values learned, then the number of bits set, -1 for a column that is no code",
            i64,
            saved=True,
        )
    },
)


@inlined
def is_code(x):
    """Return whether a value can be a code."""
    return abs(x) <= LARGEST_CODE and x == float(int(x))


@inlined
def hash_of(j, x):
    """Return a hash of value x of column j."""
    mixed = (uint(j + 1) * uint(0x9E3779B97F4A7C15)) ^ uint(int(x) + (1 << 40))
    mixed = (mixed ^ (mixed >> uint(30))) * uint(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> uint(27))) * uint(0x94D049BB133111EB)
    return mixed ^ (mixed >> uint(31))


@kernel
def find_codes(state, block, k, values, columns):
    """Write the slots of the codes of a row to row k of the block."""
    row, bitmaps = block.rows[k], state.bitmaps
    for i in range(values.size):
        j, x = columns[uint(i)], values[uint(i)]
        if j < bitmaps.shape[0] and bitmaps[uint(j), COUNT] >= LEAST_DISTINCT and is_code(x):
            block.slots[uint(row.start + row.n_codes)] = int(hash_of(j, x) % uint(SLOTS))
            row.n_codes += 1


@kernel
def observe_codes(state, values, columns):
    """Update which columns are codes with a learned row."""
    bitmaps = state.bitmaps
    for i in range(values.size):
        j, x = columns[uint(i)], values[uint(i)]
        if j >= bitmaps.shape[0] or bitmaps[uint(j), COUNT] < 0 or x != x:
            continue
        if not is_code(x):
            bitmaps[uint(j), COUNT] = -1
            continue
        bit = (hash_of(j, x) >> uint(32)) % uint(BITS)
        word, mask = bit // uint(WORD), 1 << int(bit % uint(WORD))
        if bitmaps[uint(j), word] & mask == 0:
            bitmaps[uint(j), word] |= mask
            n_set = bitmaps[uint(j), COUNT]
            bitmaps[uint(j), COUNT] = n_set + 1 if n_set < MOST_SET else -1
