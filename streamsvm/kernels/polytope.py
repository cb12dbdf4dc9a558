"""The convex polytope machine: one step of stochastic gradient descent, and what it rests on.

Every class has a polytope of K hyperplanes ("faces"), trained against all other classes; f_c(x) = max_k W_ck . x is the
score of class c. W is held as a_c V with a scalar a_c a class, so that shrinking it costs nothing, in rows of all faces
of all classes for each weight row (the bias, then the columns): a row of n pairs costs n runs over contiguous memory.

Behind the sections of every learner stand V; the weights U of the average; per face the count n of positives and
n ln n; per class CLASS_FIELDS numbers; and for the event in hand, per face the score, the averaged score and the
coefficient of the step, per class the largest score and f.
Kantchelian et al., "Large-Margin Convex Polytope Machine", NIPS 2014, Algorithms 1 and 2.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.kernels import inlined, kernel
from streamsvm.kernels.rows import (
    N_CLASSES,
    PARAMS,
    PREDICT,
    PROBA,
    SEEN,
    borrow,
    in_hand,
    load,
    observe,
    section,
    single_event,
    u,
)

# Counters and sections behind those of every learner.
N_FACES, STRIDE = 14, 15
V, U, COUNTS, CLASSES, SCORES, AVERAGED, COEFS, TOP, F = range(7, 16)

# Parameters behind those of every learner.
L2, HORIZON, ENTROPY, COUNT_GROWTH, AVERAGE, BALANCED, N_PARAMS = range(3, 10)

# Numbers of a class: the scalar a, steps made, averaged weights = P V + Q U, for the entropy the weight of the next
# count, the sum n of counts, its logarithm, the sum of n ln n, the class weight, events learned.
A, STEPS, P, Q, NEXT_COUNT, COUNT, LOG_COUNT, N_LOG_N, WEIGHT, LEARNED, CLASS_FIELDS = range(11)

# Scalars are folded back into their arrays below this.
SMALLEST = 1e-9
# Where an average is longer than the memory of the weights, P V and Q U grow and cancel each other: they are brought
# together when P is so many times A.
MOST_CANCELLED = 1e6


@inlined
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


@inlined
def score(arena, layout, rows, values, m):
    """The scores of all faces for an event of m pairs, and the largest of each class."""
    n, k = layout[N_CLASSES], layout[N_FACES]
    scores, tops = section(arena, layout, SCORES), section(arena, layout, TOP)
    dot_faces(section(arena, layout, V), layout[STRIDE], n * k, rows, values, m, scores)
    for c in range(n):
        tops[u(c)] = largest(scores, c * k, k)


@inlined
def largest(x, first, n):
    """The largest of x[first:first + n], by four chains of comparisons that do not wait for each other."""
    a = b = c = d = x[u(first)]
    i, end = first, first + n
    while i + 4 <= end:
        w, x_, y, z = x[u(i)], x[u(i + 1)], x[u(i + 2)], x[u(i + 3)]
        a, b = w if w > a else a, x_ if x_ > b else b
        c, d = y if y > c else c, z if z > d else d
        i += 4
    while i < end:
        w = x[u(i)]
        a = w if w > a else a
        i += 1
    a, c = b if b > a else a, d if d > c else c
    return c if c > a else a


@inlined
def add_faces(weights, stride, low, high, rows, values, m, coefs):
    """weights[row, f] += value * coefs[f] for the faces low <= f < high."""
    for i in range(m):
        base, x = u(rows[u(i)] * stride + low), values[u(i)]
        for f in range(high - low):
            weights[base + u(f)] += x * coefs[u(low + f)]


@inlined
def predict(arena, layout, rows, values, m):
    """f of all classes for an event of m pairs; returns the best class, -1 where there is none."""
    n = layout[N_CLASSES]
    classes, tops, fs = section(arena, layout, CLASSES), section(arena, layout, TOP), section(arena, layout, F)
    score(arena, layout, rows, values, m)
    if section(arena, layout, PARAMS)[AVERAGE] > 0.0:
        score_averaged(arena, layout, rows, values, m)
    else:
        for c in range(n):
            fs[u(c)] = classes[u(c * CLASS_FIELDS + A)] * tops[u(c)]
    best, top = -1, -math.inf
    for c in range(n):
        f = fs[u(c)]
        if f > top:
            best, top = c, f
    return best


@kernel
def score_averaged(arena, layout, rows, values, m):
    """f of all classes by the averaged weights, with the scores of the latest weights at hand."""
    n, k = layout[N_CLASSES], layout[N_FACES]
    classes, scores = section(arena, layout, CLASSES), section(arena, layout, SCORES)
    averaged, fs = section(arena, layout, AVERAGED), section(arena, layout, F)
    dot_faces(section(arena, layout, U), layout[STRIDE], n * k, rows, values, m, averaged)
    for c in range(n):
        base, f = c * CLASS_FIELDS, -math.inf
        for i in range(c * k, (c + 1) * k):
            f = max(f, classes[base + P] * scores[i] + classes[base + Q] * averaged[i])
        fs[c] = f


@kernel
def spread(arena, layout):
    """The probabilities of all classes, from the f of the event in hand.

    They are exp(f_c) / sum over the classes of exp(f): monotone in f, and they sum to one.
    """
    n = layout[N_CLASSES]
    fs, proba = section(arena, layout, F), section(arena, layout, PROBA)
    top = -math.inf
    for c in range(n):
        top = max(top, fs[c])
    total = 0.0
    for c in range(n):
        proba[c] = math.exp(fs[c] - top)
        total += proba[c]
    for c in range(n):
        proba[c] /= total


@kernel
def xlogx(x):
    return x * math.log(x) if x > 0.0 else 0.0


@kernel
def assign(arena, layout, c, best, previous):
    """The face a positive of class c is assigned to (Algorithm 2), and its own choice `best` counted.

    A count weighs NEXT_COUNT, which grows each time, so that earlier counts decay against it. `previous` is the face
    this positive was counted under before, -1 if never (a stream repeats nothing): that count moves. With S the sum of
    n ln n over the faces the entropy is ln n - S / n.
    """
    params, k, base = section(arena, layout, PARAMS), layout[N_FACES], c * CLASS_FIELDS
    classes, scores = section(arena, layout, CLASSES), section(arena, layout, SCORES)
    counts = section(arena, layout, COUNTS)
    one = classes[base + NEXT_COUNT]
    if previous >= 0:
        face = 2 * (c * k + previous)
        n = max(counts[face] - one, 0.0)
        total = classes[base + COUNT] - one
        count_face(counts, classes, base, face, n, xlogx(n), total, math.log(total) if total > 0.0 else 0.0)
    s, after = classes[base + N_LOG_N], classes[base + COUNT] + one
    log_after, face = math.log(after), 2 * (c * k + best)
    n_best = counts[face] + one
    best_log = xlogx(n_best)
    chosen = best
    if after > one and log_after - (s - counts[face + 1] + best_log) / after < params[ENTROPY]:
        # Raising face i raises the entropy, by more than rounding, if it adds less than this to S.
        now = classes[base + LOG_COUNT] - s / classes[base + COUNT]
        spare = after * (log_after - now - 1e-12) - s
        top = -math.inf
        for i in range(k):
            score_i = scores[u(c * k + i)]
            if score_i > top:
                j = u(2 * (c * k + i))
                if xlogx(counts[j] + one) - counts[j + u(1)] < spare:
                    chosen, top = i, score_i
    count_face(counts, classes, base, face, n_best, best_log, after, log_after)
    classes[base + NEXT_COUNT] = one * params[COUNT_GROWTH]
    if one > 1e100:
        rescale_counts(counts, classes, base, 2 * c * k, k, one)
    return chosen


@inlined
def count_face(counts, classes, base, face, n, n_log_n, total, log_total):
    """Set the count of a face, and of its class."""
    classes[base + N_LOG_N] += n_log_n - counts[face + 1]
    counts[face], counts[face + 1] = n, n_log_n
    classes[base + COUNT], classes[base + LOG_COUNT] = total, log_total


@kernel
def rescale_counts(counts, classes, base, first, k, unit):
    """Divide all counts by `unit`: only their shares matter."""
    total, s = 0.0, 0.0
    for i in range(first, first + 2 * k, 2):
        counts[i] /= unit
        counts[i + 1] = xlogx(counts[i])
        total += counts[i]
        s += counts[i + 1]
    classes[base + COUNT], classes[base + LOG_COUNT], classes[base + N_LOG_N] = total, math.log(total), s
    classes[base + NEXT_COUNT] /= unit


@kernel
def fold(weights, stride, first, k, factor):
    """Multiply the weights of one class."""
    for row in range(0, weights.size, stride):
        for f in range(row + first, row + first + k):
            weights[f] *= factor


@inlined
def step(arena, layout, rows, values, m, label, weight, previous):
    """One step of every polytope on an event of m pairs, whose scores are at hand (Algorithm 1).

    Returns the face the event was counted under if its class asked for an assignment, else `previous`.
    """
    k, stride = layout[N_FACES], layout[STRIDE]
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    coefs, tops = section(arena, layout, COEFS), section(arena, layout, TOP)
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
        a, top = classes[u(base + A)], tops[u(c)]
        violated = a * top < 1.0 if c == label else a * top > -1.0
        if violated:
            t = min(classes[base + STEPS] + 2.0, params[HORIZON])
            change = weight / (params[L2] * t * a)
            if c == label:
                for f in range(first, first + k):
                    coefs[u(f)] = 0.0
                previous = place(arena, layout, c, change, previous)
            else:
                scores, threshold = section(arena, layout, SCORES), -1.0 / a
                for f in range(first, first + k):
                    coefs[u(f)] = -change if scores[u(f)] > threshold else 0.0
            low, high = min(low, first), first + k
        elif high > 0:  # between two that change
            for f in range(first, first + k):
                coefs[u(f)] = 0.0
    if low < high:
        add_faces(section(arena, layout, V), stride, low, high, rows, values, m, coefs)
    if params[AVERAGE] > 0.0:
        average(arena, layout, rows, values, m, low, high)
    for c in range(n):
        base = u(c * CLASS_FIELDS)
        t = min(classes[base + u(STEPS)] + 2.0, params[HORIZON])
        a = classes[base + u(A)] * (1.0 - 1.0 / t)
        classes[base + u(STEPS)] += 1.0
        classes[base + u(A)] = a
        if params[AVERAGE] > 0.0:
            classes[base + u(P)] += max(1.0 / t, 1.0 / params[AVERAGE]) * a
            if classes[base + u(P)] > MOST_CANCELLED * a:
                settle_average(arena, layout, c)
        if a < SMALLEST:
            fold(section(arena, layout, V), stride, c * k, k, a)
            classes[base + u(A)] = 1.0
            classes[base + u(P)] /= a
    return previous


@kernel
def place(arena, layout, c, change, previous):
    """Write the coefficient of a violating event of class c to the face it is assigned to.

    Returns the face it is counted under, `previous` where nothing is counted.
    """
    k, scores, top = layout[N_FACES], section(arena, layout, SCORES), section(arena, layout, TOP)[c]
    first, best = c * k, 0
    while scores[first + best] < top:
        best += 1
    chosen = best
    if section(arena, layout, PARAMS)[ENTROPY] > 0.0:
        chosen = assign(arena, layout, c, best, previous)
        previous = best
    section(arena, layout, COEFS)[first + chosen] = change
    return previous


@kernel
def average(arena, layout, rows, values, m, low, high):
    """Keep P V + Q U what it was before V changed, and let it forget; the new V joins it in `step`."""
    n, k, stride = layout[N_CLASSES], layout[N_FACES], layout[STRIDE]
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    coefs, averaged = section(arena, layout, COEFS), section(arena, layout, U)
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


@kernel
def settle_average(arena, layout, c):
    """Write the average of class c into U alone."""
    k, stride, base = layout[N_FACES], layout[STRIDE], c * CLASS_FIELDS
    weights, averaged = section(arena, layout, V), section(arena, layout, U)
    classes = section(arena, layout, CLASSES)
    for row in range(0, weights.size, stride):
        for f in range(row + c * k, row + (c + 1) * k):
            averaged[f] = classes[base + P] * weights[f] + classes[base + Q] * averaged[f]
    classes[base + P], classes[base + Q] = 0.0, 1.0


@kernel
def open_classes(arena, layout, n):
    """Start polytopes, all weights zero, until there are n."""
    k = layout[N_FACES]
    classes, scores = section(arena, layout, CLASSES), section(arena, layout, SCORES)
    for c in range(layout[N_CLASSES], n):
        base = c * CLASS_FIELDS
        classes[base + A] = 1.0
        classes[base + Q] = 1.0
        classes[base + NEXT_COUNT] = 1.0
        section(arena, layout, TOP)[c] = 0.0
        for f in range(c * k, (c + 1) * k):
            scores[f] = 0.0
        layout[N_CLASSES] = c + 1


@kernel
def event(arena, layout, label, weight):
    """Predict the event in section ROW where `label` is PREDICT, else learn it; its columns are in `single_event`.

    Returns the best class, -1 where there is none; of one learned 0; or -2 - i where value i cannot be used: nothing
    has changed then.
    """
    arena, layout = borrow(arena), borrow(layout)
    row, columns, n, shared = single_event(arena, layout)
    m = load(arena, layout, row, columns, 0, n, shared)
    if m < 0:
        return m - 1
    rows, scaled = in_hand(arena, layout)
    if label == PREDICT:
        return predict(arena, layout, rows, scaled, m)
    score(arena, layout, rows, scaled, m)
    step(arena, layout, rows, scaled, m, label, weight, -1)
    observe(arena, layout, row, columns, 0, n, shared)
    return 0


@kernel
def run_rows(
    arena, layout, values, columns, indptr, shared, labels, weights, predicting, out_codes, out_scores, out_proba
):
    """Predict each row (if `predicting`), then learn it where its label is not -1.

    Parameters
    ----------
    values, columns, indptr, shared
        Rows as `load` takes them; row i is indptr[i]:indptr[i + 1].
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
        rows, scaled = in_hand(arena, layout)
        learning = labels[i] >= 0 and weights[i] > 0.0
        if predicting:
            best = predict(arena, layout, rows, scaled, m)
            out_codes[i] = best
            if best >= 0 and out_scores.size > 0:
                spread(arena, layout)
                out_scores[i] = proba[best]
                for c in range(min(layout[N_CLASSES], out_proba.shape[1])):
                    out_proba[i, c] = proba[c]
        elif learning:
            score(arena, layout, rows, scaled, m)
        if learning:
            step(arena, layout, rows, scaled, m, labels[i], weights[i], -1)
            observe(arena, layout, values, columns, start, end, shared)
    return indptr.size - 1


