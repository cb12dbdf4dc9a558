"""Digests of keys in kernels: SipHash-2-4 of 128 bits, keyed by a secret.

Without the secret, nobody can choose keys whose digests collide.

Notes
-----
J.-P. Aumasson and D. J. Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGERS, WORD_TABLE, StateType, columns_at, element_address, inlined, kernel
from streamsvm.core.schema import u64
from streamsvm.delayed.label_join import JOIN_TABLE


@inlined
def rotated(x, n):
    """Return a word whose bits are rotated to the left by n."""
    return (x << np.uint64(n)) | (x >> np.uint64(64 - n))


@inlined
def mixed(a, b, c, d):
    """Return the four words after a SipRound."""
    a, c = a + b, c + d
    b, d = rotated(b, 13) ^ a, rotated(d, 16) ^ c
    a = rotated(a, 32)
    c, a = c + b, a + d
    b, d = rotated(b, 17) ^ c, rotated(d, 21) ^ a
    return a, b, rotated(c, 32), d


@inlined
def mixed_well(a, b, c, d):
    """Return the four words after four rounds."""
    for _ in range(4):
        a, b, c, d = mixed(a, b, c, d)
    return a, b, c, d


@inlined
def digest(state, start, n):
    """Return the two words of the digest of a key.

    Parameters
    ----------
    state
        Join table, with the secret.
    start, n
        Address of the key, which ends with zeros up to a whole word, and its number of bytes.
    """
    words, low, high = columns_at(start, (n + 7) >> 3), u64(state.secret_low), u64(state.secret_high)
    a, b = low ^ u64(0x736F6D6570736575), high ^ u64(0x646F72616E646F6D) ^ u64(0xEE)
    c, d = low ^ u64(0x6C7967656E657261), high ^ u64(0x7465646279746573)
    for i in range((n >> 3) + 1):
        word = u64(words[i]) if i < words.size else u64(0)
        if i == n >> 3:
            word |= u64(n) << u64(56)
        d ^= word
        a, b, c, d = mixed(a, b, c, d)
        a, b, c, d = mixed(a, b, c, d)
        a ^= word
    a, b, c, d = mixed_well(a, b, c ^ u64(0xEE), d)
    first = a ^ b ^ c ^ d
    a, b, c, d = mixed_well(a, b ^ u64(0xDD), c, d)
    return first, a ^ b ^ c ^ d


@kernel
def digest_keys(state, words, sizes, found):
    """Write the digests of keys.

    Parameters
    ----------
    state
        Join table, with the secret.
    words, sizes
        Keys one after another, each filled up with zeros to a whole word, and their numbers of bytes.
    found
        Array for the digests, shape (n, 2).
    """
    at = 0
    for i in range(sizes.size):
        found[i, 0], found[i, 1] = digest(state, element_address(words, at), sizes[i])
        at += (sizes[i] + 7) >> 3


ENTRY_POINTS = {
    "digest_keys": EntryPoint(digest_keys, (StateType(JOIN_TABLE.name), INTEGERS, INTEGERS, WORD_TABLE)),
}
