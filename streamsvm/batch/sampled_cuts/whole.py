"""Few rows: the whole problem, without cuts."""

from __future__ import annotations

import math
import time

import numpy as np

from streamsvm.batch.base import Progress
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.rounds import Result, Rounds, Settings
from streamsvm.kernels import cuts as kernels

# Sweeps over the rows a round.
SWEEPS = 10
# What C may be for each row where rows held out in so many folds choose, in the order they are asked: each as long as
# it is better. Solutions need to be no nearer than so many times `tol` for that, nor take more rounds.
CHOICES, FOLDS, ROUGH, ROUNDS_ROUGH = ((1.0, 10.0, 100.0, 1000.0), (1.0, 0.1, 0.01)), 3, 5.0, 20


class Whole(Rounds):
    """The whole problem, by coordinate ascent on its dual with all kernel values in memory. C may be None."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, population = self.settings, self.population
        rows, codes = self._rows(np.arange(population.n))
        self.codes, self.shares = codes, population.each(codes)
        self.gram = self.similarity.values(rows, rows)
        if self.n_outputs == 1:  # two scores of opposite sign, whose difference is the one there is
            self.gram = self.gram * np.float32(0.5)
        if not hasattr(self, "dual"):
            self.C = self.C or self._choose(rng)
            self.dual = Dual(self.C * self.shares, codes, len(settings.cost))
        n_iter, gap, objective = 0, math.inf, math.inf
        while n_iter < settings.max_iter and gap > settings.tol:
            n_iter += 1
            objective, gap = self._round(self.dual, rng)
            if progress(objective, gap) or time.perf_counter() > settings.deadline:
                break
        coefs = self.dual.coefs(self.codes, settings)
        indices = np.flatnonzero(coefs.any(axis=1))
        coefs = coefs[:, 1:] if self.n_outputs == 1 else coefs
        del self.gram
        return Result(indices, coefs[indices].astype(np.float32), objective, 0.0, gap, n_iter, gap <= settings.tol)

    def _round(self, dual: Dual, rng: np.random.Generator) -> tuple[float, float]:
        """Some sweeps; the objective and how far above the optimum it can be."""
        settings = self.settings
        order = rng.permutation(np.flatnonzero(dual.most > 0.0))
        is_rescaled = settings.rescaling == "slack"
        kernels.sweep(
            self.gram, self.codes, settings.cost, is_rescaled, dual.most, order, SWEEPS, dual.weights, dual.scores
        )
        loss = float(dual.most @ self._violations(dual.scores, self.codes).losses)
        square = max(0.0, float(np.einsum("ic,ci->", dual.coefs(self.codes, settings), dual.scores)))
        bound = float(np.einsum("ic,ic->", dual.weights, settings.cost[self.codes])) - 0.5 * square
        total = float(dual.most.sum()) / max(float(self.shares.sum()), 1e-300)
        objective = (loss + 0.5 * square) / total
        return objective, max(0.0, objective - bound / total)

    def _choose(self, rng: np.random.Generator) -> float:
        """The C that rows held out speak for: that of `SVC`, if they do not clearly speak for another."""
        per_row = float(np.count_nonzero(self.shares))
        fold = rng.permutation(len(self.codes)) % FOLDS
        best, least = CHOICES[0][0], np.empty(0)
        for choices in CHOICES:
            duals: list[Dual] = []
            for c in choices:
                costs = self._held_out(duals, c * per_row * self.shares, fold, rng)
                if c == choices[0]:
                    least = costs if not len(least) else least
                    continue
                won = self.shares * (least - costs)
                if won.sum() <= math.sqrt(float(won @ won)):
                    break
                best, least = c, costs
            if best != choices[0]:
                break
        return best * per_row

    def _held_out(self, duals: list[Dual], most: Floats, fold: Ints, rng: np.random.Generator) -> Floats:
        """What each row costs as predicted from the other folds; goes on from what solutions there are."""
        settings, costs = self.settings, np.zeros(len(fold))
        for k in range(FOLDS):
            part = np.where(fold == k, 0.0, most)
            if len(duals) <= k:
                duals.append(Dual(part, self.codes, len(settings.cost)))
            else:
                duals[k].resize(part, self.codes)
            for _ in range(ROUNDS_ROUGH):
                _, gap = self._round(duals[k], rng)
                if gap <= ROUGH * settings.tol or time.perf_counter() > settings.deadline:
                    break
            held = fold == k
            found = duals[k].scores[:, held].argmax(axis=0)
            costs[held] = settings.cost[self.codes[held], found]
        return costs


class Dual:
    """Weights of each row's labels, and the scores that belong to them."""

    def __init__(self, most: Floats, codes: Ints, n_classes: int) -> None:
        self.scores = np.zeros((n_classes, len(codes)))
        self.weights = np.zeros((len(codes), n_classes))
        self.resize(most, codes)

    def resize(self, most: Floats, codes: Ints) -> None:
        """Let the weights of a row sum up to another number; where they are more, begin anew."""
        rows = np.arange(len(codes))
        self.weights[rows, codes] = 0.0
        if (self.weights.sum(axis=1) > most).any():
            self.weights[:] = self.scores[:] = 0.0
        self.most = most
        self.weights[rows, codes] = most - self.weights.sum(axis=1)

    def coefs(self, codes: Ints, settings: Settings) -> Floats:
        """The coefficients of each row's features, shape (n, n_classes)."""
        rows = np.arange(len(codes))
        coefs = -self.weights * (settings.cost[codes] if settings.rescaling == "slack" else 1.0)
        coefs[rows, codes] = 0.0
        coefs[rows, codes] = -coefs.sum(axis=1)
        return np.asarray(coefs, np.float64)
