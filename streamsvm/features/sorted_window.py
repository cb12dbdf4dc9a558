"""Sorted recent values of a column: binary search and replacement.

A window that is not full ends with values above all others.

Random values defeat branch prediction. The searches therefore have no branches, and insertions move whole blocks.
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
