"""Passes over rows for linear solvers, the smoothed hinge along a line, and coordinate descent for one Newton step.

A binary problem sees row i with label +1 where codes[i] == positive, else -1, and weight c[i]. Its margin is
u = 1 - y (z + bias) with z = x . w, and the hinge max(0, u) is smoothed to (u + sqrt(eps^2 + u^2)) / 2.
"""

from __future__ import annotations

import math

import numpy as np

from streamsvm.core.jit import allocating, inlined, kernel, reduction

# Indices are unsigned: numba then leaves out its handling of negative ones.
u = np.uint64


# The loss --------------------------------------------------------------------------------------------------------


@inlined
def label(codes, positive, i):
    """The label of row i as a float."""
    return 1.0 if codes[i] == positive else -1.0


@reduction
def measure(z, bias, codes, positive, c, eps, r):
    """Fill r with y * alpha, where alpha = c * psi'(u) is the dual point that goes with the margins.

    Returns
    -------
    hinge, smooth, mass, balance, slack
        Sums over the rows: the hinge, the smoothed hinge, alpha, y * alpha, and how far the hinge lies above
        alpha * u, which is the share of the duality gap that is due to eps alone.
    """
    hinge = smooth = mass = balance = slack = 0.0
    for k in range(len(z)):
        i = u(k)
        y = label(codes, positive, i)
        margin = 1.0 - y * (z[i] + bias)
        root = math.sqrt(eps * eps + margin * margin)
        alpha = c[i] * 0.5 * (1.0 + margin / root)
        loss = c[i] * max(0.0, margin)
        hinge += loss
        smooth += c[i] * 0.5 * (margin + root)
        mass += alpha
        balance += y * alpha
        slack += loss - alpha * margin
        r[i] = y * alpha
    return hinge, smooth, mass, balance, slack


@reduction
def along(z, bias, dz, dbias, codes, positive, c, eps, t):
    """The smoothed hinge at z + t * dz, bias + t * dbias, with its first and second derivative in t."""
    value = slope = curvature = 0.0
    for k in range(len(z)):
        i = u(k)
        y = label(codes, positive, i)
        step = -y * (dz[i] + dbias)
        margin = 1.0 - y * (z[i] + bias) + t * step
        square = eps * eps + margin * margin
        root = math.sqrt(square)
        value += c[i] * 0.5 * (margin + root)
        slope += c[i] * 0.5 * (1.0 + margin / root) * step
        curvature += c[i] * 0.5 * (eps * eps) / (square * root) * step * step
    return value, slope, curvature


@reduction
def foresee(z, bias, dz, dbias, codes, positive, c, eps, shares, r):
    """Bring alpha = c * shares to where a step of full length leads it to first order, cut to [0, c]; r = y * alpha.

    Returns
    -------
    mass, balance
        Sums over the rows: alpha, and y * alpha.
    """
    mass = balance = 0.0
    for k in range(len(z)):
        i = u(k)
        y = label(codes, positive, i)
        margin = 1.0 - y * (z[i] + bias)
        root = math.sqrt(eps * eps + margin * margin)
        bent = 0.5 * (1.0 - (2.0 * shares[i] - 1.0) * margin / root) / root
        share = min(max(0.5 * (1.0 + margin / root) - bent * y * (dz[i] + dbias), 0.0), 1.0)
        shares[i] = share
        alpha = c[i] * share
        mass += alpha
        balance += y * alpha
        r[i] = y * alpha
    return mass, balance


@reduction
def slopes(z, bias, codes, positive, eps, shares):
    """Fill shares with psi'(u)."""
    for k in range(len(z)):
        i = u(k)
        margin = 1.0 - label(codes, positive, i) * (z[i] + bias)
        shares[i] = 0.5 * (1.0 + margin / math.sqrt(eps * eps + margin * margin))


