"""Scores and updates of all faces, from the pairs of an event."""

from __future__ import annotations

from streamsvm.core.jit import DOUBLES, inlined, lanes_at, put_lanes, uint

# With more faces, sums in registers are slower than sums in memory, because each row of weights is read in pieces.
MOST_IN_LANES = 512
# With many classes, weights are updated in runs of faces separated by at least this number of unchanged ones.
GAP = 16
# Larger weights would soon overflow; only a damaged archive contains them.
MOST_WEIGHT = 1e250


@inlined
def dot_faces(weights, n_faces, rows, values, m, out):
    """Compute out[f], the sum over m pairs of value * weights[row, f], for all faces.

    The first pair is the bias. The summation order per face is fixed and pairs with value 0 have no effect, so dense
    and sparse rows give equal bits.
    """
    f, most = 0, n_faces if n_faces <= MOST_IN_LANES else 0
    while f + DOUBLES <= most:
        stop = min(f + 3 * DOUBLES, n_faces)
        starts = uint(f), uint(min(f + DOUBLES, stop - DOUBLES)), uint(stop - DOUBLES)
        dot_lanes(weights, starts, rows, values, m, out)
        f = stop
    if f < n_faces:
        dot_few(weights, f, n_faces, rows, values, m, out)


@inlined
def dot_lanes(weights, starts, rows, values, m, out):
    """Implement `dot_faces` for DOUBLES faces from each of three starts.

    The ranges of faces may overlap. The sums stay in registers.
    """
    a, b, c = starts
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
    """Compute `dot_faces` for the faces low <= f < high."""
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
    """Add value * coefs[f] to weights[row, f] over m pairs, for low <= f < high."""
    for i in range(m):
        j, x = uint(rows[uint(i)]), values[uint(i)]
        for f in range(low, high):
            weights[j, uint(f)] += x * coefs[uint(f)]
