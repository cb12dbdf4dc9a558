"""Regularisation path: solutions for decreasing l1 penalties."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.smoothed_newton.iteration import prune, run
from streamsvm.batch.smoothed_newton.penalties import Penalties
from streamsvm.batch.smoothed_newton.problem import EPS_ZERO, Problem

# Maximum initial smoothing at the next point: an absolute value, and a multiple of the final smoothing of the last.
EPS_PATH, EPS_AGAIN = 0.25, 2.0
# The strong rule assumes that a gradient changes no more than the l1 penalty. When a column is missing, columns whose
# gradients may change REACH times as much are added too, which suffice for several points.
REACH = 5.0
# Minimum share of columns to leave out; otherwise all are used.
SCREENED = 0.5


class RegularizationPath(NamedTuple):
    """Solutions for decreasing l1 penalties.

    Parameters
    ----------
    alphas
        The penalties, shape (n_alphas,).
    coefs, intercepts
        Shapes (n_alphas, n_scores, d) and (n_alphas, n_scores), as `coef_` and `intercept_`.
    objectives, certificates
        Objectives, summed over one-vs-rest problems, and bounds on their distances from the optima.
    n_iters
        Numbers of iterations; 0 for a mixture of neighbours.
    """

    alphas: Floats
    coefs: Floats
    intercepts: Floats
    objectives: Floats
    certificates: Floats
    n_iters: Ints


class PathSolver:
    """Solver for decreasing l1 penalties, starting from zero coefficients.

    Zero is the solution for penalties from `largest` on. Only some points are solved, each from the last one. Points
    between are mixtures of two solutions. The mixture of the dual points is feasible, and may prove that the mixture is
    within `tol`; otherwise the point is solved. The stride between solved points doubles while mixtures suffice, and
    halves otherwise.
    """

    def __init__(
        self,
        matrix: Matrix,
        problems: list[Problem],
        alphas: Floats,
        largest: float,
        tol: float,
        max_iter: int,
        rng: np.random.Generator,
    ) -> None:
        self.matrix, self.alphas, self.largest = matrix, alphas, largest
        self.tol, self.max_iter, self.rng = tol, max_iter, rng
        self.gradients = np.array([problem.g for problem in problems])
        self.keep = np.zeros(matrix.shape[1], bool)
        self.keep[np.abs(self.gradients).max(axis=0).argmax()] = True
        self.part = _columns_kept(matrix, self.keep)
        n_alphas, k = len(alphas), len(problems)
        self.found = RegularizationPath(
            alphas,
            np.zeros((n_alphas, k, matrix.shape[1])),
            np.zeros((n_alphas, k)),
            np.zeros(n_alphas),
            np.zeros(n_alphas),
            np.zeros(n_alphas, np.int64),
        )
        self._follow(problems)

    def _follow(self, problems: list[Problem]) -> None:
        last, stride = 0, 1
        problems = self._solve(0, problems, max(self.largest, self.alphas[0]))
        while last < len(self.alphas) - 1:
            k = min(last + stride, len(self.alphas) - 1)
            reached = self._solve(k, problems, self.alphas[last])
            stride = 2 * stride if self._fill(last, k, problems, reached) else max(1, stride // 2)
            last, problems = k, reached

    def _fill(self, first: int, last: int, left: list[Problem], right: list[Problem]) -> bool:
        """Fill the points between two solved ones; returns whether all are mixtures."""
        inside = range(first + 1, last)
        bad = [k for k in inside if not self._keep(k, self._between(k, first, last, left, right))]
        if not bad:
            return True
        k = bad[len(bad) // 2]
        middle = self._solve(k, self._between(k, first, last, left, right), self.alphas[first])
        self._fill(first, k, left, middle)
        self._fill(k, last, middle, right)
        return False

    def _between(self, k: int, first: int, last: int, left: list[Problem], right: list[Problem]) -> list[Problem]:
        share = float((self.alphas[first] - self.alphas[k]) / (self.alphas[first] - self.alphas[last]))
        return [a.between(b, share, float(self.alphas[k])) for a, b in zip(left, right, strict=True)]

    def _keep(self, k: int, problems: list[Problem]) -> bool:
        """Record a point; returns whether it is within `tol`."""
        found = self.found
        found.coefs[k] = [problem.best.w for problem in problems]
        found.intercepts[k] = [problem.best.b for problem in problems]
        found.objectives[k] = sum(problem.best.objective for problem in problems)
        found.certificates[k] = sum(problem.gap for problem in problems)
        return all(problem.is_solved(self.tol) for problem in problems)

    def _solve(self, k: int, problems: list[Problem], before: float) -> list[Problem]:
        """Solve for a penalty, starting from a mixture or from the last solution."""
        alpha = float(self.alphas[k])
        eps = [problem.eps for problem in problems]
        if problems[0].penalties.l1 != alpha:
            eps = [_first_eps(problem, alpha / before, before < self.largest) for problem in problems]
        self._screen(problems, alpha, before)
        while True:
            problems = self._solve_kept(k, problems, eps)
            missed = (np.abs(self.gradients) > alpha).any(axis=0) & ~self.keep
            if self._keep(k, problems) or not missed.any():
                return problems
            self.keep |= missed
            self.part = _columns_kept(self.matrix, self.keep)
            eps = [problem.eps for problem in problems]

    def _solve_kept(self, k: int, problems: list[Problem], eps: list[float]) -> list[Problem]:
        """Solve with the kept columns, and compute the bound for all columns."""
        columns, penalties = np.flatnonzero(self.keep), replace(problems[0].penalties, l1=float(self.alphas[k]))
        inside = replace(penalties, peaks=penalties.peaks[columns])
        solved = [problem.within(columns, inside, e) for problem, e in zip(problems, eps, strict=True)]
        scores = np.array([problem.z for problem in problems])
        for problem, z in zip(solved, scores, strict=True):
            problem.z = z
        self.found.n_iters[k] += run(self.part, solved, self.tol, self.max_iter, self.rng)
        prune(self.part, solved, self.tol, self.rng)
        self.part.scores(np.array([problem.best.w for problem in solved]), scores)
        d = self.matrix.shape[1]
        problems = [_for_all_columns(*pair, columns, d, penalties) for pair in zip(solved, scores, strict=True)]
        self._prove(problems)
        return problems

    def _prove(self, problems: list[Problem]) -> None:
        """Compute bounds and gradients for all columns from the dual points."""
        if not self.keep.all():
            v = self.matrix.adjoint(np.array([problem.witness.r for problem in problems]))
            for problem, sums in zip(problems, v, strict=True):
                problem.witness = problem.witness._replace(v=sums)
        for problem in problems:
            problem.bound = problem.witness.bound(problem.penalties)
        self.gradients = -np.array([problem.witness.v for problem in problems])

    def _screen(self, problems: list[Problem], alpha: float, before: float) -> None:
        """Keep the columns that the strong rule selects, if one of them is missing."""
        is_active = np.array([problem.best.w != 0.0 for problem in problems]).any(axis=0)
        steepest, fall = np.abs(self.gradients).max(axis=0), before - alpha
        if np.any((is_active | (steepest >= alpha - fall)) & ~self.keep):
            self.keep = is_active | (steepest >= alpha - REACH * fall)
            self.part = _columns_kept(self.matrix, self.keep)


def _first_eps(problem: Problem, fall: float, is_solved: bool) -> float:
    """Return the initial smoothing for an l1 penalty `fall` times the last one."""
    eps = max(EPS_ZERO, min(EPS_PATH, 0.25 * (1.0 - fall)))
    return min(eps, EPS_AGAIN * problem.eps) if is_solved else eps


def _columns_kept(matrix: Matrix, keep: NDArray[np.bool_]) -> Matrix:
    """Select the kept columns; if these are most columns, `keep` is set to all."""
    if keep.sum() > (1.0 - SCREENED) * len(keep):
        keep[:] = True
        return matrix
    return matrix.columns(np.flatnonzero(keep))


def _for_all_columns(solved: Problem, z: Floats, columns: Ints, d: int, penalties: Penalties) -> Problem:
    """Expand a problem solved for some columns to all; its bound must be recomputed."""
    best = solved.best.spread(columns, d)
    whole = Problem(solved.codes, solved.positive, solved.c, penalties, best.w, best.b)
    whole.z, whole.eps, whole.best, whole.witness = z, solved.eps, best, solved.witness
    return whole
