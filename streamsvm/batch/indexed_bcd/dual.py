"""Coordinate descent on the dual, in rounds over blocks of rows."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse

from streamsvm.batch.indexed_bcd import kernels
from streamsvm.batch.indexed_bcd.problem import OnRound, Point, Task, chunks, damp, fixed_loss, look_with
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.rows import Rows, squares_of

# A round sweeps over its rows so often at first, and so many times as often in the next.
SWEEPS, SWEEPS_GROW, SWEEPS_MOST = 5.0, 1.2, 100.0
# It goes on so often while it would raise the objective.
ATTEMPTS = 20


def dual_rounds(
    rows: Rows,
    task: Task,
    w: Floats,
    *,
    shrink: float,
    block: int,
    tol: float,
    max_rounds: int,
    rng: np.random.Generator,
    report: OnRound,
) -> Point:
    """Convex-concave rounds of dual coordinate descent over blocks of rows, more sweeps in each round.

    A round takes up the rows that are no outliers of the last w and have alpha > 0 or y z < 1 + `shrink`, `block` of
    them at a time. One that would raise the truncated objective goes on, and is damped if that does not help.
    """
    alpha = np.zeros(rows.shape[0])
    at = look_with(rows, task, w, alpha)
    # No alpha yields the w to start from: the first round takes its inliers, and begins at zero.
    sweeps = SWEEPS
    for _ in range(max_rounds):
        if report(at) or at.gap <= tol * at.objective:
            break
        inside = task.inliers(at.z) & (task.c > 0.0)
        fixed = fixed_loss(task, inside)
        trial, v, new = np.where(inside, alpha, 0.0), at.v.copy(), at
        for _ in range(ATTEMPTS):
            active = np.flatnonzero(inside & ((trial > 0.0) | (task.y * new.z < 1.0 + shrink)))
            for first in range(0, len(active), block):
                sweep_block(rows, task, active[first : first + block], int(sweeps), trial, v, rng)
            at.gap = min(at.gap, max(0.0, at.objective - fixed - dual_value(task, trial, v)))
            new = look_with(rows, task, v.copy(), trial)
            sweeps = min(sweeps * SWEEPS_GROW, SWEEPS_MOST)
            if new.objective <= at.objective or task.ceiling == math.inf or at.gap <= tol * at.objective:
                break
        if new.objective > at.objective and task.ceiling < math.inf:
            t = damp(task, at, new)
            trial = (1.0 - t) * alpha + t * trial
            new = look_with(rows, task, at.w + t * (new.w - at.w), trial)
            if t == 0.0 or new.objective > at.objective:
                report(at)
                break
        alpha, at = trial, new
    return at


def dual_value(task: Task, alpha: Floats, w: Floats) -> float:
    """The dual objective, to be maximised."""
    total = -0.5 * float(w @ w)
    for part in chunks(len(alpha)):
        a, c = alpha[part], task.c[part].astype(np.float64)
        ridge = np.divide(a * a, 4.0 * c, out=np.zeros(len(a)), where=c > 0.0) if task.squared else 0.0
        total += float(np.sum(a - ridge))
    return total


def sweep_block(
    rows: Rows, task: Task, active: Ints, sweeps: int, alpha: Floats, w: Floats, rng: np.random.Generator
) -> None:
    """Minimise the dual over a block of rows, by sweeps in random order; alpha and w follow."""
    X = rows.take(active)
    y, c, part = task.y[active], task.c[active].astype(np.float64), alpha[active]
    upper = np.full(len(active), np.inf) if task.squared else c
    ridge = 1.0 / (2.0 * c) if task.squared else np.zeros(len(active))
    squares = squares_of(X) + task.constant**2
    for _ in range(sweeps):
        order = rng.permutation(len(active))
        if scipy.sparse.issparse(X):
            kernels.sweep_sparse(X.data, X.indices, X.indptr, order, y, upper, ridge, squares, task.constant, part, w)
        else:
            kernels.sweep_dense(np.ascontiguousarray(X), order, y, upper, ridge, squares, task.constant, part, w)
    alpha[active] = part
