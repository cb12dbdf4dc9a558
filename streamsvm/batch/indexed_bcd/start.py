"""Where a fit on all rows starts: a solution for a sample, and rounds on the rows near it that an index finds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.batch.indexed_bcd.newton import EPS_WARM, Newton
from streamsvm.batch.indexed_bcd.problem import Task
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.rows import Index, MemoryRows, Rows, stack

# Of the memory for rows so much is for a sample where it is alone, and for each of the two sets that a search holds
# twice.
ALONE, TWICE = 0.6, 0.2
# A fit starts on a sample, solved to so much of its objective, with the convex loss and by rounds, of which there are
# so many at most; smoothing begins at so many units of the margin.
TOL_PILOT, TOL_ROUNDS, ROUNDS_PILOT, ROUNDS_SAMPLE, EPS_FIRST = 0.03, 0.01, 30, 100, 2.0
# On all rows smoothing then begins here, or for the convex loss at least where it is warm.
EPS_ALL = 1.0
# Truncated losses start from a convex solution at one of these lengths.
LENGTHS = 2.0 ** np.arange(10)
# Rounds after each query of an index.
ROUNDS_ON_INDEX = 10


def share_needed(index: Index, task: Task, w: Floats, positions: Ints, X: Any) -> float:
    """The share of the rows in leaves that a search visits for 95 % of the rows in range, by a sample of the rows."""
    in_range = np.abs(scores_of(X, w)) <= task.reach
    away = np.abs(index.leaf_scores(w))
    if not in_range.any():
        return 0.0
    farthest = np.quantile(away[index.leaf_of(positions[in_range])], 0.95)
    return float(np.diff(index.starts)[away <= farthest].sum() / index.shape[0])


def scores_of(X: Any, w: Floats) -> Floats:
    """w . x + b of rows."""
    scores: Floats = np.asarray(X @ w[:-1], np.float64) + w[-1]
    return scores


def on_index(newton: Newton, task: Task, index: Index, w: Floats, *, n: int, n_pilot: int, shrink: float) -> Floats:
    """Rounds on a working set that grows by the rows near the hyperplane, leaf by leaf.

    Each query visits the leaves with the nearest means that were not visited before, until it finds as many rows in
    range as the working set has, at least `n`. Rows in range, or short of it by `shrink`, join the working set, other
    rows of those leaves do not count until all rows are looked at again. A sample stands for the rows of leaves not
    visited yet. It ends when of the rows a query traversed fewer than n / |D| were in range, or the memory is full.
    """
    most = TWICE * newton.memory
    sample = index.sample(fitting(index, n_pilot, most), newton.rng)
    X_sample = index.take(sample)
    leaf_of_sample = index.leaf_of(sample)
    leaf_weight = np.add.reduceat(task.c, index.starts[:-1], dtype=np.float64)
    is_visited = np.zeros(index.n_leaves, bool)
    chunk = max(16, index.n_leaves // 64)
    parts: list[Any] = []
    positions: list[Ints] = []
    n_kept = 0
    is_last = False
    while not is_last:
        away = np.where(is_visited, np.inf, np.abs(index.leaf_scores(w)))
        order = np.argsort(away)[: np.count_nonzero(~is_visited)]
        wanted, n_found = max(n, n_kept), 0
        # Some leaves at once, so that they are read in the order of the disk.
        for first in range(0, len(order), chunk):
            found = seen = 0
            for part, X in index.leaves(order[first : first + chunk]):
                z = scores_of(X, w)
                is_near = np.abs(z) <= task.reach + shrink
                near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
                newton.fixed += task.loss(z[far], part.start + far)
                found += int(np.count_nonzero(np.abs(z) <= task.reach))
                seen += len(z)
                parts.append(X[near])
                positions.append(part.start + near)
                n_kept += len(near)
                is_visited[index.leaf_of(part.start) : index.leaf_of(part.stop - 1) + 1] = True
                is_last = n_kept * index.row_bytes > most
                if is_last:
                    break
            n_found += found
            is_last |= found < seen * n / index.shape[0]
            if is_last or n_found >= wanted:
                break
        is_last |= bool(is_visited.all())
        left = ~is_visited[leaf_of_sample]
        c = np.where(left, task.c[sample].astype(np.float64), 0.0)
        c *= leaf_weight[~is_visited].sum() / c.sum() if c.any() else 0.0
        kept = np.concatenate(positions)
        rows = MemoryRows(stack([*parts, X_sample[np.flatnonzero(left)]], index.shape[1]))
        weights = np.concatenate([task.c[kept].astype(np.float64), c[left]])
        working = task.at(np.concatenate([kept, sample[left]]), weights)
        rounds = newton.max_rounds if is_last else ROUNDS_ON_INDEX
        inner = replace(newton, rows=rows, tol=0.5 * newton.tol, max_rounds=rounds)
        w = inner.truncated(working, w, lambda _: False).w
    newton.eps, newton.weight, newton.radius, newton.fixed = inner.eps, inner.weight, inner.radius, 0.0
    return w


def fitting(rows: Rows, n: int, memory: float) -> int:
    """How many of n rows fit."""
    return max(1, int(min(n, memory / max(1.0, rows.row_bytes))))


def pilot(newton: Newton, task: Task, n: int) -> Floats:
    """A solution for n rows, with a convex loss first; `newton` is left as it should go on with all rows.

    Truncated losses start from the squared hinge. With many wrong labels the solution for the hinge has so wide a
    margin that hardly a row is an outlier, and rounds would stay by it; that of the squared hinge still has the right
    direction, and which length suits the truncated losses a look at the same scores tells.
    """
    positions = newton.rows.sample(fitting(newton.rows, n, ALONE * newton.memory), newton.rng)
    c = task.c[positions].astype(np.float64)
    w = np.zeros(newton.rows.shape[1] + 1)
    if not c.any():
        return w
    is_truncated = task.ceiling < math.inf
    part = task.at(positions, c * (float(task.c.sum(dtype=np.float64)) / c.sum()))
    sample = MemoryRows(newton.rows.take(positions))
    on_sample = Newton(sample, EPS_FIRST, TOL_PILOT, ROUNDS_PILOT, newton.rng, memory=newton.memory)
    at = on_sample.convex(replace(part, ceiling=math.inf, squared=part.squared or is_truncated), w)
    newton.eps = max(on_sample.eps, EPS_WARM)
    if is_truncated:
        newton.eps = EPS_ALL
        norm = 0.5 * float(at.w @ at.w)
        length = min(LENGTHS, key=lambda t: norm * t * t + part.loss(t * at.z))
        rounds = Newton(sample, EPS_ALL, TOL_ROUNDS, ROUNDS_SAMPLE, newton.rng, memory=newton.memory)
        at = rounds.truncated(part, length * at.w, lambda _: False)
    newton.weight = at.weight
    return at.w
