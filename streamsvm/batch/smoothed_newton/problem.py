"""One class against the rest: the objective, its bound, and where a solver stands between them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch import newton_kernels as kernels
from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.smoothed_newton.penalties import Penalties
from streamsvm.batch.smoothed_newton.quadratic import QuadraticModel

# Smoothing begins here, in units of the margin, and ends at the latest where rounding begins.
EPS_FIRST, EPS_LAST = 1.0, 1e-11
# Where smoothing begins where all coefficients are zero by the l1 penalty.
EPS_ZERO = 1e-3
# So large a share of the objective is lost in rounding.
ROUNDING = 1e-14
# The Hessian rests on so many rows a column at most, at first on as many as cost so many passes, but not on fewer than
# so many; on so many times more each time a step promises more than such a share of what the step before did.
ROWS_PER_COLUMN, PASSES, FEWEST_ROWS, MORE_ROWS, SLOW = 1000, 4.0, 5, 4, 0.5
# Rows where the loss bends less than this share of what it does in mean are left out of it.
NEGLIGIBLE = 1e-6
# With l1, so many columns may leave zero in one step, or twice as many as have left.
NEWCOMERS = 50
# So many products are conjugate gradients thought to take at first, later as many as they took.
PRODUCTS = 50


class Iterate(NamedTuple):
    """Coefficients and bias, and the objective there without smoothing."""

    objective: float
    w: Floats
    b: float

    def spread(self, columns: Ints, d: int) -> Iterate:
        """The same as one of d columns, where it has some of them."""
        w = np.zeros(d)
        w[columns] = self.w
        return self._replace(w=w)


class DualPoint(NamedTuple):
    """r = alpha y, and what its bound follows from: v, the sum of r x, and the sums of alpha and of r."""

    r: Floats
    v: Floats
    mass: float
    balance: float

    def bound(self, penalties: Penalties) -> float:
        """No w has a lower objective."""
        return penalties.dual(self.v, self.mass, self.balance)


class Stage(NamedTuple):
    """Where smoothing by eps ended: coefficients, bias and margins."""

    w: Floats
    b: float
    z: Floats
    eps: float


class Step(NamedTuple):
    """Of the coefficients and the bias."""

    w: Floats
    b: float


class Along(NamedTuple):
    """The smoothed objective somewhere along a step."""

    value: float
    slope: float
    curvature: float


class Problem:
    """One class against the rest: where its solver stands."""

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
        self.previous: Stage | None = None

    def at_zero(self) -> Problem:
        """The same with no coefficients, and hardly any smoothing."""
        other = Problem(self.codes, self.positive, self.c, self.penalties, np.zeros(len(self.w)), 0.0)
        other.eps = EPS_ZERO
        return other

    def within(self, columns: Ints, penalties: Penalties, eps: float) -> Problem:
        """The same with some of the columns, from its best point."""
        other = Problem(self.codes, self.positive, self.c, penalties, self.best.w[columns], self.best.b)
        other.eps = eps
        if penalties.l1 == self.penalties.l1:
            other.witness, other.bound = self.witness._replace(v=self.witness.v[columns]), self.bound
        return other

    def between(self, other: Problem, share: float, l1: float) -> Problem:
        """The same for an l1 penalty between its own and the other's, at a mixture of their best points."""

        def mixed(a: Any, b: Any) -> Any:
            return a + share * (b - a)

        w, b = mixed(self.best.w, other.best.w), mixed(self.best.b, other.best.b)
        middle = Problem(self.codes, self.positive, self.c, replace(self.penalties, l1=l1), w, b)
        middle.z, middle.eps = mixed(self.z, other.z), max(self.eps, other.eps)
        middle.witness = DualPoint(*map(mixed, self.witness, other.witness))
        middle.bound = middle.witness.bound(middle.penalties)
        middle.best = Iterate(middle._hinge(middle.z, b) + middle.penalties.value(w, b), w, b)
        return middle

    @property
    def gap(self) -> float:
        """How far the best point found can be above the optimum."""
        return max(0.0, self.best.objective - self.bound)

    def is_solved(self, tol: float) -> bool:
        """Whether that is at most `tol` of the objective."""
        return self.gap <= tol * self.best.objective

    def begin(self, z: Floats) -> None:
        """Start at its point, where the margins come of z; at the dual point it has been given, if it has."""
        self.z, self.previous, self.is_done, self.n_stalled = z, None, False, 0
        self.best = Iterate(math.inf, self.w, self.b)
        self.shares = np.full(len(z), 0.5)
        if len(self.witness.r):
            np.divide(np.abs(self.witness.r), self.c, out=self.shares, where=self.c > 0.0)
        else:
            self.follow_margins()

    def follow_margins(self) -> None:
        """Let the dual point be the one that goes with the margins."""
        kernels.slopes(self.z, self.b, self.codes, self.positive, self.eps, self.shares)

    # Where it stands ---------------------------------------------------------------------------------------------

    def measure(self, r: Floats) -> None:
        """Losses and the dual point at the current margins; r becomes alpha y."""
        self.sums = kernels.measure(self.z, self.b, self.codes, self.positive, self.c, self.eps, r)

    def assess(self, v: Floats, r: Floats) -> None:
        """Gradient, objective and bound, given r = alpha y and the sum v of alpha y x."""
        penalties, w, b = self.penalties, self.w, self.b
        hinge, _, mass, balance, self.slack = self.sums
        self.g = penalties.l2 * w - v
        self.gb = penalties.bias_l2 * b - balance if penalties.intercept else 0.0
        objective = hinge + penalties.value(w, b)
        if objective < self.best.objective:
            self.best = Iterate(objective, w.copy(), b)
        bound = self.prove(DualPoint(r, v, mass, balance))
        self.is_settled = objective - bound - self.slack <= 0.1 * self.slack

    def prove(self, point: DualPoint) -> float:
        """The bound that a dual point gives, kept with it if it is the best so far."""
        bound = point.bound(self.penalties)
        if bound > self.bound:
            self.bound = bound
            if self.penalties.l1 > 0.0:
                self.witness = point._replace(r=point.r.copy())
        return bound

    def objective(self, matrix: Matrix, w: Floats, b: float) -> float:
        """That of the unsmoothed problem."""
        z = matrix.scores(w[None], np.empty((1, matrix.shape[0])))[0]
        return self._hinge(z, b) + self.penalties.value(w, b)

    def _hinge(self, z: Floats, b: float) -> float:
        return float(kernels.measure(z, b, self.codes, self.positive, self.c, EPS_LAST, np.empty(len(z)))[0])

    # The step ----------------------------------------------------------------------------------------------------

    def direction(self, matrix: Matrix, h: Floats, rng: np.random.Generator) -> Step:
        """The step that minimises the model of second order, with the l1 penalty as it is; h is overwritten."""
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
        return Step(dw, float(step[-1]))

    def _working_set(self) -> Ints:
        """The columns not at zero, and of those that want to leave it the ones that want it most."""
        is_active = self.w != 0.0
        excess = np.where(is_active, 0.0, np.abs(self.g) - self.penalties.l1)
        most = max(NEWCOMERS, 2 * int(np.count_nonzero(is_active)))
        is_new = excess > 0.0
        if np.count_nonzero(is_new) > most:
            is_new &= excess >= np.partition(excess, -most)[-most]
        return np.flatnonzero(is_active | is_new)

    def _most_rows(self, matrix: Matrix, n_columns: int) -> int:
        """On how many rows the Hessian may rest."""
        cost = matrix.gram_cost(1, n_columns)
        cheap = int(min(2.0 * PASSES * matrix.shape[0] / math.sqrt(cost + 1e-9), 1e9))
        fewest, most = FEWEST_ROWS * (n_columns + 1), ROWS_PER_COLUMN * (n_columns + 1)
        self.n_rows = min(max(self.n_rows, cheap, fewest), most)
        return self.n_rows

    def _heavy_rows(self, h: Floats, most: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """The rows that matter in the Hessian, or a sample of them, and their weights."""
        n = len(h)
        total, mean = kernels.bend(self.z, self.b, self.codes, self.positive, self.c, self.eps, self.shares, h)
        if n <= most:
            rows = np.flatnonzero(h > NEGLIGIBLE * mean * self.c)
            return rows, h[rows]
        rows, weights = np.empty(most + 2, np.int64), np.empty(most + 2)
        share, start = most / total, rng.random()
        count = kernels.choose(h, self.c, NEGLIGIBLE * mean, share, start, rows, weights)
        return rows[:count], weights[:count]

    def descent(self, step: Step) -> float:
        """The change of the objective along a step to first order, with that of the l1 penalty as it is."""
        change = float(np.abs(self.w + step.w).sum() - np.abs(self.w).sum()) if self.penalties.l1 > 0.0 else 0.0
        return float(self.g @ step.w) + self.gb * step.b + self.penalties.l1 * change

    def foresee(self, step: Step, dz: Floats, r: Floats) -> tuple[float, float]:
        """The dual point goes where a step leads it, and r becomes its alpha y; its mass and balance."""
        mass, balance = kernels.foresee(
            self.z, self.b, dz, step.b, self.codes, self.positive, self.c, self.eps, self.shares, r
        )
        return mass, balance

    def advance(self, step: Step, dz: Floats, descent: float) -> bool:
        """Go along a step as far as is best; whether the stage seems done."""
        eps, last = self.last_descent
        if eps == self.eps and -descent > SLOW * last:
            self.n_rows *= MORE_ROWS
        self.last_descent = (self.eps, -descent)
        start = self._along(step, dz, 0.0).value
        # At the very end a step improves the certificate, but the objective by less than rounding.
        is_hidden = abs(descent) <= ROUNDING * start
        t = self._line_search(step, dz, start, descent) if descent < 0.0 or is_hidden else 0.0
        is_stalled = t == 0.0 or (is_hidden and eps == self.eps)
        self.n_stalled = self.n_stalled + 1 if is_stalled else 0
        if t == 0.0:
            return True
        self.w, self.b = self.w + t * step.w, self.b + t * step.b
        self.z += t * dz
        return t > 0.5 and -descent <= 2.0 * self.slack

    def _along(self, step: Step, dz: Floats, t: float) -> Along:
        """The smoothed objective at t along a step, with its derivatives from the right at 0, from the left beyond."""
        penalties, (dw, db) = self.penalties, step
        value, slope, curvature = kernels.along(self.z, self.b, dz, db, self.codes, self.positive, self.c, self.eps, t)
        w, b = self.w + t * dw, self.b + t * db
        # Where the step sets coordinates to zero it ends at a kink: it went downhill that far, if not further.
        signs = np.where(w == 0.0, np.sign(dw) if t == 0.0 else -np.sign(dw), np.sign(w))
        slope += penalties.l2 * (w @ dw) + penalties.bias_l2 * b * db + penalties.l1 * (signs @ dw)
        curvature += penalties.l2 * (dw @ dw) + penalties.bias_l2 * db * db
        return Along(value + penalties.value(w, b), float(slope), float(curvature))

    def _line_search(self, step: Step, dz: Floats, value: float, descent: float) -> float:
        """A step length near the minimum along the step; 0 where rounding hides all descent."""
        # A coordinate that a full step sets to zero would leave it again beyond.
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
        """Minimise over the bias alone, until the classes balance well enough for the bound."""
        penalties = self.penalties
        if not penalties.intercept:
            return
        reach = float(np.abs(self.w) @ penalties.peaks) if penalties.bias_l2 == 0.0 else 0.0
        enough = 1e-3 * target / (1.0 + reach)
        low, high = -math.inf, math.inf
        for _ in range(60):
            slope, curvature = kernels.at_bias(self.z, self.b, self.codes, self.positive, self.c, self.eps)
            slope += penalties.bias_l2 * self.b
            curvature += penalties.bias_l2
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
        """Smooth less, and go on along the way the minimum took as smoothing fell, if that is better."""
        before, eps = self.eps, self.eps * factor
        last, self.previous = self.previous, Stage(self.w, self.b, self.z.copy(), before)
        self.eps = eps
        if last is None or not np.array_equal(np.sign(last.w), np.sign(self.w)):
            return
        share = (eps - before) / (before - last.eps)
        step = Step(share * (self.w - last.w), share * (self.b - last.b))
        if self.penalties.l1 > 0.0 and np.any((self.w + step.w) * self.w < 0.0):
            return
        dz = np.subtract(self.z, last.z, out=last.z)
        dz *= share
        if self._along(step, dz, 1.0).value < self._along(step, dz, 0.0).value:
            self.w, self.b = self.w + step.w, self.b + step.b
            self.z += dz

    def limit(self, w: Floats) -> Floats:
        """Where coefficients seem to go as smoothing falls to nothing; to zero where only one stage tells."""
        if self.previous is None:
            return np.zeros(len(w))
        share = self.eps / (self.previous.eps - self.eps)
        return w + share * (w - self.previous.w)
