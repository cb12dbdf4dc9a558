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
# A query visits so many leaves at once, at least.
LEAVES_AT_ONCE = 16


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


class Search:
    """A working set that grows by the rows near the hyperplane, leaf by leaf.

    Rows in range, or short of it by `shrink`, join the working set, other rows of visited leaves do not count until all
    rows are looked at again: `newton.fixed` has their loss. A sample stands for the rows of leaves not visited yet.
    """

    def __init__(self, newton: Newton, task: Task, index: Index, n_pilot: int, shrink: float) -> None:
        self.newton, self.task, self.index, self.shrink = newton, task, index, shrink
        self.most = TWICE * newton.memory
        self.sample = index.sample(fitting(index, n_pilot, self.most), newton.rng)
        self.X_sample = index.take(self.sample)
        self.leaf_of_sample = index.leaf_of(self.sample)
        self.leaf_weight = np.add.reduceat(task.c, index.starts[:-1], dtype=np.float64)
        self.is_visited = np.zeros(index.n_leaves, bool)
        self.parts: list[Any] = []
        self.positions: list[Ints] = []
        self.n_kept = 0

    def query(self, w: Floats, n: int) -> bool:
        """Visit the nearest leaves until as many rows in range are found as are kept, at least n.

        It is the last, and True is returned, where of the rows traversed fewer than n / |D| were in range, where the
        memory is full, and where all leaves are visited.
        """
        index = self.index
        away = np.where(self.is_visited, np.inf, np.abs(index.leaf_scores(w)))
        order = np.argsort(away)[: np.count_nonzero(~self.is_visited)]
        wanted, n_found, is_last = max(n, self.n_kept), 0, False
        # Some leaves at once, so that they are read in the order of the disk.
        chunk = max(LEAVES_AT_ONCE, index.n_leaves // 64)
        for first in range(0, len(order), chunk):
            n_in_range, n_seen = self._visit(order[first : first + chunk], w)
            n_found += n_in_range
            is_last = self._is_full or n_in_range < n_seen * n / index.shape[0]
            if is_last or n_found >= wanted:
                break
        return is_last or bool(self.is_visited.all())

    @property
    def _is_full(self) -> bool:
        return self.n_kept * self.index.row_bytes > self.most

    def _visit(self, leaves: Ints, w: Floats) -> tuple[int, int]:
        """Keep the rows of some leaves that are near; how many were in range, of how many."""
        task, index = self.task, self.index
        n_in_range = n_seen = 0
        for part, X in index.leaves(leaves):
            z = scores_of(X, w)
            is_near = np.abs(z) <= task.reach + self.shrink
            near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
            self.newton.fixed += task.loss(z[far], part.start + far)
            n_in_range += int(np.count_nonzero(np.abs(z) <= task.reach))
            n_seen += len(z)
            self.parts.append(X[near])
            self.positions.append(part.start + near)
            self.n_kept += len(near)
            self.is_visited[index.leaf_of(part.start) : index.leaf_of(part.stop - 1) + 1] = True
            if self._is_full:
                break
        return n_in_range, n_seen

    def working_set(self) -> tuple[MemoryRows, Task]:
        """The rows kept, and the sample of leaves not visited, with the weight of all rows there."""
        task, sample = self.task, self.sample
        left = ~self.is_visited[self.leaf_of_sample]
        c = np.where(left, task.c[sample].astype(np.float64), 0.0)
        c *= self.leaf_weight[~self.is_visited].sum() / c.sum() if c.any() else 0.0
        kept = np.concatenate(self.positions)
        rows = MemoryRows(stack([*self.parts, self.X_sample[np.flatnonzero(left)]], self.index.shape[1]))
        weights = np.concatenate([task.c[kept].astype(np.float64), c[left]])
        return rows, task.at(np.concatenate([kept, sample[left]]), weights)


def on_index(newton: Newton, task: Task, index: Index, w: Floats, *, n: int, n_pilot: int, shrink: float) -> Floats:
    """Rounds on the working set of a `Search` after each of its queries; `newton` is left as it should go on."""
    search, is_last = Search(newton, task, index, n_pilot, shrink), False
    while not is_last:
        is_last = search.query(w, n)
        rows, working = search.working_set()
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
