"""Systems of linear equations for Newton steps: by Cholesky's factors, and by conjugate gradients.

How large a system may be and how closely it is solved is said here alone, for all solvers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.batch.matrix import Floats

# Up to this size a system is built whole, where rows are in memory: 72 MB, and as much for its factors.
LARGEST_SYSTEM = 3000
# And up to this size where the memory of a fit is bounded: two points have one each, and a step on one takes two
# copies more, which makes four of 18 MB.
LARGEST_BOUNDED_SYSTEM, BOUNDED_COPIES = 1500, 4
# A system that is not positive definite by rounding alone gets so much of its mean diagonal added, and each time more.
DAMPING, DAMPING_GROWTH = 1e-14, 100.0
# The shift that keeps a step within its region: near enough to the boundary, and after so many attempts at the latest.
NEAR_BOUNDARY, SHIFTS, SHIFT_LEAST = 1.01, 20, 1e-10


class Accuracy(NamedTuple):
    """Where conjugate gradients end.

    Parameters
    ----------
    share
        The square of the residual, in the preconditioner's norm, falls to this share of the first.
    most
        Products with the system at most.
    """

    share: float
    most: int


# A tenth of the gradient is enough for a step that a line search follows. To a hundredth where the gain that the
# quadratic model foretells decides on the region; more products are not worth it, as each goes over all sampled rows.
FOR_LINE_SEARCH, FOR_REGION = Accuracy(1e-2, 300), Accuracy(1e-4, 200)


def solve_damped(system: Floats, right: Floats) -> Floats:
    """By Cholesky's factors of the lower triangle, with as much damping as rounding makes necessary."""
    damping = 0.0
    scale = float(np.trace(system)) / len(system)
    while True:
        damped = system + damping * scale * np.eye(len(system)) if damping else system
        # LAPACK counts by columns: what is the lower triangle here is the upper one there, without a copy's reordering.
        factors, failed = scipy.linalg.lapack.dpotrf(damped.T, lower=0, clean=0)
        if not failed:
            solution: Floats = scipy.linalg.lapack.dpotrs(factors, right, lower=0)[0]
            return solution.reshape(right.shape)
        damping = max(DAMPING, DAMPING_GROWTH * damping)


def solve_in_region(system: Floats, g: Floats, radius: float) -> tuple[Floats, float]:
    """The step s of at most so large a norm that lowers g . s + s . H s / 2 most, and by how much; H is overwritten.

    A step that would leave the region satisfies (H + shift) s = -g for the shift that puts it on the boundary; that is
    found by Newton steps on 1 / |s|, which is almost linear in the shift [More and Sorensen, 1983].
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
    """A step, the residual -g - H s that it leaves, and how many products with H it took."""

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
    """-H^-1 g, where `times` multiplies with H, preconditioned by a diagonal.

    Iterates grow, and where one would leave the region the way to it ends on the boundary [Steihaug, 1983].
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
    """The positive t where |x + t p| is the radius."""
    a, b, c = float(p @ p), float(x @ p), float(x @ x) - radius**2
    return (math.sqrt(b * b - a * c) - b) / a
