"""A metric tree, which groups rows by their angle to pivots."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest.blocks import floats
from streamsvm.batch.rows import squares_of


def grow(X: Any, leaf: int, width: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows by the nearest of `width` pivots, recursively; returns the rows of each leaf, at least `leaf` of them.

    The distance is the angle between x and the line through the pivot, which is the angle in the quadratic embedding
    (x . p)^2 of Yen et al. Pivots are random rows; a pivot nearest to too few rows leaves them to the others. Because x
    and -x are near in this metric, a part is also split by the sign of x . p where both sides are large enough: the
    mean of a leaf then tells where its rows are. A width of 1 makes leaves of consecutive rows.
    """
    n = X.shape[0]
    if width == 1:
        return np.array_split(np.arange(n), max(1, n // leaf))
    norms = np.sqrt(squares_of(X) + 1.0)
    leaves: list[Ints] = []
    pending = [np.arange(n)]
    while pending:
        rows = pending.pop()
        parts = _split(X, norms, rows, leaf, width, rng) if len(rows) >= 2 * leaf else []
        pending += parts
        if not parts:
            leaves.append(rows)
    return leaves


def _split(X: Any, norms: Floats, rows: Ints, leaf: int, width: int, rng: np.random.Generator) -> list[Ints]:
    """Split rows by the nearest of random pivots; an empty list where no split leaves enough rows a part."""
    chosen = np.sort(rng.choice(rows, min(width, len(rows)), replace=False))
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
    # The rows are alike: cut at the median angle to one pivot.
    ranked = rows[np.argsort(similar[:, kept[0]] / norms[rows] ** 2, kind="stable")]
    return np.array_split(ranked, 2)
