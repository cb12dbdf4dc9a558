"""Solution of the whole problem for few rows, without cuts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.base import IterationLog
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts import ascent
from streamsvm.batch.sampled_cuts.gaussian import Singles
from streamsvm.batch.sampled_cuts.rounds import Population, Result, RoundSettings

# Minimum steps of a round; more rows take one step per row.
STEPS = 1000
# Candidates for C / n, in two series that end at the first value without improvement. Values are compared on two halves
# of at most HALF rows, solved to ROUGH * tol within ROUNDS_ROUGH rounds.
CHOICES, HALF, ROUGH, ROUNDS_ROUGH = ((1.0, 10.0, 100.0), (1.0, 0.1, 0.01)), 1000, 20.0, 7
# Maximum weight in single precision.
MOST = 1e30


class WholeProblem:
    """Ascent on the dual of the whole problem."""

    def __init__(self, population: Population, settings: RoundSettings) -> None:
        self.population, self.settings = population, settings

    def run(self, rng: np.random.Generator, progress: IterationLog) -> Result:
        """Run up to `max_iter` rounds."""
        settings, population, shares = self.settings, self.population, self.population.weights
        order = rng.permutation(population.n)
        order = order[np.argsort(shares[order] == 0.0, kind="stable")]  # rows of weight 0 last: the first rows select C
        rows, codes, shares = settings.kernel.prepare(population.X)[order], population.codes[order], shares[order]
        n_iter, gap, objective, n_outputs = 0, math.inf, math.inf, settings.n_outputs
        gram = settings.kernel.values(rows, rows)
        C = settings.C or HeldOut(gram, codes, shares, settings).choice() * float(np.count_nonzero(shares))
        dual = DualAscent(codes, C * shares, settings)
        while n_iter < settings.max_iter and gap > settings.tol:
            n_iter += 1
            objective, gap = dual.ascend(gram, settings.tol)
            if progress(objective, gap):
                break
        coefs = np.empty((population.n, n_outputs), np.float32)
        coefs[order] = dual.coefs()[-n_outputs:].T
        indices = np.flatnonzero(coefs.any(axis=1))
        return Result(C, indices, coefs[indices], objective, 0.0, gap, n_iter, gap <= settings.tol)


class HeldOut:
    """Comparison of values of C by two-fold cross-validation of the cost."""

    def __init__(self, gram: Singles, codes: Ints, shares: Floats, settings: RoundSettings) -> None:
        self.gram, self.codes, self.shares, self.settings = gram, codes, shares, settings
        self.n = int(np.count_nonzero(shares))
        n = min(self.n // 2, HALF)
        self.halves = slice(0, n), slice(n, 2 * n)
        self.grams = [np.ascontiguousarray(gram[half, half]) for half in self.halves]
        self.duals: dict[tuple[float, int], DualAscent] = {}

    def choice(self) -> float:
        """Select C / n: 1, as in `SVC`, unless another value has a clearly lower cost."""
        best = CHOICES[0][0]
        for choices in CHOICES:
            for c in choices[1:]:
                if not self._is_better(c, best):
                    break
                best = c
            if best != choices[0]:
                break
        return best

    def _is_better(self, c: float, best: float) -> bool:
        """Return whether the cost at c is lower by more than a standard error.

        The second half is not evaluated if the first one is not better.
        """
        won = np.empty(0)
        for k in range(2):
            shares = self.shares[self.halves[1 - k]]
            won = np.append(won, shares * (self._costs(best, best, k) - self._costs(c, best, k)))
            if won.sum() <= 0.0:
                return False
        return bool(won.sum() > math.sqrt(float(won @ won)))

    def _costs(self, c: float, near: float, k: int) -> Floats:
        half, other = self.halves[k], self.halves[1 - k]
        scores = self._solved(c, near, k).coefs() @ self.gram[half, other]
        return np.asarray(self.settings.cost[self.codes[other], scores.argmax(axis=0)])

    def _solved(self, c: float, near: float, k: int) -> DualAscent:
        """Solve for half k, starting from the solution for C = near if there is one."""
        if (c, k) not in self.duals:
            settings, half = self.settings, self.halves[k]
            if (near, k) in self.duals:
                dual = self.duals[near, k].scaled(c / near)
            else:
                dual = DualAscent(self.codes[half], c * self.n * self.shares[half], settings)
            for _ in range(ROUNDS_ROUGH):
                if dual.ascend(self.grams[k], ROUGH * settings.tol)[1] <= ROUGH * settings.tol:
                    break
            self.duals[c, k] = dual
        return self.duals[c, k]


class DualAscent:
    """The weights of each row's labels, and the scores; both of shape (n_classes, n).

    Two classes have two functions of opposite sign, with half the kernel.
    """

    def __init__(self, codes: Ints, most: NDArray[Any], settings: RoundSettings) -> None:
        self.codes, self.settings = codes, settings
        self.own = codes, np.arange(len(codes))
        self.costs = np.ascontiguousarray(settings.cost[codes].T, np.float32)
        self.share = np.float32(0.5 if len(self.costs) == 2 else 1.0)
        self.scores, self.weights = np.zeros_like(self.costs), np.zeros_like(self.costs)
        self._resize(most)

    def _resize(self, most: NDArray[Any]) -> None:
        """Set the sum of weights of each row by changing the weight of the true label."""
        self.weights[self.own] = 0.0
        self.most = np.minimum(most, MOST).astype(np.float32)
        self.weights[self.own] = np.maximum(0.0, self.most - self.weights.sum(axis=0))

    def ascend(self, gram: Singles, tol: float) -> tuple[float, float]:
        """Take a round of steps; returns the objective and the duality gap."""
        total = float(self.most.sum(dtype=np.float64))
        dual = ascent.Dual(gram, self.share, self.most, self.weights, self.costs + self.scores)
        ascent.ascend(dual, max(STEPS, len(self.codes)), 0.95 * tol * total)
        self.scores = self.share * (self.coefs() @ gram)
        losses = self.costs + (self.scores - self.scores[self.own])
        loss = float(self.most @ losses.max(axis=0).astype(np.float64))
        square = self._square()
        objective = (loss + 0.5 * square) / total
        return objective, max(0.0, objective - (self._gained() - 0.5 * square) / total)

    def scaled(self, ratio: float) -> DualAscent:
        """Return the best multiple of these weights as a start for `ratio` times C."""
        square = self._square()
        factor = min(ratio, self._gained() / square) if square > 0.0 else 0.0
        other = DualAscent(self.codes, self.most, self.settings)
        other.weights, other.scores = np.float32(factor) * self.weights, np.float32(factor) * self.scores
        other._resize(ratio * self.most)
        return other

    def _gained(self) -> float:
        return float(np.vdot(self.weights.astype(np.float64), self.costs))

    def _square(self) -> float:
        """Return |f|^2."""
        return max(0.0, float(np.vdot(self.coefs().astype(np.float64), self.scores)))

    def coefs(self) -> Singles:
        """Return the coefficients of the rows' features, shape (n_classes, n)."""
        coefs = -self.weights
        coefs[self.own] = 0.0
        coefs[self.own] = -coefs.sum(axis=0)
        return coefs
