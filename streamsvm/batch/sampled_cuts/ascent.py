"""Ascent on the dual of the whole problem, with all kernel values in memory.

Each row has a weight for each label. A step moves weight from one label to another at two rows. The first has the
largest gain alone, the second the largest gain given the first. This is second-order working set selection (Fan, Chen
and Lin, 2005; without offset, Steinwart, Hush and Scovel, 2011).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.core.jit import allocating, jit_fastmath, jit_fma, kernel, uint
from streamsvm.core.math import HALF, ONE, TWO, ZERO

# Steps between two computations of the duality gap.
LOOK = 8
# Minimum curvature of a row given another row, as a share of its curvature alone; less is rounding error.
LEAST = np.float32(1e-6)
TINY, LARGE = np.float32(1e-30), np.float32(1e30)
# Rows with at least this share of the largest gain also take a step, at most MORE rows per class.
NEAR, MORE = np.float32(0.05), 4
# Number of interleaved parts in `index_of_largest`, because compilers do not vectorise an argmax.
LANES = 128


class Dual(NamedTuple):
    """The dual problem and its current point.

    Parameters
    ----------
    gram, share
        Kernel values of all pairs of rows, and their factor.
    most
        Sum of the weights of each row.
    weights
        Weight of each label and row, shape (n_classes, n).
    losses
        Cost plus score of each label and row, shape (n_classes, n), up to a constant per row.
    """

    gram: Any
    share: Any
    most: Any
    weights: Any
    losses: Any


class RowTerms(NamedTuple):
    """Quantities of each row that determine a step.

    Parameters
    ----------
    high, up, back
        The largest loss, its label, and the weight of this label.
    low, down, room
        The smallest loss among labels with weight, its label, and the weight of this label.
    squares, shared
        The curvature along the row's step, and the mixed curvature with the first row's step.
    gains, beside
        The gain of a step alone, and given the first row's step.
    lanes
        Scratch of `index_of_largest`.
    """

    high: Any
    up: Any
    back: Any
    low: Any
    down: Any
    room: Any
    squares: Any
    shared: Any
    gains: Any
    beside: Any
    lanes: Any


class Line(NamedTuple):
    """The gain slope * t - square * t^2 / 2 of a step t from `least` to `most`."""

    slope: Any
    square: Any
    least: Any
    most: Any


@allocating
def ascend(dual, n_steps, tol):
    """Take up to `n_steps` steps, until the duality gap is at most `tol`.

    Returns the number of steps.
    """
    gram, share, most, weights, losses = dual
    n = weights.shape[1]
    padded = n + -n % LANES
    rows = RowTerms(
        np.empty(n, np.float32),
        np.empty(n, np.int32),
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.empty(n, np.int32),
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.zeros(padded, np.float32),
        np.zeros(padded, np.float32),
        np.empty(LANES, np.float32),
    )
    for i in range(n):
        rows.squares[i] = max(TWO * share * gram[i, i], TINY)
    for step in range(n_steps):
        highest(losses, weights, rows.high, rows.up, rows.back)
        lowest(losses, weights, rows)
        if step % LOOK == 0 and gap_of(losses, weights, rows.high, most) <= tol:
            return step
        gain_alone(rows.high, rows.low, rows.room, rows.squares, rows.gains)
        i = index_of_largest(rows.gains, rows.lanes)
        if rows.gains[i] <= ZERO:
            return step
        step_others(dual, rows, i, step_pair(dual, rows, i))
    return n_steps


@kernel
def step_pair(dual, rows, i):
    """Take a step at row i and the best row given row i.

    Returns that row; if no row gains, an arbitrary one.
    """
    gram, share = dual.gram, dual.share
    mixed_curvatures(gram[i], share, i, rows.up, rows.down, rows.shared)
    slope, square, room = rows.high[i] - rows.low[i], rows.squares[i], rows.room[i]
    alone = min(slope / square, room)
    gain_beside(rows, alone, ONE / square if alone < room else ZERO)
    rows.beside[i] = ZERO
    j = index_of_largest(rows.beside, rows.lanes)
    if rows.beside[j] > ZERO:
        first = Line(slope, square, -rows.back[i], room)
        second = Line(rows.high[j] - rows.low[j], rows.squares[j], -rows.back[j], rows.room[j])
        of_i, of_j = best_steps(first, second, rows.shared[j])
        move(dual, i, rows.up[i], rows.down[i], of_i)
        move(dual, j, rows.up[j], rows.down[j], of_j)
    else:
        move(dual, i, rows.up[i], rows.down[i], alone)
    return j


@kernel
def step_others(dual, rows, i, j):
    """Take a step at some other rows with gains near the gain of row i."""
    n = rows.high.size
    least, k, left = NEAR * rows.gains[i], i, MORE * len(dual.losses)
    for _ in range(n - 1):
        k = k + 1 if k + 1 < n else 0
        if rows.gains[k] > least and k != j:
            step_alone(dual, rows.squares[k], k)
            left -= 1
            if left == 0:
                break


@jit_fastmath
def highest(losses, weights, high, up, back):
    """Find the largest loss of each row, its label, and the label's weight."""
    high[:] = -LARGE
    up[:] = 0
    for c in range(len(losses)):
        loss, label = losses[uint(c)], np.int32(c)
        for i in range(high.size):
            up[uint(i)] = label if loss[uint(i)] > high[uint(i)] else up[uint(i)]
            high[uint(i)] = loss[uint(i)] if loss[uint(i)] > high[uint(i)] else high[uint(i)]
    for c in range(len(losses)):
        weight, label = weights[uint(c)], np.int32(c)
        for i in range(high.size):
            back[uint(i)] = weight[uint(i)] if up[uint(i)] == label else back[uint(i)]


