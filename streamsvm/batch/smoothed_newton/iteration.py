"""Newton iterations for all one-vs-rest problems, with shared passes over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Matrix
from streamsvm.batch.smoothed_newton import kernels
from streamsvm.batch.smoothed_newton.problem import EPS_LAST, DualPoint, Iterate, NewtonStep, Problem

# Smallest factor of the decrease of eps after a stage. Larger with an l1 penalty, because the support changes with eps.
EPS_FACTOR, EPS_FACTOR_L1 = 0.25, 0.5
# Coefficients that change margins by at most HIDDEN * eps and HIDDEN_MOST may be zero in the unsmoothed solution.
HIDDEN, HIDDEN_MOST = 30.0, 1e-3
# Predicted descent, as a share of the tolerance, below which the bound after a step is computed before the step.
FORESEEN = 0.3
# Maximum share of the tolerance due to smoothing.
SLACK_SHARE = 0.9
# Maximum number of consecutive steps without gain.
STALLED = 3
# Maximum iterations to refit the coefficients that are not pruned.
PRUNED_ITER = 20


def run(
    matrix: Matrix,
    problems: Sequence[Problem],
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    floor: float = EPS_LAST,
    report: Callable[[], bool] = lambda: False,
) -> int:
    """Take Newton steps on all problems; returns the number of iterations.

    A problem is done when its gap is at most `tol` times its objective, or when smoothing has reached `floor`. Scores z
    are computed if the problems have none.
    """
    k, n = len(problems), matrix.shape[0]
    scratch, spare = np.empty((k, n)), np.empty((k, n))
    if len(problems[0].z) != n:
        scores = matrix.scores(np.array([problem.w for problem in problems]), np.empty((k, n)))
        for problem, z in zip(problems, scores, strict=True):
            problem.z = z
    for problem in problems:
        problem.begin()
        problem.center(tol)
    for n_iter in range(1, max_iter + 1):
        active = _not_done(problems)
        assess(matrix, active, scratch)
        for problem in active:
            problem.is_done = problem.is_solved(tol)
        stop = report()
        active = _not_done(active)
        if stop or not active or n_iter == max_iter:
            return n_iter
        moving = _not_done([problem for problem in active if not _sharpen(problem, tol, floor, problem.is_settled)])
        if moving:
            _move(matrix, moving, tol, floor, rng, scratch, spare)
            if not _not_done(problems):
                return n_iter
    return max_iter


def _not_done(problems: Sequence[Problem]) -> list[Problem]:
    return [problem for problem in problems if not problem.is_done]


def assess(matrix: Matrix, problems: Sequence[Problem], scratch: Floats) -> None:
    """Compute objectives, bounds and gradients of all problems.

    `scratch` has a row for each problem.
    """
    for problem, r in zip(problems, scratch, strict=False):
        problem.measure(r)
    for problem, v, r in zip(problems, matrix.adjoint(scratch[: len(problems)]), scratch, strict=False):
        problem.assess(v, r)


def _move(
    matrix: Matrix,
    problems: Sequence[Problem],
    tol: float,
    floor: float,
    rng: np.random.Generator,
    scratch: Floats,
    spare: Floats,
) -> None:
    """Take one step on each problem."""
    steps = [problem.direction(matrix, h, rng) for problem, h in zip(problems, scratch, strict=False)]
    dz = matrix.scores(np.array([step.w for step in steps]), scratch[: len(problems)])
    descents = [problem.descent(step) for problem, step in zip(problems, steps, strict=True)]
    _foresee(matrix, problems, steps, dz, descents, spare, tol)
    for problem, step, along, descent in zip(problems, steps, dz, descents, strict=True):
        is_settled = problem.advance(step, along, descent)
        _sharpen(problem, tol, floor, is_settled)
        problem.is_done = problem.is_done or problem.n_stalled > STALLED
        problem.center(tol * problem.best.objective)


def _foresee(
    matrix: Matrix,
    problems: Sequence[Problem],
    steps: Sequence[NewtonStep],
    dz: Floats,
    descents: Sequence[float],
    scratch: Floats,
    tol: float,
) -> None:
    """Move the dual points along the steps; near the end, compute their bounds."""
    sums = [
        kernels.step_dual(problem.margins, z, step.b, problem.shares, r)
        for problem, step, z, r in zip(problems, steps, dz, scratch, strict=False)
    ]
    near = [k for k, problem in enumerate(problems) if -descents[k] <= FORESEEN * tol * problem.best.objective]
    if not near:
        return
    some = scratch[near]
    for k, v, r in zip(near, matrix.adjoint(some), some, strict=True):
        problems[k].prove(DualPoint(r, v, *sums[k]))


def prune(matrix: Matrix, problems: Sequence[Problem], tol: float, rng: np.random.Generator) -> None:
    """Set coefficients to zero that are nonzero only because of smoothing.

    Smoothing leaves small coefficients where the unsmoothed solution has zeros. If setting them to zero raises the
    objective too much, the other coefficients are fitted again. The bound always covers all columns.
    """
    for problem in problems:
        _, w, b = problem.best
        is_small = _hidden(problem)
        if not w[is_small].any():
            continue
        rest = np.where(is_small, 0.0, w)
        objective = problem.objective(matrix, rest, b)
        if objective - problem.bound <= tol * objective:
            problem.best = Iterate(objective, rest, b)
            continue
        columns = np.flatnonzero(~is_small)
        inside = problem.within(columns)
        run(matrix.columns(columns), [inside], tol, PRUNED_ITER, rng)
        objective = inside.best.objective
        if objective - problem.bound <= max(tol * objective, problem.gap):
            problem.best = inside.best.spread(columns, matrix.shape[1])


def _hidden(problem: Problem) -> NDArray[np.bool_]:
    """Find coefficients that may be zero in the unsmoothed solution."""
    w = problem.best.w
    moves = np.abs(w) * problem.penalties.peaks
    is_small = moves <= min(HIDDEN * problem.eps, HIDDEN_MOST)
    is_small &= (moves <= problem.eps) | (np.abs(w) > 2.0 * np.sign(w) * problem.extrapolate(w))
    return is_small


def _sharpen(problem: Problem, tol: float, floor: float, settled: bool) -> bool:
    """Decrease eps if the stage is settled and smoothing limits the gap.

    At `floor` the problem is done instead. Returns whether eps has changed.
    """
    wanted = SLACK_SHARE * tol * problem.best.objective
    if not settled or problem.slack <= wanted:
        return False
    if problem.eps <= floor:
        problem.is_done = True
        return False
    most = EPS_FACTOR_L1 if problem.penalties.l1 > 0.0 else EPS_FACTOR
    problem.sharpen(max(most, 0.8 * wanted / problem.slack))
    if problem.penalties.l1 > 0.0:
        # The support changes with eps, so the last dual point is no longer a good one.
        problem.follow_margins()
    return True
