"""Convex-concave rounds of Newton steps in the primal, started from a sample."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.batch.indexed_bcd.problem import (
    SHRINK,
    BinaryProblem,
    HessianSample,
    OnRound,
    Point,
    WorkingSet,
    backtrack,
    evaluate,
    fixed_loss,
)
from streamsvm.batch.linear_systems import LARGEST_BOUNDED_SYSTEM, conjugate_gradients, solve_damped
from streamsvm.batch.matrix import Floats, MemoryRows, Rows
from streamsvm.batch.metric_forest import MetricForest

# Smallest and largest factor of a decrease of eps, and its final value.
EPS_FACTOR, EPS_MOST, EPS_LAST = 0.25, 0.7, 1e-9
# Smallest initial smoothing on a working set.
EPS_WARM = 0.1
# Maximum rows per column for the Hessian.
ROWS_PER_COLUMN = 1000
# Maximum bytes of weighted rows that represent a Hessian.
SYSTEM_BYTES = 64 << 20
# Share of the memory for a working set; the next one is collected while one is in use.
NEXT = 0.33
# Share of the memory for the sample.
SAMPLE_SHARE = 0.6
# Tolerance and maximum rounds on the sample, for the convex and for the truncated loss; initial smoothing.
TOL_PILOT, TOL_ROUNDS, ROUNDS_PILOT, ROUNDS_SAMPLE, EPS_FIRST = 0.03, 0.01, 30, 100, 2.0
# Initial smoothing on all rows with the truncated loss.
EPS_ALL = 1.0
# Candidates for the initial solution of the truncated loss, as multiples of the convex solution.
LENGTHS = 2.0 ** np.arange(10)
# Smallest damping of a Newton step.
DAMP_LEAST = 0.05


@dataclass
class Newton:
    """Smoothed Newton steps, with one pass over the rows each.

    Parameters
    ----------
    rows
        The rows.
    eps
        Smoothing of the hinge, which decreases as needed.
    tol
        Duality gap to reach, relative to the objective.
    max_rounds
        Maximum number of steps.
    rng
        Random number generator.
    weight
        Sum of the weights in the last Hessian, 0 if unknown.
    fixed
        Loss of rows that are not among `rows`; `tol` is relative to the sum with it.
    memory
        Bytes of rows to hold in addition to `rows`.
    """

    rows: Rows
    eps: float
    tol: float
    max_rounds: int
    rng: np.random.Generator
    weight: float = 0.0
    fixed: float = 0.0
    memory: float = math.inf

    def evaluate(self, problem: BinaryProblem, w: Floats, collect: WorkingSet | None = None) -> Point:
        """Evaluate w; the Hessian uses a sample if many rows have weight."""
        n, d = self.rows.shape
        most = ROWS_PER_COLUMN * (d + 1)
        if d > LARGEST_BOUNDED_SYSTEM:
            # Weighted rows are in double precision, and two points hold a list of them.
            most = min(most, int(min(SYSTEM_BYTES, 0.1 * self.memory) / (2.0 * self.rows.row_bytes)) + 1)
        share = most / self.weight if self.weight > 0.0 and n > most else math.inf
        point = evaluate(self.rows, problem, w, self.eps, hessian=HessianSample(d, share, self.rng), collect=collect)
        self.weight = point.weight
        return point

    def _sharpen(self, at: Point, squared: bool) -> None:
        """Decrease smoothing if it causes half of the gap or more."""
        if not squared and at.eps == self.eps and at.gap <= 2.0 * at.slack:
            # Decrease no further than needed, because less smoothing takes more steps.
            factor = 0.3 * self.tol * (at.objective + self.fixed) / at.slack
            self.eps = max(self.eps * min(max(factor, EPS_FACTOR), EPS_MOST), EPS_LAST)

    def minimise_truncated(self, problem: BinaryProblem, w: Floats, report: OnRound, at: Point | None = None) -> Point:
        """Minimise the truncated objective by convex-concave rounds of one step each.

        A step that would raise the truncated objective is damped. If damping fails, the convex problem of the round is
        solved further. Rounds end when w is within `tol` of the optimum of the convex problem of its inliers. `at` is
        the evaluation of w, if known.
        """
        at = self.evaluate(problem, w) if at is None else at
        for _ in range(self.max_rounds):
            if report(at) or at.gap <= self.tol * (at.objective + self.fixed):
                break
            self._sharpen(at, problem.squared)
            new = self._step(problem, at, 0.0, DAMP_LEAST)
            if new.objective >= at.objective:
                new = self._solve_further(problem, at)
                if new is at:
                    report(at)
                    break
            at = new
        return at

    def _step(self, problem: BinaryProblem, at: Point, eps: float, damp_least: float) -> Point:
        """Take a step that lowers the objective smoothed by eps.

        Returns the last point tried, even if none is lower.
        """
        step = newton_step(at, problem)
        new = self.evaluate(problem, at.w + step)
        if problem.along(at, new, 1.0, eps) >= problem.along(at, at, 0.0, eps):
            t = backtrack(problem, at, new, eps)
            if t >= damp_least:
                new = self.evaluate(problem, at.w + t * step)
        return new

    def minimise_by_working_sets(self, problem: BinaryProblem, w: Floats, report: OnRound) -> Point:
        """Minimise the truncated objective in few passes over the rows.

        Each pass collects the rows within `problem.reach` + SHRINK of the hyperplane. The next round solves on this
        working set, with constant losses of the other rows, and the next pass verifies the result. If the rows do not
        fit or the round gains nothing, rounds pass over all rows.
        """
        index = self.rows
        assert isinstance(index, MetricForest)
        working = WorkingSet(index, problem.reach + SHRINK, NEXT * self.memory)
        at = self.evaluate(problem, w, working)
        while at.gap > self.tol * at.objective and working.is_usable:
            if report(at) or self.max_rounds <= 1:
                return at
            self.max_rounds -= 1
            working, last = WorkingSet(index, working.limit, working.memory), working
            new = self._round_on(last, problem, at, working)
            if new.objective >= at.objective:
                t = backtrack(problem, at, new)
                if t == 0.0:
                    break
                working.close()
                working = WorkingSet(index, working.limit, working.memory)
                new = self.evaluate(problem, at.w + t * (new.w - at.w), working)
                if new.objective >= at.objective:
                    break
            at = new
        working.close()
        return self.minimise_truncated(problem, at.w, report, at)

    def _round_on(self, working: WorkingSet, problem: BinaryProblem, at: Point, collect: WorkingSet) -> Point:
        """Solve on a working set, and evaluate the result by a pass over all rows.

        The pass collects the next working set.
        """
        kept, rows = working.rows()
        part = problem.restricted(kept, problem.c[kept])
        fixed = at.objective - 0.5 * float(at.w @ at.w) - part.loss(at.z[kept])
        inner = replace(self, rows=rows, eps=max(at.eps, EPS_WARM), tol=0.5 * self.tol, fixed=fixed)
        end = inner.minimise_truncated(part, at.w, lambda _: False)
        self.eps, self.weight = inner.eps, inner.weight
        new = self.evaluate(problem, end.w, collect)
        # With alpha = 0 for the other rows, the dual point of the working set is feasible for all rows.
        inside = part.inliers(new.z[kept])
        others = new.inside - part.loss(new.z[kept[inside]], inside)
        new.gap = min(new.gap, end.gap + max(0.0, others))
        return new

    def _solve_further(self, problem: BinaryProblem, at: Point) -> Point:
        """Return a better point by steps on the convex problem of the inliers of `at`.

        If there is none, return `at` with a smaller gap.
        """
        inside = problem.inliers(at.z)
        fixed = fixed_loss(problem, inside)
        enough = at.objective - fixed
        end = self.minimise_convex(
            problem.without_truncation(inside), at.w, enough=enough - 1e-9 * at.objective, fixed=fixed
        )
        at.gap = min(at.gap, max(0.0, enough - (end.objective - end.gap)))
        if at.gap <= self.tol * (at.objective + self.fixed) or end.objective >= enough:
            return at
        new = self.evaluate(problem, end.w)
        return new if new.objective < at.objective else at

    def minimise_convex(
        self,
        problem: BinaryProblem,
        w: Floats,
        report: OnRound | None = None,
        enough: float = -math.inf,
        fixed: float = 0.0,
    ) -> Point:
        """Minimise a convex problem until the objective is below `enough` or optimal.

        `fixed` is a constant part of the objective. `tol` is relative to the whole objective.
        """
        at = best = self.evaluate(problem, w)
        bound = -math.inf
        n_failed = 0
        for _ in range(self.max_rounds):
            bound = max(bound, at.objective - at.gap)
            best = at if at.objective < best.objective else best
            best.gap = best.objective - bound
            stop = report is not None and report(best)
            if (
                stop
                or best.objective < enough
                or best.gap <= self.tol * (best.objective + fixed + self.fixed)
                or n_failed > 2
            ):
                break
            self._sharpen(at, problem.squared)
            new = self._step(problem, at, self.eps, 0.0)
            # A step with more smoothing may fail; the next one uses the new eps.
            is_lower = new.objective < at.objective if problem.squared else not np.array_equal(new.w, at.w)
            n_failed = 0 if is_lower or at.eps != self.eps else n_failed + 1
            at = new
        return best


def newton_step(at: Point, problem: BinaryProblem) -> Floats:
    """Minimise g . s + s . (1 + H) s / 2."""
    g = at.w - at.v
    if isinstance(at.hessian, list):
        return _step_by_rows(at.hessian, g, problem.constant)
    system = at.hessian.copy()
    if problem.constant == 0.0:
        system[-1] = 0.0
    np.einsum("ii->i", system)[:] += 1.0
    return -solve_damped(system, g)


def _step_by_rows(scaled: list[Any], g: Floats, constant: float) -> Floats:
    """Compute the step where H is the sum of the outer products of weighted rows."""

    def times(p: Floats) -> Floats:
        out = p.copy()
        for B, roots in scaled:
            q = B @ p[:-1] + constant * p[-1] * roots
            out[:-1] += B.T @ q
            out[-1] += constant * float(roots @ q)
        return out

    return conjugate_gradients(times, g, 0.01, 200)


def n_fitting(rows: Rows, n: int, memory: float) -> int:
    """Return how many of n rows fit in `memory` bytes."""
    return max(1, int(min(n, memory / max(1.0, rows.row_bytes))))


def initial_solution(newton: Newton, problem: BinaryProblem, n: int) -> Floats:
    """Solve for a sample of n rows, with a convex loss first.

    Truncated losses start from the squared hinge. With many wrong labels the solution for the hinge has a wide margin
    and hardly any outliers, so rounds would not improve it. The squared hinge finds the direction of w, and the best of
    LENGTHS its length. `newton` is set up for all rows.
    """
    positions, X = newton.rows.sample(n_fitting(newton.rows, n, SAMPLE_SHARE * newton.memory), newton.rng)
    c = problem.c[positions].astype(np.float64)
    w = np.zeros(newton.rows.shape[1] + 1)
    if not c.any():
        return w
    is_truncated = problem.ceiling < math.inf
    part = problem.restricted(positions, c * (float(problem.c.sum(dtype=np.float64)) / c.sum()))
    sample = MemoryRows(X)
    on_sample = Newton(sample, EPS_FIRST, TOL_PILOT, ROUNDS_PILOT, newton.rng, memory=newton.memory)
    at = on_sample.minimise_convex(replace(part, ceiling=math.inf, squared=part.squared or is_truncated), w)
    newton.eps = max(on_sample.eps, EPS_WARM)
    if is_truncated:
        newton.eps = EPS_ALL
        norm = 0.5 * float(at.w @ at.w)
        length = min(LENGTHS, key=lambda t: norm * t * t + part.loss(t * at.z))
        rounds = Newton(sample, EPS_ALL, TOL_ROUNDS, ROUNDS_SAMPLE, newton.rng, memory=newton.memory)
        at = rounds.minimise_truncated(part, length * at.w, lambda _: False)
    newton.weight = at.weight
    return at.w
