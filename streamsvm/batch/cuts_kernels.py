"""Kernel values of many pairs summed by cut, and the small quadratic program over cuts.

Scores are laid out (cuts, outputs, rows), so that every inner loop goes along the rows and vectorises without a
reduction; sums over the vectors of a cut have one fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import allocating, fused, inlined, kernel, reduction
from streamsvm.core.math import exp32
from streamsvm.core.merging import degradation, ratio_of, refine

# Indices are unsigned: numba then leaves out its handling of negative ones.
u = np.uint64
# Rows that are scored at a time.
STRIP = 256


# Sums over kernel values -----------------------------------------------------------------------------------------


@fused
def add(values, coefs, j, owner, out, first):
    """Add the values of vector j against the rows from `first` on to the scores of its cut."""
    m = values.size
    for c in range(coefs.shape[1]):
        a = coefs[j, u(c)]
        if a != 0.0:
            total = out[owner, u(c)]
            for i in range(m):
                total[u(first + i)] += a * values[u(i)]


@kernel
def add_values(values, coefs, owners, out):
    """out[owners[j], c] += coefs[j, c] * values[j] for kernel values of shape (vectors, rows)."""
    for k in range(len(values)):
        add(values[u(k)], coefs, u(k), u(owners[u(k)]), out, 0)


@kernel
def add_exponentials(exponents, coefs, owners, out):
    """The same with the exponentials of `exponents`, which are overwritten by them."""
    for k in range(len(exponents)):
        row = exponents[u(k)]
        for i in range(row.size):
            row[u(i)] = exp32(min(row[u(i)], np.float32(0.0)))
        add(row, coefs, u(k), u(owners[u(k)]), out, 0)


@fused
def subtract_squares(values, vector, columns, j, first):
    """values -= the squares of the distances along columns j to j + 3 of the rows from `first` on."""
    v0, v1, v2, v3 = vector[u(j)], vector[u(j + 1)], vector[u(j + 2)], vector[u(j + 3)]
    c0, c1, c2, c3 = columns[u(j)], columns[u(j + 1)], columns[u(j + 2)], columns[u(j + 3)]
    for i in range(values.size):
        at = u(first + i)
        d0, d1, d2, d3 = c0[at] - v0, c1[at] - v1, c2[at] - v2, c3[at] - v3
        values[u(i)] -= (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)


@fused
def subtract_square(values, vector, columns, j, first):
    """The same for column j alone."""
    v, c = vector[u(j)], columns[u(j)]
    for i in range(values.size):
        difference = c[u(first + i)] - v
        values[u(i)] -= difference * difference


@inlined
def subtract_absolute(values, vector, columns, j, first):
    """The same with the absolute value of the distance."""
    v, c = vector[u(j)], columns[u(j)]
    for i in range(values.size):
        values[u(i)] -= abs(c[u(first + i)] - v)


@allocating
def add_near(vectors, columns, is_absolute, coefs, owners, out):
    """The same with exp(-distance) where rows are given by column, shape (d, m), and d is small.

    The distance is the sum of squares, or of absolute values where `is_absolute`. Rows come so many at a time that
    they stay in the nearest cache while all vectors go by.
    """
    d, m = columns.shape
    for first in range(0, m, STRIP):
        last = min(first + STRIP, m)
        values = np.empty(last - first, np.float32)
        for k in range(len(vectors)):
            vector = vectors[u(k)]
            values[:] = np.float32(0.0)
            j = 0
            while not is_absolute and j + 4 <= d:
                subtract_squares(values, vector, columns, j, first)
                j += 4
            while j < d:
                if is_absolute:
                    subtract_absolute(values, vector, columns, j, first)
                else:
                    subtract_square(values, vector, columns, j, first)
                j += 1
            for i in range(values.size):
                values[u(i)] = exp32(values[u(i)])
            add(values, coefs, u(k), u(owners[u(k)]), out, first)


# The quadratic program -------------------------------------------------------------------------------------------


@inlined
def dot(a, b, n):
    """The sum of n products, in four sums that need not wait for each other."""
    s0 = s1 = s2 = s3 = 0.0
    k = 0
    while k + 4 <= n:
        s0 += a[u(k)] * b[u(k)]
        s1 += a[u(k + 1)] * b[u(k + 1)]
        s2 += a[u(k + 2)] * b[u(k + 2)]
        s3 += a[u(k + 3)] * b[u(k + 3)]
        k += 4
    while k < n:
        s0 += a[u(k)] * b[u(k)]
        k += 1
    return (s0 + s1) + (s2 + s3)


@inlined
def factor_row(L, G, active, p, ridge):
    """Extend the Cholesky factor of the active cuts by the one at place p."""
    row, products = L[p], G[active[p]]
    for i in range(p):
        row[i] = (products[active[i]] - dot(row, L[i], i)) / L[i, i]
    row[p] = math.sqrt(max(products[active[p]] + ridge - dot(row, row, p), ridge))


@kernel
def factor(G, active, p, ridge, L):
    """The Cholesky factor of the p active cuts."""
    for i in range(p):
        factor_row(L, G, active, i, ridge)


@kernel
def drop_row(L, active, p, place):
    """Take the cut at `place` out of the factor of p cuts, by rotations."""
    for i in range(place, p - 1):
        active[i] = active[i + 1]
        for k in range(i + 2):
            L[i, k] = L[i + 1, k]
    for i in range(place, p - 1):
        a, b = L[i, i], L[i, i + 1]
        r = math.hypot(a, b)
        c, s = a / r, b / r
        L[i, i] = r
        for k in range(i + 1, p - 1):
            a, b = L[k, i], L[k, i + 1]
            L[k, i] = c * a + s * b
            L[k, i + 1] = c * b - s * a


@inlined
def solve(L, p, x):
    """Solve L L^T y = x for y, in place."""
    for i in range(p):
        x[i] = (x[i] - dot(L[i], x, i)) / L[i, i]
    for i in range(p - 1, -1, -1):
        value = x[i] / L[i, i]
        x[i] = value
        row = L[i]
        for k in range(i):
            x[u(k)] -= row[u(k)] * value


@kernel
def solve_dual(G, h, n, most, ridge, tol, alpha, L, active, p, work):
    """max h.a - a.(G + ridge I).a / 2 over a >= 0, sum(a) <= most, by a primal active-set method from alpha.

    The program over the active cuts alone is solved with the bound on the sum; on the way there the first cut to
    become zero leaves, and where none does the cut that is violated most enters.

    Parameters
    ----------
    G, h, n
        Of the n cuts; the arrays may be longer.
    most, ridge, tol
        The bound on the sum, what is added to the diagonal, and how far a cut may be violated at the end.
    alpha
        A feasible point; becomes the solution.
    L, active, p
        The p cuts that are not zero in alpha, and the Cholesky factor of their part of G; kept up to date.
    work
        Room, shape (3, at least n).

    Returns
    -------
    slack, p, n_steps
        The multiplier of the sum, which is the largest loss that a cut tells of; how many cuts are active; and how
        many steps it took, -1 where it gave up.
    """
    free, ones, gradient = work[0], work[1], work[2]
    slack = 0.0
    most_steps = 20 * n + 100
    for n_steps in range(most_steps):
        for i in range(p):
            free[i], ones[i] = h[active[i]], 1.0
        solve(L, p, free)
        solve(L, p, ones)
        total = count = 0.0
        for i in range(p):
            total += free[i]
            count += ones[i]
        slack = max(0.0, (total - most) / count) if p > 0 else 0.0
        step, blocking = 1.0, -1
        for i in range(p):
            free[i] -= slack * ones[i]
            now = alpha[active[i]]
            if free[i] <= 0.0 and now <= step * (now - free[i]):
                step, blocking = now / max(now - free[i], 1e-300), i
        for i in range(p):
            now = alpha[active[i]]
            alpha[active[i]] = max(0.0, now + step * (free[i] - now))
        if blocking >= 0:
            alpha[active[blocking]] = 0.0
            drop_row(L, active, p, blocking)
            p -= 1
            continue
        for t in range(n):
            gradient[t] = h[t]
        for i in range(p):
            a, row = alpha[active[i]], G[active[i]]
            for t in range(n):
                gradient[u(t)] -= a * row[u(t)]
        for i in range(p):
            gradient[active[i]] = -math.inf
        entering, largest = -1, slack + tol
        for t in range(n):
            if gradient[t] > largest:
                entering, largest = t, gradient[t]
        if entering < 0:
            return slack, p, n_steps + 1
        active[p] = entering
        factor_row(L, G, active, p, ridge)
        p += 1
    return slack, p, -1


# Merging ---------------------------------------------------------------------------------------------------------


@inlined
def square_distance(vectors, a, b):
    """|v_a - v_b|^2."""
    total = 0.0
    for j in range(vectors.shape[1]):
        difference = vectors[a, j] - vectors[b, j]
        total += difference * difference
    return total


@inlined
def product(coefs, a, b):
    """The product of two vectors' coefficients."""
    total = 0.0
    for c in range(coefs.shape[1]):
        total += coefs[a, c] * coefs[b, c]
    return total


