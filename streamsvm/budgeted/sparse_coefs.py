"""Coefficients of many classes: each support vector has *seats*, for those classes it says something about.

As long as every class has a seat, the seats of all vectors are the classes in order, and coefficients are rows of
numbers (see `expansion`). Beyond that a vector has coefficients of the classes that took one of its seats, and zero of
all others: what an event costs then follows from the seats taken, not from the classes there are. Where a class comes
and all seats of a vector are taken, the class it says least about gives way.
"""

from __future__ import annotations

import math

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.losses import FEW
from streamsvm.core.simd import u
from streamsvm.core.state import f32

# The most seats of a vector.
SEATS = FEW

_ZERO = f32(0.0)


@inlined
def n_seats(state):
    """How many seats a vector has."""
    return state.seat_sizes.size


@inlined
def is_seated(state):
    """Whether there are more classes than seats."""
    return state.n_classes > n_seats(state)


@inlined
def head_weight(state, h):
    """What a head's coefficients count for where vectors are compared: its weight, in units of its step."""
    head = state.heads[h]
    return math.sqrt(head.weight) / head.eta * head.scale


@kernel
def begin_seats(state):
    """Seat the classes that vectors have coefficients of, when the first class comes that has no seat of its own."""
    seats, taken, seated, coefs, averaged = n_seats(state), state.taken, state.seated, state.coefs, state.averaged
    for b in range(state.n_vectors):
        n = 0
        for e in range(seats):
            holds = False
            for h in range(state.n_heads):
                holds |= coefs[h * seats + e, b] != _ZERO
                if averaged.size > 0:
                    holds |= averaged[h * seats + e, b] != _ZERO
            if holds:
                seated[n, b] = e
                for h in range(state.n_heads if n < e else 0):
                    move(coefs, h * seats + e, h * seats + n, b)
                    if averaged.size > 0:
                        move(averaged, h * seats + e, h * seats + n, b)
                n += 1
        taken[b] = n


@inlined
def move(coefs, start, to, b):
    """Move a coefficient of vector b to another row."""
    coefs[to, b], coefs[start, b] = coefs[start, b], _ZERO


@inlined
def find_seat(state, b, c):
    """The seat of class c at vector b; where it has none it takes one, if need be that of the smallest."""
    seated, taken = state.seated, state.taken[b]
    for e in range(taken):
        if seated[e, b] == c:
            return e
    if taken < n_seats(state):
        state.taken[b] = taken + 1
    else:
        taken = smallest_seat(state, b)
        empty_seat(state, taken, b)
    seated[taken, b] = c
    return taken


@kernel
def smallest_seat(state, b):
    """The seat of the class that vector b says least about."""
    seats, sizes, smallest = n_seats(state), state.seat_sizes, 0
    for e in range(seats):
        sizes[e] = 0.0
        for h in range(state.n_heads):
            sizes[e] += abs(head_weight(state, h) * state.coefs[h * seats + e, b])
        if sizes[e] < sizes[smallest]:
            smallest = e
    return smallest


@inlined
def empty_seat(state, e, b):
    """Set the coefficients of a seat to zero."""
    seats = n_seats(state)
    for h in range(state.n_heads):
        state.coefs[h * seats + e, b] = _ZERO
        if state.averaged.size > 0:
            state.averaged[h * seats + e, b] = _ZERO


@inlined
def empty_seats(state, b):
    """Leave vector b without coefficients."""
    for e in range(state.taken[b]):
        empty_seat(state, e, b)
    state.taken[b] = 0


@kernel
def sum_seats(state, row, coefs, out):
    """out[h, c] = sum over the vectors of their coefficients times their kernel values, for all heads and classes."""
    capacity, n, seats, n_heads = state.classes.size, state.n_classes, n_seats(state), state.n_heads
    seated, taken = state.seated, state.taken
    for h in range(n_heads):
        for c in range(h * capacity, h * capacity + n):
            out[u(c)] = 0.0
    for b in range(state.n_vectors):
        k = row[u(b)]
        for e in range(taken[u(b)]):
            c = seated[u(e), u(b)]
            for h in range(n_heads):
                out[u(h * capacity + c)] += k * coefs[u(h * seats + e), u(b)]


@kernel
def pull_seats(state, out):
    """out[b] = sum over heads and the classes seated at vector b of the head's weight * u_c A_cb."""
    capacity, seats, update = state.classes.size, n_seats(state), state.update
    coefs, seated, taken = state.coefs, state.seated, state.taken
    for h in range(state.n_heads):
        weight = state.heads[h].weight * state.heads[h].scale
        for b in range(state.n_vectors):
            total = 0.0
            for e in range(taken[u(b)]):
                total += update[u(h * capacity + seated[u(e), u(b)])] * coefs[u(h * seats + e), u(b)]
            out[u(b)] += f32(weight * total)


@kernel
def look_up_seats(state, b, sign):
    """Leave in `seat_of` where each class sits at vector b, or (where `sign` is -1) that it does no more."""
    for e in range(state.taken[b]):
        state.seat_of[state.seated[e, b]] = e if sign > 0 else -1


@inlined
def product_at(state, a, b):
    """The product of the coefficients of vectors a, whose seats were looked up, and b, over heads and classes."""
    seats, coefs, total = n_seats(state), state.coefs, 0.0
    for e in range(state.taken[u(b)]):
        other = state.seat_of[state.seated[u(e), u(b)]]
        if other >= 0:
            for h in range(state.n_heads):
                share = state.heads[h].share
                total += share * coefs[u(h * seats + other), u(a)] * coefs[u(h * seats + e), u(b)]
    return total


@kernel
def product_of_seats(state, a, b):
    """The product of the coefficients of two vectors, summed over heads and classes."""
    look_up_seats(state, a, 1)
    total = product_at(state, a, b)
    look_up_seats(state, a, -1)
    return total


@kernel
def products_of_seats(state, a, out):
    """The products of the coefficients of vector a with those of all."""
    look_up_seats(state, a, 1)
    for b in range(state.n_vectors):
        out[b] = product_at(state, a, b)
    look_up_seats(state, a, -1)


@kernel
def join_seats(state, a, b, keep_a, keep_b):
    """Coefficients of vector a become keep_a times its own plus keep_b times those of b."""
    seats, coefs, averaged, averaging = n_seats(state), state.coefs, state.averaged, state.averaged.size > 0
    if keep_a == _ZERO:
        empty_seats(state, a)
    for e in range(state.taken[a]):
        for h in range(state.n_heads):
            coefs[h * seats + e, a] *= keep_a
            if averaging:
                averaged[h * seats + e, a] *= keep_a
    if keep_b == _ZERO:
        return
    for e in range(state.taken[b]):
        to = find_seat(state, a, state.seated[e, b])
        for h in range(state.n_heads):
            coefs[h * seats + to, a] += keep_b * coefs[h * seats + e, b]
            if averaging:
                averaged[h * seats + to, a] += keep_b * averaged[h * seats + e, b]
