"""Penalties of a linear model, their dual bound, and the model of a Newton step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.batch.linear_systems import LARGEST_SYSTEM, conjugate_gradients, solve_damped
from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.smoothed_newton import kernels


@dataclass
class Penalties:
    """The penalties l2 / 2 |w|^2 + l1 |w|_1.

    `peaks` are the largest magnitudes in the columns.
    """

    l2: float
    l1: float
    intercept: bool
    peaks: Floats

    def value(self, w: Floats) -> float:
        """Return the sum of the penalties."""
        return float(0.5 * self.l2 * (w @ w) + self.l1 * np.abs(w).sum())

    def dual(self, v: Floats, mass: float, balance: float) -> float:
        """Compute a lower bound of the optimum from a dual point alpha in [0, c].

        The dual objective is sum(alpha) - |soft_threshold(v, l1)|^2 / (2 l2) with v = sum(alpha y x). A bias needs
        balance = sum(alpha y) = 0. Scaling down the heavier class ensures this, and changes column j of v by at most
        |balance| * peaks[j]. The bound is the largest over all multiples of alpha.
        """
        size = np.abs(v)
        if self.intercept:
            mass -= abs(balance)
            size += abs(balance) * self.peaks
        if mass <= 0.0:
            return 0.0
        if self.l2 == 0.0:
            largest = float(size.max(initial=0.0))
            return mass if largest <= self.l1 else mass * self.l1 / largest
        part = size[size > self.l1]
        t = 1.0
        for _ in range(50):  # Newton's method on a convex increasing function
            over = np.maximum(t * part - self.l1, 0.0)
            excess = float(part @ over) / self.l2 - mass
            if excess <= 1e-12 * mass:
                break
            t -= excess * self.l2 / float(part[over > 0.0] @ part[over > 0.0])
        over = np.maximum(t * part - self.l1, 0.0)
        return max(0.0, t * mass - float(over @ over) / (2.0 * self.l2))


# A step with l1 takes ROUNDS rounds of SWEEPS sweeps of coordinate descent and a Newton step on the nonzero
# coordinates.
ROUNDS, SWEEPS = 3, 20


class QuadraticModel:
    """Hessian diag(l2) + sum of weights * x x^T over some rows, columns and the bias."""

    def __init__(self, matrix: Matrix, rows: Ints, weights: Floats, columns: Ints, penalties: Penalties) -> None:
        self.matrix, self.rows, self.weights, self.columns = matrix, rows, weights, columns
        self.penalties = penalties
        self.n_products = 0
        total = float(weights.sum())
        # Damping keeps H positive definite; it changes the step, not the solution.
        damping = np.full(len(columns) + 1, 1e-10 * total + 1e-300)
        if penalties.l1 > 0.0:
            damping[:-1] *= np.minimum(penalties.peaks[columns], 1.0) ** 2
        self.ridge = np.maximum(penalties.l2, damping)
        self.ridge[-1] = damping[-1] if penalties.intercept else math.inf

    def step(self, g: Floats, n_expected: int) -> Floats:
        """Compute -H^-1 g by the method with the lowest estimated cost.

        `n_expected` estimates the number of products in conjugate gradients.
        """
        m, a = len(self.rows), len(self.columns)
        products = 2.0 * n_expected * 2.0 * self.matrix.gram_cost(1, a) ** 0.5 * m
        if a <= LARGEST_SYSTEM and self.matrix.gram_cost(m, a) + a**3 / 45.0 <= products:
            return -solve_damped(self._hessian(), g)
        return self._by_conjugate_gradients(g)

    def _hessian(self) -> Floats:
        """Build the lower triangle of H."""
        hessian = self.matrix.gram(self.rows, self.weights, self.columns)
        if not self.penalties.intercept:
            hessian[-1] = 0.0
        diagonal = np.einsum("ii->i", hessian)
        diagonal += np.where(np.isinf(self.ridge), 1.0, self.ridge)
        return hessian

    def _by_conjugate_gradients(self, g: Floats) -> Floats:
        """Solve by conjugate gradients with a diagonal preconditioner."""
        roots = np.sqrt(self.weights)
        B: Any = self.matrix.scaled(self.rows, roots, self.columns)
        squares = B.multiply(B) if scipy.sparse.issparse(B) else B * B
        diagonal = np.append(np.asarray(squares.sum(axis=0)).ravel(), float(self.weights.sum())) + self.ridge
        held = np.where(np.isinf(self.ridge), 0.0, self.ridge)

        def times(p: Floats) -> Floats:
            self.n_products += 1
            q = B @ p[:-1] + roots * p[-1]
            return np.append(B.T @ q, roots @ q) + held * p

        return conjugate_gradients(times, g, 0.1, 300, diagonal)

    def shrunk_step(self, g: Floats, w: Floats) -> Floats:
        """Minimise g . d + d^T H d / 2 + l1 |w + d|_1 over d, with the bias last."""
        l1 = self.penalties.l1
        wrong = np.where(w != 0.0, np.abs(g + l1 * np.sign(w)), np.abs(g) - l1)
        wrong[-1] = abs(g[-1])
        hessian = self._hessian()
        kernels.symmetrize(hessian)
        d = np.zeros(len(g))
        step = kernels.L1Step(g, w, l1, d, np.zeros(len(g)))
        tolerance = 1e-2 * float(wrong.max())
        for _ in range(ROUNDS):
            if kernels.coordinate_descent(hessian, step, SWEEPS, tolerance) <= tolerance:
                break
            _improve(hessian, step)
        return d


def _improve(H: Floats, step: kernels.L1Step) -> None:
    """Take a Newton step on the nonzero coordinates, if it lowers the model.

    It updates d and q of `step`. Coordinates that would change sign become zero. If this does not lower the model, the
    step ends at the first sign change.
    """
    g, w, l1, d, q = step
    x = w + d
    x[-1] = math.inf
    free = np.flatnonzero(x)
    slope = (g + q)[free] + l1 * np.sign(x[free])
    slope[-1] -= l1
    p = -solve_damped(H.take(free, 0).take(free, 1), slope)  # two block copies are faster than one by indices
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