@allocating
def merge_down(vectors, coefs, n, budget, most_partners):
    """Merge Gaussian vectors (gamma = 1), the smallest with its best partner, until `budget` of n are left.

    Partners are looked for among `most_partners` others in turn, and are those whose coefficients point the same way;
    where merging loses more than removal, the vector is removed. Returns how many are left.
    """
    sizes = np.empty(n)
    for j in range(n):
        sizes[j] = math.sqrt(product(coefs, j, j))
    cursor = 0
    while n > budget:
        a = np.argmin(sizes[:n])
        partner, least = -1, 1.0  # losing all of it
        for k in range(min(n, most_partners) if sizes[a] > 0.0 else 0):
            b = (cursor + k) % n
            cosine = product(coefs, a, b) / (sizes[a] * sizes[b]) if b != a else 0.0
            if cosine > 0.0:
                ratio, log_kappa = ratio_of(sizes[b], sizes[a]), -square_distance(vectors, a, b)
                lost = degradation(refine(1.0, ratio, min(cosine, 1.0), log_kappa), ratio, min(cosine, 1.0), log_kappa)
                if lost < least:
                    partner, least = b, lost
        cursor = (cursor + most_partners) % n
        if partner >= 0:
            merge_into(vectors, coefs, sizes, a, partner)
        n -= 1
        vectors[a], coefs[a], sizes[a] = vectors[n], coefs[n], sizes[n]
    return n


