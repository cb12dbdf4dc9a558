"""Dual coordinate descent over blocks of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse

from streamsvm.batch.indexed_bcd import kernels
from streamsvm.batch.indexed_bcd.problem import SHRINK, OnRound, Point, Task, chunks, damp, fixed_loss, look
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.rows import Rows, squares_of

# Sweeps of the first round, their growth from round to round, and their maximum.
SWEEPS, SWEEPS_GROW, SWEEPS_MOST = 5.0, 1.2, 100.0
# Maximum attempts of a round to lower the objective.
ATTEMPTS = 20


@dataclass
class DualDescent:
    """Convex-concave rounds of dual coordinate descent over blocks of rows.

    Parameters
    ----------
    rows
        The rows.
    tol
        Duality gap to reach, relative to the objective.
    max_rounds
        Maximum number of rounds.
    rng
        Random number generator.
    block
        Rows of a block.
    sweeps
        Sweeps of the next round; the number grows with each round.
    """

    rows: Rows
    tol: float
    max_rounds: int
    rng: np.random.Generator
    block: int
    sweeps: float = SWEEPS

    def truncated(self, task: Task, w: Floats, report: OnRound) -> Point:
        """Descend from w.

        No alpha is known for w, so the first round takes the inliers of w and starts at alpha = 0.
        """
        alpha = np.zeros(self.rows.shape[0])
        at = look(self.rows, task, w, alpha=alpha)
        for _ in range(self.max_rounds):
            if report(at) or at.gap <= self.tol * at.objective:
                break
            trial, new = self._round(task, at, alpha)
            if new.objective > at.objective and task.ceiling < math.inf:
                t = damp(task, at, new)
                trial = (1.0 - t) * alpha + t * trial
                new = look(self.rows, task, at.w + t * (new.w - at.w), alpha=trial)
                if t == 0.0 or new.objective > at.objective:
                    report(at)
                    break
            alpha, at = trial, new
        return at

    def _round(self, task: Task, at: Point, alpha: Floats) -> tuple[Floats, Point]:
        """Sweep over the inliers with alpha > 0 or y z < 1 + SHRINK.

        Sweeps repeat while the truncated objective would rise.
        """
        inside = task.inliers(at.z) & (task.c > 0.0)
        fixed = fixed_loss(task, inside)
        trial, v, new = np.where(inside, alpha, 0.0), at.v.copy(), at
        for _ in range(ATTEMPTS):
            active = np.flatnonzero(inside & ((trial > 0.0) | (task.y * new.z < 1.0 + SHRINK)))
            for first in range(0, len(active), self.block):
                self.sweep(task, active[first : first + self.block], trial, v)
            at.gap = min(at.gap, max(0.0, at.objective - fixed - dual_value(task, trial, v)))
            new = look(self.rows, task, v.copy(), alpha=trial)
            self.sweeps = min(self.sweeps * SWEEPS_GROW, SWEEPS_MOST)
            if new.objective <= at.objective or task.ceiling == math.inf or at.gap <= self.tol * at.objective:
                break
        return trial, new

    def sweep(self, task: Task, active: Ints, alpha: Floats, w: Floats) -> None:
        """Minimise the dual over a block of rows by sweeps in random order.

        alpha and w are updated.
        """
        X = self.rows.take(active)
        y, c, part = task.y[active], task.c[active].astype(np.float64), alpha[active]
        upper = np.full(len(active), np.inf) if task.squared else c
        ridge = 1.0 / (2.0 * c) if task.squared else np.zeros(len(active))
        block = kernels.DualBlock(y, upper, ridge, squares_of(X) + task.constant**2, part)
        for _ in range(int(self.sweeps)):
            order = self.rng.permutation(len(active))
            if scipy.sparse.issparse(X):
                kernels.sweep_sparse((X.data, X.indices, X.indptr), block, order, task.constant, w)
            else:
                kernels.sweep_dense(np.ascontiguousarray(X), block, order, task.constant, w)
        alpha[active] = part


def dual_value(task: Task, alpha: Floats, w: Floats) -> float:
    """Compute the dual objective."""
    total = -0.5 * float(w @ w)
    for part in chunks(len(alpha)):
        a, c = alpha[part], task.c[part].astype(np.float64)
        ridge = np.divide(a * a, 4.0 * c, out=np.zeros(len(a)), where=c > 0.0) if task.squared else 0.0
        total += float(np.sum(a - ridge))
    return total
