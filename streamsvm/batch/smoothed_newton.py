"""A linear support vector machine by Newton steps on the smoothed hinge, with l2 and exact l1 penalties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.base import Iteration, LinearClassifier, Progress, Solution, check_scale
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.kernels import newton as kernels
from streamsvm.models import LinearModel

# Smoothing begins here, in units of the margin, and ends at the latest where rounding begins.
EPS_FIRST, EPS_LAST = 1.0, 1e-11
# By how much smoothing falls when a stage is done, at most; less with an l1 penalty, where the support has to follow.
EPS_FACTOR, EPS_FACTOR_L1 = 0.25, 0.5
# Where smoothing begins from a given model.
EPS_WARM = 0.1
# Where smoothing begins where all coefficients are zero by the l1 penalty; at most for the next point of a path; and
# there in units of where it ended at the point before.
EPS_ZERO, EPS_PATH, EPS_AGAIN = 1e-3, 0.25, 2.0
# The strong rule takes it that a gradient moves no further than the l1 penalty does. Where a column it keeps is not
# there, all are taken whose gradients could move so many times as far: these last for several points of a path.
REACH = 5.0
# A path leaves columns out where it may leave out as many as this share.
SCREENED = 0.5
# Coefficients that move margins by so many times eps at most, and by no more than so much, may be zeros in truth, if
# they seem to go there.
HIDDEN, HIDDEN_MOST = 30.0, 1e-3
# So large a share of the objective is lost in rounding.
ROUNDING = 1e-14
# A step that promises less than so much of the tolerance may end in a point whose bound is good enough.
FORESEEN = 0.3
# The share of the tolerance that smoothing may use up.
SLACK_SHARE = 0.9
# The Hessian rests on so many rows a column at most, at first on as many as cost so many passes, but not on fewer than
# so many; on so many times more each time a step promises more than such a share of what the step before did.
ROWS_PER_COLUMN, PASSES, FEWEST_ROWS, MORE_ROWS, SLOW = 1000, 4.0, 5, 4, 0.5
# Rows where the loss bends less than this share of what it does in mean are left out of it.
NEGLIGIBLE = 1e-6
# With l1, so many columns may leave zero in one step, or twice as many as have left.
NEWCOMERS = 50
# Rounds of so many sweeps of coordinate descent, and a step on the coordinates not at zero, solve a step with l1.
ROUNDS, SWEEPS = 3, 20
# Systems beyond this size are solved by conjugate gradients.
LARGEST_SYSTEM = 3000
# Sparse rows of which so large a share is filled are multiplied with each other as an array.
FILLED = 0.2
# So many products are they thought to take at first, later as many as they took.
PRODUCTS = 50
# Starts on samples of n / 32 and n / 8 rows, where these are at least so many, and so many a column.
SAMPLES, SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN = (32, 8), 1000, 2


@dataclass
class Penalties:
    """l2 / 2 |w|^2 + bias_l2 / 2 b^2 + l1 |w|_1; `peaks` are the largest magnitudes of the columns, where needed."""

    l2: float
    l1: float
    bias_l2: float
    intercept: bool
    peaks: Floats

    def dual(self, v: Floats, mass: float, balance: float) -> float:
        """A lower bound of the optimum, from a dual point alpha in [0, c].

        The dual of the hinge is sum(alpha) - |shrink(v, l1)|^2 / (2 l2), where v is the sum of alpha y x. Without a
        penalty on the bias it needs balance = sum(alpha y) = 0: the heavier class is scaled down until that is so,
        which moves column j of v by at most |balance| * peaks[j]. Then the best multiple of alpha is taken.
        """
        size = np.abs(v)
        constant = 0.0
        if self.intercept and self.bias_l2 > 0.0:
            constant = balance**2
        elif self.intercept:
            mass -= abs(balance)
            size += abs(balance) * self.peaks
        if mass <= 0.0:
            return 0.0
        if self.l2 == 0.0:
            largest = float(size.max(initial=0.0))
            return mass if largest <= self.l1 else mass * self.l1 / largest
        part = size[size > self.l1]
        t = 1.0
        for _ in range(50):  # Newton's method from the right on a convex, rising function: it never overshoots
            over = np.maximum(t * part - self.l1, 0.0)
            excess = (float(part @ over) + t * constant) / self.l2 - mass
            if excess <= 1e-12 * mass:
                break
            t -= excess * self.l2 / (float(part[over > 0.0] @ part[over > 0.0]) + constant)
        over = np.maximum(t * part - self.l1, 0.0)
        return max(0.0, t * mass - (float(over @ over) + t * t * constant) / (2.0 * self.l2))


class Problem:
    """One class against the rest: where its solver stands."""

    def __init__(self, codes: Ints, positive: int, c: Floats, penalties: Penalties, w: Floats, b: float) -> None:
        self.codes, self.positive, self.c, self.penalties = codes, positive, c, penalties
        self.w, self.b, self.eps = w, b, EPS_FIRST
        self.z = np.empty(0)
        self.shares = np.empty(0)
        self.best: tuple[float, Floats, float] = (math.inf, w, b)
        self.bound = -math.inf
        self.witness: tuple[Floats, Floats, float, float] = (np.empty(0), np.empty(0), 0.0, 0.0)
        self.slack = math.inf
        self.n_stalled = 0
        self.n_products = PRODUCTS
        self.n_rows = 0
        self.last_descent = (0.0, math.inf)
        self.is_done = False
        self.previous: tuple[Floats, float, Floats, float] | None = None

    def at_zero(self) -> Problem:
        """The same with no coefficients, and hardly any smoothing."""
        other = Problem(self.codes, self.positive, self.c, self.penalties, np.zeros(len(self.w)), 0.0)
        other.eps = EPS_ZERO
        return other

    def within(self, columns: Ints, penalties: Penalties, eps: float) -> Problem:
        """The same with some of the columns, from its best point."""
        _, w, b = self.best
        other = Problem(self.codes, self.positive, self.c, penalties, w[columns], b)
        other.eps = eps
        if penalties.l1 == self.penalties.l1:
            r, v, mass, balance = self.witness
            other.witness, other.bound = (r, v[columns], mass, balance), self.bound
        return other

    def between(self, other: Problem, share: float, l1: float) -> Problem:
        """The same for an l1 penalty between its own and the other's, at a mixture of their best points."""

        def mixed(a: Any, b: Any) -> Any:
            return a + share * (b - a)

        w, b = mixed(self.best[1], other.best[1]), mixed(self.best[2], other.best[2])
        middle = Problem(self.codes, self.positive, self.c, replace(self.penalties, l1=l1), w, b)
        middle.z, middle.eps = mixed(self.z, other.z), max(self.eps, other.eps)
        (r, *sums), (s, *others) = self.witness, other.witness
        v, mass, balance = map(mixed, sums, others)
        middle.witness, middle.bound = (mixed(r, s), v, mass, balance), middle.penalties.dual(v, mass, balance)
        middle.best = (middle._hinge(middle.z, b) + middle._penalty(w, b), w, b)
        return middle

    @property
    def gap(self) -> float:
        """How far the best point found can be above the optimum."""
        return max(0.0, self.best[0] - self.bound)

    def begin(self, z: Floats) -> None:
        """Start at its point, where the margins come of z; at the dual point it has been given, if it has."""
        self.z, self.previous, self.is_done, self.n_stalled = z, None, False, 0
        self.best = (math.inf, self.w, self.b)
        self.shares = np.full(len(z), 0.5)
        if len(self.witness[0]):
            np.divide(np.abs(self.witness[0]), self.c, out=self.shares, where=self.c > 0.0)
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
        objective = hinge + self._penalty(w, b)
        if objective < self.best[0]:
            self.best = (objective, w.copy(), b)
        bound = self.prove(v, r, mass, balance)
        self.is_settled = objective - bound - self.slack <= 0.1 * self.slack

    def prove(self, v: Floats, r: Floats, mass: float, balance: float) -> float:
        """The bound that a dual point gives, kept with it if it is the best so far."""
        bound = self.penalties.dual(v, mass, balance)
        if bound > self.bound:
            self.bound = bound
            if self.penalties.l1 > 0.0:
                self.witness = (r.copy(), v, mass, balance)
        return bound

    def objective(self, matrix: Matrix, w: Floats, b: float) -> float:
        """That of the unsmoothed problem."""
        z = matrix.scores(w[None], np.empty((1, matrix.shape[0])))[0]
        return self._hinge(z, b) + self._penalty(w, b)

    def _hinge(self, z: Floats, b: float) -> float:
        return float(kernels.measure(z, b, self.codes, self.positive, self.c, EPS_LAST, np.empty(len(z)))[0])

    def _penalty(self, w: Floats, b: float) -> float:
        penalties = self.penalties
        return float(0.5 * penalties.l2 * (w @ w) + 0.5 * penalties.bias_l2 * b * b + penalties.l1 * np.abs(w).sum())

    # The step ----------------------------------------------------------------------------------------------------

    def direction(self, matrix: Matrix, h: Floats, rng: np.random.Generator) -> tuple[Floats, float]:
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
        return dw, float(step[-1])

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

    def descent(self, dw: Floats, db: float) -> float:
        """The change of the objective along a step to first order, with that of the l1 penalty as it is."""
        change = float(np.abs(self.w + dw).sum() - np.abs(self.w).sum()) if self.penalties.l1 > 0.0 else 0.0
        return float(self.g @ dw) + self.gb * db + self.penalties.l1 * change

    def foresee(self, db: float, dz: Floats, r: Floats) -> tuple[float, float]:
        """The dual point goes where a step leads it, and r becomes its alpha y; its mass and balance."""
        mass, balance = kernels.foresee(
            self.z, self.b, dz, db, self.codes, self.positive, self.c, self.eps, self.shares, r
        )
        return mass, balance

    def advance(self, dw: Floats, db: float, dz: Floats, descent: float) -> bool:
        """Go along a step as far as is best; whether the stage seems done."""
        eps, last = self.last_descent
        if eps == self.eps and -descent > SLOW * last:
            self.n_rows *= MORE_ROWS
        self.last_descent = (self.eps, -descent)
        start = self._along(dw, db, dz, 0.0)
        # At the very end a step improves the certificate, but the objective by less than rounding.
        is_hidden = abs(descent) <= ROUNDING * start[0]
        t = self._line_search(dw, db, dz, start[0], descent) if descent < 0.0 or is_hidden else 0.0
        is_stalled = t == 0.0 or (is_hidden and eps == self.eps)
        self.n_stalled = self.n_stalled + 1 if is_stalled else 0
        if t == 0.0:
            return True
        self.w, self.b = self.w + t * dw, self.b + t * db
        self.z += t * dz
        return t > 0.5 and -descent <= 2.0 * self.slack

    def _along(self, dw: Floats, db: float, dz: Floats, t: float) -> tuple[float, float, float]:
        """The smoothed objective at t along a step, with its derivatives from the right at 0, from the left beyond."""
        penalties = self.penalties
        value, slope, curvature = kernels.along(self.z, self.b, dz, db, self.codes, self.positive, self.c, self.eps, t)
        w, b = self.w + t * dw, self.b + t * db
        # Where the step sets coordinates to zero it ends at a kink: it went downhill that far, if not further.
        signs = np.where(w == 0.0, np.sign(dw) if t == 0.0 else -np.sign(dw), np.sign(w))
        slope += penalties.l2 * (w @ dw) + penalties.bias_l2 * b * db + penalties.l1 * (signs @ dw)
        curvature += penalties.l2 * (dw @ dw) + penalties.bias_l2 * db * db
        return value + self._penalty(w, b), float(slope), float(curvature)

    def _line_search(self, dw: Floats, db: float, dz: Floats, value: float, descent: float) -> float:
        """A step length near the minimum along the step; 0 where rounding hides all descent."""
        # A coordinate that a full step sets to zero would leave it again beyond.
        longest = 16.0 if self.penalties.l1 == 0.0 else 1.0
        low, high, t, good = 0.0, math.inf, 1.0, 0.0
        for _ in range(40):
            there, slope, curvature = self._along(dw, db, dz, t)
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
        last, self.previous = self.previous, (self.w, self.b, self.z.copy(), before)
        self.eps = eps
        if last is None or not np.array_equal(np.sign(last[0]), np.sign(self.w)):
            return
        share = (eps - before) / (before - last[3])
        dw, db, dz = share * (self.w - last[0]), share * (self.b - last[1]), last[2]
        if self.penalties.l1 > 0.0 and np.any((self.w + dw) * self.w < 0.0):
            return
        np.subtract(self.z, dz, out=dz)
        dz *= share
        if self._along(dw, db, dz, 1.0)[0] < self._along(dw, db, dz, 0.0)[0]:
            self.w, self.b = self.w + dw, self.b + db
            self.z += dz

    def limit(self, w: Floats) -> Floats:
        """Where coefficients seem to go as smoothing falls to nothing; to zero where only one stage tells."""
        if self.previous is None:
            return np.zeros(len(w))
        share = self.eps / (self.previous[3] - self.eps)
        return w + share * (w - self.previous[0])


