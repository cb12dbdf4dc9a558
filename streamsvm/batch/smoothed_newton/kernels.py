"""Kernels of the smoothed hinge, and coordinate descent for l1 penalties.

The margin of row i is u = 1 - y (z + bias) with z = x . w. The hinge max(0, u) is smoothed to psi(u) = (u + sqrt(eps^2
+ u^2)) / 2.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from streamsvm.core.jit import inlined, jit_fastmath, kernel, uint


class Margins(NamedTuple):
    """A binary problem at one point.

    Parameters
    ----------
    z, bias
        Scores of the rows without bias, and the bias.
    codes, positive
        Row i has label +1 if codes[i] == positive, else -1.
    c
        Weights of the rows.
    eps
        Smoothing of the hinge, in units of the margin.
    """

    z: Any
    bias: Any
    codes: Any
    positive: Any
    c: Any
    eps: Any


class L1Step(NamedTuple):
    """The problem min g . d + d^T H d / 2 + mu |w + d|_1.

    The last coordinate has no penalty.

    Parameters
    ----------
    g, w, mu
        Gradient, coefficients and penalty.
    d, q
        The step, and its product with H; both are updated.
    """

    g: Any
    w: Any
    mu: Any
    d: Any
    q: Any


# The loss --------------------------------------------------------------------------------------------------------


@inlined
def label(m, i):
    """Return the label of row i as a float."""
    return 1.0 if m.codes[i] == m.positive else -1.0


@jit_fastmath
def fill_dual_point(m, r):
    """Fill r with y * alpha, where alpha = c * psi'(u) is the dual point.

    Returns
    -------
    hinge, mass, balance, slack
        Sums over the rows: the hinge, alpha, y * alpha, and hinge - alpha * u. The last is the part of the duality gap
        that is due to eps.
    """
    z, bias, c, eps = m.z, m.bias, m.c, m.eps
    hinge = mass = balance = slack = 0.0
    for k in range(len(z)):
        i = uint(k)
        y = label(m, i)
        margin = 1.0 - y * (z[i] + bias)
        root = math.sqrt(eps * eps + margin * margin)
        alpha = c[i] * 0.5 * (1.0 + margin / root)
        loss = c[i] * max(0.0, margin)
        hinge += loss
        mass += alpha
        balance += y * alpha
        slack += loss - alpha * margin
        r[i] = y * alpha
    return hinge, mass, balance, slack


@jit_fastmath
def along(m, dz, dbias, t):
    """Compute the smoothed hinge at z + t * dz, bias + t * dbias.

    Returns the value and its first two derivatives in t.
    """
    z, bias, c, eps = m.z, m.bias, m.c, m.eps
    value = slope = curvature = 0.0
    for k in range(len(z)):
        i = uint(k)
        y = label(m, i)
        step = -y * (dz[i] + dbias)
        margin = 1.0 - y * (z[i] + bias) + t * step
        square = eps * eps + margin * margin
        root = math.sqrt(square)
        value += c[i] * 0.5 * (margin + root)
        slope += c[i] * 0.5 * (1.0 + margin / root) * step
        curvature += c[i] * 0.5 * (eps * eps) / (square * root) * step * step
    return value, slope, curvature


@jit_fastmath
def step_dual(m, dz, dbias, shares, r):
    """Move alpha = c * shares by a full step to first order; fill r with y * alpha.

    The result is clipped to [0, c].

    Returns
    -------
    mass, balance
        Sums over the rows: alpha, and y * alpha.
    """
    z, bias, c, eps = m.z, m.bias, m.c, m.eps
    mass = balance = 0.0
    for k in range(len(z)):
        i = uint(k)
        y = label(m, i)
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


@jit_fastmath
def hinge_slopes(m, shares):
    """Fill shares with psi'(u)."""
    z, bias, eps = m.z, m.bias, m.eps
    for k in range(len(z)):
        i = uint(k)
        margin = 1.0 - label(m, i) * (z[i] + bias)
        shares[i] = 0.5 * (1.0 + margin / math.sqrt(eps * eps + margin * margin))


@jit_fastmath
def bias_derivatives(m):
    """Compute the first two derivatives of the smoothed hinge in the bias."""
    z, bias, c, eps = m.z, m.bias, m.c, m.eps
    slope = curvature = 0.0
    for k in range(len(z)):
        i = uint(k)
        y = label(m, i)
        margin = 1.0 - y * (z[i] + bias)
        square = eps * eps + margin * margin
        root = math.sqrt(square)
        slope -= y * c[i] * 0.5 * (1.0 + margin / root)
        curvature += c[i] * 0.5 * (eps * eps) / (square * root)
    return slope, curvature


@jit_fastmath
def hessian_weights(m, shares, h):
    """Fill h with the weights of the rows in the Hessian.

    The weights linearise sqrt(eps^2 + u^2) (2 share - 1) = u in both u and the share (Chan, Golub and Mulet, 1999).
    They equal c * psi''(u) if share = psi'(u).

    Returns
    -------
    total, mean
        The sum of the weights, and this sum divided by the sum of c.
    """
    z, bias, c, eps = m.z, m.bias, m.c, m.eps
    total = mass = 0.0
    for k in range(len(z)):
        i = uint(k)
        margin = 1.0 - label(m, i) * (z[i] + bias)
        root = math.sqrt(eps * eps + margin * margin)
        weight = c[i] * 0.5 * (1.0 - (2.0 * shares[i] - 1.0) * margin / root) / root
        h[i] = weight
        total += weight
        mass += c[i]
    return total, total / mass


# The step with an l1 penalty -------------------------------------------------------------------------------------


@inlined
def soft_threshold(x, by):
    """Return the soft threshold of x."""
    return math.copysign(max(abs(x) - by, 0.0), x)


@kernel
def symmetrize(H):
    """Copy the lower triangle to the upper one."""
    for i in range(len(H)):
        for j in range(i):
            H[uint(j), uint(i)] = H[uint(i), uint(j)]


@kernel
def coordinate_descent(H, step, n_sweeps, tolerance):
    """Minimise an `L1Step` with q = H d by coordinate descent.

    Sweeps alternate between all and nonzero coordinates. Returns the largest change of a coordinate's derivative in the
    last sweep, at most `tolerance` at a solution.
    """
    g, w, mu, d, q = step
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
            after = soft_threshold(before - (g[j] + q[j]) / H[j, j], penalty / H[j, j])
            change = after - before
            if change != 0.0:
                d[j] = after - w[j]
                column = H[j]
                for i in range(n):
                    q[uint(i)] += change * column[uint(i)]
                moved = max(moved, abs(change) * H[j, j])
        if moved <= tolerance:
            if full:
                break
            full = True
        else:
            full = False
    return moved
