"""The budgeted kernel machine: one step of stochastic gradient descent, and the upkeep of its budget.

f_c(x) = sum_b A_cb k(x, v_b) + bias_c is the score of class c, with k(x, v) = exp(-gamma sum_j r_j (x_j - v_j)^2); r
is 1 where the metric is fixed. Several heads, each with a loss, a step and coefficients of its own, share the vectors v
and one row of kernel values. A head's coefficients are held as a V with a scalar a, so that shrinking them costs
nothing.

Vectors are held by columns, in float32: a row of n pairs costs n runs over contiguous memory. A run is over all slots,
rounded up to a multiple of LANES: slots without a vector have zero coefficients. Two classes keep one signed
coefficient, that of class 1; class 0 has its negative.

Behind the sections of every learner stand V of the vectors; the coefficients, and those of the average; the vectors'
weighted square norms; which columns each slot has touched; the biases, and their averages; HEAD_FIELDS numbers a head;
CLASS_FIELDS numbers a class; METRIC_FIELDS numbers a column; room to solve with the kernel values between the vectors,
where removed ones are projected; and what an event needs: scores and averaged scores, the update, the
kernel row, rows of work, values of the pairs, and the vectors chosen to be merged.

Wang, Crammer, Vucetic, "Breaking the curse of kernelization", JMLR 13, 2012; Qaadan and Glasmachers, "Multi-merge
budget maintenance for stochastic gradient descent SVM training", 2018; Glasmachers and Qaadan, "Speeding up budgeted
stochastic gradient descent SVM training with precomputed golden section search", 2018.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import intrinsic

from streamsvm.kernels import call, fused, inlined, kernel
from streamsvm.kernels.rows import (
    N_CLASSES,
    PARAMS,
    PREDICT,
    PROBA,
    ROWS_AT,
    SCALED,
    SEEN,
    WORK,
    borrow,
    borrow_at,
    load,
    observe,
    section,
    single_event,
    u,
)

# Counters behind those of every learner: vectors, steps of the metric since norms were summed, and columns that have
# been learned with a value other than zero; then room, and the addresses of the table and of `make_room_at`.
N_VECTORS, N_RELEARNED, N_KNOWN = 2, 3, 4
BUDGET, STRIDE, N_HEADS, TABLE, MAKE_ROOM = 14, 15, 16, 17, 18

# Sections behind those of every learner.
(
    VECTORS,
    COEFS,
    AVERAGED,
    NORMS,
    TOUCHED,
    BIASES,
    MEAN_BIASES,
    HEADS,
    CLASSES,
    METRIC,
    SOLVED,
    SCORES,
    MEAN_SCORES,
    UPDATE,
    KERNEL,
    ROOM,
    PAIRS,
    CHOSEN,
    END,
) = range(7, 26)

# Parameters behind those of every learner: the settings; gamma now, and the sum of square norms it follows.
(
    L2,
    HORIZON,
    AVERAGE,
    BALANCED,
    BIAS,
    ABSORB,
    METRIC_RATE,
    GAMMA,
    GAMMA_FACTOR,
    MERGES,
    MAINTENANCE,
    SEARCH,
    GAMMA_NOW,
    SUM_OF_SQUARES,
    N_PARAMS,
) = range(3, 18)

# How room is made.
MERGE, MERGE_AT_ONCE, REMOVE, PROJECT = 0, 1, 2, 3
# How the best point between two vectors is found.
LOOKUP, GOLDEN = 0, 1
# Losses.
HINGE, LOG = 0, 1

# Numbers of a head: the scalar a, steps made, averaged coefficients = P V + Q U, the loss, the constant step (0 for
# 1 / (l2 t)), the step of the event in hand, the decayed accuracy, and the share of the vote.
A, STEPS, P, Q, LOSS, RATE, ETA, ACCURACY, VOTE, HEAD_FIELDS = range(10)
# Numbers of a class: its weight, and events learned.
WEIGHT, LEARNED, CLASS_FIELDS = range(3)
# Numbers of a column: its relevance r = exp(theta), theta, and the decayed gradient and its square.
RELEVANCE, THETA, GRADIENT, SQUARE, METRIC_FIELDS = range(5)

# Slots come in multiples of this.
LANES = 16
# Scalars are folded back into their arrays below this.
SMALLEST = 1e-9
# Where an average is longer than the memory of the coefficients, P V and Q U grow and cancel each other: they are
# brought together when P is so many times A.
MOST_CANCELLED = 100.0
# Changes of coefficients are cut here, so that their squares do not overflow in float32, whatever an event weighs.
LARGEST_CHANGE = 1e15
# The log loss acts on events whose label has less than 1 - LEAST_ERROR of the probability: if it acted on all, each
# would bring a vector, and the memory would be short.
LEAST_ERROR = 0.3
# Probabilities are the softmax of f for the log loss, and of so many f for the hinge.
HINGE_SHARPNESS = 3.0
# Heads vote with weights exp(VOTE_SHARPNESS * accuracy), the accuracy decayed by VOTE_DECAY.
VOTE_SHARPNESS, VOTE_DECAY = 60.0, 0.998
# The metric's decays, and the range of theta. Each theta is pulled towards 0, and all by their mean: events that
# violate their margin want their own class nearer, which lowers them all; what tells columns apart are the differences.
GRADIENT_DECAY, SQUARE_DECAY = 0.9, 0.99
OWN_PULL, COMMON_PULL = 0.02, 0.3
LEAST_THETA, MOST_THETA = -6.0, 4.0
# The very first events move the metric twice as far, since nothing is known of it; this wears off over so many.
METRIC_YOUTH = 50.0
LARGEST_GRADIENT = 1e100
# The most vectors merged into one.
MOST_MERGES = 11

# The table has so many points along m in [1/2, 1] and along kappa in [0, 1].
GRID = 400
# For vectors of equal size and direction least is lost: 2 (1 - sqrt(kappa))^2, as long as that is below MOST_BOUND, and
# at least MOST_BOUND beyond; less what rounding and the table may be off.
MOST_BOUND, BOUND_SAFETY, TABLE_ERROR = np.float32(0.74), np.float32(0.99), np.float32(1e-3)

# exp(x) = 2^n p(r) with x = n ln 2 + r, |r| <= ln(2) / 2; ln 2 is split in two parts so that r is exact, and adding
# and subtracting ROUNDER rounds to an integer. The polynomial is that of Cephes' expf. Exponents end where products
# with coefficients are not yet so small that the processor has trouble with them.
ROUNDER = np.float32(12582912.0)
LOG2E = np.float32(1.44269504088896341)
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
C0, C1, C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
C3, C4, C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
LEAST_EXPONENT = np.float32(-60.0)
ZERO, ONE, TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)

f32 = np.float32


@intrinsic
def _times_power_of_two(_, value, power):
    """value * 2^n for float32, n in the lowest bits of `power`."""

    def codegen(context, builder, signature, arguments):
        integer = context.get_value_type(types.int32)
        value, power = (builder.bitcast(argument, integer) for argument in arguments)
        shifted = builder.shl(power, integer(23))
        return builder.bitcast(builder.add(value, shifted), context.get_value_type(types.float32))

    return types.float32(types.float32, types.float32), codegen


@intrinsic
def _lowest_bit(_, bits):
    """The position of the lowest bit set."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], context.get_value_type(types.boolean)(1))

    return types.uint64(types.uint64), codegen


