"""Initial solutions, from a sample of the rows and from rows found by an index."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from streamsvm.batch.indexed_bcd.newton import EPS_WARM, Newton
from streamsvm.batch.indexed_bcd.problem import SHRINK, Task
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.rows import MemoryRows, Rows, stack

# Share of the memory for a single sample, and for each of the two sets of rows that a search copies.
ALONE, TWICE = 0.6, 0.2
# Tolerance and maximum rounds on the sample, for the convex and for the truncated loss; initial smoothing.
TOL_PILOT, TOL_ROUNDS, ROUNDS_PILOT, ROUNDS_SAMPLE, EPS_FIRST = 0.03, 0.01, 30, 100, 2.0
# Initial smoothing on all rows with the truncated loss.
EPS_ALL = 1.0
# Multiples of the convex solution, one of which is the initial solution for the truncated loss.
LENGTHS = 2.0 ** np.arange(10)
# Maximum rounds after each query of an index, except the last.
ROUNDS_ON_INDEX = 10
# Minimum number of rows that a query searches for. The search ends when the share of rows in range is below QUERY / n.
QUERY = 1000
# Minimum number of leaves that a query visits at once.
LEAVES_AT_ONCE = 16


def share_needed(index: MetricForest, task: Task, w: Floats, positions: Ints, X: Any) -> float:
    """Estimate the share of rows that a search visits for 95 % of the rows in range.

    X holds the sampled rows at `positions`.
    """
    in_range = np.abs(scores_of(X, w)) <= task.reach
    away = np.abs(index.leaf_scores(w))
    if not in_range.any():
        return 0.0
    farthest = np.quantile(away[index.leaf_of(positions[in_range])], 0.95)
    return float(np.diff(index.starts)[away <= farthest].sum() / index.shape[0])


def scores_of(X: Any, w: Floats) -> Floats:
    """Compute w . x + b of rows, with b the last element of w."""
    scores: Floats = np.asarray(X @ w[:-1], np.float64) + w[-1]
    return scores


class Search:
    """A working set that grows leaf by leaf with the rows near the hyperplane.

    Rows within `task.reach` + SHRINK join the working set. `newton.fixed` includes the loss of the other rows of
    visited leaves. A sample represents the rows of leaves that are not visited.
    """

    def __init__(self, newton: Newton, task: Task, index: MetricForest, n_pilot: int) -> None:
        self.newton, self.task, self.index = newton, task, index
        self.most = TWICE * newton.memory
        self.sample = index.sample(fitting(index, n_pilot, self.most), newton.rng)
        self.X_sample = index.take(self.sample)
        self.leaf_of_sample = index.leaf_of(self.sample)
        self.leaf_weight = np.add.reduceat(task.c, index.starts[:-1], dtype=np.float64)
        self.is_visited = np.zeros(index.n_leaves, bool)
        self.parts: list[Any] = []
        self.positions: list[Ints] = []
        self.n_kept = 0

    def query(self, w: Floats) -> bool:
        """Visit the nearest leaves until enough rows in range are found.

        A query searches for as many rows as the working set has, but at least QUERY.

        Returns
        -------
        bool
            Whether this is the last query: the share of rows in range is below QUERY / n, the memory is full, or all
            leaves are visited.
        """
        index = self.index
        away = np.where(self.is_visited, np.inf, np.abs(index.leaf_scores(w)))
        order = np.argsort(away)[: np.count_nonzero(~self.is_visited)]
        wanted, n_found, is_last = max(QUERY, self.n_kept), 0, False
        # Leaves of a chunk are read in the order of the file.
        chunk = max(LEAVES_AT_ONCE, index.n_leaves // 64)
        for first in range(0, len(order), chunk):
            n_in_range, n_seen = self._visit(order[first : first + chunk], w)
            n_found += n_in_range
            is_last = self._is_full or n_in_range < n_seen * QUERY / index.shape[0]
            if is_last or n_found >= wanted:
                break
        return is_last or bool(self.is_visited.all())

    @property
    def _is_full(self) -> bool:
        return self.n_kept * self.index.row_bytes > self.most

    def _visit(self, leaves: Ints, w: Floats) -> tuple[int, int]:
        """Collect the near rows of some leaves.

        Returns the number of rows in range, and of visited rows.
        """
        task, index = self.task, self.index
        n_in_range = n_seen = 0
        for part, X in index.leaves(leaves):
            z = scores_of(X, w)
            is_near = np.abs(z) <= task.reach + SHRINK
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
        """Return the collected rows and the sampled rows of leaves that are not visited.

        The sampled rows have the total weight of all rows of these leaves.
        """
        task, sample = self.task, self.sample
        left = ~self.is_visited[self.leaf_of_sample]
        c = np.where(left, task.c[sample].astype(np.float64), 0.0)
        c *= self.leaf_weight[~self.is_visited].sum() / c.sum() if c.any() else 0.0
        kept = np.concatenate(self.positions)
        rows = MemoryRows(stack([*self.parts, self.X_sample[np.flatnonzero(left)]], self.index.shape[1]))
        weights = np.concatenate([task.c[kept].astype(np.float64), c[left]])
        return rows, task.at(np.concatenate([kept, sample[left]]), weights)


def on_index(newton: Newton, task: Task, index: MetricForest, w: Floats, n_pilot: int) -> Floats:
    """Solve on the working set of a `Search` after each query.

    `newton` is set up for all rows; its state is updated for the passes that follow.
    """
    search, is_last = Search(newton, task, index, n_pilot), False
    while not is_last:
        is_last = search.query(w)
        rows, working = search.working_set()
        rounds = newton.max_rounds if is_last else ROUNDS_ON_INDEX
        inner = replace(newton, rows=rows, tol=0.5 * newton.tol, max_rounds=rounds)
        w = inner.truncated(working, w, lambda _: False).w
    newton.eps, newton.weight, newton.fixed = inner.eps, inner.weight, 0.0
    return w


def fitting(rows: Rows, n: int, memory: float) -> int:
    """Return how many of n rows fit in `memory` bytes."""
    return max(1, int(min(n, memory / max(1.0, rows.row_bytes))))


def pilot(newton: Newton, task: Task, n: int) -> Floats:
    """Solve for a sample of n rows, with a convex loss first.

    Truncated losses start from the squared hinge. With many wrong labels the solution for the hinge has a wide margin
    and hardly any outliers, so rounds would not improve it. The squared hinge finds the direction of w, and the best of
    LENGTHS its length. `newton` is set up for all rows.
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
