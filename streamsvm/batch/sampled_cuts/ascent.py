"""Ascent on the dual of the whole problem, with all kernel values in memory.

Each row has a weight for each label. A step moves weight of a row from one label to another. The gains of all rows are
computed together; the row with the largest gain takes a step, and so do some rows with gains near it (without offset,
single rows suffice: Steinwart, Hush and Scovel, 2011).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from streamsvm.core.jit import allocating, jit_fastmath, jit_fma, kernel
from streamsvm.core.simd import uint

# Unsigned indices, because numba then omits the handling of negative ones.
# Steps between two computations of the duality gap.
LOOK = 8
TINY, LARGE = np.float32(1e-30), np.float32(1e30)
ZERO, HALF, TWO = np.float32(0.0), np.float32(0.5), np.float32(2.0)
# Rows with at least this share of the largest gain take a step, at most MORE rows per class.
NEAR, MORE = np.float32(0.02), 16
# Number of interleaved parts in `largest`, because compilers do not vectorise an argmax.
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


class Rows(NamedTuple):
    """Quantities of each row that determine its step.

    Parameters
    ----------
    high, up
        The largest loss, and its label.
    low, down, room
        The smallest loss among labels with weight, its label, and the weight of this label.
    squares, gains
        The curvature along the row's step, and the gain of the step.
    lanes
        Scratch of `largest`.
    """

    high: Any
    up: Any
    low: Any
    down: Any
    room: Any
    squares: Any
    gains: Any
    lanes: Any


@allocating
def ascend(dual, n_steps, tol):
    """Take up to `n_steps` steps, until the duality gap is at most `tol`.

    Returns the number of steps.
    """
    gram, share, most, weights, losses = dual
    n = weights.shape[1]
    single, labels = np.empty((4, n), np.float32), np.empty((2, n), np.int32)
    gains = np.zeros(n + -n % LANES, np.float32)
    rows = Rows(single[0], labels[0], single[1], labels[1], single[2], single[3], gains, np.empty(LANES, np.float32))
    for i in range(n):
        rows.squares[i] = max(TWO * share * gram[i, i], TINY)
    for step in range(n_steps):
        highest(losses, rows.high, rows.up)
        lowest(losses, weights, rows)
        if step % LOOK == 0 and gap_of(losses, weights, rows.high, most) <= tol:
            return step
        gain_alone(rows.high, rows.low, rows.room, rows.squares, rows.gains)
        i = largest(rows.gains, rows.lanes)
        if rows.gains[i] <= ZERO:
            return step
        step_near(dual, rows, i)
    return n_steps


@kernel
def step_near(dual, rows, i):
    """Take a step at row i, and at some rows whose gains are near the gain of row i."""
    n = rows.high.size
    least, k, left = NEAR * rows.gains[i], i, MORE * len(dual.losses)
    for _ in range(n):
        if rows.gains[k] > least:
            step_alone(dual, rows.squares[k], k)
            left -= 1
            if left == 0:
                break
        k = k + 1 if k + 1 < n else 0


@jit_fastmath
def highest(losses, high, up):
    """Find the largest loss of each row, and its label."""
    high[:] = -LARGE
    up[:] = 0
    for c in range(len(losses)):
        loss, label = losses[uint(c)], np.int32(c)
        for i in range(high.size):
            up[uint(i)] = label if loss[uint(i)] > high[uint(i)] else up[uint(i)]
            high[uint(i)] = loss[uint(i)] if loss[uint(i)] > high[uint(i)] else high[uint(i)]


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
def gain_alone(high, low, room, squares, gains):
    """Compute the gain of the best step of each row."""
    for i in range(high.size):
        slope, square = high[uint(i)] - low[uint(i)], squares[uint(i)]
        step = slope / square
        step = step if step < room[uint(i)] else room[uint(i)]
        gains[uint(i)] = step * (slope - HALF * step * square)


@jit_fastmath
def largest(values, lanes):
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
