"""Reduction of a kernel expansion to a maximum number of vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel, Singles

METHODS = ("project", "fit")
# Ridge on the kernel matrix of the landmarks, relative to its mean diagonal: the rounding of single precision.
RIDGE = 1e-5


class Reduction(NamedTuple):
    """Effect of a reduction, measured on the given rows.

    Parameters
    ----------
    n_before, n_after
        Numbers of vectors.
    objective_before, objective_after
        |f|^2 / (2 C) + mean loss.
    accuracy_before, accuracy_after
        Accuracy, 0 to 1.
    """

    n_before: int
    n_after: int
    objective_before: float
    objective_after: float
    accuracy_before: float
    accuracy_after: float


def reduce(
    kernel: GaussianKernel,
    vectors: Singles,
    coefs: Singles,
    budget: int,
    rng: np.random.Generator,
    rows: Singles | None = None,
) -> tuple[Singles, Singles]:
    """Approximate an expansion by `budget` landmarks among its vectors.

    Landmarks are drawn with probabilities proportional to the magnitudes of their coefficients. The result is the
    nearest function in the kernel's space; with `rows`, the function with the nearest scores on these rows.
    """
    n = len(vectors)
    if n <= budget:
        return vectors, coefs
    sizes = np.abs(coefs).sum(axis=1, dtype=np.float64)
    marks = vectors[np.sort(rng.choice(n, budget, replace=False, p=sizes / sizes.sum()))]
    system = kernel.values(marks, marks).astype(np.float64)
    ridge = RIDGE * max(float(system.trace()) / budget, 1e-30)
    if rows is None:
        target = kernel.decide(vectors, coefs, marks)
    else:
        trace = max(float(system.trace()), 1e-30)
        K = kernel.values(marks, rows).astype(np.float64)
        target = kernel.decide(vectors, coefs, rows) @ K.T / len(rows)
        system = K @ K.T / len(rows)
        ridge *= float(system.trace()) / trace
    system[np.diag_indices(budget)] += ridge
    solution = scipy.linalg.solve(system, target.T, assume_a="sym")
    return marks, np.ascontiguousarray(solution, np.float32)
