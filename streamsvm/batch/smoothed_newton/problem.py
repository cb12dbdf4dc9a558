"""State of a one-vs-rest problem: objective, dual bound, steps and smoothing."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamsvm.batch.matrix import Floats, Ints, Matrix, systematic_sample
from streamsvm.batch.smoothed_newton import kernels
from streamsvm.batch.smoothed_newton.quadratic import Penalties, QuadraticModel

# Initial and final smoothing, in units of the margin.
EPS_FIRST, EPS_LAST = 1.0, 1e-11
# Initial estimate of the number of products in conjugate gradients.
PRODUCTS = 50
# Relative rounding error of the objective.
ROUNDING = 1e-14
# Rows per column for the Hessian: at most ROWS_PER_COLUMN, initially the number that costs PASSES passes but at least
# FEWEST_ROWS. The number grows by MORE_ROWS when a step has more than SLOW times the predicted descent of the last one.
ROWS_PER_COLUMN, PASSES, FEWEST_ROWS, MORE_ROWS, SLOW = 1000, 4.0, 5, 4, 0.5
# The Hessian ignores rows with less than this share of the mean curvature.
NEGLIGIBLE = 1e-6
# With l1, maximum number of columns that become nonzero in one step; more if twice the nonzero columns are more.
NEWCOMERS = 50
# Maximum number of columns that change in a step with l1.
LARGEST_L1_SYSTEM = 2000


class Iterate(NamedTuple):
    """Coefficients and bias, with the unsmoothed objective."""

    objective: float
    w: Floats
    b: float

    def spread(self, columns: Ints, d: int) -> Iterate:
        """Expand from some of d columns to all."""
        w = np.zeros(d)
        w[columns] = self.w
        return self._replace(w=w)


class DualPoint(NamedTuple):
    """A dual point r = alpha y, with v = sum of r x, and the sums of alpha and r."""

    r: Floats
    v: Floats
    mass: float
    balance: float

    def bound(self, penalties: Penalties) -> float:
        """Return a lower bound of the objective."""
        return penalties.dual(self.v, self.mass, self.balance)


class EpsStage(NamedTuple):
    """The solution for one value of eps: coefficients, bias and scores."""

    w: Floats
    b: float
    z: Floats
    eps: float


class NewtonStep(NamedTuple):
    """A step of the coefficients and the bias."""

    w: Floats
    b: float


class Problem:
    """A one-vs-rest problem and the state of its solver."""

    def __init__(self, codes: Ints, positive: int, c: Floats, penalties: Penalties, w: Floats, b: float) -> None:
        self.codes, self.positive, self.c, self.penalties = codes, positive, c, penalties
        self.w, self.b, self.eps = w, b, EPS_FIRST
        self.z = np.empty(0)
        self.shares = np.empty(0)
        self.best = Iterate(math.inf, w, b)
        self.bound = -math.inf
        self.witness = DualPoint(np.empty(0), np.empty(0), 0.0, 0.0)
        self.slack = math.inf
        self.n_stalled = 0
        self.n_products = PRODUCTS
        self.n_rows = 0
        self.last_descent = (0.0, math.inf)
        self.is_done = False
        self.previous: EpsStage | None = None

    def within(self, columns: Ints) -> Problem:
        """Restrict the problem to some columns, starting from the best point."""
        penalties = replace(self.penalties, peaks=self.penalties.peaks[columns])
        other = Problem(self.codes, self.positive, self.c, penalties, self.best.w[columns], self.best.b)
        other.eps, other.bound = self.eps, self.bound
        other.witness = self.witness._replace(v=self.witness.v[columns])
        return other

    @property
    def margins(self) -> kernels.Margins:
        """The problem at the current point, for kernels."""
        return kernels.Margins(self.z, float(self.b), self.codes, self.positive, self.c, float(self.eps))

    @property
    def gap(self) -> float:
        """Bound on the distance of the best objective from the optimum."""
        return max(0.0, self.best.objective - self.bound)

    def is_solved(self, tol: float) -> bool:
        """Return whether the gap is at most `tol` times the objective."""
        return self.gap <= tol * self.best.objective

    def begin(self) -> None:
        """Start from w, b and z, and from the dual point `witness` if there is one."""
        self.previous, self.is_done, self.n_stalled = None, False, 0
        self.best = Iterate(math.inf, self.w, self.b)
        self.shares = np.full(len(self.z), 0.5)
        if len(self.witness.r):
            np.divide(np.abs(self.witness.r), self.c, out=self.shares, where=self.c > 0.0)
        else:
            self.follow_margins()

    def follow_margins(self) -> None:
        """Compute the dual point of the current margins."""
        kernels.hinge_slopes(self.margins, self.shares)

    # Evaluation ------------------------------------------------------------------------------------------------

    def measure(self, r: Floats) -> None:
        """Compute losses and the dual point at the current margins; r becomes alpha y."""
        self.sums = kernels.fill_dual_point(self.margins, r)

    def assess(self, v: Floats, r: Floats) -> None:
        """Compute gradient, objective and bound from r = alpha y and v = sum(alpha y x)."""
        penalties, w, b = self.penalties, self.w, self.b
        hinge, mass, balance, self.slack = self.sums
        self.g = penalties.l2 * w - v
        self.gb = -balance if penalties.intercept else 0.0
        objective = hinge + penalties.value(w)
        if objective < self.best.objective:
            self.best = Iterate(objective, w.copy(), b)
        bound = self.prove(DualPoint(r, v, mass, balance))
        self.is_settled = objective - bound - self.slack <= 0.1 * self.slack

    def prove(self, point: DualPoint) -> float:
        """Compute the bound of a dual point, and keep it if it is the best so far."""
        bound = point.bound(self.penalties)
        if bound > self.bound:
            self.bound = bound
            if self.penalties.l1 > 0.0:
                self.witness = point._replace(r=point.r.copy())
        return bound

    def objective(self, matrix: Matrix, w: Floats, b: float) -> float:
        """Compute the unsmoothed objective."""
        z = matrix.scores(w[None], np.empty((1, matrix.shape[0])))[0]
        return self._hinge(z, b) + self.penalties.value(w)

    def _hinge(self, z: Floats, b: float) -> float:
        margins = self.margins._replace(z=z, bias=b, eps=EPS_LAST)
        return float(kernels.fill_dual_point(margins, np.empty(len(z)))[0])

    # The step ----------------------------------------------------------------------------------------------------

    def direction(self, matrix: Matrix, h: Floats, rng: np.random.Generator) -> NewtonStep:
        """Minimise the quadratic model plus the l1 penalty; `h` is scratch."""
        penalties = self.penalties
        columns = np.arange(len(self.w))
        if penalties.l1 > 0.0:
            columns = self._working_set()
        rows, weights = self._heavy_rows(h, self._most_rows(matrix, len(columns)), rng)
        model = QuadraticModel(matrix, rows, weights, columns, penalties)
        g = np.append(self.g[columns], self.gb)
        if penalties.l1 > 0.0:
            step = model.shrunk_step(g, np.append(self.w[columns], self.b))
        else:
            step = model.step(g, self.n_products)
            self.n_products = max(self.n_products, model.n_products)
        dw = np.zeros(len(self.w))
        dw[columns] = step[:-1]
        return NewtonStep(dw, float(step[-1]))

    def _working_set(self) -> Ints:
        """Select nonzero columns, and the zero columns with the largest excess gradient.

        If there are too many for a Hessian, the columns with the largest violations of the optimality conditions are
        selected.
        """
        l1, is_active = self.penalties.l1, self.w != 0.0
        wrong = np.where(is_active, np.abs(self.g + l1 * np.sign(self.w)), np.abs(self.g) - l1)
        active, new = np.flatnonzero(is_active), np.flatnonzero(~is_active & (wrong > 0.0))
        new = new[np.argsort(-wrong[new])[: max(NEWCOMERS, 2 * len(active))]]
        columns = np.concatenate([active, new])
        if len(columns) > LARGEST_L1_SYSTEM:
            columns = columns[np.argsort(-wrong[columns])[:LARGEST_L1_SYSTEM]]
        return np.sort(columns)

    def _most_rows(self, matrix: Matrix, n_columns: int) -> int:
        """Return the maximum number of rows for the Hessian."""
        cost = matrix.gram_cost(1, n_columns)
        cheap = int(min(2.0 * PASSES * matrix.shape[0] / math.sqrt(cost + 1e-9), 1e9))
        fewest, most = FEWEST_ROWS * (n_columns + 1), ROWS_PER_COLUMN * (n_columns + 1)
        self.n_rows = min(max(self.n_rows, cheap, fewest), most)
        return self.n_rows

    def _heavy_rows(self, h: Floats, most: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Select rows with curvature, or a sample of them; returns rows and weights."""
        total, mean = kernels.hessian_weights(self.margins, self.shares, h)
        rows = np.flatnonzero(h > NEGLIGIBLE * mean * self.c)
        if len(h) <= most:
            return rows, h[rows]
        chosen, weights = systematic_sample(h[rows], most / total, rng)
        return rows[chosen], weights

    def descent(self, step: NewtonStep) -> float:
        """Predict the change of the objective along a step.

        The prediction is of first order in the smooth part.
        """
        change = float(np.abs(self.w + step.w).sum() - np.abs(self.w).sum()) if self.penalties.l1 > 0.0 else 0.0
        return float(self.g @ step.w) + self.gb * step.b + self.penalties.l1 * change

    def advance(self, step: NewtonStep, dz: Floats, descent: float) -> bool:
        """Take a step with a line search; returns whether the stage seems settled."""
        eps, last = self.last_descent
        if eps == self.eps and -descent > SLOW * last:
            self.n_rows *= MORE_ROWS
        self.last_descent = (self.eps, -descent)
        start, _, _ = self._along(step, dz, 0.0)
        # The last steps improve the certificate, although rounding hides the decrease of the objective.
        is_hidden = abs(descent) <= ROUNDING * start
        t = self._line_search(step, dz, start, descent) if descent < 0.0 or is_hidden else 0.0
        is_stalled = t == 0.0 or (is_hidden and eps == self.eps)
        self.n_stalled = self.n_stalled + 1 if is_stalled else 0
        if t == 0.0:
            return True
        self.w, self.b = self.w + t * step.w, self.b + t * step.b
        self.z += t * dz
        return t > 0.5 and -descent <= 2.0 * self.slack

    def _along(self, step: NewtonStep, dz: Floats, t: float) -> tuple[float, float, float]:
        """Return the smoothed objective at t along a step, and two derivatives.

        The derivatives are one-sided.
        """
        penalties, (dw, db) = self.penalties, step
        value, slope, curvature = kernels.along(self.margins, dz, db, t)
        w = self.w + t * dw
        # A coordinate that the step sets to zero is at a kink: use the derivative on the side of the step.
        signs = np.where(w == 0.0, np.sign(dw) if t == 0.0 else -np.sign(dw), np.sign(w))
        slope += penalties.l2 * (w @ dw) + penalties.l1 * (signs @ dw)
        curvature += penalties.l2 * (dw @ dw)
        return value + penalties.value(w), float(slope), float(curvature)

    def _line_search(self, step: NewtonStep, dz: Floats, value: float, descent: float) -> float:
        """Find a step length near the minimum; 0 if rounding hides any descent."""
        # A longer step would change the sign of coordinates that a full step sets to zero.
        longest = 16.0 if self.penalties.l1 == 0.0 else 1.0
        low, high, t, good = 0.0, math.inf, 1.0, 0.0
        for _ in range(40):
            there, slope, curvature = self._along(step, dz, t)
            if there <= value + 1e-4 * t * descent + ROUNDING * value:
                good = t
                if abs(slope) <= 0.5 * abs(descent) or (slope < 0.0 and t >= longest):
                    return t
            if slope < 0.0:
                low = t
            else:
                high = t
            newton = t - slope / curvature if curvature > 0.0 else math.inf
            if high == math.inf:
                t = min(max(newton, 1.5 * t), 4.0 * t, longest)
            else:
                inside = low + 0.05 * (high - low) < newton < high - 0.05 * (high - low)
                t = newton if inside else 0.5 * (low + high)
            if good > 0.0 and high - low < 0.1 * high:
                break
        return good

    def center(self, target: float) -> None:
        """Minimise over the bias until the classes balance well enough for the bound."""
        if not self.penalties.intercept:
            return
        enough = 1e-3 * target / (1.0 + float(np.abs(self.w) @ self.penalties.peaks))
        low, high = -math.inf, math.inf
        for _ in range(60):
            slope, curvature = kernels.bias_derivatives(self.margins)
            if abs(slope) <= max(enough, 1e-15):
                break
            if slope < 0.0:
                low = self.b
            else:
                high = self.b
            step = -slope / max(curvature, 1e-300)
            after = self.b + min(max(step, -1.0), 1.0)
            if not low < after < high:
                after = 0.5 * (low + high)
            if after == self.b or not math.isfinite(after):
                break
            self.b = after

    # Smoothing ---------------------------------------------------------------------------------------------------

    def sharpen(self, factor: float) -> None:
        """Decrease eps to `factor * eps`, and extrapolate the solution if this is better."""
        before, eps = self.eps, self.eps * factor
        last, self.previous = self.previous, EpsStage(self.w, self.b, self.z.copy(), before)
        self.eps = eps
        if last is None or not np.array_equal(np.sign(last.w), np.sign(self.w)):
            return
        share = (eps - before) / (before - last.eps)
        step = NewtonStep(share * (self.w - last.w), share * (self.b - last.b))
        if self.penalties.l1 > 0.0 and np.any((self.w + step.w) * self.w < 0.0):
            return
        dz = np.subtract(self.z, last.z, out=last.z)
        dz *= share
        if self._along(step, dz, 1.0)[0] < self._along(step, dz, 0.0)[0]:
            self.w, self.b = self.w + step.w, self.b + step.b
            self.z += dz

    def extrapolate(self, w: Floats) -> Floats:
        """Extrapolate coefficients to eps = 0; zero before the second stage."""
        if self.previous is None:
            return np.zeros(len(w))
        share = self.eps / (self.previous.eps - self.eps)
        return w + share * (w - self.previous.w)
