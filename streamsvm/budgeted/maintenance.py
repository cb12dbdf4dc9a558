"""Budget maintenance: merge or remove vectors such that scores change least.

Qaadan and Glasmachers, "Multi-merge budget maintenance for stochastic gradient descent SVM training", 2018.
"""

from __future__ import annotations

import math

from streamsvm.budgeted.expansion import INFINITE, bsgd_at, distances, learns_metric, padded, smallest_slot
from streamsvm.budgeted.merging import look_up, near_loss, ratio_of, refine
from streamsvm.budgeted.vectors import coef_range, log_kernel_between, update_squares, write_vector_pairs
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import INTEGER, LANES, inlined, kernel, lanes, lanes_at, lowest_bit, put_lanes, times_plus, uint
from streamsvm.core.math import ONE, ZERO
from streamsvm.core.schema import f32


def maintain(address):
    """Merge the vector with the smallest coefficients with others (MM-BSGD).

    If no other vector has coefficients of its direction, remove it.
    """
    state = bsgd_at(address)
    smallest = find_smallest(state)
    n_chosen = choose(state, smallest)
    if n_chosen == 1:
        remove(state, smallest)
    else:
        merge_chosen(state, n_chosen)


@inlined
def is_plain(state):
    """Return whether vectors have a single coefficient."""
    return state.n_heads == 1 and state.n_classes == 2


# Choosing ---------------------------------------------------------------------------------------------------------


@kernel
def find_smallest(state):
    """Return the vector with the smallest coefficients.

    Writes the squared norms of coefficients to work row 0. The coefficients of each head count by its weight, in units
    of its step size.
    """
    squares, sizes, heads = state.squares, state.work[0], state.heads
    for h in range(state.n_heads):
        head = heads[h]
        head.share = (math.sqrt(head.weight) / head.eta * head.scale) ** 2
    for b in range(0, padded(state.n_vectors), LANES):
        sums = lanes(ZERO)
        for h in range(state.n_heads):
            sums = times_plus(f32(heads[h].share), lanes_at(squares, (uint(h), uint(b))), sums)
        put_lanes(sums, sizes, uint(b))
    return smallest_slot(sizes, state.n_vectors)


@kernel
def products_with(state, i, out):
    """Compute the dot products of the coefficients of vector i and of all vectors."""
    coefs = state.coefs
    for b in range(0, padded(state.n_vectors), LANES):
        sums = lanes(ZERO)
        for h in range(state.n_heads):
            share = f32(state.heads[h].share)
            for c in coef_range(state, h):
                v = share * coefs[uint(c), uint(i)]
                if v != ZERO:
                    sums = times_plus(v, lanes_at(coefs, (uint(c), uint(b))), sums)
        put_lanes(sums, out, uint(b))


@kernel
def choose(state, i):
    """Choose up to `merges` - 1 vectors to merge with vector i, the least loss first.

    Writes their slots, after i, to `chosen` and returns the number of slots.
    """
    n, chosen, costs, count = state.n_vectors, state.chosen, state.work[3], 1
    find_costs(state, i, costs)
    chosen[0] = i
    while count < min(state.merges, n):
        best = smallest_slot(costs, n)
        if costs[best] == INFINITE:
            break
        chosen[count], costs[best] = best, INFINITE
        count += 1
    return count


@kernel
def find_costs(state, i, costs):
    """Compute the costs of merging each vector with vector i, by `near_loss`.

    Writes them to `costs`, relative to removing i. The cost is inf for i and for coefficients at an angle of 90° or
    more. Uses the norms written by `find_smallest`.
    """
    slots, sizes, products, far = padded(state.n_vectors), state.work[0], state.work[1], state.work[2]
    size = sizes[uint(i)]
    share = ONE / size if size > ZERO else ZERO
    distances(state, write_vector_pairs(state, i), far)
    products_with(state, i, products)
    for b in range(slots):
        product = products[uint(b)] * share
        cost = near_loss(sizes[uint(b)] * share, product, far[uint(b)])
        costs[uint(b)] = cost if product > ZERO else INFINITE
    costs[uint(i)] = INFINITE


# Merging ----------------------------------------------------------------------------------------------------------


@kernel
def product(state, a, b):
    """Return the dot product of the coefficients of two vectors."""
    coefs, total = state.coefs, 0.0
    for h in range(state.n_heads):
        share = 1.0 if is_plain(state) else state.heads[h].share
        for c in coef_range(state, h):
            total += share * coefs[uint(c), uint(a)] * coefs[uint(c), uint(b)]
    return total


