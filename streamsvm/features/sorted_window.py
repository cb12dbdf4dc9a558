"""Sorted recent values of a column: binary search and replacement.

A window that is not full ends with values above all others.

Random values defeat branch prediction. The searches therefore have no branches, run in several columns at a time, and
insertions move whole blocks.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import inlined, move, uint


@inlined
def mask_below(a, b):
    """Return -1 if a < b, else 0, from the sign bit of the difference.

    A comparison would compile to a branch. If both are zeros, b must be -0.0.
    """
    return np.float64(a - b).view(np.int64) >> 63


@inlined
def count_below(values, x):
    """Return the number of sorted values that are smaller than x."""
    if values[0] >= x:
        return 0
    x = -(0.0 - x)
    low, n = 0, values.size
    while n > 1:
        half = n >> 1
        low += half & mask_below(values[uint(low + half - 1)], x)
        n -= half
    return low - mask_below(values[uint(low)], x)


@inlined
def count_below_in_four(ranks, columns, sought, k, found):
    """Run `count_below` in four columns at a time.

    The columns are columns[k:k + 4] and the values sought[k:k + 4]. The result of column j is written to found[j]. The
    steps of one search depend on each other; four interleaved searches overlap their latencies.
    """
    a, b, c, d = (
        uint(columns[uint(k)]),
        uint(columns[uint(k + 1)]),
        uint(columns[uint(k + 2)]),
        uint(columns[uint(k + 3)]),
    )
    of_a, of_b = -(0.0 - sought[uint(k)]), -(0.0 - sought[uint(k + 1)])
    of_c, of_d = -(0.0 - sought[uint(k + 2)]), -(0.0 - sought[uint(k + 3)])
    in_a = in_b = in_c = in_d = 0
    n = ranks.shape[1]
    while n > 1:
        half = n >> 1
        in_a += half & mask_below(ranks[a, uint(in_a + half - 1)], of_a)
        in_b += half & mask_below(ranks[b, uint(in_b + half - 1)], of_b)
        in_c += half & mask_below(ranks[c, uint(in_c + half - 1)], of_c)
        in_d += half & mask_below(ranks[d, uint(in_d + half - 1)], of_d)
        n -= half
    found[a] = in_a - mask_below(ranks[a, uint(in_a)], of_a)
    found[b] = in_b - mask_below(ranks[b, uint(in_b)], of_b)
    found[c] = in_c - mask_below(ranks[c, uint(in_c)], of_c)
    found[d] = in_d - mask_below(ranks[d, uint(in_d)], of_d)


@inlined
def is_below(values, x, below):
    """Return whether exactly `below` of the values are smaller than x."""
    n = values.size
    if not 0 <= below <= n:
        return False
    return (below == 0 or values[uint(below - 1)] < x) and (below == n or values[uint(below)] >= x)


@inlined
def next_above(x):
    """Return the smallest float larger than x, or the second within 1e-307 of 0."""
    return x + (abs(x) * 1.2e-16 + 5e-324)


@inlined
def replace(values, at, stop, x):
    """Remove the value at index `at` and insert x before index `stop`."""
    if at > stop:
        move(values, uint(stop + 1), uint(stop), at - stop)
        at = stop
    elif at < stop - 1:
        move(values, uint(at), uint(at + 1), stop - 1 - at)
        at = stop - 1
    values[uint(at)] = x
