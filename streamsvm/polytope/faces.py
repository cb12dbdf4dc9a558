"""Sums of weight rows over the pairs of an event, for all faces at once."""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.core.simd import DOUBLES, lanes_at, put_lanes, uint

# The scores of more faces take longer in registers than in memory: each row of weights is then read bit by bit.
MOST_IN_LANES = 512
# Where classes are many, weights change in runs of faces, so many of which at least stay as they are in between.
GAP = 16
# Larger weights, which only a damaged archive has, would soon overflow.
MOST_WEIGHT = 1e250


@inlined
def dot_faces(weights, n_faces, rows, values, m, out):
    """out[f] = sum over the pairs, of which the first is the bias, of value * weights[row, f].

    One after the other for each face: pairs of value 0 change nothing, so dense and sparse rows give the same.
    """
    f, most = 0, n_faces if n_faces <= MOST_IN_LANES else 0
    while f + DOUBLES <= most:
        stop = min(f + 3 * DOUBLES, n_faces)
        dot_lanes(weights, uint(f), uint(min(f + DOUBLES, stop - DOUBLES)), uint(stop - DOUBLES), rows, values, m, out)
        f = stop
    if f < n_faces:
        dot_few(weights, f, n_faces, rows, values, m, out)


@inlined
def dot_lanes(weights, a, b, c, rows, values, m, out):
    """`dot_faces` for the faces from a, b and c on, that stay in registers; some may be the same."""
    j, x = uint(rows[0]), values[0]
    first = x * lanes_at(weights, (j, a))
    second = x * lanes_at(weights, (j, b))
    third = x * lanes_at(weights, (j, c))
    for i in range(1, m):
        j, x = uint(rows[uint(i)]), values[uint(i)]
        first = first + x * lanes_at(weights, (j, a))
        second = second + x * lanes_at(weights, (j, b))
        third = third + x * lanes_at(weights, (j, c))
    put_lanes(first, out, a)
    put_lanes(second, out, b)
    put_lanes(third, out, c)


@inlined
def dot_few(weights, low, high, rows, values, m, out):
    """`dot_faces` for the faces low <= f < high."""
    j0, x0 = uint(rows[0]), values[0]
    for f in range(low, high):
        out[uint(f)] = x0 * weights[j0, uint(f)]
    i = 1
    while i + 4 <= m:  # four pairs at a time: a quarter of the traffic on `out`
        j0, j1, j2, j3 = uint(rows[uint(i)]), uint(rows[uint(i + 1)]), uint(rows[uint(i + 2)]), uint(rows[uint(i + 3)])
        x0, x1, x2, x3 = values[uint(i)], values[uint(i + 1)], values[uint(i + 2)], values[uint(i + 3)]
        for f in range(low, high):
            g = uint(f)
            s = out[g] + x0 * weights[j0, g]
            s += x1 * weights[j1, g]
            s += x2 * weights[j2, g]
            out[g] = s + x3 * weights[j3, g]
        i += 4
    while i < m:
        j0, x0 = uint(rows[uint(i)]), values[uint(i)]
        for f in range(low, high):
            out[uint(f)] += x0 * weights[j0, uint(f)]
        i += 1


@inlined
def add_faces(weights, low, high, rows, values, m, coefs):
    """weights[row, f] += value * coefs[f] for the faces low <= f < high."""
    for i in range(m):
        j, x = uint(rows[uint(i)]), values[uint(i)]
        for f in range(low, high):
            weights[j, uint(f)] += x * coefs[uint(f)]


@inlined
def square_norm(values, m):
    """The square norm of the pairs."""
    total = 0.0
    for i in range(m):
        total += values[uint(i)] * values[uint(i)]
    return total
