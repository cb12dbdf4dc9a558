"""Kernels of truncated losses, and sweeps of dual coordinate descent."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.core.jit import inlined, kernel
from streamsvm.core.simd import uint


class Losses(NamedTuple):
    """Truncated losses of rows.

    With score z and u = 1 - y z, the loss of a row is min(L, ceiling). L is the hinge max(0, u) or its square.
    The hinge is smoothed to u^2 / (2 eps) on [0, eps] and u - eps / 2 beyond. Rows outside the margin therefore
    contribute nothing to gradient and Hessian. Rows with L > ceiling are outliers, with a constant loss.

    Parameters
    ----------
    y, c
        Labels +1 and -1, and weights.
    squared
        Whether L is the squared hinge.
    eps
        Smoothing of the hinge, in units of the margin.
    ceiling
        The largest loss of a row, 1 + s.
    """

    y: Any
    c: Any
    squared: Any
    eps: Any
    ceiling: Any


class DualBlock(NamedTuple):
    """The dual problem of a block of rows.

    It minimises |w|^2 / 2 + sum(ridge alpha^2) / 2 - sum(alpha) subject to 0 <= alpha <= upper, with w = sum(alpha y
    x).

    Parameters
    ----------
    y, upper, ridge
        Labels, upper bounds and ridge of the rows.
    squares
        |x|^2, including the constant column.
    alpha
        The dual variables, which sweeps update.
    """

    y: Any
    upper: Any
    ridge: Any
    squares: Any
    alpha: Any


@inlined
def loss_of(u, squared, eps):
    """Return the loss before truncation, smoothed unless eps is 0."""
    over = max(0.0, u)
    if squared:
        return over * over
    return over * over / (2.0 * eps) if over < eps else over - 0.5 * eps


@kernel
def respond(z, losses, r, h):
    """Fill r with y * alpha, and h with the weights of the rows in the Hessian.

    Returns
    -------
    loss, fixed
        The sum of the truncated losses, and its part from outliers.
    mass, square
        The sum of alpha, and for the squared hinge the sum of alpha^2 / (4 c).
    slack
        The sum of hinge - alpha * u, the part of the duality gap due to smoothing.
    n_support, n_out
        The numbers of rows with alpha > 0 and of outliers.
    """
    y, c, squared, eps, ceiling = losses
    loss = fixed = mass = square = slack = 0.0
    n_support = n_out = 0
    for k in range(len(z)):
        i = uint(k)
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
def respond_with(alpha, z, losses, r):
    """Fill r with y * alpha for given alpha, and with 0 for outliers.

    Returns the values of `respond`.
    """
    y, c, squared, _, ceiling = losses
    loss = fixed = mass = square = 0.0
    n_support = n_out = 0
    for k in range(len(z)):
        i = uint(k)
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
    return loss, fixed, mass, square, 0.0, n_support, n_out


@kernel
def along(z, other, losses, t):
    """Sum the truncated losses at z + t * (other - z)."""
    y, c, squared, eps, ceiling = losses
    total = 0.0
    for k in range(len(z)):
        i = uint(k)
        u = 1.0 - y[i] * (z[i] + t * (other[i] - z[i]))
        total += c[i] * min(loss_of(u, squared, eps), ceiling)
    return total


# Dual coordinate descent -----------------------------------------------------------------------------------------


@kernel
def sweep_sparse(X, block, order, constant, w):
    """Sweep once over the rows of a `DualBlock` in the given order.

    X holds the CSR arrays. w = sum(alpha y x) is updated; its last element belongs to the column `constant`, 0 or 1.
    Returns the largest projected gradient.
    """
    data, indices, indptr = X
    y, upper, ridge, squares, alpha = block
    worst = 0.0
    bias = uint(len(w) - 1)
    for k in range(len(order)):
        i = uint(order[k])
        score = constant * w[bias]
        for p in range(indptr[i], indptr[i + uint(1)]):
            score += data[uint(p)] * w[uint(indices[uint(p)])]
        after, wrong = step(y[i] * score - 1.0 + ridge[i] * alpha[i], alpha[i], upper[i], squares[i] + ridge[i])
        worst = max(worst, wrong)
        if after != alpha[i]:
            move = (after - alpha[i]) * y[i]
            alpha[i] = after
            for p in range(indptr[i], indptr[i + uint(1)]):
                w[uint(indices[uint(p)])] += move * data[uint(p)]
            w[bias] += move * constant
    return worst


@kernel
def sweep_dense(X, block, order, constant, w):
    """Sweep once over the rows of a `DualBlock`, as `sweep_sparse`, for an array X."""
    y, upper, ridge, squares, alpha = block
    worst = 0.0
    d = X.shape[1]
    bias = uint(d)
    for k in range(len(order)):
        i = uint(order[k])
        x = X[i]
        score = constant * w[bias]
        for j in range(d):
            score += x[uint(j)] * w[uint(j)]
        after, wrong = step(y[i] * score - 1.0 + ridge[i] * alpha[i], alpha[i], upper[i], squares[i] + ridge[i])
        worst = max(worst, wrong)
        if after != alpha[i]:
            move = (after - alpha[i]) * y[i]
            alpha[i] = after
            for j in range(d):
                w[uint(j)] += move * x[uint(j)]
            w[bias] += move * constant
    return worst


@inlined
def step(gradient, alpha, upper, curvature):
    """Return the new alpha and the magnitude of its projected gradient."""
    if (alpha <= 0.0 and gradient >= 0.0) or (alpha >= upper and gradient <= 0.0):
        return alpha, 0.0
    if curvature <= 0.0:  # a row of zeros, whose loss is constant
        return upper, 0.0
    return min(max(alpha - gradient / curvature, 0.0), upper), abs(gradient)
