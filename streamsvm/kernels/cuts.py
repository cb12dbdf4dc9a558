"""Kernel values of many pairs summed by cut, and the small quadratic program over cuts.

Scores are laid out (cuts, outputs, rows), so that every inner loop goes along the rows and vectorises without a
reduction; sums over the vectors of a cut have one fixed order.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.kernels import fused, inlined, kernel
from streamsvm.kernels.exponential import exp32
from streamsvm.kernels.merging import degradation, ratio_of, refine

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


@kernel
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


@kernel
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


# Rows whose part of the gap is less than so much of the mean are left for a later sweep.
SMALL = 0.3


@kernel
def sweep(gram, codes, cost, rescaled, most, order, n_sweeps, tol, weights, scores):
    """Ascend the dual of the whole problem along pairs of labels of one row after another.

    Parameters
    ----------
    gram
        The kernel values of all pairs of rows.
    codes, cost
        The true classes, and cost[y, c].
    rescaled
        Whether slack is rescaled, not the margin.
    most
        What the weights of a row sum up to.
    order
        The rows in the order to go through them.
    n_sweeps, tol
        The end comes after so many sweeps, or where the gap, as each row's part was when its turn came, is no more.
    weights
        Of each row's labels, shape (n, n_classes); that of the true one is what is left. Changed.
    scores
        The scores that belong to them, shape (n_classes, n), or (1, n) for the difference of two. Changed.
    """
    least = tol / max(order.size, 1)
    for _ in range(n_sweeps):
        gap = 0.0
        for i in order:
            if len(scores) == 1:
                gap += improve_two(gram[i], i, codes[i], cost, rescaled, most[i], least, weights[i], scores[0])
            else:
                gap += improve(gram[i], i, codes[i], cost, rescaled, most[i], least, weights[i], scores)
        if gap <= tol:
            break
        least = max(tol, SMALL * gap) / order.size


@kernel
def improve(values, i, y, cost, rescaled, most, least, weights, scores):
    """Move weight from the label of row i with the least loss to that with the largest; the row's part of the gap.

    Nothing is moved where that part is no more than `least`.
    """
    up, down, high, low, mean = y, y, 0.0, math.inf, 0.0
    if weights[y] > 0.0:
        low = 0.0
    for c in range(weights.size):
        if c == y:
            continue
        behind = scores[c, i] - scores[y, i]
        loss = cost[y, c] * (1.0 + behind) if rescaled else cost[y, c] + behind
        mean += weights[c] * loss
        if loss > high:
            up, high = c, loss
        if weights[c] > 0.0 and loss < low:
            down, low = c, loss
    gap = most * high - mean
    if gap <= least or high <= low:
        return gap
    gains = (cost[y, up] if rescaled else 1.0) if up != y else 0.0
    loses = (cost[y, down] if rescaled else 1.0) if down != y else 0.0
    curvature = ((gains - loses) ** 2 + gains * gains + loses * loses) * values[i]
    step = weights[down]
    if curvature > 0.0:
        step = min(step, (high - low) / curvature)
    weights[down] -= step
    weights[up] += step
    add_scaled(scores[y], values, step * (gains - loses))
    add_scaled(scores[up], values, -step * gains)
    add_scaled(scores[down], values, step * loses)
    return gap


@kernel
def improve_two(values, i, y, cost, rescaled, most, least, weights, scores):
    """The same for two classes, whose scores differ by `scores`."""
    other, sign = 1 - y, 2.0 * y - 1.0
    factor = cost[y, other] if rescaled else 1.0
    loss = cost[y, other] - factor * sign * scores[i]
    gap = most * max(loss, 0.0) - weights[other] * loss
    if gap <= least:
        return gap
    curvature = factor * factor * values[i]
    weight = most if loss > 0.0 else 0.0
    if curvature > 0.0:
        weight = min(max(weights[other] + loss / curvature, 0.0), most)
    add_scaled(scores, values, sign * factor * (weight - weights[other]))
    weights[other], weights[y] = weight, most - weight
    return gap


@fused
def add_scaled(total, values, a):
    """total += a * values."""
    if a != 0.0:
        for i in range(values.size):
            total[u(i)] += a * values[u(i)]
