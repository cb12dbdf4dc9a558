"""Kernel expansions cut down to a budget of vectors."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from streamsvm.batch import cuts_kernels as kernels
from streamsvm.batch.similarity import Similarity, Singles

METHODS = ("project", "fit", "merge")
# So much, of the landmarks' mean k(x, x), is added to the diagonal of their kernel: single precision tells no finer.
RIDGE = 1e-5
# Merging looks for a partner among so many.
PARTNERS = 500


def reduce(
    similarity: Similarity,
    vectors: Singles,
    coefs: Singles,
    budget: int,
    method: str,
    rng: np.random.Generator,
    rows: Singles,
) -> tuple[Singles, Singles]:
    """At most `budget` vectors and coefficients, shape (budget, n_outputs), for about the same function.

    Landmarks are vectors, drawn with the probability of their share in the coefficients.

    Parameters
    ----------
    method
        `"project"`: nearest to the function in the kernel's space. `"fit"`: nearest to its scores at `rows`.
        `"merge"`: the smallest with its best partner, one after another, for the Gaussian kernel.
    """
    n = len(vectors)
    if n <= budget:
        return vectors, coefs
    if method == "merge":
        if similarity.kernel != "gaussian":
            raise ValueError(f"only Gaussian vectors can be merged, the kernel is {similarity.kernel!r}")
        merged, weights = vectors.astype(np.float64), coefs.astype(np.float64)
        left = kernels.merge_down(merged, weights, n, budget, PARTNERS)
        return merged[:left].astype(np.float32), weights[:left].astype(np.float32)
    sizes = np.abs(coefs).sum(axis=1, dtype=np.float64)
    marks = vectors[np.sort(rng.choice(n, budget, replace=False, p=sizes / sizes.sum()))]
    K = similarity.values(marks, marks).astype(np.float64)
    ridge = RIDGE * max(float(K.trace()) / budget, 1e-30)
    if method == "project":
        target = similarity.decide(vectors, coefs, marks)
        system = K
    else:
        kernel = similarity.values(marks, rows).astype(np.float64)
        target = similarity.decide(vectors, coefs, rows) @ kernel.T / len(rows)
        system = kernel @ kernel.T / len(rows)
        ridge *= float(system.trace()) / max(float(K.trace()), 1e-30)
    system[np.diag_indices(budget)] += ridge
    solution = scipy.linalg.solve(system, target.T, assume_a="sym")
    return marks, np.ascontiguousarray(solution, np.float32)