class QuadraticModel:
    """H = diag(l2) + sum of weights * x x^T over some rows, for some columns and the bias, and steps on it."""

    def __init__(self, matrix: Matrix, rows: Ints, weights: Floats, columns: Ints, penalties: Penalties) -> None:
        self.matrix, self.rows, self.weights, self.columns = matrix, rows, weights, columns
        self.penalties = penalties
        self.n_products = 0
        total = float(weights.sum())
        # Where nothing else holds a coordinate, this does; it only bends the step, never what it converges to.
        damping = np.full(len(columns) + 1, 1e-10 * total + 1e-300)
        if penalties.l1 > 0.0:
            damping[:-1] *= np.minimum(penalties.peaks[columns], 1.0) ** 2
        self.ridge = np.maximum(penalties.l2, damping)
        self.ridge[-1] = penalties.bias_l2 + damping[-1] if penalties.intercept else math.inf

    def step(self, g: Floats, n_expected: int) -> Floats:
        """-H^-1 g, in the cheapest way; `n_expected` is how many products conjugate gradients may take."""
        m, a = len(self.rows), len(self.columns)
        filled = 2.0 * self.matrix.gram_cost(1, a) ** 0.5 * m
        costs: dict[Callable[[Floats], Floats], float] = {
            self._by_conjugate_gradients: (2.0 * n_expected + 5.0) * filled
        }
        if a <= LARGEST_SYSTEM:
            costs[self._by_columns] = self.matrix.gram_cost(m, a) + a**3 / 45.0
        if m <= LARGEST_SYSTEM:
            costs[self._by_rows] = m * filled / 15.0 + m**3 / 45.0
        return min(costs, key=costs.__getitem__)(g)

    def _hessian(self) -> Floats:
        """H in full, the lower triangle only."""
        hessian = self.matrix.gram(self.rows, self.weights, self.columns)
        if not self.penalties.intercept:
            hessian[-1] = 0.0
        diagonal = np.einsum("ii->i", hessian)
        diagonal += np.where(np.isinf(self.ridge), 1.0, self.ridge)
        return hessian

    def _by_columns(self, g: Floats) -> Floats:
        return -_solve(self._hessian(), g)

    def _by_rows(self, g: Floats) -> Floats:
        """By a system of one equation a row: (l2 + B^T B)^-1 = (1 - B^T (l2 + B B^T)^-1 B) / l2, the bias apart."""
        roots = np.sqrt(self.weights)
        B = self.matrix.scaled(self.rows, roots, self.columns)
        if scipy.sparse.issparse(B) and B.nnz > FILLED * B.shape[0] * B.shape[1]:
            B = B.toarray()
        l2 = self.ridge[0] if len(self.columns) else 1.0
        system = B @ B.T
        system = system.toarray() if scipy.sparse.issparse(system) else system
        np.einsum("ii->i", system)[:] += l2
        u = B.T @ roots
        right = np.column_stack([g[:-1], u])

        def inverted(right: Floats) -> Floats:
            return np.asarray((right - B.T @ _solve(system, B @ right)) / l2)

        inverse = inverted(right)
        inverse += inverted(right - l2 * inverse - B.T @ (B @ inverse))  # what cancelled where l2 is tiny
        if not self.penalties.intercept:
            return np.append(-inverse[:, 0], 0.0)
        # What is left of the bias when w follows it, as a sum of squares: nothing cancels.
        follows = inverse[:, 1]
        rest = roots - B @ follows
        schur = float(self.ridge[-1]) + float(rest @ rest) + l2 * float(follows @ follows)
        bias = -(float(g[-1]) - float(u @ inverse[:, 0])) / schur
        return np.append(-inverse[:, 0] - bias * inverse[:, 1], bias)

    def _by_conjugate_gradients(self, g: Floats) -> Floats:
        """To a tenth of the gradient, preconditioned by the diagonal."""
        roots = np.sqrt(self.weights)
        B = self.matrix.scaled(self.rows, roots, self.columns)
        squares = B.multiply(B) if scipy.sparse.issparse(B) else B * B
        diagonal = np.append(np.asarray(squares.sum(axis=0)).ravel(), float(self.weights.sum())) + self.ridge
        held = np.where(np.isinf(self.ridge), 0.0, self.ridge)

        def times(p: Floats) -> Floats:
            q = B @ p[:-1] + roots * p[-1]
            return np.append(B.T @ q, roots @ q) + held * p

        x = np.zeros(len(g))
        residual = -g
        y = residual / diagonal
        p = y.copy()
        energy = first = float(residual @ y)
        for _ in range(300):
            if energy <= 1e-2 * first or energy <= 0.0:
                break
            q = times(p)
            self.n_products += 1
            length = energy / float(p @ q)
            x += length * p
            residual -= length * q
            y = residual / diagonal
            energy, last = float(residual @ y), energy
            p = y + (energy / last) * p
        return x

    def shrunk_step(self, g: Floats, w: Floats) -> Floats:
        """The d that minimises g . d + d^T H d / 2 + l1 |w + d|_1, where the last coordinate is the bias."""
        l1 = self.penalties.l1
        wrong = np.where(w != 0.0, np.abs(g + l1 * np.sign(w)), np.abs(g) - l1)
        wrong[-1] = abs(g[-1])
        tolerance = 1e-2 * float(wrong.max())
        d = np.zeros(len(g))
        if len(g) > LARGEST_SYSTEM:
            return self._shrunk_by_columns(g, w, d, tolerance)
        hessian = self._hessian()
        kernels.mirror(hessian)
        q = np.zeros(len(g))
        for _ in range(ROUNDS):
            if kernels.descend(hessian, g, w, l1, d, q, SWEEPS, tolerance) <= tolerance:
                break
            _improve(hessian, g, w, l1, d, q)
        return d

    def _shrunk_by_columns(self, g: Floats, w: Floats, d: Floats, tolerance: float) -> Floats:
        """Without H, which would be large: by the columns of the rows that matter."""
        roots = np.sqrt(self.weights)
        B = scipy.sparse.csc_matrix(self.matrix.scaled(self.rows, roots, self.columns))
        constant = roots[:, None] if self.penalties.intercept else np.zeros((len(roots), 1))
        B = scipy.sparse.hstack([B, constant], "csc")
        ridge = np.where(np.isinf(self.ridge), 1.0, self.ridge)
        diagonal = np.asarray(B.multiply(B).sum(axis=0)).ravel() + ridge
        q = np.zeros(len(roots))
        kernels.descend_columns(
            B.data, B.indices, B.indptr, g, diagonal, ridge, w, self.penalties.l1, d, q, 100, tolerance
        )
        return d


