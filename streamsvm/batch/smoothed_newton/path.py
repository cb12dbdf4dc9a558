"""Solutions for falling l1 penalties."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.smoothed_newton.iteration import prune, run
from streamsvm.batch.smoothed_newton.penalties import Penalties
from streamsvm.batch.smoothed_newton.problem import EPS_ZERO, Problem

# Where smoothing begins for the next point of a path at most, and there in units of where it ended at the point before.
EPS_PATH, EPS_AGAIN = 0.25, 2.0
# The strong rule takes it that a gradient moves no further than the l1 penalty does. Where a column it keeps is not
# there, all are taken whose gradients could move so many times as far: these last for several points of a path.
REACH = 5.0
# A path leaves columns out where it may leave out as many as this share.
SCREENED = 0.5


class RegularizationPath(NamedTuple):
    """Solutions for falling l1 penalties.

    Parameters
    ----------
    alphas
        The penalties, shape (n_alphas,).
    coefs, intercepts
        Shapes (n_alphas, n_scores, d) and (n_alphas, n_scores), as `coef_` and `intercept_`.
    objectives, certificates
        The objective of each, summed over one-vs-rest problems, and how far above the optimum it can be at most.
    n_iters
        Iterations each took; 0 where it is a mixture of its neighbours.
    """

    alphas: Floats
    coefs: Floats
    intercepts: Floats
    objectives: Floats
    certificates: Floats
    n_iters: Ints


class PathSolver:
    """Solutions for falling l1 penalties, from problems that stand at zero; from `largest` on they stay there.

    Few of the points are solved for, from the one before. Those between two of them are mixtures of both, and so are
    their dual points: one that is feasible for one penalty and one for another mix to one for the penalty between.
    Where that does not prove a mixture good enough, it is solved from there. As many points are left between the next
    two as turn out to be mixtures.
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
        """Find all that lie between two points; whether they are mixtures of these."""
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
        """Note a point as it was found; whether it is good enough."""
        found = self.found
        found.coefs[k] = [problem.best.w for problem in problems]
        found.intercepts[k] = [problem.best.b for problem in problems]
        found.objectives[k] = sum(problem.best.objective for problem in problems)
        found.certificates[k] = sum(problem.gap for problem in problems)
        return all(problem.is_solved(self.tol) for problem in problems)

    def _solve(self, k: int, problems: list[Problem], before: float) -> list[Problem]:
        """Solve for a penalty from a mixture, or from problems solved for the penalty before."""
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
        """Solve with the columns kept, and prove it for all."""
        columns, penalties = np.flatnonzero(self.keep), replace(problems[0].penalties, l1=float(self.alphas[k]))
        inside = replace(penalties, peaks=penalties.peaks[columns])
        solved = [problem.within(columns, inside, e) for problem, e in zip(problems, eps, strict=True)]
        scores = np.array([problem.z for problem in problems])
        self.found.n_iters[k] += run(self.part, solved, self.tol, self.max_iter, self.rng, scores=scores)
        prune(self.part, solved, self.tol, self.rng)
        self.part.scores(np.array([problem.best.w for problem in solved]), scores)
        d = self.matrix.shape[1]
        problems = [_for_all_columns(*pair, columns, d, penalties) for pair in zip(solved, scores, strict=True)]
        self._prove(problems)
        return problems

    def _prove(self, problems: list[Problem]) -> None:
        """What proved the bounds for some of the columns has to prove them for all."""
        if not self.keep.all():
            v = self.matrix.adjoint(np.array([problem.witness.r for problem in problems]))
            for problem, sums in zip(problems, v, strict=True):
                problem.witness = problem.witness._replace(v=sums)
        for problem in problems:
            problem.bound = problem.witness.bound(problem.penalties)
        self.gradients = -np.array([problem.witness.v for problem in problems])

    def _screen(self, problems: list[Problem], alpha: float, before: float) -> None:
        """Take more columns where the strong rule wants one that is not there."""
        is_active = np.array([problem.best.w != 0.0 for problem in problems]).any(axis=0)
        steepest, fall = np.abs(self.gradients).max(axis=0), before - alpha
        if np.any((is_active | (steepest >= alpha - fall)) & ~self.keep):
            self.keep = is_active | (steepest >= alpha - REACH * fall)
            self.part = _columns_kept(self.matrix, self.keep)


def _first_eps(problem: Problem, fall: float, is_solved: bool) -> float:
    """Where smoothing begins for an l1 penalty `fall` times the last one: not far from where it ended, if it did."""
    eps = max(EPS_ZERO, min(EPS_PATH, 0.25 * (1.0 - fall)))
    return min(eps, EPS_AGAIN * problem.eps) if is_solved else eps


def _columns_kept(matrix: Matrix, keep: NDArray[np.bool_]) -> Matrix:
    """The columns to keep, or all where that are most of them: `keep` then says so."""
    if keep.sum() > (1.0 - SCREENED) * len(keep):
        keep[:] = True
        return matrix
    return matrix.columns(np.flatnonzero(keep))


def _for_all_columns(solved: Problem, z: Floats, columns: Ints, d: int, penalties: Penalties) -> Problem:
    """A problem solved for some of the columns, as one for all; what it proved is to be proved again."""
    best = solved.best.spread(columns, d)
    whole = Problem(solved.codes, solved.positive, solved.c, penalties, best.w, best.b)
    whole.z, whole.eps, whole.best, whole.witness = z, solved.eps, best, solved.witness
    return whole
