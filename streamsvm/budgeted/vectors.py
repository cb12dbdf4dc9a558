"""Support vectors and their coefficients."""

from __future__ import annotations

import numpy as np

from streamsvm.budgeted.expansion import BSGD, first_class, learns_metric
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, StateType, inlined, kernel, lowest_bit, uint
from streamsvm.core.math import ZERO
from streamsvm.core.schema import f32
from streamsvm.features.scaler import current_row

# Vectors ----------------------------------------------------------------------------------------------------------


@kernel
def write_vector(state, slot, m):
    """Write the current event to an empty slot."""
    rows, _ = current_row(state.rows)
    vectors, pairs, touched, relevance = state.vectors, state.pairs, state.touched, state.relevance
    weighing, slot, norm = learns_metric(state), uint(slot), ZERO
    for w in range(touched.shape[1]):
        bits = touched[slot, uint(w)]
        while bits != uint(0):
            vectors[uint(64 * w) + lowest_bit(bits), slot] = ZERO
            bits &= bits - uint(1)
        touched[slot, uint(w)] = uint(0)
    for i in range(1, m):
        if pairs[uint(i)] != ZERO:
            j = uint(rows[uint(i)] - 1)
            x = pairs[uint(i)]
            vectors[j, slot] = x
            touched[slot, j >> uint(6)] |= uint(1) << (j & uint(63))
            norm += x * f32(relevance[j]) * x if weighing else x * x
    state.norms[slot] = norm


@kernel
def vector_norm(state, slot):
    """Return the weighted squared norm of a vector."""
    vectors, touched, relevance = state.vectors, state.touched, state.relevance
    weighing, slot, norm = learns_metric(state), uint(slot), ZERO
    for w in range(touched.shape[1]):
        bits = touched[slot, uint(w)]
        while bits != uint(0):
            j = uint(64 * w) + lowest_bit(bits)
            v = vectors[j, slot]
            norm += v * f32(relevance[j]) * v if weighing else v * v
            bits &= bits - uint(1)
    return norm


@kernel
def write_vector_pairs(state, slot):
    """Write a vector to `pairs` and `weighted` as `write_event_pairs` does.

    Returns the number of pairs including the bias.
    """
    vectors, touched, relevance = state.vectors, state.touched, state.relevance
    pairs, weighted, rows = state.pairs, state.weighted, state.rows.own_rows
    weighing, slot = learns_metric(state), uint(slot)
    state.rows.in_order = 0
    m, norm = 1, ZERO
    for w in range(touched.shape[1]):
        bits = touched[slot, uint(w)]
        while bits != uint(0):
            j = uint(64 * w) + lowest_bit(bits)
            v = vectors[j, slot]
            s = v * f32(relevance[j]) if weighing else v
            rows[uint(m)], pairs[uint(m)], weighted[uint(m)] = np.int64(j) + 1, v, s
            norm += s * v
            m += 1
            bits &= bits - uint(1)
    weighted[0] = norm
    return m


@kernel
def log_kernel_between(state, a, b):
    """Return the logarithm of the kernel value of two vectors."""
    vectors, touched, relevance = state.vectors, state.touched, state.relevance
    weighing, a, b, total = learns_metric(state), uint(a), uint(b), 0.0
    for w in range(touched.shape[1]):
        bits = touched[a, uint(w)] | touched[b, uint(w)]
        while bits != uint(0):
            j = uint(64 * w) + lowest_bit(bits)
            d = vectors[j, a] - vectors[j, b]
            total += relevance[j] * d * d if weighing else d * d
            bits &= bits - uint(1)
    return -state.gamma_now * total


@kernel
def open_classes(state, n):
    """Add classes up to n, with zero coefficients.

    From three classes on, classes 0 and 1 have separate coefficients.
    """
    capacity, coefs = state.classes.size, state.coefs
    before = state.n_classes
    for h in range(state.n_heads):
        at = h * capacity
        for c in range(at + before, at + n):
            state.scores[c] = 0.0
        if before == 2 and n > 2:
            for b in range(coefs.shape[1]):
                coefs[at, b] = -coefs[at + 1, b]
            state.biases[at] = -state.biases[at + 1]
    state.n_classes = max(before, n)
    if before == 2 and n > 2:
        update_all_squares(state)


@inlined
def coef_range(state, h):
    """Return the rows of the coefficients of a head."""
    at = h * state.classes.size
    return range(at + first_class(state), at + state.n_classes)


@kernel
def update_squares(state, slot):
    """Recompute the squared norms of the coefficients of a vector."""
    coefs, squares, slot = state.coefs, state.squares, uint(slot)
    for h in range(state.n_heads):
        total = ZERO
        for c in coef_range(state, h):
            total += coefs[uint(c), slot] * coefs[uint(c), slot]
        squares[uint(h), slot] = total


@kernel
def update_all_squares(state):
    """Recompute the squared norms of all coefficients."""
    for b in range(state.n_vectors):
        update_squares(state, b)


_STATE = StateType(BSGD.name)

ENTRY_POINTS = {
    "open_classes": EntryPoint(open_classes, (_STATE, INTEGER)),
    "update_all_squares": EntryPoint(update_all_squares, (_STATE,)),
    "vector_norm": EntryPoint(vector_norm, (_STATE, INTEGER)),
}