@inlined
def merge_into(vectors, coefs, sizes, a, b):
    """Merge vector a into the larger vector b."""
    log_kappa = -square_distance(vectors, a, b)
    cosine = min(product(coefs, a, b) / (sizes[a] * sizes[b]), 1.0)
    h = refine(1.0, ratio_of(sizes[b], sizes[a]), cosine, log_kappa)
    of_b, of_a = math.exp(log_kappa * (1.0 - h) * (1.0 - h)), math.exp(log_kappa * h * h)
    for j in range(vectors.shape[1]):
        vectors[b, j] = h * vectors[b, j] + (1.0 - h) * vectors[a, j]
    for c in range(coefs.shape[1]):
        coefs[b, c] = of_b * coefs[b, c] + of_a * coefs[a, c]
    sizes[b] = math.sqrt(product(coefs, b, b))


# All rows at once ------------------------------------------------------------------------------------------------


# The gap is looked at every so many steps.
LOOK = 8
# Of the curvature that a row has by itself, so much is left beside another at least: less is rounding.
LEAST = np.float32(1e-6)
TINY, LARGE = np.float32(1e-30), np.float32(1e30)
ZERO, HALF, ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
# Rows that gain so much of what the best one does take a step by themselves too, so many for each class.
NEAR, MORE = np.float32(0.05), 4
# The largest of many is looked for in so many lanes: a compiler finds no largest of several at once.
LANES = 128


