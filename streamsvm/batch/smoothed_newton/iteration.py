"""Newton steps on the problems of all classes, which share their passes over the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Matrix
from streamsvm.batch.smoothed_newton.problem import EPS_LAST, DualPoint, Iterate, Problem, Step

# By how much smoothing falls when a stage is done, at most; less with an l1 penalty, where the support has to follow.
EPS_FACTOR, EPS_FACTOR_L1 = 0.25, 0.5
# Coefficients that move margins by so many times eps at most, and by no more than so much, may be zeros in truth, if
# they seem to go there.
HIDDEN, HIDDEN_MOST = 30.0, 1e-3
# A step that promises less than so much of the tolerance may end in a point whose bound is good enough.
FORESEEN = 0.3
# The share of the tolerance that smoothing may use up.
SLACK_SHARE = 0.9
# A problem whose steps gained nothing so many times in a row is done.
STALLED = 3
# Solving once more without coefficients that are set to zero takes so many iterations at most.
PRUNED_ITER = 20


def run(
    matrix: Matrix,
    problems: Sequence[Problem],
    tol: float,
    max_iter: int,
    rng: np.random.Generator,
    floor: float = EPS_LAST,
    report: Callable[[], bool] = lambda: False,
    scores: Floats | None = None,
) -> int:
    """Newton steps on all problems, the passes over the rows shared, until each is done.

    A problem is done where its gap is at most tol times its objective, or smoothing has come down to `floor`. Where
    the products of all rows with the coefficients are known they may be given as `scores`, which are overwritten.

    Returns
    -------
    int
        The number of iterations.
    """
    k, n = len(problems), matrix.shape[0]
    scratch, spare = np.empty((k, n)), np.empty((k, n))
    if scores is None:
        scores = matrix.scores(np.array([problem.w for problem in problems]), np.empty((k, n)))
    for problem, z in zip(problems, scores, strict=True):
        problem.begin(z)
        if problem.penalties.bias_l2 == 0.0:
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
    """Objectives, bounds and gradients at the margins of all problems; `scratch` has a row for each."""
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
    """One step of each problem."""
    steps = [problem.direction(matrix, h, rng) for problem, h in zip(problems, scratch, strict=False)]
    dz = matrix.scores(np.array([step.w for step in steps]), scratch[: len(problems)])
    descents = [problem.descent(step) for problem, step in zip(problems, steps, strict=True)]
    _foresee(matrix, problems, steps, dz, descents, spare, tol)
    for problem, step, along, descent in zip(problems, steps, dz, descents, strict=True):
        is_settled = problem.advance(step, along, descent)
        _sharpen(problem, tol, floor, is_settled)
        problem.is_done = problem.is_done or problem.n_stalled > STALLED
        if problem.penalties.bias_l2 == 0.0:
            problem.center(tol * problem.best.objective)


def _foresee(
    matrix: Matrix,
    problems: Sequence[Problem],
    steps: Sequence[Step],
    dz: Floats,
    descents: Sequence[float],
    scratch: Floats,
    tol: float,
) -> None:
    """The dual points go where the steps lead them; of the last steps, these give bounds before the steps are made.

    The gradients there are those of the model of second order, however far from quadratic the loss is.
    """
    sums = [problem.foresee(step, z, r) for problem, step, z, r in zip(problems, steps, dz, scratch, strict=False)]
    near = [k for k, problem in enumerate(problems) if -descents[k] <= FORESEEN * tol * problem.best.objective]
    if not near:
        return
    some = scratch[near]
    for k, v, r in zip(near, matrix.adjoint(some), some, strict=True):
        problems[k].prove(DualPoint(r, v, *sums[k]))


def prune(matrix: Matrix, problems: Sequence[Problem], tol: float, rng: np.random.Generator) -> None:
    """Set coefficients to zero that move margins by no more than smoothing hides, where the certificate allows it.

    Smoothing can leave coefficients as small as itself where the unsmoothed problem has zeros. The others are solved
    for once more without them, where it is not enough to leave these out; the bound is still that of all columns.
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
        penalties = replace(problem.penalties, peaks=problem.penalties.peaks[columns])
        inside = problem.within(columns, penalties, problem.eps)
        run(matrix.columns(columns), [inside], tol, PRUNED_ITER, rng)
        objective = inside.best.objective
        if objective - problem.bound <= max(tol * objective, problem.gap):
            problem.best = inside.best.spread(columns, matrix.shape[1])


def _hidden(problem: Problem) -> NDArray[np.bool_]:
    """The coefficients that may be zeros in truth."""
    w = problem.best.w
    moves = np.abs(w) * problem.penalties.peaks
    is_small = moves <= min(HIDDEN * problem.eps, HIDDEN_MOST)
    is_small &= (moves <= problem.eps) | (np.abs(w) > 2.0 * np.sign(w) * problem.limit(w))
    return is_small


def _sharpen(problem: Problem, tol: float, floor: float, settled: bool) -> bool:
    """Smooth less if this stage is settled and smoothing still stands in the way; done where the floor is reached."""
    wanted = SLACK_SHARE * tol * problem.best.objective
    if not settled or problem.slack <= wanted:
        return False
    if problem.eps <= floor:
        problem.is_done = True
        return False
    most = EPS_FACTOR_L1 if problem.penalties.l1 > 0.0 else EPS_FACTOR
    problem.sharpen(max(most, 0.8 * wanted / problem.slack))
    if problem.penalties.l1 > 0.0:
        # Columns come and go: the last stage's dual point would mislead.
        problem.follow_margins()
    return True
