"""The convex polytope machine: one step of stochastic gradient descent, and what it rests on.

Every class has a polytope of K hyperplanes ("faces"), trained against all other classes; f_c(x) = max_k W_ck . x is the
score of class c. W is held as a_c V with a scalar a_c a class, so that shrinking it costs nothing, in rows of all faces
of all classes for each weight row (the bias, then the columns): a row of n pairs costs n runs over contiguous memory.

Behind the sections of every learner stand V; the weights U of the average; per face the score, the averaged score, the
coefficient of the step, and the count of positives; per class CLASS_FIELDS numbers.
Kantchelian et al., "Large-Margin Convex Polytope Machine", NIPS 2014, Algorithms 1 and 2.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from streamsvm.kernels.rows import (
    COUNT_AT,
    N_CLASSES,
    PARAMS,
    PROBA,
    ROW,
    ROW_LENGTH,
    ROWS_AT,
    SCALED,
    SEEN,
    borrow,
    load,
    observe,
    section,
    u,
)

# Counters and sections behind those of every learner.
N_FACES, STRIDE = 12, 13
V, U, SCORES, AVERAGED, COEFS, COUNTS, CLASSES, END = range(7, 15)

# Parameters behind those of every learner.
L2, HORIZON, ENTROPY, COUNT_GROWTH, AVERAGE, BALANCED, N_PARAMS = range(3, 10)

# Numbers of a class: the scalar a, steps made, averaged weights = P V + Q U, for the entropy the weight of the next
# count, the sum of counts and of n ln n, the class weight, events learned, and the f last predicted.
A, STEPS, P, Q, NEXT_COUNT, COUNT, N_LOG_N, WEIGHT, LEARNED, F, CLASS_FIELDS = range(11)

# Scalars are folded back into their arrays below this.
SMALLEST = 1e-9


@njit(cache=True, nogil=True, forceinline=True)
def dot_faces(weights, stride, n_faces, rows, values, m, out):
    """out[f] = sum over the pairs of value * weights[row, f]."""
    for f in range(n_faces):
        out[u(f)] = 0.0
    i = 0
    while i + 4 <= m:  # four pairs at a time: a quarter of the traffic on `out`
        j0, j1 = u(rows[u(i)] * stride), u(rows[u(i + 1)] * stride)
        j2, j3 = u(rows[u(i + 2)] * stride), u(rows[u(i + 3)] * stride)
        x0, x1, x2, x3 = values[u(i)], values[u(i + 1)], values[u(i + 2)], values[u(i + 3)]
        for f in range(n_faces):
            g = u(f)
            # One after the other, as below: pairs of value 0 change nothing, so dense and sparse rows give the same.
            s = out[g] + x0 * weights[j0 + g]
            s += x1 * weights[j1 + g]
            s += x2 * weights[j2 + g]
            out[g] = s + x3 * weights[j3 + g]
        i += 4
    while i < m:
        j0, x0 = u(rows[u(i)] * stride), values[u(i)]
        for f in range(n_faces):
            out[u(f)] += x0 * weights[j0 + u(f)]
        i += 1


@njit(cache=True, nogil=True, forceinline=True)
def score(arena, layout, m):
    """The scores of all faces for the event in hand."""
    n = layout[N_CLASSES] * layout[N_FACES]
    values, scores = section(arena, layout, SCALED), section(arena, layout, SCORES)
    dot_faces(section(arena, layout, V), layout[STRIDE], n, layout[layout[ROWS_AT] :], values, m, scores)


@njit(cache=True, nogil=True, forceinline=True)
def add_faces(weights, stride, low, high, rows, values, m, coefs):
    """weights[row, f] += value * coefs[f] for the faces low <= f < high."""
    for i in range(m):
        base, x = u(rows[u(i)] * stride + low), values[u(i)]
        for f in range(high - low):
            weights[base + u(f)] += x * coefs[u(low + f)]


@njit(cache=True, nogil=True)
def predict(arena, layout, m):
    """f and probabilities of all classes for the event in hand; returns the best class, -1 where there is none.

    Probabilities are exp(f_c) / sum over the classes of exp(f): monotone in f, and they sum to one.
    """
    n, k, stride = layout[N_CLASSES], layout[N_FACES], layout[STRIDE]
    if n == 0:
        return -1
    rows, values = layout[layout[ROWS_AT] :], section(arena, layout, SCALED)
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    scores, averaged = section(arena, layout, SCORES), section(arena, layout, AVERAGED)
    score(arena, layout, m)
    averaging = params[AVERAGE] > 0.0
    if averaging:
        dot_faces(section(arena, layout, U), stride, n * k, rows, values, m, averaged)
    best, top = 0, -math.inf
    for c in range(n):
        base = c * CLASS_FIELDS
        f = -math.inf
        for i in range(c * k, (c + 1) * k):
            if averaging:
                s = classes[base + P] * scores[i] + classes[base + Q] * averaged[i]
            else:
                s = classes[base + A] * scores[i]
            f = max(f, s)
        classes[base + F] = f
        if f > top:
            best, top = c, f
    return best


@njit(cache=True, nogil=True)
def spread(arena, layout):
    """The probabilities of all classes, from the f last computed."""
    n = layout[N_CLASSES]
    classes, proba = section(arena, layout, CLASSES), section(arena, layout, PROBA)
    top = -math.inf
    for c in range(n):
        top = max(top, classes[c * CLASS_FIELDS + F])
    total = 0.0
    for c in range(n):
        proba[c] = math.exp(classes[c * CLASS_FIELDS + F] - top)
        total += proba[c]
    for c in range(n):
        proba[c] /= total


@njit(cache=True, nogil=True)
def xlogx(x):
    return x * math.log(x) if x > 0.0 else 0.0


@njit(cache=True, nogil=True)
def assign(scores, counts, classes, base, first, k, best, least_entropy, growth, previous):
    """The face a positive is assigned to (Algorithm 2), and its own choice counted.

    A count weighs NEXT_COUNT, which grows by `growth` each time, so that earlier counts decay against it. `previous` is
    the face this positive was counted under before, -1 if never (a stream repeats nothing): that count moves.
    """
    one = classes[base + NEXT_COUNT]
    if previous >= 0:
        move_count(counts, classes, base, first + previous, -one)
    total, s = classes[base + COUNT], classes[base + N_LOG_N]
    chosen = best
    n_best = counts[first + best]
    after = total + one
    log_after = math.log(after)
    s_best = s - xlogx(n_best) + xlogx(n_best + one)
    if log_after - s_best / after < least_entropy and total > 0.0:
        now = math.log(total) - s / total
        top = -math.inf
        for i in range(k):
            n_i = counts[first + i]
            if scores[first + i] > top and log_after - (s - xlogx(n_i) + xlogx(n_i + one)) / after > now:
                chosen, top = i, scores[first + i]
    move_count(counts, classes, base, first + best, one)
    classes[base + NEXT_COUNT] = one * growth
    if one > 1e100:
        rescale_counts(counts, classes, base, first, k, one)
    return chosen


@njit(cache=True, nogil=True)
def move_count(counts, classes, base, face, change):
    old = counts[face]
    new = max(old + change, 0.0)
    counts[face] = new
    classes[base + COUNT] += change
    classes[base + N_LOG_N] += xlogx(new) - xlogx(old)


@njit(cache=True, nogil=True)
def rescale_counts(counts, classes, base, first, k, unit):
    """Divide all counts by `unit`: only their shares matter."""
    total, s = 0.0, 0.0
    for i in range(first, first + k):
        counts[i] /= unit
        total += counts[i]
        s += xlogx(counts[i])
    classes[base + COUNT], classes[base + N_LOG_N] = total, s
    classes[base + NEXT_COUNT] /= unit


@njit(cache=True, nogil=True)
def fold(weights, stride, first, k, factor):
    """Multiply the weights of one class."""
    for row in range(0, weights.size, stride):
        for f in range(row + first, row + first + k):
            weights[f] *= factor


@njit(cache=True, nogil=True)
def step(arena, layout, m, label, weight, previous):
    """One step of every polytope on the event in hand, whose scores stand in SCORES (Algorithm 1).

    Returns the face the event was counted under if its class asked for an assignment, else `previous`.
    """
    k, stride = layout[N_FACES], layout[STRIDE]
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    scores, coefs = section(arena, layout, SCORES), section(arena, layout, COEFS)
    counts, values = section(arena, layout, COUNTS), section(arena, layout, SCALED)
    rows = layout[layout[ROWS_AT] :]
    open_classes(arena, layout, label + 1)
    n = layout[N_CLASSES]
    if label >= 0:
        classes[label * CLASS_FIELDS + LEARNED] += 1.0
        weight *= classes[label * CLASS_FIELDS + WEIGHT]
        if params[BALANCED] > 0.0:
            weight *= (params[SEEN] + 1.0) / (n * classes[label * CLASS_FIELDS + LEARNED])
    low, high = n * k, 0
    for c in range(n):
        base, first = c * CLASS_FIELDS, c * k
        a = classes[base + A]
        t = min(classes[base + STEPS] + 2.0, params[HORIZON])
        change = weight / (params[L2] * t * a)
        changed = False
        if c == label:
            best = first
            for f in range(first, first + k):
                coefs[f] = 0.0
                if scores[f] > scores[best]:
                    best = f
            if a * scores[best] < 1.0:
                if params[ENTROPY] > 0.0:
                    unadjusted = best - first
                    best = first + assign(
                        scores,
                        counts,
                        classes,
                        base,
                        first,
                        k,
                        unadjusted,
                        params[ENTROPY],
                        params[COUNT_GROWTH],
                        previous,
                    )
                    previous = unadjusted
                coefs[best] = change
                changed = True
        else:
            threshold = -1.0 / a
            for f in range(first, first + k):
                violated = scores[f] > threshold
                coefs[f] = -change if violated else 0.0
                changed |= violated
        if changed:
            low, high = min(low, first), first + k
    if low < high:
        add_faces(section(arena, layout, V), stride, low, high, rows, values, m, coefs)
    if params[AVERAGE] > 0.0:
        average(arena, layout, m, low, high)
    for c in range(n):
        base = c * CLASS_FIELDS
        t = min(classes[base + STEPS] + 2.0, params[HORIZON])
        classes[base + STEPS] += 1.0
        classes[base + A] *= 1.0 - 1.0 / t
        if params[AVERAGE] > 0.0:
            classes[base + P] += max(1.0 / t, 1.0 / params[AVERAGE]) * classes[base + A]
        if classes[base + A] < SMALLEST:
            factor = classes[base + A]
            fold(section(arena, layout, V), stride, c * k, k, factor)
            classes[base + A] = 1.0
            classes[base + P] /= factor
    return previous


@njit(cache=True, nogil=True)
def average(arena, layout, m, low, high):
    """Keep P V + Q U what it was before V changed, and let it forget; the new V joins it in `step`."""
    n, k, stride = layout[N_CLASSES], layout[N_FACES], layout[STRIDE]
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    coefs, averaged = section(arena, layout, COEFS), section(arena, layout, U)
    rows, values = layout[layout[ROWS_AT] :], section(arena, layout, SCALED)
    if low < high:
        for f in range(low, high):
            base = (f // k) * CLASS_FIELDS
            coefs[f] *= -classes[base + P] / classes[base + Q]
        add_faces(averaged, stride, low, high, rows, values, m, coefs)
    for c in range(n):
        base = c * CLASS_FIELDS
        t = min(classes[base + STEPS] + 2.0, params[HORIZON])
        keep = 1.0 - max(1.0 / t, 1.0 / params[AVERAGE])
        classes[base + P] *= keep
        classes[base + Q] *= keep
        if classes[base + Q] < SMALLEST:
            fold(averaged, stride, c * k, k, classes[base + Q])
            classes[base + Q] = 1.0


@njit(cache=True, nogil=True)
def open_classes(arena, layout, n):
    """Start polytopes, all weights zero, until there are n."""
    k = layout[N_FACES]
    classes, scores = section(arena, layout, CLASSES), section(arena, layout, SCORES)
    for c in range(layout[N_CLASSES], n):
        base = c * CLASS_FIELDS
        classes[base + A] = 1.0
        classes[base + Q] = 1.0
        classes[base + NEXT_COUNT] = 1.0
        for f in range(c * k, (c + 1) * k):
            scores[f] = 0.0
        layout[N_CLASSES] = c + 1


@njit(cache=True, nogil=True)
def predict_event(arena, layout):
    """Predict the event in section ROW, which has a value for each of the first ROW_LENGTH columns.

    Returns the best class, -1 where there is none, or -2 - i where value i cannot be used.
    """
    arena, layout = borrow(arena), borrow(layout)
    row = section(arena, layout, ROW)
    m = load(arena, layout, row, layout[layout[COUNT_AT] :], 0, layout[ROW_LENGTH], True)
    if m < 0:
        return m - 1
    return predict(arena, layout, m)


@njit(cache=True, nogil=True)
def learn_event(arena, layout, label, weight):
    """Learn the event in section ROW. Returns 0, or -2 - i where value i cannot be used, and nothing has changed."""
    arena, layout = borrow(arena), borrow(layout)
    row = section(arena, layout, ROW)
    n = layout[ROW_LENGTH]
    columns = layout[layout[COUNT_AT] :]
    m = load(arena, layout, row, columns, 0, n, True)
    if m < 0:
        return m - 1
    score(arena, layout, m)
    step(arena, layout, m, label, weight, -1)
    observe(arena, layout, row, columns, 0, n, True)
    return 0


@njit(cache=True, nogil=True)
def run_rows(
    arena, layout, values, columns, indptr, shared, labels, weights, predicting, out_codes, out_scores, out_proba
):
    """Predict each row (if `predicting`), then learn it where its label is not -1.

    Parameters
    ----------
    values, columns, indptr, shared
        Rows as `scale_row` takes them; row i is indptr[i]:indptr[i + 1].
    labels, weights
        A class for each row, -1 where unknown, and how much its step weighs; none is made where that is 0.
    out_codes, out_scores, out_proba
        For each row the best class; its probability, unless empty; the probabilities of as many classes as it has
        columns.

    Returns
    -------
    int
        The number of rows done: fewer than there are if the next holds a value that cannot be used.
    """
    arena, layout = borrow(arena), borrow(layout)
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    labels, weights, out_codes = borrow(labels), borrow(weights), borrow(out_codes)
    proba = section(arena, layout, PROBA)
    for i in range(indptr.size - 1):
        start, end = indptr[i], indptr[i + 1]
        m = load(arena, layout, values, columns, start, end, shared)
        if m < 0:
            return i
        learning = labels[i] >= 0 and weights[i] > 0.0
        if predicting:
            best = predict(arena, layout, m)
            out_codes[i] = best
            if best >= 0 and out_scores.size > 0:
                spread(arena, layout)
                out_scores[i] = proba[best]
                for c in range(min(layout[N_CLASSES], out_proba.shape[1])):
                    out_proba[i, c] = proba[c]
        elif learning:
            score(arena, layout, m)
        if learning:
            step(arena, layout, m, labels[i], weights[i], -1)
            observe(arena, layout, values, columns, start, end, shared)
    return indptr.size - 1


@njit(cache=True, nogil=True)
def fit_rows(arena, layout, values, columns, indptr, shared, labels, weights, unadjusted, rng, n_steps):
    """Steps on rows drawn at random (Algorithm 1), each positive counted under its last own choice in `unadjusted`."""
    arena, layout = borrow(arena), borrow(layout)
    values, columns, indptr = borrow(values), borrow(columns), borrow(indptr)
    n_rows = indptr.size - 1
    params = section(arena, layout, PARAMS)
    growth = params[COUNT_GROWTH]
    params[COUNT_GROWTH] = 1.0
    for _ in range(n_steps):
        i = draw(rng, n_rows)
        m = load(arena, layout, values, columns, indptr[i], indptr[i + 1], shared)
        score(arena, layout, m)
        unadjusted[i] = step(arena, layout, m, labels[i], weights[i], unadjusted[i])
    params[COUNT_GROWTH] = growth


@njit(cache=True, nogil=True)
def draw(rng, n):
    """A number below n by the splitmix64 generator whose state is rng[0] (Steele, Lea, Flood 2014)."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    # The high 32 bits times n, shifted back: uniform to n / 2**32.
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
