"""A kernel expansion on a budget: its memory, and its values for an event.

f_c(x) = sum_b A_cb k(x, v_b) + bias_c is the score of class c, with k(x, v) = exp(-gamma sum_j r_j (x_j - v_j)^2); r_j,
the relevance of column j, is 1 where the metric is fixed. Several heads, each with a loss, a step and coefficients of
its own, share the vectors v and one row of kernel values. A head's coefficients are held as a V with a scalar a, so
that shrinking them costs nothing.

Vectors are held by columns, in float32: a row of n pairs costs n runs over contiguous memory. A run is over all slots,
rounded up to a multiple of LANES: slots without a vector have zero coefficients. Two classes keep one signed
coefficient, that of class 1; class 0 has its negative.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.budgeted.sparse_coefs import (
    MAX_SPARSE_COEFS,
    is_sparse,
    n_sparse_coefs,
    sum_sparse_coefs,
)
from streamsvm.core.access import state_at
from streamsvm.core.jit import inlined, kernel, view
from streamsvm.core.losses import best_class
from streamsvm.core.math import ONE, TWO, ZERO, exp32
from streamsvm.core.schema import Array, Number, Schema, Substate, address, f32, i64, records, u64
from streamsvm.core.simd import (
    LANES,
    first_equal,
    lanes,
    lanes_at,
    larger,
    largest_of,
    put_lanes,
    sum_of,
    times_plus,
    uint,
)
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.calibration import CALIBRATION

INFINITE = np.float32(np.inf)
# Scalars are folded back into their arrays below this.
SMALLEST = 1e-9
# Where an average is longer than the memory of the coefficients, mean_v V and mean_u U grow and cancel each other: they
# are brought together when mean_v is so many times the scale.
MOST_CANCELLED = 100.0
# Where an event meets so many numbers of vectors, sums stay in registers; where more, so many runs go along the slots
# together.
NEAR, RUNS = 24_576, 24
# Without scaling values are cut here, so that their squares do not overflow in float32.
LARGEST_UNSCALED = 1e15
# Larger coefficients, which only a damaged archive has, would overflow in float32 when they are summed.
MOST_COEF = 1e32
# The range of theta, and of its gradient: see `metric`.
LEAST_THETA, MOST_THETA = -6.0, 4.0
LARGEST_GRADIENT = 1e100
# The most vectors merged into one.
MOST_MERGES = 11
_SHARE, _COUNT, _COEF, _BIAS = (0.0, 1.0), (0.0, MOST_EVENTS), (-MOST_COEF, MOST_COEF), (-1e300, 1e300)
_VALUE = (-LARGEST_UNSCALED * 1.001, LARGEST_UNSCALED * 1.001)
BSGD = Schema(
    "bsgd",
    {
        "rows": Substate(SCALER, "rows on their way, and scaling"),
        "calibration": Substate(CALIBRATION, "what probabilities are worth where labels are noisy"),
        "n_classes": Number("classes known", i64, saved=True, bounds=_COUNT),
        "n_vectors": Number("support vectors", i64, saved=True, bounds=_COUNT),
        "n_relearned": Number("steps of the metric since norms were summed", i64, saved=True, bounds=_COUNT),
        "n_due": Number("events that could have moved the metric", i64, saved=True, bounds=_COUNT),
        "unrest": Number(
            "the decayed mean square of what moves the relevances", start=1.0, saved=True, bounds=(0.0, 1e9)
        ),
        "n_known": Number("columns that were learned with a value other than zero", i64, saved=True, bounds=_COUNT),
        "budget": Number("the most support vectors", i64),
        "n_heads": Number("heads", i64),
        "l2": Number("strength of the penalty"),
        "horizon": Number("Pegasos' steps count no further"),
        "average": Number("over so many events coefficients are averaged, 0 for the latest"),
        "balanced": Number("whether classes weigh by how rare they are"),
        "bias": Number("whether scores have a constant"),
        "absorb": Number("the kernel value with the nearest vector above which that takes an event in"),
        "metric_rate": Number("the step of the learned metric, 0 where it is fixed"),
        "gamma": Number("what it is held at, 0 where it follows the data", saved=True, bounds=(0.0, 1e300)),
        "gamma_factor": Number("see gamma"),
        "merges": Number("how many vectors are merged into one", i64),
        "search": Number("how the best point between two vectors is found", i64),
        "maintain": address("how the budget is kept: see `maintenance`"),
        "gamma_now": Number("gamma", saved=True, bounds=(0.0, 1e300)),
        "sum_of_squares": Number("the sum of square norms it follows", saved=True, bounds=(0.0, 1e300)),
        "vectors": Array(("columns", "slots"), "the support vectors", f32, saved=True, bounds=_VALUE),
        "coefs": Array(("heads*sparse_coefs", "slots"), "V of the coefficients", f32, saved=True, bounds=_COEF),
        "averaged": Array(("mean_heads*sparse_coefs", "slots"), "U of their average", f32, saved=True, bounds=_COEF),
        "coef_classes": Array(
            ("listed_coefs", "slots"), "the class in each, see `sparse_coefs`", i64, saved=True, bounds=_COUNT
        ),
        "taken": Array(
            ("listed_slots",), "how many coefficients a vector has", i64, saved=True, bounds=(0.0, MAX_SPARSE_COEFS)
        ),
        "coef_sizes": Array(("sparse_coefs",), "how much a vector says about each of the classes with a coefficient"),
        "coef_of": Array(("classes",), "where classes sit at a vector looked up, -1 for nowhere", i64, start=-1),
        "norms": Array(("slots",), "the vectors' weighted square norms", f32, saved=True),
        "squares": Array(("heads", "slots"), "the square norms of their coefficients by each head", f32),
        "touched": Array(("slots", "words"), "which columns each vector has a value in, a bit each", u64),
        "biases": Array(("heads*classes",), "constants of the scores", saved=True, bounds=_BIAS),
        "mean_biases": Array(("heads*classes",), "their averages", saved=True, bounds=_BIAS),
        "heads": records(
            ("heads",),
            "the heads",
            loss=Number("the id of its loss", i64),
            rate=Number("the constant step, 0 for 1 / (l2 t)"),
            scale=Number("the scalar a", start=1.0, saved=True, bounds=(SMALLEST, 1.0)),
            steps=Number("steps made", saved=True, bounds=_COUNT),
            mean_v=Number("averaged: mean_v V + mean_u U", saved=True, bounds=(0.0, MOST_CANCELLED * 1.001)),
            mean_u=Number("see mean_v", start=1.0, saved=True, bounds=(SMALLEST, 1.0)),
            eta=Number("the step of the current event", saved=True),
            accuracy=Number("the decayed accuracy", saved=True, bounds=_SHARE),
            weight=Number("the expert weight: its share of the vote", saved=True, bounds=_SHARE),
            share=Number("what products of its coefficients count for where vectors are compared"),
        ),
        "classes": records(
            ("classes",),
            "the classes",
            weight=Number("the class weight", start=1.0, saved=True, bounds=(0.0, 1e300)),
            learned=Number("events learned", saved=True, bounds=_COUNT),
        ),
        "relevance": Array(
            ("metric",), "exp(theta)", start=1.0, saved=True, bounds=(0.0, math.exp(MOST_THETA) * 1.001)
        ),
        "theta": Array(("metric",), "the logarithm of the relevance", saved=True, bounds=(LEAST_THETA, MOST_THETA)),
        "gradient": Array(
            ("metric",), "its decayed gradient", saved=True, bounds=(-LARGEST_GRADIENT, LARGEST_GRADIENT)
        ),
        "square": Array(("metric",), "the gradient's decayed square", saved=True, bounds=(0.0, LARGEST_GRADIENT**2)),
        "scores": Array(("heads*classes",), "of the current event"),
        "mean_scores": Array(("heads*classes",), "the same by the average"),
        "update": Array(("heads*classes",), "of the scores, that a step makes"),
        "proba": Array(("classes",), "the probability of each class"),
        "kernel": Array(("slots",), "the kernel values between the current event and the vectors", f32),
        "work": Array(("work", "slots"), "rows of work", f32),
        "pairs": Array(("weight_rows",), "the event's values in float32; for index 0 its square norm", f32),
        "weighted": Array(("weight_rows",), "the same times relevance; for index 0 the weighted square norm", f32),
        "chosen": Array(("merged",), "the vectors to be merged, the first the smallest", i64),
        "table": Array(("grid", "grid"), "where merging loses least: see `merging`", f32, external=True),
    },
)
bsgd_at = state_at(BSGD)


@inlined
def padded(n):
    """n slots, rounded up so that no run has a remainder."""
    return (n + LANES - 1) // LANES * LANES


@inlined
def first_class(state):
    """The first class with coefficients of its own."""
    return 1 if state.n_classes <= 2 else 0


@inlined
def is_weighing(state):
    """Whether columns have relevances."""
    return state.metric_rate > 0.0


# Along the slots --------------------------------------------------------------------------------------------------


@inlined
def dot(coefs, c, row, n):
    """sum over n slots of coefs[c, b] * row[b]."""
    sums, c = lanes(ZERO), uint(c)
    for b in range(0, n, LANES):
        sums = times_plus(lanes_at(coefs, (c, uint(b))), lanes_at(row, uint(b)), sums)
    return float(sum_of(sums))


@inlined
def sum_heads(coefs, c, rows, row, n, out, capacity):
    """out[c] of each head = sum over n slots of its coefs[c, b] * row[b]; of three, the row is gone through once."""
    c, heads = uint(c), coefs.shape[0] // rows
    if heads != 3:
        for h in range(heads):
            out[uint(h * capacity) + c] = dot(coefs, uint(h * rows) + c, row, n)
        return
    first, second, third = lanes(ZERO), lanes(ZERO), lanes(ZERO)
    for b in range(0, n, LANES):
        values = lanes_at(row, uint(b))
        first = times_plus(lanes_at(coefs, (c, uint(b))), values, first)
        second = times_plus(lanes_at(coefs, (uint(rows) + c, uint(b))), values, second)
        third = times_plus(lanes_at(coefs, (uint(2 * rows) + c, uint(b))), values, third)
    out[c], out[uint(capacity) + c] = float(sum_of(first)), float(sum_of(second))
    out[uint(2 * capacity) + c] = float(sum_of(third))


@inlined
def dots(vectors, b, rows, values, start, end, sums):
    """Add to sums value * vectors[row - 1] of the pairs start ... end - 1, in the slots from b on that are a lane each.

    One pair after the other: those of value 0 change nothing, so dense and sparse rows give the same.
    """
    for i in range(start, end):
        sums = times_plus(values[uint(i)], lanes_at(vectors, (uint(rows[uint(i)] - 1), uint(b))), sums)
    return sums


@inlined
def largest(row, n, sign):
    """The largest of n values times a sign, 1 or -1; what comes after them up to `padded(n)` is overwritten."""
    for b in range(n, padded(n)):
        row[uint(b)] = -sign * INFINITE
    tops = lanes(-INFINITE)
    for b in range(0, n, LANES):
        tops = larger(sign * lanes_at(row, uint(b)), tops)
    return largest_of(tops)


@inlined
def first_of(row, n, value):
    """Where the first of n values is that equals a value, 0 if there is none."""
    for b in range(0, n, LANES):
        at = first_equal(lanes_at(row, uint(b)), value)
        if at < LANES:
            return b + at
    return 0


@inlined
def smallest_of(row, n):
    """Where the first of the smallest of n values is."""
    return first_of(row, n, -largest(row, n, -ONE))


# Kernel values ----------------------------------------------------------------------------------------------------


@inlined
def take_event(state, m):
    """The current event as pairs of float32, for index 0 its square norm and its weighted square norm.

    Columns not known yet weigh nothing, as if they had not been met: what is met first in the event to be learned next
    must not change the prediction of it.
    """
    rows, scaled = current_row(state.rows)
    pairs, weighted, relevance, known = state.pairs, state.weighted, state.relevance, state.n_known
    square, norm = ZERO, ZERO
    if is_weighing(state):
        for i in range(1, m):
            x = f32(scaled[uint(i)])
            w = x * f32(relevance[uint(rows[uint(i)] - 1)]) if rows[uint(i)] <= known else ZERO
            pairs[uint(i)], weighted[uint(i)] = x, w
            square += x * x
            norm += w * x
    else:
        for i in range(1, m):
            x = f32(scaled[uint(i)])
            w = x if rows[uint(i)] <= known else ZERO
            pairs[uint(i)], weighted[uint(i)] = x, w
            square += x * x
            norm += w * x
    pairs[0], weighted[0] = square, norm


@inlined
def distances(state, m, out):
    """gamma times the weighted square distance of the pairs taken to the vector in each slot."""
    vectors, norms, weighted, gamma = state.vectors, state.norms, state.weighted, f32(state.gamma_now)
    rows, _ = current_row(state.rows)
    norm, at_once, start = weighted[0], pairs_at_once(m, state.n_vectors), 1
    while m - start > at_once:
        for b in range(0, state.n_vectors, LANES):
            sums = lanes(ZERO) if start == 1 else lanes_at(out, uint(b))
            put_lanes(dots(vectors, b, rows, weighted, start, start + at_once, sums), out, uint(b))
        start += at_once
    for b in range(0, state.n_vectors, LANES):
        sums = dots(vectors, b, rows, weighted, start, m, lanes(ZERO) if start == 1 else lanes_at(out, uint(b)))
        put_lanes(gamma * larger((norm + lanes_at(norms, uint(b))) - TWO * sums, lanes(ZERO)), out, uint(b))


@inlined
def pairs_at_once(m, n):
    """Of how many of m pairs sums go along n slots together: what is not near is fetched ahead of a few runs alone."""
    return m if m * n <= NEAR else RUNS


@inlined
def kernel_row(state, m):
    """The kernel values between the current event and all vectors."""
    row = state.kernel
    take_event(state, m)
    distances(state, m, row)
    for b in range(padded(state.n_vectors)):
        row[uint(b)] = exp32(-row[uint(b)])


@inlined
def evaluate(state, m, averaging):
    """The scores of all classes by all heads for the current event, and (if `averaging`) the averaged ones."""
    kernel_row(state, m)
    score_heads(state, state.kernel, averaging)


@inlined
def score_heads(state, row, averaging):
    """The same, from a row of kernel values."""
    capacity, n, first, slots = state.classes.size, state.n_classes, first_class(state), padded(state.n_vectors)
    scores, means = state.scores, state.mean_scores
    coefs, averaged, biases, mean_biases = state.coefs, state.averaged, state.biases, state.mean_biases
    if is_sparse(state):
        evaluate_sparse(state, row, averaging)
        return
    rows = n_sparse_coefs(state)
    for i in range(first, n):
        sum_heads(coefs, i, rows, row, slots, scores, capacity)
        if averaging:
            sum_heads(averaged, i, rows, row, slots, means, capacity)
    for h in range(state.n_heads):
        head, at = state.heads[h], h * capacity
        if first == 1:
            scores[at] = means[at] = 0.0
        for c in range(at + first, at + n):
            s = scores[c]
            scores[c] = head.scale * s + biases[c]
            if averaging:
                means[c] = (head.mean_v * s + head.mean_u * means[c]) + mean_biases[c]
        if first == 1 and n == 2:
            scores[at], means[at] = -scores[at + 1], -means[at + 1]


@kernel
def evaluate_sparse(state, row, averaging):
    """Scores with sparse coefficients."""
    capacity, n, scores, means = state.classes.size, state.n_classes, state.scores, state.mean_scores
    sum_sparse_coefs(state, row, state.coefs, scores)
    if averaging:
        sum_sparse_coefs(state, row, state.averaged, means)
    for h in range(state.n_heads):
        head = state.heads[h]
        for c in range(h * capacity, h * capacity + n):
            s = scores[uint(c)]
            scores[uint(c)] = head.scale * s + state.biases[uint(c)]
            if averaging:
                means[uint(c)] = head.mean_v * s + head.mean_u * means[uint(c)] + state.mean_biases[uint(c)]


@view
def deciding(state):
    """The scores that predictions rest on."""
    return state.mean_scores if state.average > 0.0 else state.scores


@inlined
def best_of_head(state, scores, h):
    """The best class by one head."""
    return best_class(scores, h * state.classes.size, state.n_classes)
