"""Linear systems of Newton steps: Cholesky factorisation and conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from streamsvm.batch.matrix import Floats

# Largest system for rows in memory: 72 MB, and 72 MB for its factors.
LARGEST_SYSTEM = 3000
# Largest system for a fit in bounded memory, and the number of copies: one for each of two points, and two in a step.
# Each takes 18 MB.
LARGEST_BOUNDED_SYSTEM, BOUNDED_COPIES = 1500, 4
# Initial damping, relative to the mean diagonal, of a system that is indefinite due to rounding, and its growth.
DAMPING, DAMPING_GROWTH = 1e-14, 100.0


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


def conjugate_gradients(
    times: Callable[[Floats], Floats], g: Floats, tol: float, most: int, diagonal: Floats | float = 1.0
) -> Floats:
    """Solve H s = -g by conjugate gradients with a diagonal preconditioner.

    Parameters
    ----------
    times
        Function that multiplies a vector by H.
    g
        The right-hand side with the opposite sign.
    tol
        Norm of the final residual relative to the norm of g, both in the norm of the preconditioner.
    most
        Maximum number of products with H.
    diagonal
        The preconditioner; inf for coordinates that stay 0.
    """
    root = 1.0 / np.sqrt(diagonal)
    scaled = scipy.sparse.linalg.LinearOperator((len(g),) * 2, lambda p: root * times(root * p), dtype=np.float64)
    return np.asarray(root * scipy.sparse.linalg.cg(scaled, -root * g, rtol=tol, maxiter=most)[0])
