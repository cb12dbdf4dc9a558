"""Kernels of truncated losses."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamsvm.core.jit import inlined, kernel, uint


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


@inlined
def loss_of(u, squared, eps):
    """Return the loss before truncation, smoothed unless eps is 0."""
    over = max(0.0, u)
    if squared:
        return over * over
    return over * over / (2.0 * eps) if over < eps else over - 0.5 * eps


@kernel
def dual_and_hessian_weights(z, losses, r, h):
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
def along(z, other, losses, t):
    """Sum the truncated losses at z + t * (other - z)."""
    y, c, squared, eps, ceiling = losses
    total = 0.0
    for k in range(len(z)):
        i = uint(k)
        u = 1.0 - y[i] * (z[i] + t * (other[i] - z[i]))
        total += c[i] * min(loss_of(u, squared, eps), ceiling)
    return total
