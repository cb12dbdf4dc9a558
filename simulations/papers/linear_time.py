"""Linear-time algorithm of Yu and Joachims (2008), a baseline for `SampledCuts`."""

from __future__ import annotations

import numpy as np

from streamsvm import SampledCuts
from streamsvm.batch.base import IterationLog
from streamsvm.batch.matrix import Floats
from streamsvm.batch.sampled_cuts.cuts import Cuts, ScoredRows
from streamsvm.batch.sampled_cuts.gaussian import Singles
from streamsvm.batch.sampled_cuts.losses import differences, most_violated
from streamsvm.batch.sampled_cuts.rounds import Result, Rounds


class LinearTime(SampledCuts):
    """`SampledCuts` with rounds that evaluate all rows; it needs `C`."""

    def _algorithm(self, n: int) -> type[Rounds]:
        return AllRows


class ScoresByCut(ScoredRows):
    """All rows with cached scores by each cut."""

    def of_each(self) -> Singles:
        """Return the scores by each cut, shape (n_cuts, n_outputs, n_rows)."""
        return self._scores[: self._n]

    def now(self, cuts: Cuts) -> Floats:
        """Return the scores of the current w, shape (n_outputs, n_rows)."""
        return self._weigh(cuts.alpha[: cuts.n])


def _dual(cuts: Cuts) -> float:
    """Return the dual objective: C times a lower bound of the objective."""
    return float(cuts.offsets[: cuts.n] @ cuts.alpha[: cuts.n]) - 0.5 * cuts.square


def _along(cuts: Cuts, scores: Floats) -> float:
    """Return the product of w with a function, given its scores at all rows.

    The scores have the shape (n_outputs, n).
    """
    v = cuts.n_vectors
    products = np.einsum("jc,cj->j", cuts.coefs[:v], scores[:, cuts.indices[:v]], dtype=np.float64)
    return float(products @ cuts.alpha[cuts.owners[:v]])


class AllRows(Rounds):
    """The linear-time algorithm, which evaluates all rows in each round.

    A cut uses a sample of the rows with a positive loss.
    """

    def run(self, rng: np.random.Generator, progress: IterationLog) -> Result:
        settings, n_iter = self.settings, 0
        rows, codes = self._rows(np.arange(self.population.n))
        self.scores = ScoresByCut(rows, codes, self.population.weights, self.n_outputs)
        self._start(self.scores)
        self.square_of_sum = 0.0
        self.found = most_violated(np.zeros((self.n_outputs, len(rows))), codes, settings.cost)
        is_done = False
        while n_iter < settings.max_iter and not is_done:
            n_iter += 1
            self._round(rng)
            is_done = self._assess()
            if progress(self.objective, self.gap):
                break
            self._tidy()
        indices, coefs = self.cuts.expansion(self.is_average)
        return Result(self.C, indices, coefs, self.objective, 0.0, self.gap, n_iter, is_done)

    def _round(self, rng: np.random.Generator) -> None:
        cuts, scored, found = self.cuts, self.scored, self.found
        lose = np.flatnonzero((found.losses > 0.0) & (scored.weights > 0.0))
        weights = scored.weights[lose]
        r = self.settings.sample_size
        if len(lose) > r:
            total = weights.sum()
            chosen = rng.choice(len(lose), r, p=weights / total)
            lose, weights = lose[chosen], np.full(r, total / r)
        coefs = differences(scored.codes[lose], found.labels[lose], weights, self.n_outputs)
        rows = scored.rows[lose]
        scored.add(cuts, rows, coefs)
        products = np.einsum("tci,ic->t", self.scores.of_each()[:, :, lose], coefs, dtype=np.float64)
        cuts.add(float(weights @ found.costs[lose]), rows, lose, coefs, products)
        before = scored.average(cuts) * cuts.total
        cuts.solve()
        t = cuts.n_rounds
        self.square_of_sum += 2.0 * t * _along(cuts, before) + t * t * cuts.square

    def _assess(self) -> bool:
        """Compute the objectives of w and of the average on all rows.

        Returns whether one of them is within `tol` of the optimum.
        """
        cuts, scored, settings = self.cuts, self.scored, self.settings
        self.found = most_violated(self.scores.now(cuts), scored.codes, settings.cost)
        loss = float(scored.weights @ self.found.losses)
        objective = loss + 0.5 * cuts.square / self.C
        bound = _dual(cuts) / self.C
        found = most_violated(scored.average(cuts), scored.codes, settings.cost)
        square = max(0.0, self.square_of_sum) / cuts.total**2
        averaged = float(scored.weights @ found.losses) + 0.5 * square / self.C
        self.is_average = averaged < objective
        self.objective = min(objective, averaged)
        self.gap = max(0.0, self.objective - bound)
        return loss - cuts.slack <= settings.tol or averaged - bound <= settings.tol
