"""Initial solution from a sample of the rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from streamsvm.batch.indexed_bcd.newton import EPS_WARM, Newton
from streamsvm.batch.indexed_bcd.problem import Task
from streamsvm.batch.matrix import Floats
from streamsvm.batch.rows import MemoryRows, Rows

# Share of the memory for the sample.
SAMPLE_SHARE = 0.6
# Tolerance and maximum rounds on the sample, for the convex and for the truncated loss; initial smoothing.
TOL_PILOT, TOL_ROUNDS, ROUNDS_PILOT, ROUNDS_SAMPLE, EPS_FIRST = 0.03, 0.01, 30, 100, 2.0
# Initial smoothing on all rows with the truncated loss.
EPS_ALL = 1.0
# Multiples of the convex solution, one of which is the initial solution for the truncated loss.
LENGTHS = 2.0 ** np.arange(10)


def fitting(rows: Rows, n: int, memory: float) -> int:
    """Return how many of n rows fit in `memory` bytes."""
    return max(1, int(min(n, memory / max(1.0, rows.row_bytes))))


def pilot(newton: Newton, task: Task, n: int) -> Floats:
    """Solve for a sample of n rows, with a convex loss first.

    Truncated losses start from the squared hinge. With many wrong labels the solution for the hinge has a wide margin
    and hardly any outliers, so rounds would not improve it. The squared hinge finds the direction of w, and the best of
    LENGTHS its length. `newton` is set up for all rows.
    """
    positions, X = newton.rows.sample(fitting(newton.rows, n, SAMPLE_SHARE * newton.memory), newton.rng)
    c = task.c[positions].astype(np.float64)
    w = np.zeros(newton.rows.shape[1] + 1)
    if not c.any():
        return w
    is_truncated = task.ceiling < math.inf
    part = task.at(positions, c * (float(task.c.sum(dtype=np.float64)) / c.sum()))
    sample = MemoryRows(X)
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