@allocating
def ascend(gram, share, codes, costs, rescaled, most, n_steps, tol, weights, scores):
    """Ascend the dual of the whole problem: each step moves weight from label to label at two rows.

    The first row is that which gains most by itself, the second that which gains most beside the first, to second
    order and within the weight there is; both then go as far as is best for the two together.

    Parameters
    ----------
    gram, share
        The kernel values of all pairs of rows, and what they are multiplied by.
    codes, costs
        The true classes, and what each label costs a row, shape (n_classes, n).
    rescaled
        Whether slack is rescaled, not the margin.
    most
        What the weights of a row sum up to.
    n_steps, tol
        The end comes after so many steps, or where the gap is no more.
    weights
        Of each label and row, shape (n_classes, n). Changed.
    scores
        Those that belong to the weights, shape (n_classes, n). Left behind.

    Returns
    -------
    n_steps
        How many steps were made.
    """
    n_classes, n = weights.shape
    high, low, up, down = np.empty(n, np.float32), np.empty(n, np.float32), np.empty(n, np.int32), np.empty(n, np.int32)
    room, back = np.empty(n, np.float32), np.empty(n, np.float32)
    squares, shared = np.empty(n, np.float32), np.empty(n, np.float32)
    gains, beside = np.zeros(n + -n % LANES, np.float32), np.zeros(n + -n % LANES, np.float32)
    lanes = np.empty(LANES, np.float32)
    first, second = np.empty(n_classes, np.float32), np.empty(n_classes, np.float32)
    # With the margin rescaled losses are known up to what is the same for all labels of a row, and change as scores do.
    losses = costs + scores
    moving = scores.copy() if rescaled else losses
    for step in range(n_steps):
        if rescaled:
            rescale(costs, moving, codes, losses)
        highest(losses, weights, high, up, back)
        lowest(losses, weights, high, up, low, down, room)
        if step % LOOK == 0 and gap_of(losses, weights, high, most) <= tol:
            return step
        if rescaled or step == 0:
            curvatures(gram, share, costs, up, down, rescaled, squares)
        gain_alone(high, low, room, squares, gains)
        i = largest(gains, lanes)
        if gains[i] <= ZERO:
            return step
        direction(costs, codes[i], up[i], down[i], i, rescaled, first)
        if rescaled:
            together_rescaled(gram[i], share, first, codes, costs, up, down, shared)
        else:
            together(gram[i], share, up[i], down[i], up, down, shared)
        slope, square = high[i] - low[i], squares[i]
        alone = min(slope / square, room[i])
        inverse = ONE / square if alone < room[i] else ZERO
        gain_beside(high, low, room, back, squares, shared, alone, inverse, beside)
        beside[i] = ZERO
        j = largest(beside, lanes)
        if beside[j] > ZERO:
            direction(costs, codes[j], up[j], down[j], j, rescaled, second)
            of_i, of_j = best_steps(
                slope, high[j] - low[j], square, squares[j], shared[j], -back[i], room[i], -back[j], room[j]
            )
            move(gram[i], share, first, up[i], down[i], i, of_i, weights, moving)
            move(gram[j], share, second, up[j], down[j], j, of_j, weights, moving)
        else:
            move(gram[i], share, first, up[i], down[i], i, alone, weights, moving)
        least, k, left = NEAR * gains[i], i, MORE * n_classes
        for _ in range(n - 1):
            k = k + 1 if k + 1 < n else 0
            if gains[k] > least and k != j:
                step_alone(gram[k], share, codes[k], costs, rescaled, k, first, weights, moving)
                left -= 1
                if left == 0:
                    break
    return n_steps


