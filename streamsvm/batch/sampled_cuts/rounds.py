"""The constant-time algorithm; each round adds a cut and solves the program."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from streamsvm.batch.base import IterationLog
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.cuts import Cuts, ScoredRows
from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel, Singles
from streamsvm.batch.sampled_cuts.losses import MEASURED, differences, most_violated, square_norm


class Population:
    """Rows and classes by index, and weighted samples of indices.

    Attributes
    ----------
    n, mass
        Number of rows, and the sum of their weights.
    """

    def __init__(self, X: Any, codes: Ints, weights: Floats) -> None:
        self.X, self.codes, self.weights, self.n = X, codes, weights, len(codes)
        is_uniform = bool((weights == weights[0]).all()) and abs(weights.sum() - 1.0) < 1e-9
        self._cumulated = None if is_uniform else np.cumsum(weights)
        self.mass = 1.0 if self._cumulated is None else float(self._cumulated[-1])

    def draw(self, rng: np.random.Generator, r: int) -> Ints:
        """Draw r indices with probabilities proportional to the weights."""
        if self._cumulated is None:
            return np.asarray(rng.integers(self.n, size=r))
        at = rng.random(r) * self._cumulated[-1]
        return np.asarray(np.minimum(np.searchsorted(self._cumulated, at, "right"), self.n - 1))

    def shares(self, r: int) -> Floats:
        """Return the weights of r drawn rows in a mean over them."""
        return np.full(r, self.mass / r)


# Number of held-out rows that estimate the loss of the average.
HELD_OUT = 2000
# Minimum number of rounds over which the loss of the average is compared.
PATIENCE = 20
# Minimum number of inactive cuts to drop together.
DROPPED = 8


class Result(NamedTuple):
    """The result of a run; `C` is the weight of the loss."""

    C: float
    indices: Ints
    coefs: Singles
    objective: float
    error: float
    certificate: float
    n_iter: int
    is_done: bool


class RoundSettings(NamedTuple):
    """Settings of a run; `C` = 0 selects it by held-out rows."""

    kernel: GaussianKernel
    cost: Floats
    C: float
    sample_size: int
    tol: float
    max_iter: int

    @property
    def n_outputs(self) -> int:
        """Number of functions; two classes share one."""
        return 1 if len(self.cost) == 2 else len(self.cost)


class Rounds:
    """The constant-time algorithm, which draws new rows for each cut.

    Held-out rows estimate the loss of the average.
    """

    def __init__(self, population: Population, settings: RoundSettings) -> None:
        self.population, self.settings = population, settings
        self.kernel, self.C, self.n_outputs = settings.kernel, settings.C, settings.n_outputs

    def _start(self, scored: ScoredRows) -> None:
        tol = min(1e-6, 0.01 * self.settings.tol) * max(float(self.settings.cost.max()), 1e-300)
        self.cuts = Cuts(self.C, self.kernel, self.n_outputs, scored.rows.shape[1], tol)
        self.scored = scored

    def _tidy(self) -> None:
        """Drop inactive cuts."""
        stale = self.cuts.stale()
        if np.count_nonzero(stale) >= DROPPED:
            self.scored.drop(stale, self.cuts.sums[: self.cuts.n])
            self.cuts.drop(stale)

    def _rows(self, indices: Ints) -> tuple[Singles, Ints]:
        return self.kernel.prepare(self.population.X[indices]), self.population.codes[indices]

    def run(self, rng: np.random.Generator, progress: IterationLog) -> Result:
        """Run up to `max_iter` rounds."""
        settings = self.settings
        rows, codes = self._rows(self.population.draw(rng, HELD_OUT))
        self._start(ScoredRows(rows, codes, self.population.shares(len(codes)), self.n_outputs))
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
            self._tidy()
        indices, coefs = cuts.expansion(average=True)
        objective, error = self.measure(indices, coefs, rng)
        return Result(self.C, indices, coefs, objective, error, math.inf, n_iter, is_done)

    def _round(self, rng: np.random.Generator) -> None:
        cuts = self.cuts
        indices = self.population.draw(rng, self.settings.sample_size)
        rows, codes = self._rows(indices)
        each = cuts.scores(rows)
        scores = np.tensordot(cuts.alpha[: cuts.n], each, 1)
        found = most_violated(scores, codes, self.settings.cost)
        lose = found.losses > 0.0
        share = self.population.shares(len(codes))
        coefs = differences(codes, found.labels, share, self.n_outputs)
        offset = float(share @ found.costs)
        rows, indices, some = rows[lose], indices[lose], coefs[lose]
        products = np.zeros(cuts.n + 1)
        products[:-1] = np.tensordot(each, coefs.T.astype(np.float64), 2)
        own = np.zeros((1, self.n_outputs, len(rows)), np.float32)
        self.kernel.add_scores(rows, rows, some, np.zeros(len(rows), np.int64), own)
        products[-1] = np.einsum("ci,ic->", own[0], some, dtype=np.float64)
        cuts.add(offset, rows, indices, some, products)
        self.scored.add(cuts, rows, some)
        cuts.solve()

    def _loss_of_average(self) -> float:
        scored = self.scored
        found = most_violated(scored.average(self.cuts), scored.codes, self.settings.cost)
        return float(scored.weights @ found.losses)

    def _is_flat(self) -> bool:
        """Return whether the loss of the average has fallen by at most `tol` recently.

        It compares with the loss a quarter of the rounds ago, but at least PATIENCE rounds ago. Only rounds with a
        positive loss of the cuts count, because the held-out loss may rise before.
        """
        s = len(self.losses)
        return s >= 2 * PATIENCE and self.losses[s - 1 - max(PATIENCE, s // 4)] - self.losses[-1] <= self.settings.tol

    def measure(self, indices: Ints, coefs: Singles, rng: np.random.Generator) -> tuple[float, float]:
        """Estimate the objective of an expansion on new rows.

        Returns the estimate and its standard error.
        """
        vectors, _ = self._rows(indices)
        rows, codes = self._rows(self.population.draw(rng, MEASURED))
        found = most_violated(self.kernel.decide(vectors, coefs, rows), codes, self.settings.cost)
        losses = self.population.mass * found.losses
        square, error = square_norm(self.kernel, vectors, coefs, rng)
        variance = float(losses.var()) / len(losses) + (0.5 * error / self.C) ** 2
        return float(losses.mean()) + 0.5 * square / self.C, math.sqrt(variance)
