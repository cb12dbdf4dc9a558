"""Metric tree, which groups rows by their angle to pivots."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.extmath import row_norms

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest.blocks import floats

# Maximum children of a node.
WIDTH = 10


def grow(X: Any, leaf: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows recursively by the nearest of WIDTH pivots.

    The distance is the angle between x and the line through the pivot, as in the quadratic embedding (x . p)^2 of Yen
    et al. Pivots are random rows. A pivot that is nearest to too few rows is dropped. In this metric x
    and -x are near. Therefore a part is also split by the sign of x . p if both sides are large enough, so that the
    mean of a leaf represents its rows.

    Returns
    -------
    list of ndarray
        The indices of the rows of each leaf, at least `leaf` of them.
    """
    n = X.shape[0]
    norms = np.sqrt(row_norms(floats(X), squared=True).astype(np.float64) + 1.0)
    leaves: list[Ints] = []
    pending = [np.arange(n)]
    while pending:
        rows = pending.pop()
        parts = _split(X, norms, rows, leaf, rng) if len(rows) >= 2 * leaf else []
        pending += parts
        if not parts:
            leaves.append(rows)
    return leaves


def _split(X: Any, norms: Floats, rows: Ints, leaf: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows by the nearest of random pivots.

    The list is empty if no split leaves at least `leaf` rows in each part.
    """
    chosen = np.sort(rng.choice(rows, min(WIDTH, len(rows)), replace=False))
    P = X[chosen]
    inner = (floats(X[rows]) @ floats(P).T if not scipy.sparse.issparse(X) else (X[rows] @ P.T).toarray()) + 1.0
    similar = (inner / norms[chosen]) ** 2
    kept = np.arange(len(chosen))
    while len(kept) > 1:
        nearest = similar[:, kept].argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(kept))
        if counts.min() >= leaf:
            is_ahead = np.take_along_axis(inner[:, kept], nearest[:, None], axis=1)[:, 0] > 0.0
            parts = []
            for k in range(len(kept)):
                ahead, behind = rows[(nearest == k) & is_ahead], rows[(nearest == k) & ~is_ahead]
                parts += [ahead, behind] if min(len(ahead), len(behind)) >= leaf else [rows[nearest == k]]
            return parts
        kept = np.delete(kept, counts.argmin())
    if len(rows) < 4 * leaf:
        return []
    # The rows are similar, so split them at the median angle to one pivot.
    ranked = rows[np.argsort(similar[:, kept[0]] / norms[rows] ** 2, kind="stable")]
    return np.array_split(ranked, 2)