@fused
def exp32(x):
    """exp(x) for float32 x <= 0, to 2e-7 of its size; exp(-60) for anything less. Loops over it vectorise."""
    x = x if x > LEAST_EXPONENT else LEAST_EXPONENT
    shifted = x * LOG2E + ROUNDER
    n = shifted - ROUNDER
    r = x - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = ((((C0 * r + C1) * r + C2) * r + C3) * r + C4) * r + C5
    return _times_power_of_two(p * (r * r) + r + ONE, shifted)


@inlined
def exp_below(x):
    """exp(x) for x <= 0 as float64, to what `exp32` has: where a probability is all that comes of it."""
    return float(exp32(f32(x)))


@kernel
def exp_all(x, out):
    """out = exp32(x), for a look at it."""
    for i in range(x.size):
        out[i] = exp32(x[i])


@inlined
def single(arena, layout, i):
    """A section of float32."""
    return section(arena, layout, i).view(np.float32)


@inlined
def work(arena, layout, i):
    """The i-th row of work, as long as there are slots."""
    stride = layout[STRIDE]
    return single(arena, layout, ROOM)[i * stride : (i + 1) * stride]


@inlined
def padded(n):
    """n slots, rounded up so that no run has a remainder."""
    return (n + LANES - 1) // LANES * LANES


@inlined
def class_room(arena, layout):
    """How many classes there is room for."""
    return section(arena, layout, CLASSES).size // CLASS_FIELDS


@inlined
def first_class(layout):
    """The first class with coefficients of its own."""
    return 1 if layout[N_CLASSES] <= 2 else 0


# Sums of products -------------------------------------------------------------------------------------------------


@inlined
def halve(sums, n):
    """The sum of the first n values, halved again and again: each pass vectorises, and the order is always the same."""
    while n > LANES and n % 2 == 0:
        n //= 2
        for b in range(n):
            sums[u(b)] += sums[u(n + b)]
    total = ZERO
    for b in range(n):
        total += sums[u(b)]
    return float(total)


@inlined
def dot(coefs, at, row, n, sums):
    """sum over n slots of coefs[at + b] * row[b]."""
    half = n // 2
    for b in range(half):
        sums[u(b)] = coefs[u(at + b)] * row[u(b)] + coefs[u(at + half + b)] * row[u(half + b)]
    return halve(sums, half)


@inlined
def dot_vectors(vectors, stride, n, rows, values, m, out):
    """out[b] = sum over the pairs 1 ... m - 1 of value * vectors[row - 1, b]."""
    for b in range(n):
        out[u(b)] = ZERO
    i = 1
    while i + 4 <= m:  # four pairs at a time: a quarter of the traffic on `out`
        j0, j1 = u((rows[u(i)] - 1) * stride), u((rows[u(i + 1)] - 1) * stride)
        j2, j3 = u((rows[u(i + 2)] - 1) * stride), u((rows[u(i + 3)] - 1) * stride)
        x0, x1, x2, x3 = values[u(i)], values[u(i + 1)], values[u(i + 2)], values[u(i + 3)]
        for b in range(n):
            # One after the other, as below: pairs of value 0 change nothing, so dense and sparse rows give the same.
            s = out[u(b)] + x0 * vectors[j0 + u(b)]
            s += x1 * vectors[j1 + u(b)]
            s += x2 * vectors[j2 + u(b)]
            out[u(b)] = s + x3 * vectors[j3 + u(b)]
        i += 4
    while i < m:
        j0, x0 = u((rows[u(i)] - 1) * stride), values[u(i)]
        for b in range(n):
            out[u(b)] += x0 * vectors[j0 + u(b)]
        i += 1


@inlined
def first_largest(row, n, sign, tops):
    """Where the first of the largest of n values times a sign is; values times 1 are not negative.

    Passes vectorise; `tops` is room for half as many.
    """
    half = padded(n) // 2
    for b in range(n, 2 * half):
        row[u(b)] = ZERO if sign > ZERO else f32(np.inf)
    for b in range(half):
        x, y = sign * row[u(b)], sign * row[u(half + b)]
        tops[u(b)] = x if x > y else y
    while half > LANES and half % 2 == 0:
        half //= 2
        for b in range(half):
            tops[u(b)] = tops[u(b)] if tops[u(b)] > tops[u(half + b)] else tops[u(half + b)]
    top = tops[0]
    for b in range(1, half):
        top = tops[u(b)] if tops[u(b)] > top else top
    for b in range(n):
        if sign * row[u(b)] == top:
            return b
    return 0


# Kernel values ----------------------------------------------------------------------------------------------------