def _solve(system: Floats, right: Floats) -> Floats:
    """By Cholesky's factors of the lower triangle, with as much damping as rounding makes necessary."""
    damping = 0.0
    scale = float(np.trace(system)) / len(system)
    while True:
        damped = system + damping * scale * np.eye(len(system)) if damping else system
        # LAPACK counts by columns: what is the lower triangle here is the upper one there, without a copy's reordering.
        factors, failed = scipy.linalg.lapack.dpotrf(damped.T, lower=0, clean=0)
        if not failed:
            solution: Floats = scipy.linalg.lapack.dpotrs(factors, right, lower=0)[0]
            return solution.reshape(right.shape)
        damping = max(1e-14, 100.0 * damping)


def _improve(H: Floats, g: Floats, w: Floats, l1: float, d: Floats, q: Floats) -> None:
    """Solve for the coordinates not at zero, with their signs as they are, and go there as far as that is better.

    Those that would change sign stop at zero; if that is too much at once, only up to the first of them. d and q = H d
    are changed in place.
    """
    x = w + d
    x[-1] = math.inf
    free = np.flatnonzero(x)
    slope = (g + q)[free] + l1 * np.sign(x[free])
    slope[-1] -= l1
    p = -_solve(H.take(free, 0).take(free, 1), slope)  # twice in blocks, which is faster than at once by numbers
    x = w + d

    def value(d: Floats, q: Floats) -> float:
        return float(g @ d + 0.5 * (d @ q) + l1 * np.abs(w[:-1] + d[:-1]).sum())

    now = value(d, q)
    crosses = (x[free] + p) * x[free] < 0.0
    crosses[-1] = False
    first = float(np.min(-x[free][crosses] / p[crosses])) if crosses.any() else 1.0
    length = 1.0
    while True:
        moved = x[free] + length * p
        moved[crosses & (moved * x[free] <= 1e-14 * x[free] ** 2)] = 0.0
        trial = d.copy()
        trial[free] = moved - w[free]
        product = H @ (trial - d) + q
        if value(trial, product) < now:
            d[:], q[:] = trial, product
            return
        if length <= first:
            return
        length = max(0.5 * length, first)


