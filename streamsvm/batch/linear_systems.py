"""Linear systems of Newton steps: Cholesky factorisation and conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.batch.matrix import Floats

# Largest system for rows in memory: 72 MB, and 72 MB for its factors.
LARGEST_SYSTEM = 3000
# Largest system for a fit in bounded memory, and the number of copies: one for each of two points, and two in a step.
# Each takes 18 MB.
LARGEST_BOUNDED_SYSTEM, BOUNDED_COPIES = 1500, 4
# Initial damping, relative to the mean diagonal, of a system that is indefinite due to rounding, and its growth.
DAMPING, DAMPING_GROWTH = 1e-14, 100.0
# Relative tolerance of the trust-region radius, maximum number of shifts, and the smallest shift.
NEAR_BOUNDARY, SHIFTS, SHIFT_LEAST = 1.01, 20, 1e-10


class Accuracy(NamedTuple):
    """Stopping rule of conjugate gradients.

    Parameters
    ----------
    share
        Final squared residual in the norm of the preconditioner, relative to the initial one.
    most
        Maximum number of products with the system.
    """

    share: float
    most: int


# A line search needs a residual of 1/10 of the gradient, a trust region 1/100, because it compares predicted decreases.
FOR_LINE_SEARCH, FOR_REGION = Accuracy(1e-2, 300), Accuracy(1e-4, 200)


def solve_damped(system: Floats, right: Floats) -> Floats:
    """Solve a system by Cholesky factorisation of its lower triangle.

    If rounding makes the system indefinite, damping is added to its diagonal.
    """
    damping = 0.0
    scale = float(np.trace(system)) / len(system)
    while True:
        damped = system + damping * scale * np.eye(len(system)) if damping else system
        # LAPACK is column-major, so passing the transpose avoids a copy.
        factors, failed = scipy.linalg.lapack.dpotrf(damped.T, lower=0, clean=0)
        if not failed:
            solution: Floats = scipy.linalg.lapack.dpotrs(factors, right, lower=0)[0]
            return solution.reshape(right.shape)
        damping = max(DAMPING, DAMPING_GROWTH * damping)


def solve_in_region(system: Floats, g: Floats, radius: float) -> tuple[Floats, float]:
    """Minimise g . s + s . H s / 2 over |s| <= radius; returns s and the decrease.

    H is overwritten. On the boundary (H + shift I) s = -g. Newton's method on 1 / |s|, which is almost linear in the
    shift, finds the shift [More and Sorensen, 1983].
    """
    shift, diagonal = 0.0, np.einsum("ii->i", system).copy()
    for _ in range(SHIFTS):
        np.einsum("ii->i", system)[:] = diagonal + shift
        factors, failed = scipy.linalg.lapack.dpotrf(system, lower=1)
        if failed:
            shift += SHIFT_LEAST * float(diagonal.sum())
            continue
        step = np.asarray(-scipy.linalg.lapack.dpotrs(factors, g, lower=1)[0])
        length = float(np.linalg.norm(step))
        if length <= NEAR_BOUNDARY * radius:
            break
        half = scipy.linalg.solve_triangular(factors, step, lower=True, check_finite=False)
        shift += length**2 / float(half @ half) * (length - radius) / radius
    return step, 0.5 * (shift * length**2 - float(g @ step))


class Solved(NamedTuple):
    """Result of conjugate gradients: step s, residual -g - H s, and products with H."""

    step: Floats
    residual: Floats
    n_products: int


def conjugate_gradients(
    times: Callable[[Floats], Floats],
    g: Floats,
    accuracy: Accuracy,
    *,
    diagonal: Floats | float = 1.0,
    radius: float = math.inf,
) -> Solved:
    """Solve H s = -g by conjugate gradients with a diagonal preconditioner.

    `times` multiplies a vector by H. The first iterate beyond `radius` is truncated to it [Steihaug, 1983].
    """
    x = np.zeros(len(g))
    residual = -g
    y = residual / diagonal
    p = y.copy()
    energy = first = float(residual @ y)
    n_products = 0
    while n_products < accuracy.most and energy > max(accuracy.share * first, 0.0):
        q = times(p)
        n_products += 1
        length = energy / float(p @ q)
        is_outside = radius < math.inf and float(np.linalg.norm(x + length * p)) > radius
        if is_outside:
            length = _to_boundary(x, p, radius)
        x += length * p
        residual -= length * q
        if is_outside:
            break
        y = residual / diagonal
        energy, last = float(residual @ y), energy
        p = y + (energy / last) * p
    return Solved(x, residual, n_products)


def _to_boundary(x: Floats, p: Floats, radius: float) -> float:
    """Return the positive t with |x + t p| = radius."""
    a, b, c = float(p @ p), float(x @ p), float(x @ x) - radius**2
    return (math.sqrt(b * b - a * c) - b) / a