@kernel
def fit_rows(arena, layout, rows, values, starts, labels, weights, unadjusted, rng, n_steps):
    """Steps on events drawn at random (Algorithm 1), each positive counted under its last own choice in `unadjusted`.

    Event i has the pairs starts[i]:starts[i + 1] of `rows` and `values`, scaled and headed by the bias.
    """
    arena, layout = borrow(arena), borrow(layout)
    rows, values, starts = borrow(rows), borrow(values), borrow(starts)
    labels, weights, unadjusted = borrow(labels), borrow(weights), borrow(unadjusted)
    n = starts.size - 1
    params = section(arena, layout, PARAMS)
    growth = params[COUNT_GROWTH]
    params[COUNT_GROWTH] = 1.0
    for _ in range(n_steps):
        i = draw(rng, n)
        start, m = starts[i], starts[i + 1] - starts[i]
        event_rows, event_values = rows[start : start + m], values[start : start + m]
        score(arena, layout, event_rows, event_values, m)
        unadjusted[i] = step(arena, layout, event_rows, event_values, m, labels[i], weights[i], unadjusted[i])
    params[COUNT_GROWTH] = growth


@kernel
def draw(rng, n):
    """A number below n by the splitmix64 generator whose state is rng[0] (Steele, Lea, Flood 2014)."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    # The high 32 bits times n, shifted back: uniform to n / 2**32.
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