@kernel
def merge_chosen(state, count):
    """Merge the chosen vectors into the first, one after the other.

    The first merge uses the distances written by `find_costs`.
    """
    first, log_kappa = state.chosen[0], -float(state.work[2, state.chosen[1]])
    for i in range(1, count):
        if i > 1:
            log_kappa = log_kernel_between(state, first, state.chosen[i])
        merge_pair(state, first, state.chosen[i], log_kappa)
    remove_merged(state, count)


@kernel
def merge_pair(state, a, b, log_kappa):
    """Merge vector b into vector a at the point of the least loss.

    `log_kappa` is ln k(a, b).
    """
    size_a, size_b = math.sqrt(product(state, a, a)), math.sqrt(product(state, b, b))
    larger, smaller = max(size_a, size_b), min(size_a, size_b)
    ratio, cosine = ratio_of(larger, smaller), 1.0
    if smaller > 0.0 and not is_plain(state):
        cosine = min(product(state, a, b) / (larger * smaller), 1.0)
    h = look_up(state.table, ratio / (1.0 + ratio), math.exp(log_kappa))
    if not is_plain(state):
        h = refine(h, ratio, cosine, log_kappa)
    of_a = h if size_a >= size_b else 1.0 - h
    combine(state, a, b, of_a, math.exp(log_kappa * (1.0 - of_a) * (1.0 - of_a)), math.exp(log_kappa * of_a * of_a))


@kernel
def combine(state, a, b, of_a, keep_a, keep_b):
    """Replace vector a and its coefficients by combinations with those of vector b.

    The vector becomes of_a * a + (1 - of_a) * b, its coefficients keep_a * A_a + keep_b * A_b.
    """
    vectors, touched, relevance, weighing = state.vectors, state.touched, state.relevance, learns_metric(state)
    share, rest, to, other, norm = f32(of_a), f32(1.0 - of_a), uint(a), uint(b), ZERO
    for w in range(touched.shape[1]):
        bits = touched[to, uint(w)] | touched[other, uint(w)]
        touched[to, uint(w)] = bits
        while bits != uint(0):
            j = uint(64 * w) + lowest_bit(bits)
            v = share * vectors[j, to] + rest * vectors[j, other]
            norm += v * f32(relevance[j]) * v if weighing else v * v
            vectors[j, to] = v
            bits &= bits - uint(1)
    state.norms[to] = norm
    join_coefs(state, a, b, f32(keep_a), f32(keep_b))
    update_squares(state, a)


@kernel
def join_coefs(state, a, b, keep_a, keep_b):
    """Set the coefficients of a to keep_a * A_a + keep_b * A_b."""
    coefs = state.coefs
    for h in range(state.n_heads):
        for c in coef_range(state, h):
            coefs[uint(c), uint(a)] = keep_a * coefs[uint(c), uint(a)] + keep_b * coefs[uint(c), uint(b)]


# Removal ----------------------------------------------------------------------------------------------------------


@kernel
def remove_merged(state, count):
    """Remove the chosen vectors except the first.

    The highest slot is removed first, so that lower slots stay valid.
    """
    chosen = state.chosen
    for _ in range(1, count):
        highest = 1
        for i in range(2, count):
            if chosen[i] > chosen[highest]:
                highest = i
        slot = chosen[highest]
        chosen[highest] = -1
        remove(state, slot)


@kernel
def remove(state, slot):
    """Remove a vector by moving the last one to its slot."""
    last = state.n_vectors - 1
    if slot != last:
        move_vector(state, last, slot)
    for h in range(state.n_heads):
        for c in range(state.n_classes):
            state.coefs[uint(h * state.classes.size + c), uint(last)] = ZERO
        state.squares[h, last] = ZERO
    state.n_vectors = last


@kernel
def move_vector(state, a, b):
    """Move vector a to slot b."""
    vectors, touched, squares, start, to = state.vectors, state.touched, state.squares, uint(a), uint(b)
    for w in range(touched.shape[1]):
        bits = touched[start, uint(w)] | touched[to, uint(w)]
        touched[to, uint(w)] = touched[start, uint(w)]
        while bits != uint(0):
            j = uint(64 * w) + lowest_bit(bits)
            vectors[j, to] = vectors[j, start]
            bits &= bits - uint(1)
    state.norms[to] = state.norms[start]
    join_coefs(state, b, a, ZERO, ONE)
    for h in range(state.n_heads):
        squares[uint(h), to] = squares[uint(h), start]


ENTRY_POINTS = {"maintain": EntryPoint(maintain, (INTEGER,))}
