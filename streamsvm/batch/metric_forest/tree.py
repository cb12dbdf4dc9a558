"""A tree that parts rows by the angle to pivots."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest.blocks import floats
from streamsvm.batch.rows import squares_of


class Tree(NamedTuple):
    """Order of some rows, bounds of the leaves in it, and nodes from the root on."""

    order: Ints
    starts: Ints
    pivots: Floats
    children: Ints


def grow(X: Any, leaf: int, width: int, rng: np.random.Generator) -> Tree:
    """A tree that parts its rows by the nearest of `width` pivots, down to leaves of `leaf` to some twice as many rows.

    Near is a small angle of x to the line through the pivot, which is the angle between their images under the
    quadratic kernel (x . p)^2. Pivots are rows chosen at random; one that is nearest to too few leaves its rows to
    the others. As x and -x are near one another so, a part is cut in two where both sides are large enough: the mean of
    a leaf then tells where its rows are.
    """
    norms = np.sqrt(squares_of(X) + 1.0)
    if width == 1:
        return _cut(X, norms, leaf)
    pivots: list[Floats] = [_pivot(X, norms, 0)]
    children: list[tuple[int, int]] = [(0, 0)]
    order: list[Ints] = []
    pending = [(0, np.arange(X.shape[0]))]
    while pending:
        node, rows = pending.pop()
        parts = _parts(X, norms, rows, leaf, width, rng) if len(rows) >= 2 * leaf else None
        if parts is None:
            children[node] = (-1 - len(order), 0)
            order.append(rows)
            continue
        children[node] = (len(pivots), len(pivots) + len(parts))
        for pivot, part in parts:
            pending.append((len(pivots), part))
            pivots.append(_pivot(X, norms, pivot))
            children.append((0, 0))
    starts = np.cumsum([0, *(len(part) for part in order)])
    return Tree(np.concatenate(order), starts, np.array(pivots, np.float32), np.array(children, np.int64))


def _cut(X: Any, norms: Floats, leaf: int) -> Tree:
    """Leaves of consecutive rows under one root."""
    n = X.shape[0]
    starts = np.linspace(0, n, max(1, n // leaf) + 1).astype(np.int64)
    pivots = [_pivot(X, norms, 0), *(_pivot(X, norms, int(row)) for row in starts[:-1])]
    children = [(1, len(pivots)), *((-k, 0) for k in range(1, len(pivots)))]
    return Tree(np.arange(n), starts, np.array(pivots, np.float32), np.array(children, np.int64))


def _pivot(X: Any, norms: Floats, row: int) -> Floats:
    x = X[[row]].toarray()[0] if scipy.sparse.issparse(X) else X[row]
    return np.asarray(np.append(x, 1.0) / norms[row])


def _parts(
    X: Any, norms: Floats, rows: Ints, leaf: int, width: int, rng: np.random.Generator
) -> list[tuple[int, Ints]] | None:
    """Rows by the nearest of some pivots, as pairs of a pivot and its rows; None where they cannot be parted."""
    chosen = np.sort(rng.choice(rows, min(width, len(rows)), replace=False))
    P = X[chosen]
    inner = (floats(X[rows]) @ floats(P).T if not scipy.sparse.issparse(X) else (X[rows] @ P.T).toarray()) + 1.0
    similar = (inner / norms[chosen]) ** 2
    kept = np.arange(len(chosen))
    while len(kept) > 1:
        nearest = similar[:, kept].argmax(axis=1)
        counts = np.bincount(nearest, minlength=len(kept))
        if counts.min() >= leaf:
            sides = np.take_along_axis(inner[:, kept], nearest[:, None], axis=1)[:, 0] > 0.0
            parts = []
            for k, pivot in enumerate(chosen[kept]):
                ahead, behind = rows[(nearest == k) & sides], rows[(nearest == k) & ~sides]
                halves = [ahead, behind] if min(len(ahead), len(behind)) >= leaf else [rows[nearest == k]]
                parts += [(int(pivot), half) for half in halves]
            return parts
        kept = np.delete(kept, counts.argmin())
    if len(rows) < 4 * leaf:
        return None
    # All are alike: cut where the angle to one pivot is in the middle.
    ranked = rows[np.argsort(similar[:, kept[0]] / norms[rows] ** 2, kind="stable")]
    return [(int(half[len(half) // 2]), half) for half in np.array_split(ranked, 2)]