# Solving ---------------------------------------------------------------------------------------------------------


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
    room, spare = np.empty((k, n)), np.empty((k, n))
    if scores is None:
        scores = matrix.scores(np.array([problem.w for problem in problems]), np.empty((k, n)))
    for problem, z in zip(problems, scores, strict=True):
        problem.begin(z)
        if problem.penalties.bias_l2 == 0.0:
            problem.center(tol)
    for n_iter in range(1, max_iter + 1):
        active = [problem for problem in problems if not problem.is_done]
        for problem, r in zip(active, room, strict=False):
            problem.measure(r)
        v = matrix.adjoint(room[: len(active)])
        for problem, sums, r in zip(active, v, room, strict=False):
            problem.assess(sums, r)
            problem.is_done = problem.gap <= tol * problem.best[0]
        stop = report()
        active = [problem for problem in active if not problem.is_done]
        if stop or not active or n_iter == max_iter:
            return n_iter
        moving = [problem for problem in active if not _sharpen(problem, tol, floor, problem.is_settled)]
        moving = [problem for problem in moving if not problem.is_done]
        if not moving:
            continue
        steps = [problem.direction(matrix, h, rng) for problem, h in zip(moving, room, strict=False)]
        dz = matrix.scores(np.array([dw for dw, _ in steps]), room[: len(moving)])
        descents = [problem.descent(dw, db) for problem, (dw, db) in zip(moving, steps, strict=True)]
        _foresee(matrix, moving, steps, dz, descents, spare, tol)
        for problem, (dw, db), along, descent in zip(moving, steps, dz, descents, strict=True):
            settled = problem.advance(dw, db, along, descent)
            _sharpen(problem, tol, floor, settled)
            problem.is_done = problem.is_done or problem.n_stalled > 3
            if problem.penalties.bias_l2 == 0.0:
                problem.center(tol * problem.best[0])
        if all(problem.is_done for problem in problems):
            return n_iter
    return max_iter


