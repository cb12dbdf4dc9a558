"""Linear systems of Newton steps: Cholesky factorisation and conjugate gradients."""

from __future__ import annotations

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


# Residuals of 1/10 and 1/100 of the gradient.
ROUGH, ACCURATE = Accuracy(1e-2, 300), Accuracy(1e-4, 200)


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


class Solved(NamedTuple):
    """Result of conjugate gradients: step s, and products with H."""

    step: Floats
    n_products: int


def conjugate_gradients(
    times: Callable[[Floats], Floats],
    g: Floats,
    accuracy: Accuracy,
    *,
    diagonal: Floats | float = 1.0,
) -> Solved:
    """Solve H s = -g by conjugate gradients with a diagonal preconditioner.

    `times` multiplies a vector by H.
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
        x += length * p
        residual -= length * q
        y = residual / diagonal
        energy, last = float(residual @ y), energy
        p = y + (energy / last) * p
    return Solved(x, n_products)
