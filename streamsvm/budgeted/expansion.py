"""Kernel expansion on a budget: state and evaluation.

The score of class c is f_c(x) = sum_b A_cb k(x, v_b) + bias_c, with k(x, v) = exp(-gamma sum_j r_j (x_j - v_j)^2). The
relevance r_j of column j is 1 with a fixed metric. Heads differ in loss, step size and coefficients, and share the
vectors v and the kernel values. Coefficients are stored as a scalar times V, which makes shrinking cheap.

Vectors are stored by columns in float32, so that a row of n pairs takes n passes over contiguous memory. A pass covers
all slots, rounded up to a multiple of LANES; empty slots have zero coefficients. Two classes share one signed
coefficient: class 1 has the coefficient, class 0 its negative.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import (
    LANES,
    first_equal,
    inlined,
    lanes,
    lanes_at,
    larger,
    largest_of,
    put_lanes,
    state_at,
    sum_of,
    times_plus,
    uint,
)
from streamsvm.core.losses import best_class
from streamsvm.core.math import ONE, TWO, ZERO, exp32
from streamsvm.core.schema import Array, Number, Schema, Substate, address, f32, i64, records, u64
from streamsvm.features.scaler import MOST_EVENTS, SCALER, current_row
from streamsvm.online.calibration import CALIBRATION

INFINITE = np.float32(np.inf)
# Scalars below this are multiplied into their arrays.
SMALLEST = 1e-9
# Up to NEAR stored numbers, sums stay in registers. Beyond, RUNS columns are accumulated per pass over the slots.
NEAR, RUNS = 24_576, 24
# Unscaled values are clipped here, so that their squares do not overflow in float32.
LARGEST_UNSCALED = 1e15
# Bound of coefficients in archives: sums of larger ones overflow in float32.
MOST_COEF = 1e32
# Ranges of theta and of its gradient, see `metric`.
LEAST_THETA, MOST_THETA = -6.0, 4.0
LARGEST_GRADIENT = 1e100
# Maximum number of vectors merged into one.
MOST_MERGES = 11
_SHARE, _COUNT, _COEF, _BIAS = (0.0, 1.0), (0.0, MOST_EVENTS), (-MOST_COEF, MOST_COEF), (-1e300, 1e300)
_VALUE = (-LARGEST_UNSCALED * 1.001, LARGEST_UNSCALED * 1.001)
BSGD = Schema(
    "bsgd",
    {
        "rows": Substate(SCALER, "current row and scaling"),
        "calibration": Substate(CALIBRATION, "estimate of label noise"),
        "n_classes": Number("number of classes", i64, saved=True, bounds=_COUNT),
        "n_vectors": Number("number of support vectors", i64, saved=True, bounds=_COUNT),
        "n_relearned": Number("metric steps since norms were recomputed", i64, saved=True, bounds=_COUNT),
        "n_due": Number("events on which a loss acted", i64, saved=True, bounds=_COUNT),
        "unrest": Number("decayed mean square of the metric steps", start=1.0, saved=True, bounds=(0.0, 1e9)),
        "n_known": Number("columns learned with a value other than zero", i64, saved=True, bounds=_COUNT),
        "budget": Number("maximum number of support vectors", i64),
        "n_heads": Number("number of heads", i64),
        "l2": Number("regularisation strength"),
        "horizon": Number("maximum t of Pegasos' steps"),
        "balanced": Number("whether class weights are balanced"),
        "absorb": Number("kernel value above which the nearest vector absorbs an event"),
        "metric_rate": Number("step size of the learned metric, 0 if fixed"),
        "gamma": Number("fixed gamma, 0 if it follows the data", saved=True, bounds=(0.0, 1e300)),
        "gamma_factor": Number("factor of a gamma that follows the data"),
        "merges": Number("number of vectors merged into one", i64),
        "maintain": address("address of `maintenance.maintain`"),
        "gamma_now": Number("current gamma", saved=True, bounds=(0.0, 1e300)),
        "sum_of_squares": Number("sum of squared norms of events", saved=True, bounds=(0.0, 1e300)),
        "vectors": Array(("columns", "slots"), "support vectors", f32, saved=True, bounds=_VALUE),
        "coefs": Array(("heads*classes", "slots"), "V of the coefficients", f32, saved=True, bounds=_COEF),
        "norms": Array(("slots",), "weighted squared norms of the vectors", f32, saved=True),
        "squares": Array(("heads", "slots"), "squared norms of coefficients by head", f32),
        "touched": Array(("slots", "words"), "bit mask of nonzero columns", u64),
        "biases": Array(("heads*classes",), "biases of the scores of an adopted model", saved=True, bounds=_BIAS),
        "heads": records(
            ("heads",),
            "heads",
            loss=Number("loss", i64),
            rate=Number("constant step size, 0 for 1 / (l2 t)"),
            scale=Number("factor of V", start=1.0, saved=True, bounds=(SMALLEST, 1.0)),
            steps=Number("number of steps", saved=True, bounds=_COUNT),
            eta=Number("step size of the current event", saved=True),
            accuracy=Number("decayed accuracy", saved=True, bounds=_SHARE),
            weight=Number("weight in the vote", saved=True, bounds=_SHARE),
            share=Number("weight of its coefficients in comparisons of vectors"),
        ),
        "classes": records(
            ("classes",),
            "classes",
            weight=Number("class weight", start=1.0, saved=True, bounds=(0.0, 1e300)),
            learned=Number("events learned", saved=True, bounds=_COUNT),
        ),
        "relevance": Array(
            ("metric",), "relevance, exp(theta)", start=1.0, saved=True, bounds=(0.0, math.exp(MOST_THETA) * 1.001)
        ),
        "theta": Array(("metric",), "logarithm of the relevance", saved=True, bounds=(LEAST_THETA, MOST_THETA)),
        "gradient": Array(
            ("metric",), "decayed gradient of theta", saved=True, bounds=(-LARGEST_GRADIENT, LARGEST_GRADIENT)
        ),
        "square": Array(("metric",), "decayed square of the gradient", saved=True, bounds=(0.0, LARGEST_GRADIENT**2)),
        "scores": Array(("heads*classes",), "scores of the current event"),
        "update": Array(("heads*classes",), "gradient of the loss in the scores, negated"),
        "proba": Array(("classes",), "class probabilities"),
        "kernel": Array(("slots",), "kernel values of the current event and the vectors", f32),
        "work": Array(("work", "slots"), "work space", f32),
        "pairs": Array(("weight_rows",), "values of the event in float32; index 0: squared norm", f32),
        "weighted": Array(("weight_rows",), "values times relevance; index 0: weighted squared norm", f32),
        "chosen": Array(("merged",), "vectors to merge, the smallest first", i64),
        "table": Array(("grid", "grid"), "best merge points, see `merging`", f32, external=True),
    },
)
bsgd_at = state_at(BSGD)


@inlined
def padded(n):
    """Round n slots up to a multiple of LANES."""
    return (n + LANES - 1) // LANES * LANES


@inlined
def first_class(state):
    """Return the first class with its own coefficients."""
    return 1 if state.n_classes <= 2 else 0


@inlined
def learns_metric(state):
    """Return whether the metric is learned."""
    return state.metric_rate > 0.0


# Along the slots --------------------------------------------------------------------------------------------------


@inlined
def dot(coefs, c, row, n):
    """Return the sum of coefs[c, b] * row[b] over n slots."""
    sums, c = lanes(ZERO), uint(c)
    for b in range(0, n, LANES):
        sums = times_plus(lanes_at(coefs, (c, uint(b))), lanes_at(row, uint(b)), sums)
    return float(sum_of(sums))


@inlined
def sum_heads(coefs, c, row, n, out, capacity):
    """Write `dot` of each head to `out`; three heads share one pass over the row."""
    c, heads = uint(c), coefs.shape[0] // capacity
    if heads != 3:
        for h in range(heads):
            out[uint(h * capacity) + c] = dot(coefs, uint(h * capacity) + c, row, n)
        return
    first, second, third = lanes(ZERO), lanes(ZERO), lanes(ZERO)
    for b in range(0, n, LANES):
        values = lanes_at(row, uint(b))
        first = times_plus(lanes_at(coefs, (c, uint(b))), values, first)
        second = times_plus(lanes_at(coefs, (uint(capacity) + c, uint(b))), values, second)
        third = times_plus(lanes_at(coefs, (uint(2 * capacity) + c, uint(b))), values, third)
    out[c], out[uint(capacity) + c] = float(sum_of(first)), float(sum_of(second))
    out[uint(2 * capacity) + c] = float(sum_of(third))


@inlined
def dots(vectors, b, rows, values, start, end, sums):
    """Add the products of some pairs with LANES vectors to their sums.

    The pairs are start ... end - 1, the slots b ... b + LANES - 1. Each pair adds value * vectors[row - 1]. Pairs are
    added in order, so that zeros change nothing and dense and sparse rows have equal results.
    """
    for i in range(start, end):
        sums = times_plus(values[uint(i)], lanes_at(vectors, (uint(rows[uint(i)] - 1), uint(b))), sums)
    return sums


@inlined
def slot_max(row, n, sign):
    """Return the largest of n values, each multiplied by `sign`.

    Overwrites the values from n to `padded(n)`.
    """
    for b in range(n, padded(n)):
        row[uint(b)] = -sign * INFINITE
    tops = lanes(-INFINITE)
    for b in range(0, n, LANES):
        tops = larger(sign * lanes_at(row, uint(b)), tops)
    return largest_of(tops)


@inlined
def first_slot(row, n, value):
    """Return the index of the first of n values that equals `value`, 0 without one."""
    for b in range(0, n, LANES):
        at = first_equal(lanes_at(row, uint(b)), value)
        if at < LANES:
            return b + at
    return 0


@inlined
def smallest_slot(row, n):
    """Return the index of the first smallest of n values."""
    return first_slot(row, n, -slot_max(row, n, -ONE))


# Kernel values ----------------------------------------------------------------------------------------------------


@inlined
def write_event_pairs(state, m):
    """Write the current event in float32 to `pairs` and `weighted`.

    Index 0 has its squared norms. Columns that no learned event had get the weight 0, because a new column must not
    change the prediction of its first event.
    """
    rows, scaled = current_row(state.rows)
    pairs, weighted, relevance, known = state.pairs, state.weighted, state.relevance, state.n_known
    square, norm, weighing = ZERO, ZERO, learns_metric(state)
    for i in range(1, m):
        x, row = f32(scaled[uint(i)]), rows[uint(i)]
        w = x * f32(relevance[uint(row - 1)]) if weighing else x
        w = w if row <= known else ZERO
        pairs[uint(i)], weighted[uint(i)] = x, w
        square += x * x
        norm += w * x
    pairs[0], weighted[0] = square, norm


@inlined
def distances(state, m, out):
    """Compute the weighted squared distances between the event and all vectors.

    Writes them to `out`, multiplied by gamma.
    """
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
    """Return the number of columns to accumulate per pass.

    It is small when the data exceed the cache, because the prefetcher follows only a few streams.
    """
    return m if m * n <= NEAR else RUNS


@inlined
def kernel_row(state, m):
    """Compute the kernel values of the current event and all vectors."""
    row = state.kernel
    write_event_pairs(state, m)
    distances(state, m, row)
    for b in range(padded(state.n_vectors)):
        row[uint(b)] = exp32(-row[uint(b)])


@inlined
def evaluate(state, m):
    """Compute the scores of the current event by all heads."""
    kernel_row(state, m)
    capacity, n, first, slots = state.classes.size, state.n_classes, first_class(state), padded(state.n_vectors)
    scores, biases = state.scores, state.biases
    for c in range(first, n):
        sum_heads(state.coefs, c, state.kernel, slots, scores, capacity)
    for h in range(state.n_heads):
        head, at = state.heads[h], h * capacity
        for c in range(at + first, at + n):
            scores[c] = head.scale * scores[c] + biases[c]
        if first == 1:
            scores[at] = -scores[at + 1] if n == 2 else 0.0


@inlined
def best_of_head(state, scores, h):
    """Return the class with the largest score of a head."""
    return best_class(scores, h * state.classes.size, state.n_classes)