@reduction
def at_bias(z, bias, codes, positive, c, eps):
    """First and second derivative of the smoothed hinge in the bias."""
    slope = curvature = 0.0
    for k in range(len(z)):
        i = u(k)
        y = label(codes, positive, i)
        margin = 1.0 - y * (z[i] + bias)
        square = eps * eps + margin * margin
        root = math.sqrt(square)
        slope -= y * c[i] * 0.5 * (1.0 + margin / root)
        curvature += c[i] * 0.5 * (eps * eps) / (square * root)
    return slope, curvature


@reduction
def bend(z, bias, codes, positive, c, eps, shares, h):
    """Fill h with the weights of the rows in the Hessian; returns their sum, and their mean for c = 1.

    They come of the linearisation of sqrt(eps^2 + u^2) (2 share - 1) = u in u and the share, both unknowns, and are
    c * psi''(u) where share = psi'(u).
    """
    total = mass = 0.0
    for k in range(len(z)):
        i = u(k)
        margin = 1.0 - label(codes, positive, i) * (z[i] + bias)
        root = math.sqrt(eps * eps + margin * margin)
        weight = c[i] * 0.5 * (1.0 - (2.0 * shares[i] - 1.0) * margin / root) / root
        h[i] = weight
        total += weight
        mass += c[i]
    return total, total / mass


@kernel
def choose(h, c, cutoff, share, start, rows, weights):
    """Choose rows for the Hessian: those with h > cutoff * c, each with probability min(1, share * h).

    The choice is systematic: one row whenever the running sum of the probabilities passes start + 0, 1, 2, ... A row
    chosen with a probability below one weighs more, so that the sum keeps its expectation.

    Returns
    -------
    int
        How many there are; -1 where `rows` is too short for them.
    """
    count = 0
    running = start
    for k in range(len(h)):
        i = u(k)
        if h[i] > cutoff * c[i]:
            p = min(1.0, share * h[i])
            running += p
            if running >= 1.0:
                running -= 1.0
                if count == len(rows):
                    return -1
                rows[count] = k
                weights[count] = h[i] / p
                count += 1
    return count


# Passes over rows ------------------------------------------------------------------------------------------------


