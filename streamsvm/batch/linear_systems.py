"""Linear systems of Newton steps, by Cholesky factorisation or conjugate gradients, with limits for all solvers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.batch.matrix import Floats

# Largest system that is built where rows are in memory: 72 MB, and as much for its factors.
LARGEST_SYSTEM = 3000
# Largest system where the memory of a fit is bounded: two points have one each, and a step on one makes two copies, in
# all four of 18 MB.
LARGEST_BOUNDED_SYSTEM, BOUNDED_COPIES = 1500, 4
# Initial damping of a system that rounding makes indefinite, relative to its mean diagonal, and its growth.
DAMPING, DAMPING_GROWTH = 1e-14, 100.0
# Tolerance of the trust-region boundary, maximum attempts at the shift, and the least shift.
NEAR_BOUNDARY, SHIFTS, SHIFT_LEAST = 1.01, 20, 1e-10


class Accuracy(NamedTuple):
    """Stopping rule of conjugate gradients.

    Parameters
    ----------
    share
        Final squared residual in the preconditioner's norm, relative to the first.
    most
        Maximum number of products with the system.
    """

    share: float
    most: int


# A line search needs a tenth of the gradient. A trust region needs a hundredth, because it compares predicted gains.
FOR_LINE_SEARCH, FOR_REGION = Accuracy(1e-2, 300), Accuracy(1e-4, 200)


def solve_damped(system: Floats, right: Floats) -> Floats:
    """Solve by Cholesky factorisation of the lower triangle, damped where rounding makes it indefinite."""
    damping = 0.0
    scale = float(np.trace(system)) / len(system)
    while True:
        damped = system + damping * scale * np.eye(len(system)) if damping else system
        # LAPACK is column-major: passing the transpose with the upper triangle avoids a copy.
        factors, failed = scipy.linalg.lapack.dpotrf(damped.T, lower=0, clean=0)
        if not failed:
            solution: Floats = scipy.linalg.lapack.dpotrs(factors, right, lower=0)[0]
            return solution.reshape(right.shape)
        damping = max(DAMPING, DAMPING_GROWTH * damping)


def solve_in_region(system: Floats, g: Floats, radius: float) -> tuple[Floats, float]:
    """Minimise g . s + s . H s / 2 over |s| <= radius; returns s and the decrease. H is overwritten.

    On the boundary (H + shift) s = -g; Newton's method on 1 / |s|, which is almost linear in the shift, finds the shift
    [More and Sorensen, 1983].
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
    """A step s, its residual -g - H s, and the number of products with H."""

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
    """Solve H s = -g, where `times` multiplies with H, with a diagonal preconditioner.

    The first iterate outside the region is cut at its boundary [Steihaug, 1983].
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
