"""Sparse coefficients of support vectors, for streams of many classes.

A vector keeps the coefficients of at most `MAX_SPARSE_COEFS` classes. Up to that many classes, all vectors list them in
order, as rows of numbers (see `expansion`). With more classes, `coef_classes` names the class of each coefficient, all
other coefficients are zero, and the cost of an event depends on the coefficients kept rather than on the number of
classes. A new class takes a free place or replaces the class with the smallest coefficients.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import FEW
from streamsvm.core.schema import f32
from streamsvm.core.simd import uint

# The most coefficients of a vector, for each head.
MAX_SPARSE_COEFS = FEW

_ZERO = f32(0.0)


@inlined
def n_sparse_coefs(state):
    """The number of classes a vector can have coefficients of."""
    return state.coef_sizes.size


@inlined
def is_sparse(state):
    """Whether there are more classes than a vector can have coefficients of."""
    return state.n_classes > n_sparse_coefs(state)


@inlined
def head_weight(state, h):
    """The factor of a head's coefficients when vectors are compared: its weight, in units of its step."""
    head = state.heads[h]
    return math.sqrt(head.weight) / head.eta * head.scale


@kernel
def begin_sparse_coefs(state):
    """Switch to sparse coefficients, at the first class beyond `MAX_SPARSE_COEFS`."""
    n_coefs, taken, coef_classes, coefs = n_sparse_coefs(state), state.taken, state.coef_classes, state.coefs
    for b in range(state.n_vectors):
        n = 0
        for e in range(n_coefs):
            holds = False
            for h in range(state.n_heads):
                holds |= coefs[h * n_coefs + e, b] != _ZERO
            if holds:
                coef_classes[n, b] = e
                for h in range(state.n_heads if n < e else 0):
                    row = h * n_coefs + e
                    coefs[h * n_coefs + n, b], coefs[row, b] = coefs[row, b], _ZERO
                n += 1
        taken[b] = n


@inlined
def find_sparse_coef(state, b, c):
    """The place of class c at vector b. A new class takes a free place, or replaces the smallest."""
    coef_classes, taken = state.coef_classes, state.taken[b]
    for e in range(taken):
        if coef_classes[e, b] == c:
            return e
    if taken < n_sparse_coefs(state):
        state.taken[b] = taken + 1
    else:
        taken = smallest_sparse_coef(state, b)
        clear_sparse_coef(state, taken, b)
    coef_classes[taken, b] = c
    return taken


@kernel
def smallest_sparse_coef(state, b):
    """The place of the class with the smallest coefficients at vector b."""
    n_coefs, sizes, smallest = n_sparse_coefs(state), state.coef_sizes, 0
    for e in range(n_coefs):
        sizes[e] = 0.0
        for h in range(state.n_heads):
            sizes[e] += abs(head_weight(state, h) * state.coefs[h * n_coefs + e, b])
        if sizes[e] < sizes[smallest]:
            smallest = e
    return smallest


@inlined
def clear_sparse_coef(state, e, b):
    """Set the coefficients of a place to zero."""
    n_coefs = n_sparse_coefs(state)
    for h in range(state.n_heads):
        state.coefs[h * n_coefs + e, b] = _ZERO


@inlined
def clear_sparse_coefs(state, b):
    """Remove all coefficients of vector b."""
    for e in range(state.taken[b]):
        clear_sparse_coef(state, e, b)
    state.taken[b] = 0


@kernel
def sum_sparse_coefs(state, row, out):
    """out[h, c] = sum over the vectors of their coefficients times their kernel values, for all heads and classes."""
    capacity, n, n_coefs, n_heads = state.classes.size, state.n_classes, n_sparse_coefs(state), state.n_heads
    coefs, coef_classes, taken = state.coefs, state.coef_classes, state.taken
    for h in range(n_heads):
        for c in range(h * capacity, h * capacity + n):
            out[uint(c)] = 0.0
    for b in range(state.n_vectors):
        k = row[uint(b)]
        for e in range(taken[uint(b)]):
            c = coef_classes[uint(e), uint(b)]
            for h in range(n_heads):
                out[uint(h * capacity + c)] += k * coefs[uint(h * n_coefs + e), uint(b)]


@kernel
def pull_sparse_coefs(state, out):
    """out[b] = sum over heads and the classes of vector b of the head's weight * u_c A_cb."""
    capacity, n_coefs, update = state.classes.size, n_sparse_coefs(state), state.update
    coefs, coef_classes, taken = state.coefs, state.coef_classes, state.taken
    for h in range(state.n_heads):
        weight = state.heads[h].weight * state.heads[h].scale
        for b in range(state.n_vectors):
            total = 0.0
            for e in range(taken[uint(b)]):
                total += (
                    update[uint(h * capacity + coef_classes[uint(e), uint(b)])] * coefs[uint(h * n_coefs + e), uint(b)]
                )
            out[uint(b)] += f32(weight * total)


@kernel
def index_sparse_coefs(state, b, sign):
    """Write the place of each class at vector b into `coef_of`, or, with `sign` -1, clear it again."""
    for e in range(state.taken[b]):
        state.coef_of[state.coef_classes[e, b]] = e if sign > 0 else -1


@inlined
def product_at(state, a, b):
    """The product of the coefficients of vectors a, which is indexed, and b, over heads and classes."""
    n_coefs, coefs, total = n_sparse_coefs(state), state.coefs, 0.0
    for e in range(state.taken[uint(b)]):
        other = state.coef_of[state.coef_classes[uint(e), uint(b)]]
        if other >= 0:
            for h in range(state.n_heads):
                share = state.heads[h].share
                total += share * coefs[uint(h * n_coefs + other), uint(a)] * coefs[uint(h * n_coefs + e), uint(b)]
    return total


@kernel
def sparse_product(state, a, b):
    """The product of the coefficients of two vectors, summed over heads and classes."""
    index_sparse_coefs(state, a, 1)
    total = product_at(state, a, b)
    index_sparse_coefs(state, a, -1)
    return total


@kernel
def sparse_products(state, a, out):
    """The products of the coefficients of vector a with those of all."""
    index_sparse_coefs(state, a, 1)
    for b in range(state.n_vectors):
        out[b] = product_at(state, a, b)
    index_sparse_coefs(state, a, -1)


@kernel
def join_sparse_coefs(state, a, b, keep_a, keep_b):
    """Coefficients of vector a become keep_a times its own plus keep_b times those of b."""
    n_coefs, coefs = n_sparse_coefs(state), state.coefs
    if keep_a == _ZERO:
        clear_sparse_coefs(state, a)
    for e in range(state.taken[a]):
        for h in range(state.n_heads):
            coefs[h * n_coefs + e, a] *= keep_a
    if keep_b == _ZERO:
        return
    for e in range(state.taken[b]):
        to = find_sparse_coef(state, a, state.coef_classes[e, b])
        for h in range(state.n_heads):
            coefs[h * n_coefs + to, a] += keep_b * coefs[h * n_coefs + e, b]