@jit_fastmath
def lowest(losses, weights, rows):
    """Find the smallest loss among labels with weight, its label, and its weight.

    A row without another such label gets the label of `highest`.
    """
    high, up, low, down, room = rows.high, rows.up, rows.low, rows.down, rows.room
    for i in range(low.size):
        low[uint(i)], down[uint(i)], room[uint(i)] = high[uint(i)], up[uint(i)], ZERO
    for c in range(len(losses)):
        loss, weight, label = losses[uint(c)], weights[uint(c)], np.int32(c)
        for i in range(low.size):
            at, least = loss[uint(i)] if weight[uint(i)] > ZERO else LARGE, low[uint(i)]
            down[uint(i)] = label if at < least else down[uint(i)]
            room[uint(i)] = weight[uint(i)] if at < least else room[uint(i)]
            low[uint(i)] = at if at < least else least


@kernel
def gap_of(losses, weights, high, most):
    """Compute the duality gap: the largest losses minus the weighted losses."""
    gap = 0.0
    for i in range(high.size):
        gap += np.float64(most[uint(i)]) * high[uint(i)]
    for c in range(len(losses)):
        loss, weight = losses[uint(c)], weights[uint(c)]
        for i in range(high.size):
            gap -= np.float64(weight[uint(i)]) * loss[uint(i)]
    return gap


@jit_fastmath
def mixed_curvatures(values, share, i, up, down, shared):
    """Compute the mixed curvature of each row's step with the step of row i.

    `values` is row i of the kernel matrix.
    """
    a, b = up[i], down[i]
    for k in range(shared.size):
        to, off = up[uint(k)], down[uint(k)]
        same = (ONE if to == a else ZERO) + (ONE if off == b else ZERO)
        opposed = (ONE if to == b else ZERO) + (ONE if off == a else ZERO)
        shared[uint(k)] = (same - opposed) * share * values[uint(k)]


@jit_fastmath
def gain_alone(high, low, room, squares, gains):
    """Compute the gain of the best step of each row."""
    for i in range(high.size):
        slope, square = high[uint(i)] - low[uint(i)], squares[uint(i)]
        step = slope / square
        step = step if step < room[uint(i)] else room[uint(i)]
        gains[uint(i)] = step * (slope - HALF * step * square)