@reduction
def rescale(costs, scores, codes, losses):
    """The losses of all labels with the slack rescaled."""
    for c in range(len(costs)):
        loss, cost, score = losses[u(c)], costs[u(c)], scores[u(c)]
        for i in range(codes.size):
            loss[u(i)] = cost[u(i)] * (ONE + score[u(i)] - scores[codes[u(i)], u(i)])


@reduction
def highest(losses, weights, high, up, back):
    """Of each row the label of the largest loss, that loss, and the weight."""
    high[:] = -LARGE
    up[:] = 0
    for c in range(len(losses)):
        loss, label = losses[u(c)], np.int32(c)
        for i in range(high.size):
            up[u(i)] = label if loss[u(i)] > high[u(i)] else up[u(i)]
            high[u(i)] = loss[u(i)] if loss[u(i)] > high[u(i)] else high[u(i)]
    for c in range(len(losses)):
        weight, label = weights[u(c)], np.int32(c)
        for i in range(high.size):
            back[u(i)] = weight[u(i)] if up[u(i)] == label else back[u(i)]


@reduction
def lowest(losses, weights, high, up, low, down, room):
    """The same with the least loss, among labels with weight; that of the largest where no other is."""
    for i in range(low.size):
        low[u(i)], down[u(i)], room[u(i)] = high[u(i)], up[u(i)], ZERO
    for c in range(len(losses)):
        loss, weight, label = losses[u(c)], weights[u(c)], np.int32(c)
        for i in range(low.size):
            at, least = loss[u(i)] if weight[u(i)] > ZERO else LARGE, low[u(i)]
            down[u(i)] = label if at < least else down[u(i)]
            room[u(i)] = weight[u(i)] if at < least else room[u(i)]
            low[u(i)] = at if at < least else least


@kernel
def gap_of(losses, weights, high, most):
    """What the largest losses are above the weighted ones."""
    gap = 0.0
    for i in range(high.size):
        gap += np.float64(most[u(i)]) * high[u(i)]
    for c in range(len(losses)):
        loss, weight = losses[u(c)], weights[u(c)]
        for i in range(high.size):
            gap -= np.float64(weight[u(i)]) * loss[u(i)]
    return gap


@inlined
def factors(costs, up, down, i, rescaled):
    """What the differences of the scores of the two labels from that of the true one are multiplied by."""
    return (costs[up, i], costs[down, i]) if rescaled else (ONE, ONE)


@kernel
def curvatures(gram, share, costs, up, down, rescaled, squares):
    """What the dual loses with the square of a step, for each row's."""
    for i in range(squares.size):
        of_up, of_down = factors(costs, up[i], down[i], i, rescaled)
        square = (of_up - of_down) ** 2 + of_up**2 + of_down**2
        squares[i] = max(square * share * gram[i, i], TINY)


@inlined
def direction(costs, y, up, down, i, rescaled, out):
    """How the coefficients of a row change, by class, as its weight goes from label `down` to label `up`."""
    of_up, of_down = factors(costs, up, down, i, rescaled)
    out[:] = ZERO
    out[y] += of_up - of_down
    out[up] -= of_up
    out[down] += of_down


@reduction
def together(values, share, a, b, up, down, shared):
    """What the dual loses with the product of a row's step and that of the first one, which goes from b to a."""
    for i in range(shared.size):
        to, off = up[u(i)], down[u(i)]
        same = (ONE if to == a else ZERO) + (ONE if off == b else ZERO)
        opposed = (ONE if to == b else ZERO) + (ONE if off == a else ZERO)
        shared[u(i)] = (same - opposed) * share * values[u(i)]


@kernel
def together_rescaled(values, share, first, codes, costs, up, down, shared):
    """The same with the slack rescaled, where `first` is how the first row's coefficients change."""
    for i in range(shared.size):
        a, b, y = up[i], down[i], codes[i]
        product = (first[y] - first[a]) * costs[a, i] - (first[y] - first[b]) * costs[b, i]
        shared[i] = product * share * values[i]


