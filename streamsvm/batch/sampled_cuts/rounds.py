"""Rounds that add a cut each."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.batch.base import Progress
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.cuts import Cuts, Watched
from streamsvm.batch.sampled_cuts.losses import MEASURED, Violations, differences, most_violated, square_norm
from streamsvm.batch.sampled_cuts.population import Population
from streamsvm.batch.similarity import Similarity, Singles

# Rows set aside to watch the loss of the average.
HELD_OUT = 2000
# An average over rounds is judged against that of three quarters of them, but at least so many rounds before.
PATIENCE = 20
# Stale cuts are dropped so many at a time, at least.
DROPPED = 8


class Result(NamedTuple):
    """What a run of rounds found."""

    indices: Ints
    coefs: Singles
    objective: float
    error: float
    certificate: float
    n_iter: int
    is_done: bool


@dataclass
class Settings:
    """What the rounds are told."""

    sample_size: int
    tol: float
    max_iter: int
    deadline: float
    cost: Floats
    rescaling: str
    average: bool


class Rounds(ABC):
    """Rounds of the method on one set of rows, that may be continued."""

    population: Population
    settings: Settings

    def __init__(self, similarity: Similarity, C: float, n_outputs: int) -> None:
        self.similarity, self.C, self.n_outputs = similarity, C, n_outputs

    def run(self, population: Population, settings: Settings, rng: np.random.Generator, progress: Progress) -> Result:
        """Go on for some rounds."""
        self.population, self.settings = population, settings
        try:
            return self._run(rng, progress)
        finally:
            del self.population  # it holds the rows

    @abstractmethod
    def _run(self, rng: np.random.Generator, progress: Progress) -> Result: ...

    def _start(self, watched: Watched) -> None:
        tol = min(1e-6, 0.01 * self.settings.tol) * max(float(self.settings.cost.max()), 1e-300)
        self.cuts = Cuts(self.C, self.similarity, self.n_outputs, watched.rows.shape[1], tol)
        self.watched = watched

    def _violations(self, scores: Floats, codes: Ints) -> Violations:
        return most_violated(scores, codes, self.settings.cost, self.settings.rescaling)

    def _tidy(self) -> None:
        """Drop cuts that have been inactive for long, a few at a time."""
        stale = self.cuts.stale()
        if np.count_nonzero(stale) >= DROPPED:
            self.watched.drop(stale, self.cuts.sums[: self.cuts.n])
            self.cuts.drop(stale)

    def _rows(self, indices: Ints) -> tuple[Singles, Ints]:
        X, codes = self.population.take(indices)
        return self.similarity.prepare(X), codes


class ConstantTime(Rounds):
    """Each cut from rows drawn afresh. The average is judged by rows set aside."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings = self.settings
        if not hasattr(self, "cuts"):
            rows, codes = self._rows(self.population.draw(rng, HELD_OUT))
            self._start(Watched(rows, codes, self.population.share(codes), self.n_outputs))
            self.losses: list[float] = []
            self.squares = 0.0
        cuts, is_done, n_iter = self.cuts, False, 0
        while n_iter < settings.max_iter and not is_done:
            n_iter += 1
            self._round(rng)
            loss = self._loss_of_average()
            if cuts.slack > 0.0:
                self.losses.append(loss)
            self.squares += cuts.n_rounds * cuts.square
            is_done = loss <= settings.tol or self._is_flat()
            if progress(loss + 0.5 * self.squares / cuts.total / self.C, math.inf):
                break
            if time.perf_counter() > settings.deadline:
                break
            self._tidy()
        indices, coefs = cuts.expansion(settings.average)
        objective, error = self.measure(indices, coefs, rng)
        return Result(indices, coefs, objective, error, math.inf, n_iter, is_done)

    def _round(self, rng: np.random.Generator) -> None:
        cuts = self.cuts
        indices = self.population.draw(rng, self.settings.sample_size)
        rows, codes = self._rows(indices)
        each = cuts.scores(rows)
        scores = np.tensordot(cuts.alpha[: cuts.n], each, 1)
        found = self._violations(scores, codes)
        lose = found.losses > 0.0
        share = self.population.share(codes) * found.factors
        coefs = differences(codes, found.labels, share, self.n_outputs)
        offset = float(self.population.share(codes) @ found.costs)
        rows, indices, some = rows[lose], indices[lose], coefs[lose]
        products = np.zeros(cuts.n + 1)
        products[:-1] = np.tensordot(each, coefs.T.astype(np.float64), 2)
        own = np.zeros((1, self.n_outputs, len(rows)), np.float32)
        self.similarity.add_scores(rows, rows, some, np.zeros(len(rows), np.int64), own)
        products[-1] = np.einsum("ci,ic->", own[0], some, dtype=np.float64)
        cuts.add(offset, rows, indices, some, products)
        self.watched.add(cuts, rows, some)
        cuts.solve()

    def _loss_of_average(self) -> float:
        watched = self.watched
        found = self._violations(watched.average(self.cuts), watched.codes)
        return float(watched.weights @ found.losses)

    def _is_flat(self) -> bool:
        """Whether the loss of the average has not fallen by `tol` over the last quarter of the rounds.

        Of those that count: as long as no cut tells of a loss, f grows into the rows of each, and the loss at others
        may rise for a while.
        """
        s = len(self.losses)
        return s >= 2 * PATIENCE and self.losses[s - 1 - max(PATIENCE, s // 4)] - self.losses[-1] <= self.settings.tol

    def measure(self, indices: Ints, coefs: Singles, rng: np.random.Generator) -> tuple[float, float]:
        """The objective of an expansion by fresh rows, and its standard error."""
        vectors, _ = self._rows(indices)
        rows, codes = self._rows(self.population.draw(rng, MEASURED))
        found = self._violations(self.similarity.decide(vectors, coefs, rows), codes)
        losses = self.population.share(codes) * found.losses * len(codes)
        square, error = square_norm(self.similarity, vectors, coefs, rng)
        variance = float(losses.var()) / len(losses) + (0.5 * error / self.C) ** 2
        return float(losses.mean()) + 0.5 * square / self.C, math.sqrt(variance)


class AllRows(Rounds):
    """The most violated label of all rows each round; the cut from all that have a loss, or from a sample of them."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, n_iter = self.settings, 0
        if not hasattr(self, "cuts"):
            rows, codes = self._rows(np.arange(self.population.n))
            self._start(Watched(rows, codes, self.population.each(codes), self.n_outputs))
            self.square_of_sum = 0.0
            self.found = self._violations(np.zeros((self.n_outputs, len(rows))), codes)
        is_done = False
        while n_iter < settings.max_iter and not is_done:
            n_iter += 1
            self._round(rng)
            is_done = self._assess()
            if progress(self.objective, self.gap) or time.perf_counter() > settings.deadline:
                break
            self._tidy()
        indices, coefs = self.cuts.expansion(self.is_average)
        return Result(indices, coefs, self.objective, 0.0, self.gap, n_iter, is_done)

    def _round(self, rng: np.random.Generator) -> None:
        cuts, watched, found = self.cuts, self.watched, self.found
        lose = np.flatnonzero((found.losses > 0.0) & (watched.weights > 0.0))
        weights = watched.weights[lose]
        r = self.settings.sample_size
        if len(lose) > r:
            total = weights.sum()
            chosen = rng.choice(len(lose), r, p=weights / total)
            lose, weights = lose[chosen], np.full(r, total / r)
        coefs = differences(watched.codes[lose], found.labels[lose], weights * found.factors[lose], self.n_outputs)
        rows = watched.rows[lose]
        watched.add(cuts, rows, coefs)
        products = np.einsum("tci,ic->t", watched.of_each()[:, :, lose], coefs, dtype=np.float64)
        cuts.add(float(weights @ found.costs[lose]), rows, lose, coefs, products)
        before = watched.average(cuts) * cuts.total
        cuts.solve()
        t = cuts.n_rounds
        self.square_of_sum += 2.0 * t * cuts.along(before) + t * t * cuts.square

    def _assess(self) -> bool:
        """Where w and the average stand on all rows; whether that is near enough."""
        cuts, watched, settings = self.cuts, self.watched, self.settings
        self.found = self._violations(watched.now(cuts), watched.codes)
        loss = float(watched.weights @ self.found.losses)
        objective = loss + 0.5 * cuts.square / self.C
        bound = cuts.dual / self.C
        averaged = math.inf
        if settings.average:
            found = self._violations(watched.average(cuts), watched.codes)
            square = max(0.0, self.square_of_sum) / cuts.total**2
            averaged = float(watched.weights @ found.losses) + 0.5 * square / self.C
        self.is_average = averaged < objective
        self.objective = min(objective, averaged)
        self.gap = max(0.0, self.objective - bound)
        return loss - cuts.slack <= settings.tol or averaged - bound <= settings.tol
