"""Few rows: the whole problem, without cuts."""

from __future__ import annotations

import functools
import math
import time

import numpy as np
from threadpoolctl import ThreadpoolController

from streamsvm.batch.base import Progress
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.rounds import Result, Rounds, Settings
from streamsvm.kernels import cuts as kernels

# Sweeps over the rows a round.
SWEEPS = 30
# What C may be for each row where rows held out in so many folds choose, in the order they are asked: each as long as
# it is better. Solutions need to be no nearer than so many times `tol` for that, nor take more rounds.
CHOICES, FOLDS, ROUGH, ROUNDS_ROUGH = ((1.0, 10.0, 100.0, 1000.0), (1.0, 0.1, 0.01)), 3, 20.0, 7


@functools.cache
def _threads() -> ThreadpoolController:
    """Those of the libraries there are: to find them takes longer than a small fit."""
    return ThreadpoolController()


class Whole(Rounds):
    """The whole problem, by coordinate ascent on its dual with all kernel values in memory. C may be None."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, population = self.settings, self.population
        rows, codes = self._rows(np.arange(population.n))
        self.codes, self.shares = codes, population.each(codes)
        with _threads().limit(limits=1, user_api="blas"):  # on few rows more of them mostly wait, and busily
            self.gram = self.similarity.values(rows, rows)
        if not hasattr(self, "dual"):
            self.dual = self._chosen(rng) if not self.C else Dual(self.C * self.shares, codes, settings, self.n_outputs)
        n_iter, gap, objective = 0, math.inf, math.inf
        while n_iter < settings.max_iter and gap > settings.tol:
            n_iter += 1
            objective, gap = self._round(self.dual, settings.tol, rng)
            if progress(objective, gap) or time.perf_counter() > settings.deadline:
                break
        coefs = self.dual.coefs()
        indices = np.flatnonzero(coefs.any(axis=1))
        del self.gram
        return Result(indices, coefs[indices].astype(np.float32), objective, 0.0, gap, n_iter, gap <= settings.tol)

    def _round(self, dual: Dual, tol: float, rng: np.random.Generator) -> tuple[float, float]:
        """Some sweeps; the objective and how far above the optimum it can be."""
        settings = self.settings
        order = rng.permutation(np.flatnonzero(dual.most > 0.0))
        total = float(dual.most.sum()) / max(float(self.shares.sum()), 1e-300)
        is_rescaled = settings.rescaling == "slack"
        kernels.sweep(
            self.gram,
            self.codes,
            settings.cost,
            is_rescaled,
            dual.most,
            order,
            SWEEPS,
            tol * total,
            dual.weights,
            dual.scores,
        )
        loss = float(dual.most @ self._violations(dual.scores, self.codes).losses)
        square = dual.square()
        objective = (loss + 0.5 * square) / total
        return objective, max(0.0, objective - (dual.costs() - 0.5 * square) / total)

    def _chosen(self, rng: np.random.Generator) -> Dual:
        """Where to begin with the C that rows held out speak for: that of `SVC`, if not clearly for another."""
        held_out = HeldOut(self, rng)
        best = CHOICES[0][0]
        for choices in CHOICES:
            for c in choices[1:]:
                if not held_out.is_better(c, best):
                    break
                best = c
            if best != choices[0]:
                break
        self.C = best * held_out.n
        dual = held_out.dual(best, best, 0)
        dual.resize(self.C * self.shares)
        return dual


class HeldOut:
    """What rows cost as predicted from the other folds, each solved when it is asked for."""

    def __init__(self, whole: Whole, rng: np.random.Generator) -> None:
        self.whole, self.rng = whole, rng
        self.n = float(np.count_nonzero(whole.shares))
        self.fold = rng.permutation(len(whole.codes)) % FOLDS
        self.duals: dict[tuple[float, int], Dual] = {}

    def is_better(self, c: float, best: float) -> bool:
        """Whether c is clearly better; one fold that speaks against it ends the question."""
        self.duals = {key: dual for key, dual in self.duals.items() if key[0] == best}  # others are asked no more
        won = np.empty(0)
        for k in range(FOLDS):
            shares = self.whole.shares[self.fold == k]
            won = np.append(won, shares * (self._costs(best, best, k) - self._costs(c, best, k)))
            if won.sum() <= 0.0:
                return False
        return bool(won.sum() > math.sqrt(float(won @ won)))

    def _costs(self, c: float, near: float, k: int) -> Floats:
        scores, codes = self.dual(c, near, k).scores[:, self.fold == k], self.whole.codes[self.fold == k]
        found = scores.argmax(axis=0) if len(scores) > 1 else (scores[0] > 0.0).astype(np.int64)
        return np.asarray(self.whole.settings.cost[codes, found])

    def dual(self, c: float, near: float, k: int) -> Dual:
        """The solution of all but fold k, from that for another C."""
        if (c, k) not in self.duals:
            whole, settings = self.whole, self.whole.settings
            if (near, k) in self.duals:
                dual = self.duals[near, k].scaled(c / near)
            else:
                most = np.where(self.fold == k, 0.0, c * self.n * whole.shares)
                dual = Dual(most, whole.codes, settings, whole.n_outputs)
            for _ in range(ROUNDS_ROUGH):
                _, gap = whole._round(dual, ROUGH * settings.tol, self.rng)
                if gap <= ROUGH * settings.tol or time.perf_counter() > settings.deadline:
                    break
            self.duals[c, k] = dual
        return self.duals[c, k]


class Dual:
    """Weights of each row's labels, and the scores that belong to them."""

    def __init__(self, most: Floats, codes: Ints, settings: Settings, n_outputs: int) -> None:
        self.codes, self.settings = codes, settings
        self.scores = np.zeros((n_outputs, len(codes)))
        self.weights = np.zeros((len(codes), len(settings.cost)))
        self.resize(most)

    def resize(self, most: Floats) -> None:
        """Let the weights of a row sum up to another number, no less than before."""
        rows = np.arange(len(self.codes))
        self.weights[rows, self.codes] = 0.0
        self.most = most
        self.weights[rows, self.codes] = np.maximum(0.0, most - self.weights.sum(axis=1))

    def scaled(self, ratio: float) -> Dual:
        """For weights that sum up to so many times as much: the best multiple of these."""
        square = self.square()
        factor = min(ratio, self.costs() / square) if square > 0.0 else 0.0
        other = Dual(self.most, self.codes, self.settings, len(self.scores))
        other.weights, other.scores = factor * self.weights, factor * self.scores
        other.resize(ratio * self.most)
        return other

    def costs(self) -> float:
        """The sum of the labels' weighted costs."""
        return float(np.einsum("ic,ic->", self.weights, self.settings.cost[self.codes]))

    def square(self) -> float:
        """|f|^2."""
        return max(0.0, float(np.einsum("ic,ci->", self.coefs(), self.scores)))

    def coefs(self) -> Floats:
        """The coefficients of each row's features, shape (n, n_outputs)."""
        rows = np.arange(len(self.codes))
        coefs = -self.weights * (self.settings.cost[self.codes] if self.settings.rescaling == "slack" else 1.0)
        coefs[rows, self.codes] = 0.0
        coefs[rows, self.codes] = -coefs.sum(axis=1)
        return np.asarray(coefs[:, 1:] if len(self.scores) == 1 else coefs, np.float64)
