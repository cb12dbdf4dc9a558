"""Most violated labels, loss and norm of a function."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch.base import check_scale
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel, Singles
from streamsvm.parameters import ParameterError

# Rows of an estimated loss, and vectors of an estimated norm.
MEASURED = 2000


class Violations(NamedTuple):
    """The most violated label of each row, its cost, and the loss."""

    labels: Ints
    costs: Floats
    losses: Floats


def most_violated(scores: Floats, codes: Ints, cost: Floats) -> Violations:
    """Find the label with the largest margin-rescaled loss of each row.

    Parameters
    ----------
    scores
        Shape (n_classes, m), or (1, m) if two classes share one signed score.
    codes
        The true classes, shape (m,).
    cost
        cost[y, other], shape (n_classes, n_classes), zero on the diagonal.
    """
    if len(scores) == 1:
        scores = np.vstack([-0.5 * scores, 0.5 * scores])
    rows = np.arange(len(codes))
    losses = cost[codes].T + (scores - scores[codes, rows])
    losses[codes, rows] = 0.0
    labels = losses.argmax(axis=0)
    largest = losses[labels, rows]
    labels = np.where(largest > 0.0, labels, codes)
    return Violations(labels, cost[codes, labels], np.maximum(largest, 0.0))


def differences(codes: Ints, labels: Ints, weights: Floats, n_outputs: int) -> Singles:
    """Return the coefficients of feature(true label) - feature(other label).

    They are multiplied by the weights and have shape (m, n_outputs).
    """
    out = np.zeros((len(codes), n_outputs), np.float32)
    if n_outputs == 1:
        out[:, 0] = weights * (codes - labels)
    else:
        rows = np.arange(len(codes))
        out[rows, codes] += weights
        out[rows, labels] -= weights
    return out


def square_norm(
    kernel: GaussianKernel, vectors: Singles, coefs: Singles, rng: np.random.Generator
) -> tuple[float, float]:
    """Compute |f|^2 and its standard error, from a sample if there are many vectors."""
    if len(vectors) <= MEASURED:
        scores = kernel.decide(vectors, coefs, vectors)
        return max(0.0, float(np.einsum("ic,ci->", coefs, scores))), 0.0
    sizes = np.abs(coefs).sum(axis=1, dtype=np.float64)
    chosen = rng.choice(len(sizes), MEASURED, p=sizes / sizes.sum())
    scores = kernel.decide(vectors, coefs, vectors[chosen])
    squares = np.einsum("ic,ci->i", coefs[chosen], scores) / sizes[chosen] * sizes.sum()
    return float(squares.mean()), float(squares.std()) / math.sqrt(MEASURED)


def cost_matrix(cost: Any, n_classes: int) -> Floats:
    """Return the cost matrix; raise ValueError for an invalid one."""
    if cost is None:
        return 1.0 - np.eye(n_classes)
    matrix = np.asarray(cost, np.float64)
    if matrix.shape != (n_classes, n_classes):
        raise ParameterError("cost", f"must have shape {(n_classes, n_classes)}, got {matrix.shape}")
    if not np.isfinite(matrix).all() or (matrix < 0.0).any() or matrix.diagonal().any() or not matrix.any():
        raise ParameterError("cost", "must be finite, 0 or more, zero on the diagonal, and not zero everywhere")
    check_scale("cost", matrix.max(), "rescale the costs")
    return matrix
