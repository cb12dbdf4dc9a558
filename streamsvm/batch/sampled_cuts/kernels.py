"""Sums of Gaussian kernel values per cut, and the quadratic program of the cuts.

Scores have shape (cuts, outputs, rows). Inner loops run along the rows, so they vectorise without a reduction, and the
vectors of a cut are summed in a fixed order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamsvm.core.jit import allocating, inlined, jit_fma, kernel
from streamsvm.core.math import exp32
from streamsvm.core.simd import uint

# Unsigned indices, because numba then omits the handling of negative ones.
# Rows scored at a time.
STRIP = 256


# Sums over kernel values -----------------------------------------------------------------------------------------


@jit_fma
def add(values, coefs, j, owner, out, first):
    """Add kernel values of vector j to the scores of its cut.

    The values are those of the rows from `first` on.
    """
    m = values.size
    for c in range(coefs.shape[1]):
        a = coefs[j, uint(c)]
        if a != 0.0:
            total = out[owner, uint(c)]
            for i in range(m):
                total[uint(first + i)] += a * values[uint(i)]


@kernel
def add_exponentials(exponents, coefs, owners, out):
    """Add coefs[j, c] * exp(exponents[j]) to out[owners[j], c].

    `exponents`, shape (vectors, rows), are overwritten.
    """
    for k in range(len(exponents)):
        row = exponents[uint(k)]
        for i in range(row.size):
            row[uint(i)] = exp32(min(row[uint(i)], np.float32(0.0)))
        add(row, coefs, uint(k), uint(owners[uint(k)]), out, 0)


@jit_fma
def subtract_squares(values, vector, columns, j, first):
    """Subtract squared differences in columns j to j + 3, for rows from `first` on."""
    v0, v1, v2, v3 = vector[uint(j)], vector[uint(j + 1)], vector[uint(j + 2)], vector[uint(j + 3)]
    c0, c1, c2, c3 = columns[uint(j)], columns[uint(j + 1)], columns[uint(j + 2)], columns[uint(j + 3)]
    for i in range(values.size):
        at = uint(first + i)
        d0, d1, d2, d3 = c0[at] - v0, c1[at] - v1, c2[at] - v2, c3[at] - v3
        values[uint(i)] -= (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)


@jit_fma
def subtract_square(values, vector, columns, j, first):
    """Subtract squared differences in column j, for the rows from `first` on."""
    v, c = vector[uint(j)], columns[uint(j)]
    for i in range(values.size):
        difference = c[uint(first + i)] - v
        values[uint(i)] -= difference * difference


@allocating
def add_near(vectors, columns, coefs, owners, out):
    """Add coefs[j, c] * exp(-|v_j - x|^2) to out[owners[j], c], for few columns.

    `columns` has shape (d, rows). A strip of rows stays in the L1 cache while the loop runs over all vectors.
    """
    d, m = columns.shape
    for first in range(0, m, STRIP):
        last = min(first + STRIP, m)
        values = np.empty(last - first, np.float32)
        for k in range(len(vectors)):
            vector = vectors[uint(k)]
            values[:] = np.float32(0.0)
            j = 0
            while j + 4 <= d:
                subtract_squares(values, vector, columns, j, first)
                j += 4
            while j < d:
                subtract_square(values, vector, columns, j, first)
                j += 1
            for i in range(values.size):
                values[uint(i)] = exp32(values[uint(i)])
            add(values, coefs, uint(k), uint(owners[uint(k)]), out, first)


# The quadratic program -------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """The quadratic program of the cuts.

    It maximises h.a - a.(G + ridge I).a / 2 over a >= 0, sum(a) <= most.

    The arrays may have room for more cuts than are in use.

    Parameters
    ----------
    products, offsets
        G and h.
    alpha
        A feasible point, which `solve_dual` replaces by the solution.
    active, factor
        The cuts with alpha > 0, and the Cholesky factor of their part of G.
    work
        Scratch, shape (3, n).
    """

    products: Any
    offsets: Any
    alpha: Any
    active: Any
    factor: Any
    work: Any


@inlined
def dot(a, b, n):
    """Return the dot product of n elements, as four independent sums."""
    s0 = s1 = s2 = s3 = 0.0
    k = 0
    while k + 4 <= n:
        s0 += a[uint(k)] * b[uint(k)]
        s1 += a[uint(k + 1)] * b[uint(k + 1)]
        s2 += a[uint(k + 2)] * b[uint(k + 2)]
        s3 += a[uint(k + 3)] * b[uint(k + 3)]
        k += 4
    while k < n:
        s0 += a[uint(k)] * b[uint(k)]
        k += 1
    return (s0 + s1) + (s2 + s3)


@inlined
def factor_row(L, G, active, p, ridge):
    """Compute row p of the Cholesky factor, for the active cut at place p."""
    row, products = L[p], G[active[p]]
    for i in range(p):
        row[i] = (products[active[i]] - dot(row, L[i], i)) / L[i, i]
    row[p] = math.sqrt(max(products[active[p]] + ridge - dot(row, row, p), ridge))


@kernel
def factor(program, p, ridge):
    """Compute the Cholesky factor of the p active cuts."""
    for i in range(p):
        factor_row(program.factor, program.products, program.active, i, ridge)


@kernel
def drop_row(L, active, p, place):
    """Remove the cut at `place` from the factor of p cuts by Givens rotations."""
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
    """Solve L L^T y = x in place."""
    for i in range(p):
        x[i] = (x[i] - dot(L[i], x, i)) / L[i, i]
    for i in range(p - 1, -1, -1):
        value = x[i] / L[i, i]
        x[i] = value
        row = L[i]
        for k in range(i):
            x[uint(k)] -= row[uint(k)] * value


@kernel
def solve_dual(program, n, p, most, ridge, tol):
    """Solve the quadratic program by a primal active-set method.

    It starts from the current alpha.

    Parameters
    ----------
    program
        A `Program`; alpha, active and factor are updated.
    n, p
        Number of cuts, and number of active cuts.
    most
        Upper bound on sum(alpha).
    ridge
        Ridge on the diagonal of G.
    tol
        Maximum violation of a cut at the solution.

    Returns
    -------
    slack, p, n_steps
        The multiplier of the bound on the sum, which is the largest loss among the cuts; the number of active cuts; the
        number of steps, -1 if the maximum was reached.
    """
    G, h, alpha, active, L, work = program
    free, ones, gradient = work[0], work[1], work[2]
    slack = 0.0
    most_steps = 20 * n + 100
    for n_steps in range(most_steps):
        slack = solve_active(program, p, most)
        blocking = move_feasibly(alpha, active, free, ones, p, slack)
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
                gradient[uint(t)] -= a * row[uint(t)]
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


@inlined
def solve_active(program, p, most):
    """Solve for the active cuts without bounds on alpha; returns slack.

    The solution is work[0] - slack * work[1].
    """
    free, ones = program.work[0], program.work[1]
    for i in range(p):
        free[i], ones[i] = program.offsets[program.active[i]], 1.0
    solve(program.factor, p, free)
    solve(program.factor, p, ones)
    total = count = 0.0
    for i in range(p):
        total += free[i]
        count += ones[i]
    return max(0.0, (total - most) / count) if p > 0 else 0.0


@inlined
def move_feasibly(alpha, active, free, ones, p, slack):
    """Move alpha towards the solution until the first cut reaches zero.

    Returns the place of that cut, or -1.
    """
    step, blocking = 1.0, -1
    for i in range(p):
        free[i] -= slack * ones[i]
        now = alpha[active[i]]
        if free[i] <= 0.0 and now <= step * (now - free[i]):
            step, blocking = now / max(now - free[i], 1e-300), i
    for i in range(p):
        now = alpha[active[i]]
        alpha[active[i]] = max(0.0, now + step * (free[i] - now))
    return blocking
