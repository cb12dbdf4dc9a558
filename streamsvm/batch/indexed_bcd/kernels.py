"""Truncated losses at given scores, and sweeps of dual coordinate descent.

Row i has label y[i] = +1 or -1, weight c[i] and score z[i] = w . x + b. With u = 1 - y z its loss is L = max(0, u), or
the square of it where `squared`, and counts at most `ceiling` = 1 + s. Rows with L > ceiling are outliers: their loss
is a constant. The hinge is smoothed to u^2 / (2 eps) on [0, eps], and u - eps / 2 beyond, so that rows that clear the
margin have no part in gradient and Hessian at all.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import inlined, kernel

# Indices are unsigned: numba then leaves out its handling of negative ones.
u64 = np.uint64


@inlined
def loss_of(u, squared, eps):
    """The loss, smoothed unless eps is 0, before it is truncated."""
    over = max(0.0, u)
    if squared:
        return over * over
    return over * over / (2.0 * eps) if over < eps else over - 0.5 * eps


@kernel
def respond(z, y, c, squared, eps, ceiling, r, h):
    """Fill r with y * alpha and h with the weights of the rows in the Hessian.

    Returns
    -------
    loss, fixed, mass, square, slack, n_support, n_out
        The sum of truncated losses; the part of it that is due to outliers; the sum of alpha; that of
        alpha^2 / (4 c) (squared loss); how far the hinge lies above alpha * u for want of sharpness; how many rows have
        alpha > 0; and how many are outliers.
    """
    loss = fixed = mass = square = slack = 0.0
    n_support = n_out = 0
    for k in range(len(z)):
        i = u64(k)
        u = 1.0 - y[i] * z[i]
        r[i] = h[i] = 0.0
        if u <= 0.0 or c[i] == 0.0:
            continue
        value = loss_of(u, squared, 0.0)
        if value > ceiling:
            fixed += c[i] * ceiling
            loss += c[i] * ceiling
            n_out += 1
            continue
        loss += c[i] * value
        if squared:
            alpha = 2.0 * c[i] * u
            square += c[i] * u * u
            h[i] = 2.0 * c[i]
        elif u < eps:
            alpha = c[i] * u / eps
            h[i] = c[i] / eps
            slack += c[i] * value - alpha * u
        else:
            alpha = c[i]
        mass += alpha
        n_support += 1
        r[i] = y[i] * alpha
    return loss, fixed, mass, square, slack, n_support, n_out


@kernel
def respond_with(alpha, z, y, c, squared, ceiling, r):
    """Fill r with y * alpha for given alpha, but zero for outliers.

    Returns
    -------
    loss, fixed, mass, square, n_support, n_out
        As `respond` has them.
    """
    loss = fixed = mass = square = 0.0
    n_support = n_out = 0
    for k in range(len(z)):
        i = u64(k)
        value = loss_of(1.0 - y[i] * z[i], squared, 0.0)
        r[i] = 0.0
        if value > ceiling:
            fixed += c[i] * ceiling
            loss += c[i] * ceiling
            n_out += 1
            continue
        loss += c[i] * value
        if alpha[i] > 0.0:
            mass += alpha[i]
            square += alpha[i] * alpha[i] / (4.0 * c[i]) if squared else 0.0
            n_support += 1
            r[i] = y[i] * alpha[i]
    return loss, fixed, mass, square, n_support, n_out


@kernel
def along(z, other, y, c, squared, eps, ceiling, t):
    """The sum of truncated losses at z + t * (other - z), smoothed unless eps is 0."""
    total = 0.0
    for k in range(len(z)):
        i = u64(k)
        u = 1.0 - y[i] * (z[i] + t * (other[i] - z[i]))
        total += c[i] * min(loss_of(u, squared, eps), ceiling)
    return total


@kernel
def choose(h, share, start, rows, weights):
    """Choose rows for the Hessian, each with probability min(1, share * h), so that sums keep their expectation.

    The choice is systematic: one row whenever the running sum of the probabilities passes start + 0, 1, 2, ...

    Returns
    -------
    int
        How many there are.
    """
    count = 0
    running = start
    for k in range(len(h)):
        i = u64(k)
        if h[i] > 0.0:
            p = min(1.0, share * h[i])
            running += p
            if running >= 1.0:
                running -= 1.0
                rows[count] = k
                weights[count] = h[i] / p
                count += 1
    return count


# Dual coordinate descent -----------------------------------------------------------------------------------------


@kernel
def sweep_sparse(data, indices, indptr, order, y, upper, ridge, squares, constant, alpha, w):
    """One sweep of dual coordinate descent over rows in CSR, in the given order.

    It minimises |w|^2 / 2 + sum(ridge alpha^2) / 2 - sum(alpha) over 0 <= alpha <= upper, where w = sum(alpha y x) is
    kept. The last of w belongs to a column of the given constant, 0 or 1, which `squares` (|x|^2) count too.

    Returns
    -------
    float
        The largest projected gradient met.
    """
    worst = 0.0
    bias = u64(len(w) - 1)
    for k in range(len(order)):
        i = u64(order[k])
        score = constant * w[bias]
        for p in range(indptr[i], indptr[i + u64(1)]):
            score += data[u64(p)] * w[u64(indices[u64(p)])]
        after, wrong = step(y[i] * score - 1.0 + ridge[i] * alpha[i], alpha[i], upper[i], squares[i] + ridge[i])
        worst = max(worst, wrong)
        if after != alpha[i]:
            move = (after - alpha[i]) * y[i]
            alpha[i] = after
            for p in range(indptr[i], indptr[i + u64(1)]):
                w[u64(indices[u64(p)])] += move * data[u64(p)]
            w[bias] += move * constant
    return worst


@kernel
def sweep_dense(X, order, y, upper, ridge, squares, constant, alpha, w):
    """`sweep_sparse` for rows in an array."""
    worst = 0.0
    d = X.shape[1]
    bias = u64(d)
    for k in range(len(order)):
        i = u64(order[k])
        x = X[i]
        score = constant * w[bias]
        for j in range(d):
            score += x[u64(j)] * w[u64(j)]
        after, wrong = step(y[i] * score - 1.0 + ridge[i] * alpha[i], alpha[i], upper[i], squares[i] + ridge[i])
        worst = max(worst, wrong)
        if after != alpha[i]:
            move = (after - alpha[i]) * y[i]
            alpha[i] = after
            for j in range(d):
                w[u64(j)] += move * x[u64(j)]
            w[bias] += move * constant
    return worst


@inlined
def step(gradient, alpha, upper, curvature):
    """Where alpha goes, and its projected gradient."""
    if (alpha <= 0.0 and gradient >= 0.0) or (alpha >= upper and gradient <= 0.0):
        return alpha, 0.0
    if curvature <= 0.0:  # a row of zeros: its loss is a constant
        return upper, 0.0
    return min(max(alpha - gradient / curvature, 0.0), upper), abs(gradient)