def _foresee(
    matrix: Matrix,
    problems: Sequence[Problem],
    steps: Sequence[tuple[Floats, float]],
    dz: Floats,
    descents: Sequence[float],
    room: Floats,
    tol: float,
) -> None:
    """The dual points go where the steps lead them; of the last steps, these give bounds before the steps are made.

    The gradients there are those of the model of second order, however far from quadratic the loss is.
    """
    sums = [problem.foresee(db, z, r) for problem, (_, db), z, r in zip(problems, steps, dz, room, strict=False)]
    near = [k for k, problem in enumerate(problems) if -descents[k] <= FORESEEN * tol * problem.best[0]]
    if not near:
        return
    r = room[near]
    for k, v, row in zip(near, matrix.adjoint(r), r, strict=True):
        problems[k].prove(v, row, *sums[k])


def prune(matrix: Matrix, problems: Sequence[Problem], tol: float, rng: np.random.Generator) -> None:
    """Set coefficients to zero that move margins by no more than smoothing hides, where the certificate allows it.

    Smoothing can leave coefficients as small as itself where the unsmoothed problem has zeros. The others are solved
    for once more without them, where it is not enough to leave these out; the bound is still that of all columns.
    """
    for problem in problems:
        _, w, b = problem.best
        moves = np.abs(w) * problem.penalties.peaks
        is_small = moves <= min(HIDDEN * problem.eps, HIDDEN_MOST)
        is_small &= (moves <= problem.eps) | (np.abs(w) > 2.0 * np.sign(w) * problem.limit(w))
        if not w[is_small].any():
            continue
        rest = np.where(is_small, 0.0, w)
        objective = problem.objective(matrix, rest, b)
        if objective - problem.bound <= tol * objective:
            problem.best = (objective, rest, b)
            continue
        columns = np.flatnonzero(~is_small)
        penalties = replace(problem.penalties, peaks=problem.penalties.peaks[columns])
        inside = problem.within(columns, penalties, problem.eps)
        run(matrix.columns(columns), [inside], tol, 20, rng)
        objective, w, b = inside.best
        if objective - problem.bound <= max(tol * objective, problem.gap):
            problem.best = (objective, _spread(w, columns, matrix.shape[1]), b)


def _sharpen(problem: Problem, tol: float, floor: float, settled: bool) -> bool:
    """Smooth less if this stage is settled and smoothing still stands in the way; done where the floor is reached."""
    wanted = SLACK_SHARE * tol * problem.best[0]
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


def _gradients(matrix: Matrix, problems: Sequence[Problem]) -> Floats:
    """Gradients in w at the scores of all problems, which are assessed too."""
    r = np.empty((len(problems), matrix.shape[0]))
    for problem, row in zip(problems, r, strict=True):
        problem.measure(row)
    for problem, v, row in zip(problems, matrix.adjoint(r), r, strict=True):
        problem.assess(v, row)
    return np.array([problem.g for problem in problems])


