"""Learned metric: relevances of columns (ARD), trained with the heads' losses.

Similar to Hammer and Villmann, "Generalized relevance learning vector quantization", Neural Networks 15, 2002.
"""

from __future__ import annotations

import math

from streamsvm.budgeted.expansion import LARGEST_GRADIENT, LEAST_THETA, MOST_THETA, first_class, padded, pairs_at_once
from streamsvm.budgeted.vectors import vector_norm
from streamsvm.core.jit import LANES, inlined, kernel, lanes, lanes_at, put_lanes, sum_of, times_plus, uint
from streamsvm.core.math import ZERO, exp_below
from streamsvm.core.schema import f32
from streamsvm.features.scaler import current_row

# Decay rates. Each theta is pulled towards 0 and by the mean of all: violated margins lower all relevances alike, and
# only differences separate columns.
GRADIENT_DECAY, SQUARE_DECAY = 0.9, 0.99
OWN_PULL, COMMON_PULL = 0.02, 0.3
MOST_RELEVANCE = math.exp(MOST_THETA)
# The first events take steps of twice the size, decaying over this number of events.
METRIC_YOUTH = 50.0
# Random steps of converged relevances have a mean square of (1 - GRADIENT_DECAY) / (1 + GRADIENT_DECAY) = 0.053. While
# the mean over columns, decayed by UNREST_RATE, is at most SETTLED, one event in SETTLED_SAMPLE is used. After a drift
# steps have one sign, and every event is used again.
SETTLED, SETTLED_SAMPLE, UNREST_RATE = 0.06, 2, 0.05


@inlined
def count_due(state):
    """Return whether the metric learns from this event, and count the event.

    It learns from every event while relevances change, and otherwise from a sample.
    """
    state.n_due += 1
    return state.unrest > SETTLED or state.n_due % SETTLED_SAMPLE == 0


@kernel
def relearn_metric(state, m):
    """Update the relevances of the nonzero columns of the event by a gradient step.

    Then update the norms of the vectors. Let u be the update of scores and A the coefficients. The gradient of u . f in
    theta_j is -gamma r_j sum_b co_b (x_j - v_bj)^2 with co_b = k_b sum_c u_c A_cb. It is divided by its root mean
    square.
    """
    co = state.work[0]
    find_co(state, co)
    common, count = update_gradient(state, m, co)
    moving = move_relevances(state, m, common / max(count, 1))
    state.unrest += UNREST_RATE * (moving / max(count, 1) - state.unrest)
    update_norms(state, m)


@inlined
def update_gradient(state, m, co):
    """Update the decayed gradient of theta, and its square, in the nonzero columns.

    Returns the sum of theta over these columns, and their number.
    """
    slots, pairs, vectors = padded(state.n_vectors), state.pairs, state.vectors
    rows, _ = current_row(state.rows)
    relevance, theta, gradient, square = state.relevance, state.theta, state.gradient, state.square
    total, count = 0.0, 0
    for i in range(1, m):
        x, j = pairs[uint(i)], uint(rows[uint(i)] - 1)
        if x == ZERO:
            continue
        g = -state.gamma_now * relevance[j] * weighted_spread(vectors, j, x, co, slots)
        g = g if abs(g) < LARGEST_GRADIENT else 0.0  # skip overflows
        gradient[j] = gradient[j] * GRADIENT_DECAY + (1.0 - GRADIENT_DECAY) * g
        square[j] = square[j] * SQUARE_DECAY + (1.0 - SQUARE_DECAY) * g * g
        total += theta[j]
        count += 1
    return total, count


@inlined
def move_relevances(state, m, common):
    """Take a step of theta, pulled towards 0 and by the mean `common` of all columns.

    Writes the changes of the relevances to `weighted`. Returns the sum of the squared steps, in units of the step size.
    """
    rows, _ = current_row(state.rows)
    pairs, more, relevance, theta = state.pairs, state.weighted, state.relevance, state.theta
    gradient, square, total = state.gradient, state.square, 0.0
    rate = state.metric_rate * (1.0 + math.exp(-state.rows.seen / METRIC_YOUTH))
    for i in range(1, m):
        x, j = pairs[uint(i)], uint(rows[uint(i)] - 1)
        more[uint(i)] = ZERO
        if x == ZERO:
            continue
        change = gradient[j] / (math.sqrt(square[j]) + 1e-12) - OWN_PULL * theta[j] - COMMON_PULL * common
        total += change * change
        theta[j] = min(max(theta[j] + rate * change, LEAST_THETA), MOST_THETA)
        before = f32(relevance[j])
        relevance[j] = MOST_RELEVANCE * exp_below(theta[j] - MOST_THETA)
        more[uint(i)] = f32(relevance[j]) - before
    return total


@inlined
def update_norms(state, m):
    """Add the changes of the relevances to the norms; at times, recompute the norms."""
    vectors, norms, more, slots = state.vectors, state.norms, state.weighted, padded(state.n_vectors)
    rows, _ = current_row(state.rows)
    at_once = pairs_at_once(m, slots)
    for start in range(1, m, at_once):
        for b in range(0, slots, LANES):
            sums = lanes_at(norms, uint(b))
            for i in range(start, min(start + at_once, m)):
                v = lanes_at(vectors, (uint(rows[uint(i)] - 1), uint(b)))
                sums = times_plus(more[uint(i)] * v, v, sums)
            put_lanes(sums, norms, uint(b))
    state.n_relearned += 1
    if state.n_relearned >= state.n_known + 64:
        state.n_relearned = 0
        for b in range(state.n_vectors):
            norms[b] = vector_norm(state, b)


@inlined
def weighted_spread(vectors, j, x, co, n):
    """Return the sum of co[b] * (x - vectors[j, b])^2 over n slots."""
    sums = lanes(ZERO)
    for b in range(0, n, LANES):
        away = x - lanes_at(vectors, (j, uint(b)))
        sums = times_plus(lanes_at(co, uint(b)) * away, away, sums)
    return float(sum_of(sums))


@inlined
def find_co(state, out):
    """Write co_b of `relearn_metric`, summed over heads with their weights, to `out`."""
    capacity, n, slots, first = state.classes.size, state.n_classes, padded(state.n_vectors), first_class(state)
    coefs, row, update = state.coefs, state.kernel, state.update
    for b in range(slots):
        out[uint(b)] = ZERO
    for h in range(state.n_heads):
        head, at = state.heads[h], h * capacity
        for c in range(first, n):
            weight = f32(head.weight * head.scale * update[at + c])
            if weight != ZERO:
                for b in range(slots):
                    out[uint(b)] += weight * coefs[uint(at + c), uint(b)]
    for b in range(slots):
        out[uint(b)] *= row[uint(b)]
