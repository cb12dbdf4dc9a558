"""Few rows: the whole problem, without cuts."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch import cuts_kernels as kernels
from streamsvm.batch.base import Progress
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.rounds import Result, Rounds, Settings
from streamsvm.batch.similarity import Singles

# Steps of a round: one for each row, but at least so many.
STEPS = 1000
# What C may be for each row, in the order in which they are asked for: each as long as it is better. So many rows at
# most are a half; solutions for it need to be no nearer than so many times `tol`, nor take more rounds.
CHOICES, HALF, ROUGH, ROUNDS_ROUGH = ((1.0, 10.0, 100.0), (1.0, 0.1, 0.01)), 1000, 20.0, 7
# The most weight that single precision is to hold.
MOST = 1e30


class Whole(Rounds):
    """The whole problem, by ascent on its dual with all kernel values in memory. C may be None."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, population = self.settings, self.population
        rows, codes = self._rows(np.arange(population.n))
        shares = population.each(codes)
        if not hasattr(self, "order"):  # by chance, those without weight last: the first rows choose C, half by half
            self.order = rng.permutation(population.n)
            self.order = self.order[np.argsort(shares[self.order] == 0.0, kind="stable")]
        rows, codes, shares = rows[self.order], codes[self.order], shares[self.order]
        n_iter, gap, objective = 0, math.inf, math.inf
        gram = self.similarity.values(rows, rows)
        if not self.C:
            self.C = HeldOut(gram, codes, shares, settings).choice() * float(np.count_nonzero(shares))
        if not hasattr(self, "dual"):
            self.dual = Dual(codes, self.C * shares, settings)
        while n_iter < settings.max_iter and gap > settings.tol:
            n_iter += 1
            objective, gap = self.dual.ascend(gram, settings.tol)
            if progress(objective, gap) or time.perf_counter() > settings.deadline:
                break
        coefs = np.empty((population.n, self.n_outputs), np.float32)
        coefs[self.order] = self.dual.coefs()[-self.n_outputs :].T
        indices = np.flatnonzero(coefs.any(axis=1))
        return Result(indices, coefs[indices], objective, 0.0, gap, n_iter, gap <= settings.tol)


class HeldOut:
    """What the first rows cost, each half as predicted from the other, which is solved when it is asked for."""

    def __init__(self, gram: Singles, codes: Ints, shares: Floats, settings: Settings) -> None:
        self.gram, self.codes, self.shares, self.settings = gram, codes, shares, settings
        self.n = int(np.count_nonzero(shares))
        n = min(self.n // 2, HALF)
        self.halves = slice(0, n), slice(n, 2 * n)
        self.grams = [np.ascontiguousarray(gram[half, half]) for half in self.halves]
        self.duals: dict[tuple[float, int], Dual] = {}

    def choice(self) -> float:
        """The C for each row that these rows speak for: that of `SVC`, if not clearly for another."""
        best = CHOICES[0][0]
        for choices in CHOICES:
            for c in choices[1:]:
                if not self.is_better(c, best):
                    break
                best = c
            if best != choices[0]:
                break
        return best

    def is_better(self, c: float, best: float) -> bool:
        """Whether c is clearly better; a first half that speaks against it ends the question."""
        won = np.empty(0)
        for k in range(2):
            shares = self.shares[self.halves[1 - k]]
            won = np.append(won, shares * (self._costs(best, best, k) - self._costs(c, best, k)))
            if won.sum() <= 0.0:
                return False
        return bool(won.sum() > math.sqrt(float(won @ won)))

    def _costs(self, c: float, near: float, k: int) -> Floats:
        """What the rows of the other half cost."""
        half, other = self.halves[k], self.halves[1 - k]
        scores = self.dual(c, near, k).coefs() @ self.gram[half, other]
        return np.asarray(self.settings.cost[self.codes[other], scores.argmax(axis=0)])

    def dual(self, c: float, near: float, k: int) -> Dual:
        """The solution for a half, from that for another C."""
        if (c, k) not in self.duals:
            settings, half = self.settings, self.halves[k]
            if (near, k) in self.duals:
                dual = self.duals[near, k].scaled(c / near)
            else:
                dual = Dual(self.codes[half], c * self.n * self.shares[half], settings)
            for _ in range(ROUNDS_ROUGH):
                _, gap = dual.ascend(self.grams[k], ROUGH * settings.tol)
                if gap <= ROUGH * settings.tol or time.perf_counter() > settings.deadline:
                    break
            self.duals[c, k] = dual
        return self.duals[c, k]


class Dual:
    """Weights of each row's labels, and the scores that belong to them; both of shape (n_classes, n).

    One function for two classes is as two, of opposite sign and with half the kernel.
    """

    def __init__(self, codes: Ints, most: NDArray[Any], settings: Settings) -> None:
        self.codes, self.settings = codes, settings
        self.own = codes, np.arange(len(codes))
        self.costs = np.ascontiguousarray(settings.cost[codes].T, np.float32)
        self.is_rescaled = settings.rescaling == "slack"
        self.share = np.float32(0.5 if len(self.costs) == 2 else 1.0)
        self.scores, self.weights = np.zeros_like(self.costs), np.zeros_like(self.costs)
        self._resize(most)

    def _resize(self, most: NDArray[Any]) -> None:
        """Let the weights of a row sum up to another number, no less than before."""
        self.weights[self.own] = 0.0
        self.most = np.minimum(most, MOST).astype(np.float32)
        self.weights[self.own] = np.maximum(0.0, self.most - self.weights.sum(axis=0))

    def ascend(self, gram: Singles, tol: float) -> tuple[float, float]:
        """Some steps; the objective and how far above the optimum it can be."""
        total = float(self.most.sum(dtype=np.float64))
        n_steps = max(STEPS, len(self.codes))
        kernels.ascend(
            gram,
            self.share,
            self.codes,
            self.costs,
            self.is_rescaled,
            self.most,
            n_steps,
            0.95 * tol * total,
            self.weights,
            self.scores,
        )
        self.scores = self.share * (self.coefs() @ gram)
        behind = self.scores - self.scores[self.own]
        losses = self.costs * (1.0 + behind) if self.is_rescaled else self.costs + behind
        loss = float(self.most @ losses.max(axis=0).astype(np.float64))
        square = self.square()
        objective = (loss + 0.5 * square) / total
        return objective, max(0.0, objective - (self.gained() - 0.5 * square) / total)

    def scaled(self, ratio: float) -> Dual:
        """For weights that sum up to so many times as much: the best multiple of these."""
        square = self.square()
        factor = min(ratio, self.gained() / square) if square > 0.0 else 0.0
        other = Dual(self.codes, self.most, self.settings)
        other.weights, other.scores = np.float32(factor) * self.weights, np.float32(factor) * self.scores
        other._resize(ratio * self.most)
        return other

    def gained(self) -> float:
        """The sum of the labels' weighted costs."""
        return float(np.vdot(self.weights.astype(np.float64), self.costs))

    def square(self) -> float:
        """|f|^2."""
        return max(0.0, float(np.vdot(self.coefs().astype(np.float64), self.scores)))

    def coefs(self) -> Singles:
        """The coefficients of each row's features, shape (n_classes, n)."""
        coefs = -self.weights * (self.costs if self.is_rescaled else np.float32(1.0))
        coefs[self.own] = 0.0
        coefs[self.own] = -coefs.sum(axis=0)
        return coefs