@allocating
def scores_sparse(data, indices, indptr, weights, out):
    """out[:, i] = weights.T @ row i, for weights of shape (d, k) and rows in CSR."""
    n, k = len(indptr) - 1, weights.shape[1]
    if k == 1:
        w, z = weights[:, 0], out[0]
        for row in range(n):
            total = 0.0
            for p in range(indptr[row], indptr[row + 1]):
                total += data[u(p)] * w[u(indices[u(p)])]
            z[u(row)] = total
        return
    sums = np.empty(k)
    for row in range(n):
        sums[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[u(p)], u(indices[u(p)])
            for m in range(k):
                sums[u(m)] += value * weights[j, u(m)]
        for m in range(k):
            out[u(m), u(row)] = sums[u(m)]


@allocating
def adjoint_sparse(data, indices, indptr, r, out):
    """out[j] += r @ column j, for r of shape (k, n), out of shape (d, k), and rows in CSR."""
    n, k = len(indptr) - 1, len(r)
    if k == 1:
        single, target = r[0], out[:, 0]
        for row in range(n):
            factor = single[u(row)]
            if factor != 0.0:
                for p in range(indptr[row], indptr[row + 1]):
                    target[u(indices[u(p)])] += factor * data[u(p)]
        return
    factors = np.empty(k)
    for row in range(n):
        for m in range(k):
            factors[u(m)] = r[u(m), u(row)]
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[u(p)], u(indices[u(p)])
            for m in range(k):
                out[j, u(m)] += value * factors[u(m)]


@allocating
def gram_sparse(data, indices, indptr, rows, weights, place, out):
    """Add weights[i] * x x^T of the rows to the lower triangle of out.

    Column j of the rows is row and column place[j] of `out`, ascending in j, or left out where that is negative; the
    last row of `out` is that of a constant column.
    """
    last = u(len(out) - 1)
    longest = 0
    for k in range(len(rows)):
        longest = max(longest, indptr[rows[k] + 1] - indptr[rows[k]])
    columns, values = np.empty(longest, np.int64), np.empty(longest)
    for k in range(len(rows)):
        row = rows[u(k)]
        count = 0
        for p in range(indptr[row], indptr[row + 1]):
            j = place[u(indices[u(p)])]
            if j >= 0:
                columns[u(count)], values[u(count)] = j, data[u(p)]
                count += 1
        for a in range(count):
            scaled, i = weights[u(k)] * values[u(a)], u(columns[u(a)])
            for b in range(a + 1):
                out[i, u(columns[u(b)])] += scaled * values[u(b)]
            out[last, i] += scaled
        out[last, last] += weights[u(k)]


@kernel
def peaks_dense(X, out):
    """out[j] = the largest magnitude in column j."""
    for row in range(X.shape[0]):
        x = X[row]
        for j in range(X.shape[1]):
            out[u(j)] = max(out[u(j)], abs(x[u(j)]))


@kernel
def peaks_sparse(data, indices, out):
    """out[j] = the largest magnitude in column j."""
    for p in range(len(data)):
        j = u(indices[u(p)])
        out[j] = max(out[j], abs(data[u(p)]))


# The step with an l1 penalty -------------------------------------------------------------------------------------


@inlined
def shrink(x, by):
    """x moved towards zero, at most to it."""
    return math.copysign(max(abs(x) - by, 0.0), x)


@kernel
def mirror(H):
    """Fill the upper triangle with the lower one."""
    for i in range(len(H)):
        for j in range(i):
            H[u(j), u(i)] = H[u(i), u(j)]


@kernel
def descend(H, g, w, mu, d, q, n_sweeps, tolerance):
    """Coordinate descent on g . d + d^T H d / 2 + mu |w + d|_1, where the last coordinate has no penalty.

    q = H d is kept. Sweeps run over all coordinates, then over those not at zero until these are settled.

    Returns
    -------
    float
        The largest change of a coordinate's derivative in the last full sweep; below `tolerance` it is solved.
    """
    n = len(g)
    moved = 0.0
    full = True
    for _ in range(n_sweeps):
        moved = 0.0
        for j in range(n):
            before = w[j] + d[j]
            penalty = mu if j < n - 1 else 0.0
            if H[j, j] <= 0.0 or (not full and before == 0.0 and penalty > 0.0):
                continue
            after = shrink(before - (g[j] + q[j]) / H[j, j], penalty / H[j, j])
            change = after - before
            if change != 0.0:
                d[j] = after - w[j]
                column = H[j]
                for i in range(n):
                    q[u(i)] += change * column[u(i)]
                moved = max(moved, abs(change) * H[j, j])
        if moved <= tolerance:
            if full:
                break
            full = True
        else:
            full = False
    return moved


@kernel
def descend_columns(data, indices, indptr, g, diagonal, ridge, w, mu, d, q, n_sweeps, tolerance):
    """`descend` where H = B^T B + ridge I is given by the columns of B in CSC, and q = B d is kept."""
    n = len(g)
    moved = 0.0
    for _ in range(n_sweeps):
        moved = 0.0
        for j in range(n):
            before = w[j] + d[j]
            penalty = mu if j < n - 1 else 0.0
            slope = g[j] + ridge[j] * d[j]
            for p in range(indptr[j], indptr[j + 1]):
                slope += data[u(p)] * q[u(indices[u(p)])]
            after = shrink(before - slope / diagonal[j], penalty / diagonal[j])
            change = after - before
            if change != 0.0:
                d[j] = after - w[j]
                for p in range(indptr[j], indptr[j + 1]):
                    q[u(indices[u(p)])] += change * data[u(p)]
                moved = max(moved, abs(change) * diagonal[j])
        if moved <= tolerance:
            break
    return moved