@jit_fastmath
def gain_beside(rows, alone, inverse):
    """Compute the gain of each row's best step after the first row's step `alone`.

    `inverse` is the reciprocal curvature of the first row if its step can adapt, and 0 if it is at its bound.
    """
    high, low, room, back, squares, shared = rows.high, rows.low, rows.room, rows.back, rows.squares, rows.shared
    for i in range(high.size):
        slope = high[uint(i)] - low[uint(i)] - alone * shared[uint(i)]
        square = squares[uint(i)] - shared[uint(i)] * (shared[uint(i)] * inverse)
        least = LEAST * squares[uint(i)]
        square = square if square > least else least
        step = slope / square
        step = step if step > -back[uint(i)] else -back[uint(i)]
        step = step if step < room[uint(i)] else room[uint(i)]
        rows.beside[uint(i)] = step * (slope - HALF * step * square)


@jit_fastmath
def index_of_largest(values, lanes):
    """Return the index of the largest of a multiple of LANES values."""
    for k in range(LANES):
        lanes[uint(k)] = values[uint(k)]
    for first in range(LANES, values.size, LANES):
        part = values[first : first + LANES]
        for k in range(LANES):
            lanes[uint(k)] = part[uint(k)] if part[uint(k)] > lanes[uint(k)] else lanes[uint(k)]
    place = 0
    for k in range(1, LANES):
        if lanes[k] > lanes[place]:
            place = k
    top = lanes[place]
    while values[place] < top:
        place += LANES
    return place


@kernel
def best_steps(a, b, shared):
    """Find the steps of two rows, within their bounds, with the largest joint gain.

    a and b are of type `Line`.
    """
    determinant = np.float64(a.square) * b.square - np.float64(shared) * shared
    if determinant > LEAST * a.square * b.square:
        s = (np.float64(a.slope) * b.square - np.float64(b.slope) * shared) / determinant
        t = (np.float64(b.slope) * a.square - np.float64(a.slope) * shared) / determinant
        if a.least <= s <= a.most and b.least <= t <= b.most:
            return s, t
    best_s, best_t, best = 0.0, 0.0, 0.0
    for edge in range(4):
        if edge < 2:
            s = np.float64(a.least if edge == 0 else a.most)
            t = min(max((b.slope - shared * s) / b.square, b.least), b.most)
        else:
            t = np.float64(b.least if edge == 2 else b.most)
            s = min(max((a.slope - shared * t) / a.square, a.least), a.most)
        gain = s * (a.slope - 0.5 * s * a.square - t * shared) + t * (b.slope - 0.5 * t * b.square)
        if gain > best:
            best_s, best_t, best = s, t, gain
    return best_s, best_t


@kernel
def step_alone(dual, square, i):
    """Take the best step of row i with the current losses."""
    weights, losses = dual.weights, dual.losses
    up, down, high, low = 0, 0, -LARGE, LARGE
    for c in range(len(losses)):
        loss = losses[c, i]
        if loss > high:
            up, high = c, loss
        if weights[c, i] > ZERO and loss < low:
            down, low = c, loss
    if high > low:
        move(dual, i, up, down, min((high - low) / square, weights[down, i]))


@kernel
def move(dual, i, up, down, step):
    """Move weight of row i from label `down` to label `up`, and update all losses."""
    weights, losses, values = dual.weights, dual.losses, dual.gram[i]
    step = np.float32(step)
    weights[down, i] = max(weights[down, i] - step, ZERO)
    weights[up, i] = max(weights[up, i] + step, ZERO)
    if up != down:
        add_scaled(losses[up], values, -step * dual.share)
        add_scaled(losses[down], values, step * dual.share)


@jit_fma
def add_scaled(total, values, a):
    """Add a * values to total."""
    if a != 0.0:
        for i in range(values.size):
            total[uint(i)] += a * values[uint(i)]