class Path:
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
        mus: Floats,
        largest: float,
        tol: float,
        max_iter: int,
        rng: np.random.Generator,
    ) -> None:
        self.matrix, self.mus, self.largest = matrix, mus, largest
        self.tol, self.max_iter, self.rng = tol, max_iter, rng
        self.gradients = np.array([problem.g for problem in problems])
        self.keep = np.zeros(matrix.shape[1], bool)
        self.keep[np.abs(self.gradients).max(axis=0).argmax()] = True
        self.part = _taken(matrix, self.keep)
        n_mus, k = len(mus), len(problems)
        self.found = RegularizationPath(
            mus,
            np.zeros((n_mus, k, matrix.shape[1])),
            np.zeros((n_mus, k)),
            np.zeros(n_mus),
            np.zeros(n_mus),
            np.zeros(n_mus, np.int64),
        )
        self._follow(problems)

    def _follow(self, problems: list[Problem]) -> None:
        last, stride = 0, 1
        problems = self._solve(0, problems, max(self.largest, self.mus[0]))
        while last < len(self.mus) - 1:
            k = min(last + stride, len(self.mus) - 1)
            reached = self._solve(k, problems, self.mus[last])
            stride = 2 * stride if self._fill(last, k, problems, reached) else max(1, stride // 2)
            last, problems = k, reached

    def _fill(self, first: int, last: int, left: list[Problem], right: list[Problem]) -> bool:
        """Find all that lie between two points; whether they are mixtures of these."""
        inside = range(first + 1, last)
        bad = [k for k in inside if not self._keep(k, self._between(k, first, last, left, right))]
        if not bad:
            return True
        k = bad[len(bad) // 2]
        middle = self._solve(k, self._between(k, first, last, left, right), self.mus[first])
        self._fill(first, k, left, middle)
        self._fill(k, last, middle, right)
        return False

    def _between(self, k: int, first: int, last: int, left: list[Problem], right: list[Problem]) -> list[Problem]:
        share = float((self.mus[first] - self.mus[k]) / (self.mus[first] - self.mus[last]))
        return [a.between(b, share, float(self.mus[k])) for a, b in zip(left, right, strict=True)]

    def _keep(self, k: int, problems: list[Problem]) -> bool:
        """Note a point as it was found; whether it is good enough."""
        found = self.found
        found.coefs[k] = [problem.best[1] for problem in problems]
        found.intercepts[k] = [problem.best[2] for problem in problems]
        found.objectives[k] = sum(problem.best[0] for problem in problems)
        found.certificates[k] = sum(problem.gap for problem in problems)
        return self._is_good(problems)

    def _is_good(self, problems: list[Problem]) -> bool:
        return all(problem.gap <= self.tol * problem.best[0] for problem in problems)

    def _solve(self, k: int, problems: list[Problem], before: float) -> list[Problem]:
        """Solve for a penalty from a mixture, or from problems solved for the penalty before."""
        matrix, d, mu = self.matrix, self.matrix.shape[1], float(self.mus[k])
        penalties = replace(problems[0].penalties, l1=mu)
        eps = [problem.eps for problem in problems]
        if problems[0].penalties.l1 != mu:
            eps = [_first_eps(problem, mu / before, before < self.largest) for problem in problems]
        self._screen(problems, mu, before)
        while True:
            columns = np.flatnonzero(self.keep)
            inside = replace(penalties, peaks=penalties.peaks[columns])
            solved = [problem.within(columns, inside, e) for problem, e in zip(problems, eps, strict=True)]
            scores = np.array([problem.z for problem in problems])
            self.found.n_iters[k] += run(self.part, solved, self.tol, self.max_iter, self.rng, scores=scores)
            prune(self.part, solved, self.tol, self.rng)
            self.part.scores(np.array([problem.best[1] for problem in solved]), scores)
            problems = [_whole(*pair, columns, d, penalties) for pair in zip(solved, scores, strict=True)]
            # What proved the bound for some of the columns has to prove it for all.
            if not self.keep.all():
                v = matrix.adjoint(np.array([problem.witness[0] for problem in problems]))
                for problem, sums in zip(problems, v, strict=True):
                    problem.witness = (problem.witness[0], sums, *problem.witness[2:])
            for problem in problems:
                problem.bound = penalties.dual(*problem.witness[1:])
            self.gradients = -np.array([problem.witness[1] for problem in problems])
            missed = (np.abs(self.gradients) > mu).any(axis=0) & ~self.keep
            if self._keep(k, problems) or not missed.any():
                return problems
            self.keep |= missed
            self.part = _taken(matrix, self.keep)
            eps = [problem.eps for problem in problems]

    def _screen(self, problems: list[Problem], mu: float, before: float) -> None:
        """Take more columns where the strong rule wants one that is not there."""
        is_active = np.array([problem.best[1] != 0.0 for problem in problems]).any(axis=0)
        steepest, fall = np.abs(self.gradients).max(axis=0), before - mu
        if np.any((is_active | (steepest >= mu - fall)) & ~self.keep):
            self.keep = is_active | (steepest >= mu - REACH * fall)
            self.part = _taken(self.matrix, self.keep)


def _first_eps(problem: Problem, fall: float, is_solved: bool) -> float:
    """Where smoothing begins for an l1 penalty `fall` times the last one: not far from where it ended, if it did."""
    eps = max(EPS_ZERO, min(EPS_PATH, 0.25 * (1.0 - fall)))
    return min(eps, EPS_AGAIN * problem.eps) if is_solved else eps


def _taken(matrix: Matrix, keep: NDArray[np.bool_]) -> Matrix:
    """The columns to keep, or all where that are most of them: `keep` then says so."""
    if keep.sum() > (1.0 - SCREENED) * len(keep):
        keep[:] = True
        return matrix
    return matrix.columns(np.flatnonzero(keep))


def _spread(values: Floats, columns: Ints, d: int) -> Floats:
    out = np.zeros(d)
    out[columns] = values
    return out


def _whole(solved: Problem, z: Floats, columns: Ints, d: int, penalties: Penalties) -> Problem:
    """A problem solved for some of the columns, as one for all; what it proved is to be proved again."""
    objective, w, b = solved.best
    whole = Problem(solved.codes, solved.positive, solved.c, penalties, _spread(w, columns, d), b)
    whole.z, whole.eps, whole.best, whole.witness = z, solved.eps, (objective, whole.w, b), solved.witness
    return whole


class RegularizationPath(NamedTuple):
    """Solutions for falling l1 penalties.

    Parameters
    ----------
    mus
        The penalties, shape (n_mus,).
    coefs, intercepts
        Shapes (n_mus, n_scores, d) and (n_mus, n_scores), as `coef_` and `intercept_`.
    objectives, certificates
        The objective of each, summed over one-vs-rest problems, and how far above the optimum it can be at most.
    n_iters
        Iterations each took; 0 where it is a mixture of its neighbours.
    """

    mus: Floats
    coefs: Floats
    intercepts: Floats
    objectives: Floats
    certificates: Floats
    n_iters: Ints


class SmoothedNewton(LinearClassifier):
    """Linear support vector machine with l2 and l1 penalties, by Newton steps on a smoothed hinge.

    It minimises

        l2 / 2 |w|^2 + l1 |w|_1 + mean over rows of max(0, 1 - y (w . x + b)),

    one class against the rest (of two classes, the second against the first), where the mean is weighted by
    `sample_weight`, and `class_weight` multiplies the losses of a class. l2 = 1 / (C n), l1 = 0 is the problem
    LIBLINEAR solves for C. The hinge is smoothed to (u + sqrt(eps^2 + u^2)) / 2, and eps falls until the objective
    of the *unsmoothed* problem is proven to be within `tol` of its optimum. Zeros under l1 are exact.

    An iteration passes over the rows twice, whatever the number of classes. The Hessian rests on rows near the margin
    and on columns that are not at zero, at most 1,000 rows a column, fewer while that is enough; nothing of size d x d
    is built for wide data.

    Parameters
    ----------
    l2
        Squared penalty, 0 or more; 1 / (C n) in the terms of LIBLINEAR.
    l1
        Absolute penalty, 0 or more: more makes more coefficients zero. One of the two must be positive. Without l2,
        rounding stands in the way of the proof where l1 * tol is below some 1e-14 of the largest magnitudes in X.
    tol
        How far the objective of each one-vs-rest problem may be above its optimum, relative to it.
    max_iter
        Most Newton steps on all rows.
    fit_intercept
        Whether there is a bias b. It is never in the l1 penalty.
    penalize_bias
        Whether b is in the l2 penalty, as in LIBLINEAR.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    warm_start
        Whether to start from what the last `fit` found.
    init
        A `LinearModel` of the same classes and columns to start from; its scaler is left aside.
    callback
        Called after each iteration with the estimator and an `Iteration`; something true ends the fit.
    random_state
        Seed of the samples of rows, which only data of more than some ten thousand rows need.

    Attributes
    ----------
    coef_, intercept_
        Shapes (1, d) and (1,) for two classes, else (n_classes, d) and (n_classes,).
    classes_
        The labels.
    objective_
        The objective, summed over one-vs-rest problems.
    certificate_
        How far `objective_` is above the optimum at most: the duality gap of the unsmoothed problem.
    n_iter_
        Newton steps on all rows.
    history_
        An `Iteration` for each.
    model_
        What was learned, as a `LinearModel`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SmoothedNewton
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0.2, "yes", "no")
    >>> model = SmoothedNewton(l2=0.0, l1=0.12).fit(X, y)
    >>> np.flatnonzero(model.coef_)
    array([0, 1])
    >>> model.certificate_ <= 1e-3 * model.objective_
    True
    >>> model.score(X, y)
    0.975

    Notes
    -----
    After Hajewski, Oliveira and Stewart [1]_, with these changes: the slopes of the loss are unknowns beside the
    coefficients, as Chan, Golub and Mulet [2]_ have it for another norm, so that steps stay good where the loss bends
    sharply; a step with l1 minimises the model of second order
    with the penalty as it is (a proximal Newton step), since the published one can stall; several coordinates leave at
    once; smoothing follows a duality gap; the start is made on nested samples of rows; and as smoothing falls, the
    solution is extrapolated along its path.

    References
    ----------
    .. [1] J. Hajewski, S. Oliveira, D. E. Stewart: Smoothed hinge loss and l1 support vector machines, 2018.
    .. [2] T. F. Chan, G. H. Golub, P. Mulet: A nonlinear primal-dual method for total variation-based image
       restoration, SIAM Journal on Scientific Computing 20, 1999.
    """

    def __init__(
        self,
        l2: float = 1e-4,
        l1: float = 0.0,
        *,
        tol: float = 1e-3,
        max_iter: int = 200,
        fit_intercept: bool = True,
        penalize_bias: bool = False,
        class_weight: Any = None,
        warm_start: bool = False,
        init: LinearModel | None = None,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.l2 = l2
        self.l1 = l1
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.penalize_bias = penalize_bias
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.init = init
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        for name in ("l2", "l1"):
            value: Any = getattr(self, name)
            if not isinstance(value, Real) or not (math.isfinite(value) and float(value) >= 0.0):
                raise ValueError(f"`{name}` must be a finite number, 0 or more, got {value!r}")
            if value:
                check_scale(f"`{name}`", value, "give another, or 0 for none")
        if self.l2 == 0.0 and self.l1 == 0.0:
            raise ValueError("`l2` and `l1` are both 0: one of them must be positive, for instance l2=1e-4")
        tol: Any = self.tol
        if not isinstance(tol, Real) or not 0.0 < float(tol) < 1.0:
            raise ValueError(f"`tol` must be a number between 0 and 1, got {tol!r}")
        max_iter: Any = self.max_iter
        if not isinstance(max_iter, int | np.integer) or max_iter < 1:
            raise ValueError(f"`max_iter` must be an integer of at least 1, got {max_iter!r}")

    def _generator(self) -> np.random.Generator:
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            return np.random.default_rng(seed.randint(2**31))
        return np.random.default_rng(seed)

    def _penalties(self, matrix: Matrix, l1: float) -> Penalties:
        bias_l2 = self.l2 if self.penalize_bias and self.fit_intercept else 0.0
        needs_peaks = l1 > 0.0 or (self.fit_intercept and bias_l2 == 0.0)
        peaks = matrix.peaks() if needs_peaks else np.empty(0)
        return Penalties(float(self.l2), float(l1), float(bias_l2), bool(self.fit_intercept), peaks)

    def _problems(self, matrix: Matrix, codes: Ints, weights: Floats, penalties: Penalties) -> list[Problem]:
        """One problem for each row of `coef_`, at zero or where to start from."""
        positives = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
        shape = len(positives), matrix.shape[1]
        start = self._start(shape)
        coef, intercept = start or (np.zeros(shape), np.zeros(shape[0]))
        if not self.fit_intercept:
            intercept = np.zeros(shape[0])
        problems = [
            Problem(codes, positive, weights, penalties, w, float(b))
            for positive, w, b in zip(positives, coef, intercept, strict=True)
        ]
        if start is not None:
            for problem in problems:
                problem.eps = EPS_WARM
        return problems

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: Progress) -> Solution:
        matrix = as_matrix(X)
        penalties = self._penalties(matrix, self.l1)
        problems = self._problems(matrix, codes, weights, penalties)
        rng = self._generator()
        if problems[0].eps == EPS_FIRST:
            self._start_on_samples(matrix, problems, rng)

        def report() -> bool:
            return progress(sum(p.best[0] for p in problems), sum(p.gap for p in problems))

        n_iter = run(matrix, problems, self.tol, self.max_iter, rng, report=report)
        if self.l1 > 0.0:
            prune(matrix, problems, self.tol, rng)
        return self._solution(problems, n_iter, progress.is_stopped)

    def _start_on_samples(self, matrix: Matrix, problems: list[Problem], rng: np.random.Generator) -> None:
        """Bring the problems near their solutions on samples of the rows, each part of the next.

        Smoothing falls until it resolves what m rows cannot tell: the margins of their solution are off by about the
        square root of the number of coefficients over m.
        """
        n, d = matrix.shape
        sizes = [n // part for part in SAMPLES if n // part >= max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN * d)]
        if not sizes:
            return
        order = rng.choice(n, sizes[-1], replace=False)
        for size in sizes:
            rows = np.sort(order[:size])
            part = matrix.rows(rows)
            codes, c = problems[0].codes[rows], problems[0].c[rows]
            if not c.any():
                continue
            c *= problems[0].c.sum() / c.sum()
            starts = []
            for problem in problems:
                start = Problem(codes, problem.positive, c, problem.penalties, problem.w, problem.b)
                start.eps = problem.eps
                starts.append(start)
            run(part, starts, self.tol, self.max_iter, rng, floor=math.sqrt((d + 1) / size))
            for problem, start in zip(problems, starts, strict=True):
                problem.w, problem.b, problem.eps = start.w, start.b, start.eps

    def path(
        self,
        X: Any,
        y: Any,
        mus: Any = None,
        *,
        n_mus: int = 50,
        ratio: float = 0.01,
        sample_weight: Any = None,
    ) -> RegularizationPath:
        """Solutions for falling l1 penalties, started from each other; `l1` is left aside.

        Where mixtures of two solutions are proven to be as good as `tol` asks, they stand for the points between.
        Columns that by the strong rule will stay at zero are left out; the certificate and a last look at all
        gradients are those of all columns.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        mus
            The penalties; None for `n_mus` of them, from where all coefficients are zero down to `ratio` of that.
        """
        type(self)(**(self.get_params(deep=False) | {"l1": 1.0}))._check_params()
        X, codes, weights = self._prepare(X, y, sample_weight)
        matrix = as_matrix(X)
        penalties = replace(self._penalties(matrix, 1.0), l1=0.0)
        problems = [problem.at_zero() for problem in self._problems(matrix, codes, weights, penalties)]
        scores = np.zeros((len(problems), matrix.shape[0]))
        for problem, z in zip(problems, scores, strict=True):
            problem.z = z
            problem.center(1e-9)
        largest = float(np.abs(_gradients(matrix, problems)).max())
        if mus is None:
            mus = largest * np.geomspace(1.0, ratio, n_mus)
        mus = np.sort(np.asarray(mus, np.float64))[::-1]
        if mus.ndim != 1 or len(mus) == 0 or not (np.isfinite(mus).all() and mus[-1] > 0.0):
            raise ValueError(f"`mus` must be positive numbers, got {mus!r}")
        return Path(matrix, problems, mus, largest, self.tol, self.max_iter, self._generator()).found

    def _solution(self, problems: list[Problem], n_iter: int, stopped: bool) -> Solution:
        attributes = {
            "coef_": np.array([problem.best[1] for problem in problems]),
            "intercept_": np.array([problem.best[2] for problem in problems]),
        }
        objective, gap = sum(p.best[0] for p in problems), sum(p.gap for p in problems)
        return Solution(attributes, objective, gap, n_iter, self._warning(problems, n_iter, stopped))

    def _warning(self, problems: list[Problem], n_iter: int, stopped: bool) -> str:
        worst = max(problem.gap / max(problem.best[0], 1e-300) for problem in problems)
        if worst <= self.tol:
            return ""
        if n_iter < self.max_iter and stopped:
            return f"SmoothedNewton was stopped by its callback with a relative duality gap of {worst:.1e}"
        advice = f"raise max_iter={self.max_iter}" if n_iter >= self.max_iter else "rounding stands in the way: scale X"
        return (
            f"SmoothedNewton stopped after {n_iter} iterations with a relative duality gap of {worst:.1e} "
            f"where tol={self.tol:g} was asked for; {advice}, or raise tol"
        )


def warmup() -> None:
    """Compile the kernels of `SmoothedNewton`, or load them from disk where they were compiled before."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.arange(12) % 3
    for kind in (np.float64, np.float32):
        rows = X.astype(kind)
        for view in (rows, scipy.sparse.csr_matrix(rows)):
            for labels in (y, y == 0):
                SmoothedNewton(1e-2, 1e-3, tol=1e-2).fit(view, labels)