@inlined
def take_event(arena, layout, m):
    """The event in hand as pairs of float32, for index 0 its square norm and its weighted square norm.

    Columns not known yet weigh nothing, as if they had not been met: what is met first in the event to be learned next
    must not change the prediction of it.
    """
    rows, scaled = layout[layout[ROWS_AT] :], section(arena, layout, SCALED)
    pairs = single(arena, layout, PAIRS)
    weighted = pairs[pairs.size // 2 :]
    square, norm = ZERO, ZERO
    known = layout[N_KNOWN]
    if section(arena, layout, PARAMS)[METRIC_RATE] > 0.0:
        metric = section(arena, layout, METRIC)
        for i in range(1, m):
            x = f32(scaled[u(i)])
            w = x * f32(metric[u(rows[u(i)] - 1)]) if rows[u(i)] <= known else ZERO
            pairs[u(i)], weighted[u(i)] = x, w
            square += x * x
            norm += w * x
    else:
        for i in range(1, m):
            x = f32(scaled[u(i)])
            w = x if rows[u(i)] <= known else ZERO
            pairs[u(i)], weighted[u(i)] = x, w
            square += x * x
            norm += w * x
    pairs[0], weighted[0] = square, norm


@inlined
def distances(arena, layout, m, out):
    """gamma times the weighted square distance of the pairs taken to the vector in each slot."""
    n = padded(layout[N_VECTORS])
    pairs, norms = single(arena, layout, PAIRS), single(arena, layout, NORMS)
    norm = pairs[pairs.size // 2]
    gamma = f32(section(arena, layout, PARAMS)[GAMMA_NOW])
    rows = layout[layout[ROWS_AT] :]
    dot_vectors(single(arena, layout, VECTORS), layout[STRIDE], n, rows, pairs[pairs.size // 2 :], m, out)
    for b in range(n):
        d = (norm + norms[u(b)]) - TWO * out[u(b)]
        out[u(b)] = (d if d > ZERO else ZERO) * gamma


@inlined
def kernel_row(arena, layout, m):
    """The kernel values between the event in hand and all vectors."""
    row = single(arena, layout, KERNEL)
    take_event(arena, layout, m)
    distances(arena, layout, m, row)
    for b in range(padded(layout[N_VECTORS])):
        row[u(b)] = exp32(-row[u(b)])


@inlined
def evaluate(arena, layout, m, averaging):
    """The scores of all classes by all heads for the event in hand, and (if `averaging`) the averaged ones."""
    kernel_row(arena, layout, m)
    room, n, stride = class_room(arena, layout), layout[N_CLASSES], layout[STRIDE]
    first, slots = first_class(layout), padded(layout[N_VECTORS])
    row, sums = single(arena, layout, KERNEL), work(arena, layout, 0)
    heads, scores, means = (
        section(arena, layout, HEADS),
        section(arena, layout, SCORES),
        section(arena, layout, MEAN_SCORES),
    )
    biases, mean_biases = section(arena, layout, BIASES), section(arena, layout, MEAN_BIASES)
    coefs, averaged = single(arena, layout, COEFS), single(arena, layout, AVERAGED)
    for h in range(layout[N_HEADS]):
        base, at = h * HEAD_FIELDS, h * room
        scores[at] = means[at] = 0.0
        for c in range(at + first, at + n):
            s = dot(coefs, c * stride, row, slots, sums)
            scores[c] = heads[base + A] * s + biases[c]
            if averaging:
                mean = heads[base + P] * s + heads[base + Q] * dot(averaged, c * stride, row, slots, sums)
                means[c] = mean + mean_biases[c]
        if first == 1 and n == 2:
            scores[at], means[at] = -scores[at + 1], -means[at + 1]


# Predictions ------------------------------------------------------------------------------------------------------


@inlined
def best_class(scores, at, n):
    """The class with the largest score, the first of equals."""
    best = 0
    for c in range(1, n):
        if scores[at + c] > scores[at + best]:
            best = c
    return best


@inlined
def deciding(arena, layout):
    """The scores that predictions rest on."""
    if section(arena, layout, PARAMS)[AVERAGE] > 0.0:
        return section(arena, layout, MEAN_SCORES)
    return section(arena, layout, SCORES)


@kernel
def spread(arena, layout):
    """The probabilities of all classes, from the scores last computed: each head's, weighted by its vote."""
    n, room = layout[N_CLASSES], class_room(arena, layout)
    heads, proba, scores = section(arena, layout, HEADS), section(arena, layout, PROBA), deciding(arena, layout)
    for c in range(n):
        proba[c] = 0.0
    for h in range(layout[N_HEADS]):
        base, at = h * HEAD_FIELDS, h * room
        sharpness = 1.0 if heads[base + LOSS] == LOG else HINGE_SHARPNESS
        top = scores[at + best_class(scores, at, n)]
        total = 0.0
        for c in range(at, at + n):
            total += math.exp(sharpness * (scores[c] - top))
        for c in range(n):
            proba[c] += heads[base + VOTE] * math.exp(sharpness * (scores[at + c] - top)) / total


@kernel
def predict(arena, layout, m):
    """The best class for the event in hand, -1 where there is none."""
    n = layout[N_CLASSES]
    if n == 0:
        return -1
    evaluate(arena, layout, m, section(arena, layout, PARAMS)[AVERAGE] > 0.0)
    if layout[N_HEADS] == 1:
        return best_class(deciding(arena, layout), 0, n)
    spread(arena, layout)
    return best_class(section(arena, layout, PROBA), 0, n)


# Learning ---------------------------------------------------------------------------------------------------------


@kernel
def open_classes(arena, layout, n):
    """Begin classes, all coefficients zero, until there are n; the third ends the sharing of one coefficient by two."""
    room, stride = class_room(arena, layout), layout[STRIDE]
    coefs, averaged = single(arena, layout, COEFS), single(arena, layout, AVERAGED)
    biases, mean_biases = section(arena, layout, BIASES), section(arena, layout, MEAN_BIASES)
    scores, means = section(arena, layout, SCORES), section(arena, layout, MEAN_SCORES)
    before = layout[N_CLASSES]
    for h in range(layout[N_HEADS]):
        at = h * room
        for c in range(at + before, at + n):
            scores[c] = means[c] = 0.0
        if before == 2 and n > 2:
            for b in range(stride):
                coefs[at * stride + b] = -coefs[(at + 1) * stride + b]
            if averaged.size > 0:
                for b in range(stride):
                    averaged[at * stride + b] = -averaged[(at + 1) * stride + b]
            biases[at], mean_biases[at] = -biases[at + 1], -mean_biases[at + 1]
    layout[N_CLASSES] = max(before, n)


@inlined
def find_update(scores, update, at, n, label, loss):
    """The update u of the classes' scores, the negative gradient of the loss; returns whether the head acts."""
    if loss == HINGE:
        rival = -1
        for c in range(n):
            update[at + c] = 0.0
            if c != label and (rival < 0 or scores[at + c] > scores[at + rival]):
                rival = c
        if scores[at + label] - scores[at + rival] >= 1.0:
            return False
        update[at + label], update[at + rival] = 1.0, -1.0
        return True
    top = scores[at + best_class(scores, at, n)]
    total = 0.0
    for c in range(at, at + n):
        update[c] = math.exp(scores[c] - top)
        total += update[c]
    acting = 1.0 - update[at + label] / total > LEAST_ERROR
    for c in range(at, at + n):
        update[c] = -update[c] / total if acting else 0.0
    if acting:
        update[at + label] += 1.0
    return acting


@inlined
def step(arena, layout, m, label, weight):
    """One step of every head on the event in hand, whose scores stand in SCORES and kernel values in KERNEL.

    There may be one vector more than the budget afterwards.
    """
    params, classes = section(arena, layout, PARAMS), section(arena, layout, CLASSES)
    heads, scores, update = (
        section(arena, layout, HEADS),
        section(arena, layout, SCORES),
        section(arena, layout, UPDATE),
    )
    if label >= layout[N_CLASSES]:
        open_classes(arena, layout, label + 1)
    n, room = layout[N_CLASSES], class_room(arena, layout)
    classes[label * CLASS_FIELDS + LEARNED] += 1.0
    weight *= classes[label * CLASS_FIELDS + WEIGHT]
    if params[BALANCED] > 0.0:
        weight *= (params[SEEN] + 1.0) / (n * classes[label * CLASS_FIELDS + LEARNED])
    pairs, rows = single(arena, layout, PAIRS), layout[layout[ROWS_AT] :]
    if params[GAMMA] == 0.0:
        follow_norms(params, pairs[0])
    last = m - 1
    while last > 0 and pairs[u(last)] == ZERO:
        last -= 1
    layout[N_KNOWN] = max(layout[N_KNOWN], rows[u(last)] if last > 0 else 0)
    if n < 2 or weight == 0.0:
        return
    if layout[N_HEADS] > 1:
        vote(arena, layout, label)
    acting = False
    for h in range(layout[N_HEADS]):
        acting |= find_update(scores, update, h * room, n, label, heads[h * HEAD_FIELDS + LOSS])
    if acting and params[METRIC_RATE] > 0.0:
        relearn_metric(arena, layout, m)
    for h in range(layout[N_HEADS]):
        shrink(arena, layout, h)
    if acting:
        slot = find_slot(arena, layout, m)
        add_update(arena, layout, slot, weight)
    if params[AVERAGE] > 0.0:
        average(arena, layout)


@inlined
def learn(arena, layout, m, label, weight):
    """Learn the event in hand, which has been evaluated."""
    step(arena, layout, m, label, weight)
    if layout[N_VECTORS] > layout[BUDGET]:
        call(layout[MAKE_ROOM], (arena.ctypes.data, arena.size, layout.ctypes.data, layout.size))


@inlined
def follow_norms(params, square):
    """gamma = GAMMA_FACTOR / the mean square norm of the events learned (this one is the SEEN + 1st)."""
    params[SUM_OF_SQUARES] += square
    if params[SUM_OF_SQUARES] > 0.0:
        params[GAMMA_NOW] = params[GAMMA_FACTOR] * (params[SEEN] + 1.0) / params[SUM_OF_SQUARES]


@kernel
def vote(arena, layout, label):
    """Take the heads' predictions of the event in hand into their accuracies, and share the vote anew."""
    n, room, n_heads = layout[N_CLASSES], class_room(arena, layout), layout[N_HEADS]
    heads, scores = section(arena, layout, HEADS), deciding(arena, layout)
    top = 0.0
    for h in range(n_heads):
        base = h * HEAD_FIELDS
        right = 1.0 if best_class(scores, h * room, n) == label else 0.0
        heads[base + ACCURACY] += (1.0 - VOTE_DECAY) * (right - heads[base + ACCURACY])
        top = max(top, heads[base + ACCURACY])
    total = 0.0
    for base in range(0, n_heads * HEAD_FIELDS, HEAD_FIELDS):
        heads[base + VOTE] = exp_below(VOTE_SHARPNESS * (heads[base + ACCURACY] - top))
        total += heads[base + VOTE]
    for base in range(0, n_heads * HEAD_FIELDS, HEAD_FIELDS):
        heads[base + VOTE] /= total


@inlined
def shrink(arena, layout, h):
    """Settle the step of a head, and shrink its coefficients; t begins at 2, because at 1 all would be lost."""
    params, heads = section(arena, layout, PARAMS), section(arena, layout, HEADS)
    base = h * HEAD_FIELDS
    heads[base + ETA] = heads[base + RATE]
    if heads[base + RATE] == 0.0:
        heads[base + ETA] = 1.0 / (params[L2] * min(heads[base + STEPS] + 2.0, params[HORIZON]))
    heads[base + STEPS] += 1.0
    heads[base + A] *= 1.0 - heads[base + ETA] * params[L2]
    if heads[base + A] < SMALLEST:
        size = class_room(arena, layout) * layout[STRIDE]
        coefs, a = single(arena, layout, COEFS), f32(heads[base + A])
        for i in range(h * size, (h + 1) * size):
            coefs[u(i)] *= a
        heads[base + P] /= heads[base + A]
        heads[base + A] = 1.0


@inlined
def find_slot(arena, layout, m):
    """The slot of the vector that takes the event in: the nearest, if near enough to absorb it, else a new one."""
    n = layout[N_VECTORS]
    params, row = section(arena, layout, PARAMS), single(arena, layout, KERNEL)
    if params[ABSORB] < 1.0 and n > 0:
        nearest = first_largest(row, n, ONE, work(arena, layout, 0))
        if row[nearest] > params[ABSORB]:
            return nearest
    write_vector(arena, layout, n, m)
    layout[N_VECTORS] = n + 1
    return n


@kernel
def write_vector(arena, layout, slot, m):
    """Put the event taken into an empty slot."""
    stride, rows = layout[STRIDE], layout[layout[ROWS_AT] :]
    weighing, metric = section(arena, layout, PARAMS)[METRIC_RATE] > 0.0, section(arena, layout, METRIC)
    norm = ZERO
    vectors, pairs = single(arena, layout, VECTORS), single(arena, layout, PAIRS)
    touched = section(arena, layout, TOUCHED).view(np.uint64)
    n_words = touched.size // stride
    for w in range(slot * n_words, (slot + 1) * n_words):
        bits = touched[u(w)]
        while bits != u(0):
            vectors[(u(64 * (w - slot * n_words)) + _lowest_bit(bits)) * u(stride) + u(slot)] = ZERO
            bits &= bits - u(1)
        touched[u(w)] = u(0)
    for i in range(1, m):
        if pairs[u(i)] != ZERO:
            j = u(rows[u(i)] - 1)
            x = pairs[u(i)]
            vectors[j * u(stride) + u(slot)] = x
            touched[u(slot * n_words) + (j >> u(6))] |= u(1) << (j & u(63))
            norm += x * f32(metric[j]) * x if weighing else x * x
    single(arena, layout, NORMS)[slot] = norm


@inlined
def add_update(arena, layout, slot, weight):
    """Add each head's step times its update to the coefficients of a slot, and to the biases."""
    room, stride, n = class_room(arena, layout), layout[STRIDE], layout[N_CLASSES]
    params, heads, update = (
        section(arena, layout, PARAMS),
        section(arena, layout, HEADS),
        section(arena, layout, UPDATE),
    )
    coefs, averaged, biases = (
        single(arena, layout, COEFS),
        single(arena, layout, AVERAGED),
        section(arena, layout, BIASES),
    )
    for h in range(layout[N_HEADS]):
        base, at = h * HEAD_FIELDS, h * room
        change = weight * heads[base + ETA]
        for c in range(at + first_class(layout), at + n):
            if update[c] != 0.0:
                delta = change * update[c] / heads[base + A]
                delta = min(max(delta, -LARGEST_CHANGE), LARGEST_CHANGE)
                coefs[c * stride + slot] += f32(delta)
                if params[AVERAGE] > 0.0:
                    # P V + Q U stays what it was; the new V joins it in `average`.
                    averaged[c * stride + slot] -= f32(delta * heads[base + P] / heads[base + Q])
                biases[c] += params[BIAS] * change * update[c]


@kernel
def average(arena, layout):
    """Let P V + Q U forget a share, and V join it."""
    params, heads = section(arena, layout, PARAMS), section(arena, layout, HEADS)
    room, stride, n = class_room(arena, layout), layout[STRIDE], layout[N_CLASSES]
    biases, means = section(arena, layout, BIASES), section(arena, layout, MEAN_BIASES)
    for h in range(layout[N_HEADS]):
        base, at = h * HEAD_FIELDS, h * room
        share = max(1.0 / (heads[base + STEPS] + 1.0), 1.0 / params[AVERAGE])
        heads[base + P] *= 1.0 - share
        heads[base + Q] *= 1.0 - share
        heads[base + P] += share * heads[base + A]
        if params[BIAS] > 0.0:
            for c in range(at + first_class(layout), at + n):
                means[c] += share * (biases[c] - means[c])
        if heads[base + Q] < SMALLEST or heads[base + P] > MOST_CANCELLED * heads[base + A]:
            coefs, averaged = single(arena, layout, COEFS), single(arena, layout, AVERAGED)
            p, q = f32(heads[base + P]), f32(heads[base + Q])
            for i in range(at * stride, (at + room) * stride):
                averaged[u(i)] = p * coefs[u(i)] + q * averaged[u(i)]
            heads[base + P], heads[base + Q] = 0.0, 1.0


# The metric -------------------------------------------------------------------------------------------------------


@kernel
def relearn_metric(arena, layout, m):
    """One step of the relevances of the columns the event has a value in, along the gradient of the heads' losses.

    With u the update and A the coefficients, the gradient of u . f in theta_j is
    -gamma r_j sum_b co_b (x_j - v_bj)^2, co_b = k_b sum_c u_c A_cb. It is divided by the root of its mean square. The
    vectors' norms follow.
    """
    stride, n_vectors = layout[STRIDE], layout[N_VECTORS]
    slots = padded(n_vectors)
    rows = layout[layout[ROWS_AT] :]
    params, metric = section(arena, layout, PARAMS), section(arena, layout, METRIC)
    vectors, norms, pairs = (
        single(arena, layout, VECTORS),
        single(arena, layout, NORMS),
        single(arena, layout, PAIRS),
    )
    sums, co = work(arena, layout, 0), work(arena, layout, 1)
    n_columns = metric.size // METRIC_FIELDS
    relevance, theta = metric[:n_columns], metric[THETA * n_columns : GRADIENT * n_columns]
    gradient, square = metric[GRADIENT * n_columns : SQUARE * n_columns], metric[SQUARE * n_columns :]
    rate = params[METRIC_RATE] * (1.0 + math.exp(-params[SEEN] / METRIC_YOUTH))
    pull(arena, layout, co)
    half = slots // 2
    common, count = 0.0, 0
    for i in range(1, m):
        x, j = pairs[u(i)], u(rows[u(i)] - 1)
        if x == ZERO:
            continue
        at = j * u(stride)
        for b in range(half):
            near, far = x - vectors[at + u(b)], x - vectors[at + u(half + b)]
            sums[u(b)] = co[u(b)] * near * near + co[u(half + b)] * far * far
        g = -params[GAMMA_NOW] * relevance[j] * halve(sums, half)
        g = g if abs(g) < LARGEST_GRADIENT else 0.0  # one that overflowed teaches nothing
        gradient[j] = gradient[j] * GRADIENT_DECAY + (1.0 - GRADIENT_DECAY) * g
        square[j] = square[j] * SQUARE_DECAY + (1.0 - SQUARE_DECAY) * g * g
        common += theta[j]
        count += 1
    common /= max(count, 1)
    for i in range(1, m):
        x, j = pairs[u(i)], u(rows[u(i)] - 1)
        if x == ZERO:
            continue
        change = gradient[j] / (math.sqrt(square[j]) + 1e-12) - OWN_PULL * theta[j] - COMMON_PULL * common
        theta[j] = min(max(theta[j] + rate * change, LEAST_THETA), MOST_THETA)
        before = f32(relevance[j])
        relevance[j] = math.exp(theta[j])
        more = f32(relevance[j]) - before
        at = j * u(stride)
        for b in range(slots):
            norms[u(b)] += more * (vectors[at + u(b)] * vectors[at + u(b)])
    layout[N_RELEARNED] += 1
    if layout[N_RELEARNED] >= layout[N_KNOWN] + 64:
        layout[N_RELEARNED] = 0
        for b in range(n_vectors):
            norms[b] = vector_norm(arena, layout, b)


@inlined
def pull(arena, layout, out):
    """out[b] = k_b sum over heads and classes of vote * u_c A_cb."""
    room, stride, n = class_room(arena, layout), layout[STRIDE], layout[N_CLASSES]
    slots, first = padded(layout[N_VECTORS]), first_class(layout)
    heads, update = section(arena, layout, HEADS), section(arena, layout, UPDATE)
    coefs, row = single(arena, layout, COEFS), single(arena, layout, KERNEL)
    for b in range(slots):
        out[u(b)] = ZERO
    for h in range(layout[N_HEADS]):
        base, at = h * HEAD_FIELDS, h * room
        for c in range(at + first, at + n):
            weight = f32(heads[base + VOTE] * heads[base + A] * update[c])
            if weight != ZERO:
                for b in range(slots):
                    out[u(b)] += weight * coefs[u(c * stride + b)]
    for b in range(slots):
        out[u(b)] *= row[u(b)]


@kernel
def vector_norm(arena, layout, slot):
    """The weighted square norm of a vector."""
    stride, vectors = layout[STRIDE], single(arena, layout, VECTORS)
    touched = section(arena, layout, TOUCHED).view(np.uint64)
    n_words = touched.size // stride
    weighing = section(arena, layout, PARAMS)[METRIC_RATE] > 0.0
    metric = section(arena, layout, METRIC)
    norm = ZERO
    for w in range(n_words):
        bits = touched[u(slot * n_words + w)]
        while bits != u(0):
            j = u(64 * w) + _lowest_bit(bits)
            v = vectors[j * u(stride) + u(slot)]
            norm += v * f32(metric[j]) * v if weighing else v * v
            bits &= bits - u(1)
    return norm


# Room -------------------------------------------------------------------------------------------------------------


@kernel
def make_room(arena, layout):
    """Bring the vectors back within the budget."""
    kind = section(arena, layout, PARAMS)[MAINTENANCE]
    smallest = find_smallest(arena, layout)
    if kind == REMOVE:
        remove(arena, layout, smallest)
    elif kind == PROJECT:
        project(arena, layout, smallest)
        remove(arena, layout, smallest)
    else:
        n_chosen = choose(arena, layout, smallest)
        if n_chosen == 1:
            remove(arena, layout, smallest)
        elif kind == MERGE:
            merge_in_turn(arena, layout, n_chosen)
        else:
            merge_at_once(arena, layout, n_chosen)


def make_room_at(values, n_values, counters, n_counters):
    """`make_room`, to be compiled apart: arena and layout come by their addresses and sizes."""
    make_room(borrow_at(values, n_values, np.float64), borrow_at(counters, n_counters, np.int64))


@inlined
def is_plain(layout):
    """Whether each vector has a single coefficient."""
    return layout[N_HEADS] == 1 and layout[N_CLASSES] == 2


@inlined
def head_weight(heads, base):
    """What a head's coefficients count for where vectors are compared: its vote, in units of its step."""
    return math.sqrt(heads[base + VOTE]) / heads[base + ETA] * heads[base + A]


@kernel
def find_smallest(arena, layout):
    """The vector with the smallest coefficients; the size of all vectors' coefficients is left in work row 1."""
    n, slots, stride = layout[N_VECTORS], padded(layout[N_VECTORS]), layout[STRIDE]
    coefs, sizes = single(arena, layout, COEFS), work(arena, layout, 1)
    if is_plain(layout):
        for b in range(slots):
            sizes[u(b)] = abs(coefs[u(stride + b)])
    else:
        heads, room = section(arena, layout, HEADS), class_room(arena, layout)
        for b in range(slots):
            sizes[u(b)] = ZERO
        for h in range(layout[N_HEADS]):
            weight = f32(head_weight(heads, h * HEAD_FIELDS))
            for c in range(h * room + first_class(layout), h * room + layout[N_CLASSES]):
                for b in range(slots):
                    v = weight * coefs[u(c * stride + b)]
                    sizes[u(b)] += v * v
        for b in range(slots):
            sizes[u(b)] = np.sqrt(sizes[u(b)])
    return first_largest(sizes, n, -ONE, work(arena, layout, 0))


@kernel
def products_with(arena, layout, i, out):
    """out[b] = the product of the coefficients of vectors i and b, summed over heads and classes."""
    slots, stride, room = padded(layout[N_VECTORS]), layout[STRIDE], class_room(arena, layout)
    coefs, heads = single(arena, layout, COEFS), section(arena, layout, HEADS)
    for b in range(slots):
        out[u(b)] = ZERO
    for h in range(layout[N_HEADS]):
        weight = head_weight(heads, h * HEAD_FIELDS)
        for c in range(h * room + first_class(layout), h * room + layout[N_CLASSES]):
            v = f32(weight * weight * coefs[c * stride + i])
            if v != ZERO:
                for b in range(slots):
                    out[u(b)] += v * coefs[u(c * stride + b)]


@kernel
def take_vector(arena, layout, slot):
    """Take a vector as pairs, as `take_event` takes an event; returns how far they go."""
    stride, vectors = layout[STRIDE], single(arena, layout, VECTORS)
    touched = section(arena, layout, TOUCHED).view(np.uint64)
    n_words = touched.size // stride
    pairs = single(arena, layout, PAIRS)
    weighted = pairs[pairs.size // 2 :]
    weighing = section(arena, layout, PARAMS)[METRIC_RATE] > 0.0
    metric, rows = section(arena, layout, METRIC), layout[WORK:]
    layout[ROWS_AT] = WORK
    m, norm = 1, ZERO
    for w in range(n_words):
        bits = touched[u(slot * n_words + w)]
        while bits != u(0):
            j = u(64 * w) + _lowest_bit(bits)
            v = vectors[j * u(stride) + u(slot)]
            s = v * f32(metric[j]) if weighing else v
            rows[u(m)], pairs[u(m)], weighted[u(m)] = np.int64(j) + 1, v, s
            norm += s * v
            m += 1
            bits &= bits - u(1)
    weighted[0] = norm
    return m


@kernel
def choose(arena, layout, i):
    """Choose what to merge with vector i: up to MERGES - 1 others of the same direction, least degradation first.

    The slots are left in CHOSEN, i itself the first; returns their number, 1 where no other has the same direction.
    """
    n = layout[N_VECTORS]
    params, chosen = section(arena, layout, PARAMS), section(arena, layout, CHOSEN)
    sizes, far, costs = work(arena, layout, 1), work(arena, layout, 2), work(arena, layout, 3)
    m = take_vector(arena, layout, i)
    distances(arena, layout, m, far)
    bound_costs(arena, layout, i, sizes, far, costs)
    most = min(int(params[MERGES]), n)
    chosen[0] = i
    count, limit = 1, f32(np.inf)
    # The likeliest first: most others then need no closer look.
    likeliest = first_largest(costs, n, -ONE, work(arena, layout, 5))
    for k in range(-1, n):
        b = likeliest if k < 0 else k
        if costs[u(b)] >= limit or k == likeliest:
            continue
        cost = find_cost(arena, layout, i, b, sizes, far)
        if cost >= limit:
            continue
        costs[u(b)] = cost
        at = min(count, most - 1)
        while at > 1 and costs[int(chosen[at - 1])] > cost:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = b
        count = min(count + 1, most)
        if count == most:
            limit = costs[int(chosen[most - 1])]
    return count


@kernel
def bound_costs(arena, layout, i, sizes, far, costs):
    """What merging each vector with i costs at least: the cost of vectors as small as i, in the same direction.

    inf for i itself, and where the angle between coefficients is not below 90°. Leaves the cosines of the angles in
    work row 0, and the kernel values between the vectors in row 4.
    """
    slots, stride = padded(layout[N_VECTORS]), layout[STRIDE]
    cosines, kappas = work(arena, layout, 0), work(arena, layout, 4)
    size = sizes[u(i)]
    if is_plain(layout):
        coefs = single(arena, layout, COEFS)
        sign = ONE if coefs[u(stride + i)] > ZERO else -ONE
        for b in range(slots):
            cosines[u(b)] = sign if coefs[u(stride + b)] > ZERO else -sign
    else:
        products_with(arena, layout, i, cosines)
        for b in range(slots):
            both = sizes[u(b)] * size
            cosine = cosines[u(b)] / both if both > ZERO else ONE
            cosines[u(b)] = cosine if cosine < ONE else ONE
    for b in range(slots):
        kappas[u(b)] = exp32(-far[u(b)])
    for b in range(slots):
        off = ONE - np.sqrt(kappas[u(b)])
        cost = TWO * off * off
        cost = cost if cost < MOST_BOUND else MOST_BOUND
        costs[u(b)] = cost * BOUND_SAFETY - TABLE_ERROR if cosines[u(b)] > ZERO else f32(np.inf)
    costs[u(i)] = f32(np.inf)


@inlined
def find_cost(arena, layout, i, b, sizes, far):
    """The degradation of merging vector b with i, in units of that of removing i."""
    size = sizes[u(i)]
    ratio, share = ratio_of(sizes[u(b)], size), sizes[u(b)] / (sizes[u(b)] + size) if size > ZERO else ONE
    cosine, kappa = work(arena, layout, 0)[u(b)], work(arena, layout, 4)[u(b)]
    if section(arena, layout, PARAMS)[SEARCH] == GOLDEN:
        h = golden_section(ratio, cosine, -far[u(b)])
    elif is_plain(layout):
        return f32(look_up(borrow_table(layout), 0, share, kappa))
    else:
        h = look_up(borrow_table(layout), GRID * GRID, share, kappa)
    return f32(degradation(f32(h), ratio, cosine, -far[u(b)]))


@inlined
def ratio_of(larger, smaller):
    """How many times the larger is the smaller, within bounds: beyond, the smaller does not matter."""
    return min(larger / smaller, 1e6) if smaller > 0.0 else 1e6


# Merging ----------------------------------------------------------------------------------------------------------
# Vector b with coefficients of size r and vector i with coefficients of size 1, their angle's cosine c, become
# z = h v_b + (1 - h) v_i; with L = ln k(v_b, v_i) the square norm of what z takes over is
# r^2 e^(2 L (1 - h)^2) + e^(2 L h^2) + 2 r c e^(L ((1 - h)^2 + h^2)), largest at some h in [1/2, 1] for r >= 1.


@inlined
def kept(h, ratio, cosine, log_kappa):
    """The square norm of what is taken over."""
    large, small = math.exp(log_kappa * (1.0 - h) * (1.0 - h)), math.exp(log_kappa * h * h)
    return ratio * ratio * large * large + small * small + 2.0 * ratio * cosine * large * small


@inlined
def degradation(h, ratio, cosine, log_kappa):
    """The square norm of what is lost: |r phi(v_b) + phi(v_i)|^2 less what is kept, summed by parts of one sign."""
    large, small = log_kappa * (1.0 - h) * (1.0 - h), log_kappa * h * h
    lost = -ratio * ratio * math.expm1(2.0 * large) - math.expm1(2.0 * small)
    return lost + 2.0 * ratio * cosine * (math.exp(log_kappa) - math.exp(large + small))


@kernel
def golden_section(ratio, cosine, log_kappa):
    """The best h by golden section search, around the best of nine points."""
    best = 8
    for i in range(8):
        if kept(0.5 + i / 16.0, ratio, cosine, log_kappa) > kept(0.5 + best / 16.0, ratio, cosine, log_kappa):
            best = i
    low, high = max(0.5, 0.5 + (best - 1) / 16.0), min(1.0, 0.5 + (best + 1) / 16.0)
    share = 0.5 * (math.sqrt(5.0) - 1.0)
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = kept(left, ratio, cosine, log_kappa), kept(right, ratio, cosine, log_kappa)
    while high - low > 1e-8:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = kept(left, ratio, cosine, log_kappa)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = kept(right, ratio, cosine, log_kappa)
    h = 0.5 * (low + high)
    # A maximum at the end of the range is not inside any bracket.
    return 1.0 if kept(1.0, ratio, cosine, log_kappa) > kept(h, ratio, cosine, log_kappa) else h


@kernel
def refine(h, ratio, cosine, log_kappa):
    """A better h, by Newton's method from the best of a few points: h is the best if the cosine is 1."""
    best = kept(h, ratio, cosine, log_kappa)
    for start in (0.25 * (1.0 + 3.0 * h), 0.5 * (1.0 + h), 0.25 * (3.0 + h), 1.0):
        value = kept(start, ratio, cosine, log_kappa)
        if value > best:
            h, best = start, value
    k = log_kappa
    for _ in range(3):
        g = 1.0 - h
        large = ratio * ratio * math.exp(2.0 * k * g * g)
        small = math.exp(2.0 * k * h * h)
        cross = 2.0 * ratio * cosine * math.exp(k * (g * g + h * h))
        turn = k * (4.0 * h - 2.0)
        slope = -4.0 * k * g * large + 4.0 * k * h * small + turn * cross
        curve = large * (16.0 * k * k * g * g + 4.0 * k) + small * (16.0 * k * k * h * h + 4.0 * k)
        curve += cross * (turn * turn + 4.0 * k)
        if not curve < 0.0:
            break
        after = min(max(h - slope / curve, 0.5), 1.0)
        value = kept(after, ratio, cosine, log_kappa)
        if not value > best:
            break
        h, best = after, value
    return h


@kernel
def fill_table(table):
    """The table for cosine 1: first what is lost, in units of the smaller vector's square coefficient, then h.

    Entry (i, j) is for m = r / (1 + r) = 1/2 + i / 2 / (GRID - 1) and kappa = j / (GRID - 1).
    """
    for i in range(GRID):
        share = 0.5 + 0.5 * i / (GRID - 1)
        for j in range(GRID):
            kappa = max(j / (GRID - 1), 1e-30)
            if i == GRID - 1:
                h, lost = 1.0, 1.0 - kappa * kappa
            elif j == GRID - 1:
                # Nothing is lost anywhere; this is where h tends to.
                h, lost = share, 0.0
            else:
                ratio = share / (1.0 - share)
                h = golden_section(ratio, 1.0, math.log(kappa))
                lost = degradation(h, ratio, 1.0, math.log(kappa))
            table[i * GRID + j], table[(GRID + i) * GRID + j] = lost, h


@inlined
def borrow_table(layout):
    """The table, which all learners share."""
    return borrow_at(layout[TABLE], 2 * GRID * GRID, np.float32)


@inlined
def look_up(table, at, share, kappa):
    """The table's value for a share in [1/2, 1] and kappa in [0, 1], linear between its points."""
    # Written so that what is not a number does not lead out of the table either.
    share, kappa = (share if 0.5 <= share <= 1.0 else 1.0), (kappa if 0.0 <= kappa <= 1.0 else 1.0)
    x, y = (2.0 * share - 1.0) * (GRID - 1), kappa * (GRID - 1.0)
    i, j = min(int(x), GRID - 2), min(int(y), GRID - 2)
    x, y = x - i, y - j
    e = u(at + i * GRID + j)
    low = table[e] + y * (table[e + u(1)] - table[e])
    high = table[e + u(GRID)] + y * (table[e + u(GRID + 1)] - table[e + u(GRID)])
    return low + x * (high - low)


@kernel
def log_kappa_between(arena, layout, a, b):
    """The logarithm of the kernel value of two vectors."""
    stride, vectors = layout[STRIDE], single(arena, layout, VECTORS)
    touched = section(arena, layout, TOUCHED).view(np.uint64)
    n_words = touched.size // stride
    params, metric = section(arena, layout, PARAMS), section(arena, layout, METRIC)
    weighing = params[METRIC_RATE] > 0.0
    total = 0.0
    for w in range(n_words):
        bits = touched[u(a * n_words + w)] | touched[u(b * n_words + w)]
        while bits != u(0):
            j = u(64 * w) + _lowest_bit(bits)
            d = vectors[j * u(stride) + u(a)] - vectors[j * u(stride) + u(b)]
            total += metric[j] * d * d if weighing else d * d
            bits &= bits - u(1)
    return -params[GAMMA_NOW] * total


@kernel
def product(arena, layout, a, b):
    """The product of the coefficients of two vectors, summed over heads and classes."""
    stride, room = layout[STRIDE], class_room(arena, layout)
    coefs, heads = single(arena, layout, COEFS), section(arena, layout, HEADS)
    total = 0.0
    for h in range(layout[N_HEADS]):
        weight = 1.0 if is_plain(layout) else head_weight(heads, h * HEAD_FIELDS)
        for c in range(h * room + first_class(layout), h * room + layout[N_CLASSES]):
            total += weight * coefs[u(c * stride + a)] * weight * coefs[u(c * stride + b)]
    return total


@kernel
def merge_in_turn(arena, layout, count):
    """Merge the chosen vectors one after another into the first."""
    chosen = section(arena, layout, CHOSEN)
    for i in range(1, count):
        merge_pair(arena, layout, int(chosen[0]), int(chosen[i]))
    drop(arena, layout, count)


@kernel
def merge_pair(arena, layout, a, b):
    """Merge vector b into vector a, at the point where least is lost."""
    golden = section(arena, layout, PARAMS)[SEARCH] == GOLDEN
    size_a, size_b = math.sqrt(product(arena, layout, a, a)), math.sqrt(product(arena, layout, b, b))
    larger, smaller = max(size_a, size_b), min(size_a, size_b)
    log_kappa = log_kappa_between(arena, layout, a, b)
    ratio, cosine = ratio_of(larger, smaller), 1.0
    if smaller > 0.0 and not is_plain(layout):
        cosine = min(product(arena, layout, a, b) / (larger * smaller), 1.0)
    if golden:
        h = golden_section(ratio, cosine, log_kappa)
    else:
        h = look_up(borrow_table(layout), GRID * GRID, ratio / (1.0 + ratio), math.exp(log_kappa))
        if not is_plain(layout):
            h = refine(h, ratio, cosine, log_kappa)
    of_a = h if size_a >= size_b else 1.0 - h
    join(
        arena, layout, a, b, of_a, math.exp(log_kappa * (1.0 - of_a) * (1.0 - of_a)), math.exp(log_kappa * of_a * of_a)
    )


@kernel
def join(arena, layout, a, b, of_a, keep_a, keep_b):
    """Vector a becomes of_a times a plus the rest of b, its coefficients keep_a times its own plus keep_b times b's."""
    stride, vectors = layout[STRIDE], single(arena, layout, VECTORS)
    touched = section(arena, layout, TOUCHED).view(np.uint64)
    n_words = touched.size // stride
    share, rest = f32(of_a), f32(1.0 - of_a)
    for w in range(n_words):
        bits = touched[u(a * n_words + w)] | touched[u(b * n_words + w)]
        touched[u(a * n_words + w)] = bits
        while bits != u(0):
            at = (u(64 * w) + _lowest_bit(bits)) * u(stride)
            vectors[at + u(a)] = share * vectors[at + u(a)] + rest * vectors[at + u(b)]
            bits &= bits - u(1)
    single(arena, layout, NORMS)[a] = vector_norm(arena, layout, a)
    coefs, averaged = single(arena, layout, COEFS), single(arena, layout, AVERAGED)
    join_coefs(arena, layout, coefs, a, b, f32(keep_a), f32(keep_b))
    if averaged.size > 0:
        join_coefs(arena, layout, averaged, a, b, f32(keep_a), f32(keep_b))


@inlined
def join_coefs(arena, layout, coefs, a, b, keep_a, keep_b):
    """coefs of a = keep_a times coefs of a + keep_b times coefs of b, for all heads and classes."""
    stride, room = layout[STRIDE], class_room(arena, layout)
    for h in range(layout[N_HEADS]):
        for c in range(h * room + first_class(layout), h * room + layout[N_CLASSES]):
            at = u(c * stride)
            coefs[at + u(a)] = keep_a * coefs[at + u(a)] + keep_b * coefs[at + u(b)]


@kernel
def merge_at_once(arena, layout, count):
    """Merge the chosen vectors v_p into z = sum_p w_p v_p by the fixed point of the gradient.

    z keeps sum_p k(v_p, z) A_p, whose square norm is largest where w_p is proportional to k(v_p, z) A_p . sum_q
    k(v_q, z) A_q. All that needs are the distances and products of the chosen, D and G: the square distance of z to
    v_p is sum_q w_q D_pq - 1/2 sum_qr w_q w_r D_qr.
    """
    chosen = section(arena, layout, CHOSEN)
    far, near = chosen[MOST_MERGES : MOST_MERGES * (1 + MOST_MERGES)], chosen[MOST_MERGES * (1 + MOST_MERGES) :]
    weights = near[MOST_MERGES * MOST_MERGES :]
    trial, kernels = weights[MOST_MERGES:], weights[2 * MOST_MERGES :]
    for p in range(count):
        far[p * MOST_MERGES + p] = 0.0
        near[p * MOST_MERGES + p] = product(arena, layout, int(chosen[p]), int(chosen[p]))
        for q in range(p):
            d = -log_kappa_between(arena, layout, int(chosen[p]), int(chosen[q]))
            g = product(arena, layout, int(chosen[p]), int(chosen[q]))
            far[p * MOST_MERGES + q] = far[q * MOST_MERGES + p] = d
            near[p * MOST_MERGES + q] = near[q * MOST_MERGES + p] = g
    total = 0.0
    for p in range(count):
        trial[p] = math.sqrt(near[p * MOST_MERGES + p])
        total += trial[p]
    for p in range(count):
        trial[p] = trial[p] / total if total > 0.0 else 1.0 / count
    best = -1.0
    # From the mean, or from the best of the vectors themselves where these are so far apart that the mean is near none.
    for start in range(-1, count):
        if start >= 0:
            for p in range(count):
                trial[p] = 1.0 if p == start else 0.0
        value = kept_at(far, near, trial, kernels, count)
        if value > best:
            best = value
            for p in range(count):
                weights[p] = trial[p]
    kept_at(far, near, weights, kernels, count)
    for _ in range(50):
        total = 0.0
        for p in range(count):
            trial[p] = 0.0
            for q in range(count):
                trial[p] += near[p * MOST_MERGES + q] * kernels[q]
            trial[p] *= kernels[p]
            total += trial[p]
        if not total > 0.0:
            break
        for p in range(count):
            trial[p] /= total
        value = kept_at(far, near, trial, kernels, count)
        if not value > best * (1.0 + 1e-9):
            break
        best = value
        for p in range(count):
            weights[p] = trial[p]
    kept_at(far, near, weights, kernels, count)
    sum_of = weights[0]
    a = int(chosen[0])
    join(arena, layout, a, a, 1.0, kernels[0], 0.0)
    for p in range(1, count):
        # The first p are together as a share of their own; b joins them with its part of the whole.
        sum_of += weights[p]
        part = 1.0 - weights[p] / sum_of if sum_of > 0.0 else 1.0
        join(arena, layout, a, int(chosen[p]), part, 1.0, kernels[p])
    drop(arena, layout, count)


@kernel
def kept_at(far, near, weights, kernels, count):
    """The square norm kept at z, and the kernel values between z and the chosen."""
    spread_of = 0.0
    for p in range(count):
        kernels[p] = 0.0
        for q in range(count):
            kernels[p] += weights[q] * far[p * MOST_MERGES + q]
        spread_of += 0.5 * weights[p] * kernels[p]
    value = 0.0
    for p in range(count):
        kernels[p] = math.exp(-max(kernels[p] - spread_of, 0.0))
        for q in range(p):
            value += 2.0 * near[p * MOST_MERGES + q] * kernels[p] * kernels[q]
        value += near[p * MOST_MERGES + p] * kernels[p] * kernels[p]
    return value


# Removal ----------------------------------------------------------------------------------------------------------


@kernel
def drop(arena, layout, count):
    """Remove all chosen vectors but the first, from the highest slot down, so that the others keep theirs meanwhile."""
    chosen = section(arena, layout, CHOSEN)
    for _ in range(1, count):
        highest = 1
        for i in range(2, count):
            if chosen[i] > chosen[highest]:
                highest = i
        slot = int(chosen[highest])
        chosen[highest] = -1.0
        remove(arena, layout, slot)


@kernel
def remove(arena, layout, slot):
    """Remove a vector; the last one takes its slot."""
    last, stride = layout[N_VECTORS] - 1, layout[STRIDE]
    if slot != last:
        # Nothing of the vector stays: it becomes 0 times itself and the last one whole.
        join(arena, layout, slot, last, 0.0, 0.0, 1.0)
        touched = section(arena, layout, TOUCHED).view(np.uint64)
        n_words = touched.size // stride
        for w in range(n_words):
            touched[u(slot * n_words + w)] = touched[u(last * n_words + w)]
        norms = single(arena, layout, NORMS)
        norms[slot] = norms[last]
    clear_coefs(arena, layout, single(arena, layout, COEFS), last)
    if single(arena, layout, AVERAGED).size > 0:
        clear_coefs(arena, layout, single(arena, layout, AVERAGED), last)
    layout[N_VECTORS] = last


@inlined
def clear_coefs(arena, layout, coefs, slot):
    """Set the coefficients of a slot to zero."""
    stride, room = layout[STRIDE], class_room(arena, layout)
    for h in range(layout[N_HEADS]):
        for c in range(h * room, h * room + layout[N_CLASSES]):
            coefs[c * stride + slot] = ZERO


@kernel
def project(arena, layout, i):
    """Give the coefficients of vector i to the others so that least is lost: K beta = k_i by Cholesky's method."""
    n, stride = layout[N_VECTORS], layout[STRIDE]
    factor, row = section(arena, layout, SOLVED), work(arena, layout, 2)
    beta = factor[stride * stride :]
    for p in range(n):
        distances(arena, layout, take_vector(arena, layout, p), row)
        beta[p] = exp32(-row[i])
        for q in range(p + 1):
            factor[p * stride + q] = 0.0 if p == i or q == i else exp32(-row[q])
        # Vectors that are nearly the same would make the system singular.
        factor[p * stride + p] = 1.0 + 1e-6
    beta[i] = 0.0
    for p in range(n):
        for q in range(p + 1):
            s = factor[p * stride + q]
            for o in range(q):
                s -= factor[p * stride + o] * factor[q * stride + o]
            factor[p * stride + q] = math.sqrt(max(s, 1e-12)) if p == q else s / factor[q * stride + q]
    for p in range(n):
        for o in range(p):
            beta[p] -= factor[p * stride + o] * beta[o]
        beta[p] /= factor[p * stride + p]
    for p in range(n - 1, -1, -1):
        for o in range(p + 1, n):
            beta[p] -= factor[o * stride + p] * beta[o]
        beta[p] /= factor[p * stride + p]
    for b in range(n):
        if b != i:
            join_coefs(arena, layout, single(arena, layout, COEFS), b, i, ONE, f32(beta[b]))
            if single(arena, layout, AVERAGED).size > 0:
                join_coefs(arena, layout, single(arena, layout, AVERAGED), b, i, ONE, f32(beta[b]))


# Entry points -----------------------------------------------------------------------------------------------------


@kernel
def event(arena, layout, label, weight):
    """Predict or learn the event in section ROW, as `polytope.event` does."""
    arena, layout = borrow(arena), borrow(layout)
    row, columns, n, shared = single_event(arena, layout)
    m = load(arena, layout, row, columns, 0, n, shared)
    if m < 0:
        return m - 1
    if label == PREDICT:
        return predict(arena, layout, m)
    evaluate(arena, layout, m, votes_on_means(arena, layout))
    learn(arena, layout, m, label, weight)
    observe(arena, layout, row, columns, 0, n, shared)
    return 0


@inlined
def votes_on_means(arena, layout):
    """Whether learning needs the averaged scores."""
    return layout[N_HEADS] > 1 and section(arena, layout, PARAMS)[AVERAGE] > 0.0


@kernel
def run_rows(
    arena, layout, values, columns, indptr, shared, labels, weights, predicting, out_codes, out_scores, out_proba
):
    """Predict each row (if `predicting`), then learn it where its label is not -1.

    Parameters and returns are those of `polytope.run_rows`.
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
            elif best < 0 and learning:
                evaluate(arena, layout, m, False)
        elif learning:
            evaluate(arena, layout, m, votes_on_means(arena, layout))
        if learning:
            learn(arena, layout, m, labels[i], weights[i])
            observe(arena, layout, values, columns, start, end, shared)
    return indptr.size - 1