@reduction
def gain_alone(high, low, room, squares, gains):
    """What the best step of each row gains."""
    for i in range(high.size):
        slope, square = high[u(i)] - low[u(i)], squares[u(i)]
        step = slope / square
        step = step if step < room[u(i)] else room[u(i)]
        gains[u(i)] = step * (slope - HALF * step * square)


@reduction
def gain_beside(high, low, room, back, squares, shared, alone, inverse, gains):
    """What the best step of each row, or step back, gains after that of the first, which goes on where it can."""
    for i in range(high.size):
        slope = high[u(i)] - low[u(i)] - alone * shared[u(i)]
        square = squares[u(i)] - shared[u(i)] * (shared[u(i)] * inverse)
        least = LEAST * squares[u(i)]
        square = square if square > least else least
        step = slope / square
        step = step if step > -back[u(i)] else -back[u(i)]
        step = step if step < room[u(i)] else room[u(i)]
        gains[u(i)] = step * (slope - HALF * step * square)


@reduction
def largest(values, lanes):
    """The place of the largest value, where there are a multiple of `lanes`."""
    for k in range(LANES):
        lanes[u(k)] = values[u(k)]
    for first in range(LANES, values.size, LANES):
        part = values[first : first + LANES]
        for k in range(LANES):
            lanes[u(k)] = part[u(k)] if part[u(k)] > lanes[u(k)] else lanes[u(k)]
    place = 0
    for k in range(1, LANES):
        if lanes[k] > lanes[place]:
            place = k
    top = lanes[place]
    while values[place] < top:
        place += LANES
    return place


@kernel
def best_steps(slope_a, slope_b, square_a, square_b, shared, least_a, most_a, least_b, most_b):
    """The two steps, each between its least and most, that gain most together."""
    determinant = np.float64(square_a) * square_b - np.float64(shared) * shared
    if determinant > LEAST * square_a * square_b:
        a = (np.float64(slope_a) * square_b - np.float64(slope_b) * shared) / determinant
        b = (np.float64(slope_b) * square_a - np.float64(slope_a) * shared) / determinant
        if least_a <= a <= most_a and least_b <= b <= most_b:
            return a, b
    best_a, best_b, best = 0.0, 0.0, 0.0
    for edge in range(4):
        if edge < 2:
            a = np.float64(least_a if edge == 0 else most_a)
            b = min(max((slope_b - shared * a) / square_b, least_b), most_b)
        else:
            b = np.float64(least_b if edge == 2 else most_b)
            a = min(max((slope_a - shared * b) / square_a, least_a), most_a)
        gain = a * (slope_a - 0.5 * a * square_a - b * shared) + b * (slope_b - 0.5 * b * square_b)
        if gain > best:
            best_a, best_b, best = a, b, gain
    return best_a, best_b


@kernel
def step_alone(values, share, y, costs, rescaled, i, change, weights, moving):
    """The best step of a row."""
    up, down, high, low = 0, 0, -LARGE, LARGE
    for c in range(len(costs)):
        loss = costs[c, i] * (ONE + moving[c, i] - moving[y, i]) if rescaled else moving[c, i]
        if loss > high:
            up, high = c, loss
        if weights[c, i] > ZERO and loss < low:
            down, low = c, loss
    if high > low:
        direction(costs, y, up, down, i, rescaled, change)
        square = ZERO
        for c in range(change.size):
            square += change[c] * change[c]
        step = min((high - low) / max(square * share * values[i], TINY), weights[down, i])
        move(values, share, change, up, down, i, step, weights, moving)


@kernel
def move(values, share, change, up, down, i, step, weights, moving):
    """Move the weight of a row, and the scores of all rows with it."""
    step = np.float32(step)
    weights[down, i] = max(weights[down, i] - step, ZERO)
    weights[up, i] = max(weights[up, i] + step, ZERO)
    for c in range(change.size):
        add_scaled(moving[c], values, change[c] * step * share)


@fused
def add_scaled(total, values, a):
    """total += a * values."""
    if a != 0.0:
        for i in range(values.size):
            total[u(i)] += a * values[u(i)]
