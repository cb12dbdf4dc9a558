"""Kernel support vector machines by cutting planes that rest on samples of the rows."""

from __future__ import annotations

import copy
import hashlib
import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from streamsvm.batch.base import BatchClassifier, Iteration, Progress, Solution, check_scale
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.reduction import METHODS, reduce
from streamsvm.batch.similarity import KERNELS, Similarity, Singles
from streamsvm.kernels import cuts as kernels
from streamsvm.models import KernelExpansion, Scaler

# Cuts inactive for so many rounds are dropped.
IDLE = 30
# So much, of the largest product of a cut with itself, is added to the diagonal of their products: the rounding of
# single precision, without which products of few dimensions would not be those of any vectors.
RIDGE = 1e-7
# The factor of the active cuts' products is computed afresh every so many rounds.
REFRESH = 50
# Rows set aside to watch the loss of the average, and fresh rows to measure the result with.
HELD_OUT, MEASURED = 2000, 2000
# Rows that `gamma` and the centre are taken from.
SCALED_BY = 10_000
# An average over rounds is judged against that of three quarters of them, but at least so many rounds before.
PATIENCE = 20
# All rows are gone through so many at a time.
PASS = 4096
# Rows of a cut.
SAMPLE = 500
# Up to so many rows the whole problem is solved, by so many sweeps over the rows a round.
WHOLE, SWEEPS = 4000, 10
# What C may be for each row where rows held out in so many folds choose, in the order they are asked: each as long as
# it is better. Solutions need to be no nearer than so many times `tol` for that, nor take more rounds.
CHOICES, FOLDS, ROUGH, ROUNDS_ROUGH = ((1.0, 10.0, 100.0, 1000.0), (1.0, 0.1, 0.01)), 3, 5.0, 20


class Rows(Protocol):
    """Rows that need not be in memory: a length, and the rows and labels at an array of places."""

    def __len__(self) -> int: ...

    def __getitem__(self, places: Ints) -> tuple[Any, Any]: ...


# Losses ----------------------------------------------------------------------------------------------------------


class Violations(NamedTuple):
    """The most violated label of each row, its cost, the loss, and what its difference of scores is multiplied by."""

    labels: Ints
    costs: Floats
    losses: Floats
    factors: Floats


def most_violated(scores: Floats, codes: Ints, cost: Floats, rescaling: str) -> Violations:
    """For each row the label with the largest loss, by margin or slack rescaling.

    Parameters
    ----------
    scores
        Shape (n_classes, m), or (1, m) where two classes share one signed score.
    codes
        The true classes.
    cost
        cost[y, other], zero on the diagonal.
    """
    if len(scores) == 1:
        scores = np.vstack([-0.5 * scores, 0.5 * scores])
    rows = np.arange(len(codes))
    costs = cost[codes].T
    behind = scores - scores[codes, rows]
    losses = costs + behind if rescaling == "margin" else costs * (1.0 + behind)
    losses[codes, rows] = 0.0
    labels = losses.argmax(axis=0)
    largest = losses[labels, rows]
    labels = np.where(largest > 0.0, labels, codes)
    chosen = cost[codes, labels]
    factors = np.ones(len(codes)) if rescaling == "margin" else chosen
    return Violations(labels, chosen, np.maximum(largest, 0.0), factors)


def differences(codes: Ints, labels: Ints, weights: Floats, n_outputs: int) -> Singles:
    """Coefficients of the difference between the true and another label's features, weighted, (m, n_outputs)."""
    out = np.zeros((len(codes), n_outputs), np.float32)
    if n_outputs == 1:
        out[:, 0] = weights * (codes - labels)
    else:
        rows = np.arange(len(codes))
        out[rows, codes] += weights
        out[rows, labels] -= weights
    return out


def square_norm(
    similarity: Similarity, vectors: Singles, coefs: Singles, rng: np.random.Generator
) -> tuple[float, float]:
    """|f|^2 and its standard error; from a sample of the vectors where there are many."""
    if len(vectors) <= MEASURED:
        scores = similarity.decide(vectors, coefs, vectors)
        return max(0.0, float(np.einsum("ic,ci->", coefs, scores))), 0.0
    sizes = np.abs(coefs).sum(axis=1, dtype=np.float64)
    chosen = rng.choice(len(sizes), MEASURED, p=sizes / sizes.sum())
    scores = similarity.decide(vectors, coefs, vectors[chosen])
    squares = np.einsum("ic,ci->i", coefs[chosen], scores) / sizes[chosen] * sizes.sum()
    return float(squares.mean()), float(squares.std()) / math.sqrt(MEASURED)


# Cuts ------------------------------------------------------------------------------------------------------------


class Cuts:
    """The cuts of the program, their products and weights alpha, and the sum of alpha over the rounds.

    A cut says: the mean loss of w is at least `offset` - w . D, where D = sum of coefs * features over its vectors.
    In sums over the rounds, round t counts t times: what came first is far from the optimum.
    """

    def __init__(self, C: float, similarity: Similarity, n_outputs: int, n_columns: int, tol: float) -> None:
        self.C, self.similarity, self.tol = C, similarity, tol
        self.n, self.n_vectors, self.n_active, self.n_rounds = 0, 0, 0, 0
        self.vectors: Singles = np.empty((0, n_columns), np.float32)
        self.coefs: Singles = np.empty((0, n_outputs), np.float32)
        self.owners, self.places = np.empty(0, np.int64), np.empty(0, np.int64)
        self.products, self.factor = np.zeros((0, 0)), np.zeros((0, 0))
        self.offsets, self.alpha, self.sums = np.zeros(0), np.zeros(0), np.zeros(0)
        self.active, self.idle = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self.work = np.zeros((3, 0))
        self.slack = 0.0
        self.largest = 0.0
        self.past: list[tuple[Ints, Singles]] = []

    def scores(self, rows: Singles) -> Singles:
        """w . features of each cut for each prepared row, shape (n, n_outputs, m)."""
        out = np.zeros((self.n, self.coefs.shape[1], len(rows)), np.float32)
        v = self.n_vectors
        self.similarity.add_scores(self.vectors[:v], rows, self.coefs[:v], self.owners[:v], out)
        return out

    def add(self, offset: float, rows: Singles, places: Ints, coefs: Singles, products: Floats) -> None:
        """Add a cut; `products` are those with all cuts before it and with itself."""
        t, v, m = self.n, self.n_vectors, len(rows)
        self._make_room(t + 1, v + m)
        self.vectors[v : v + m], self.coefs[v : v + m], self.places[v : v + m] = rows, coefs, places
        self.owners[v : v + m] = t
        self.products[t, : t + 1] = self.products[: t + 1, t] = products
        self.offsets[t], self.alpha[t], self.sums[t], self.idle[t] = offset, 0.0, 0.0, 0
        self.largest = max(self.largest, float(products[t]))
        self.n, self.n_vectors = t + 1, v + m

    def _make_room(self, n: int, n_vectors: int) -> None:
        have = len(self.alpha)
        if n > have:
            more = max(64, have)
            for name in ("offsets", "alpha", "sums", "active", "idle"):
                setattr(self, name, np.pad(getattr(self, name), (0, more)))
            for name in ("products", "factor"):
                setattr(self, name, np.pad(getattr(self, name), ((0, more), (0, more))))
            self.work = np.zeros((3, have + more))
        have = len(self.vectors)
        if n_vectors > have:
            more = max(n_vectors - have, have // 2, 256)
            for name in ("vectors", "coefs"):
                setattr(self, name, np.pad(getattr(self, name), ((0, more), (0, 0))))
            for name in ("owners", "places"):
                setattr(self, name, np.pad(getattr(self, name), (0, more)))

    def solve(self) -> None:
        """Bring alpha to the solution of the program, and count it into the average."""
        n, ridge = self.n, RIDGE * max(self.largest, 1e-20)
        self.n_rounds += 1
        if self.n_rounds % REFRESH == 0:
            kernels.factor(self.products, self.active, self.n_active, ridge, self.factor)
        self.slack, self.n_active, self.n_steps = kernels.solve_dual(
            self.products,
            self.offsets,
            n,
            self.C,
            ridge,
            self.tol,
            self.alpha,
            self.factor,
            self.active,
            self.n_active,
            self.work,
        )
        self.sums[:n] += self.n_rounds * self.alpha[:n]
        self.idle[:n] += 1
        self.idle[self.active[: self.n_active]] = 0

    @property
    def total(self) -> float:
        """What all rounds count together."""
        return max(1.0, 0.5 * self.n_rounds * (self.n_rounds + 1))

    @property
    def square(self) -> float:
        """|w|^2 of the current w."""
        active = self.active[: self.n_active]
        alpha = self.alpha[active]
        return max(0.0, float(alpha @ self.products[np.ix_(active, active)] @ alpha))

    @property
    def dual(self) -> float:
        """The value of the program's dual: no w has a lower value on these cuts."""
        return float(self.offsets[: self.n] @ self.alpha[: self.n]) - 0.5 * self.square

    def stale(self) -> NDArray[np.bool_]:
        """Which cuts have been inactive for long."""
        return self.idle[: self.n] >= IDLE

    def drop(self, is_stale: NDArray[np.bool_]) -> None:
        """Take cuts out of the program; what they have in the average is kept aside."""
        v = self.n_vectors
        goes = is_stale[self.owners[:v]]
        owners = self.owners[:v][goes]
        self.past.append((self.places[:v][goes], self._weighted(self.coefs[:v][goes], self.sums[owners])))
        renamed = np.cumsum(~is_stale) - 1
        stays = np.flatnonzero(~is_stale)
        k, kv = len(stays), int(np.count_nonzero(~goes))
        for name in ("vectors", "coefs", "places"):
            values = getattr(self, name)
            values[:kv] = values[:v][~goes]
        self.owners[:kv] = renamed[self.owners[:v][~goes]]
        for name in ("offsets", "alpha", "sums", "idle"):
            values = getattr(self, name)
            values[:k] = values[stays]
        self.products[:k, :k] = self.products[np.ix_(stays, stays)]
        self.active[: self.n_active] = renamed[self.active[: self.n_active]]
        self.n, self.n_vectors = k, kv

    @staticmethod
    def _weighted(coefs: Singles, weights: Floats) -> Singles:
        return np.asarray(coefs * weights[:, None], np.float32)

    def expansion(self, average: bool) -> tuple[Ints, Singles]:
        """Places of rows and their coefficients, each row once, of the average or of the last w."""
        v = self.n_vectors
        weights = self.sums / self.total if average else self.alpha
        parts = [(self.places[:v], self._weighted(self.coefs[:v], weights[self.owners[:v]]))]
        if average:
            parts += [(places, coefs / np.float32(self.total)) for places, coefs in self.past]
        places, inverse = np.unique(np.concatenate([p for p, _ in parts]), return_inverse=True)
        coefs = np.zeros((len(places), self.coefs.shape[1]))
        np.add.at(coefs, inverse, np.concatenate([c for _, c in parts]))
        keep = coefs.any(axis=1)
        return places[keep], coefs[keep].astype(np.float32)

    def along(self, scores: Floats) -> float:
        """The product of w with the function whose scores at all rows these are, by places, (n_outputs, n)."""
        v = self.n_vectors
        products = np.einsum("jc,cj->j", self.coefs[:v], scores[:, self.places[:v]], dtype=np.float64)
        return float(products @ self.alpha[self.owners[:v]])


class Watched:
    """Rows at which the scores of all cuts are kept: those set aside, or all there are."""

    def __init__(self, rows: Singles, codes: Ints, weights: Floats, n_outputs: int) -> None:
        self.rows, self.codes, self.weights = rows, codes, weights
        self._scores = np.zeros((0, n_outputs, len(rows)), np.float32)
        self._past = np.zeros((n_outputs, len(rows)))
        self._n = 0

    def of_each(self) -> Singles:
        """The scores of each cut, shape (n_cuts, n_outputs, n_rows)."""
        return self._scores[: self._n]

    def add(self, cuts: Cuts, rows: Singles, coefs: Singles) -> Singles:
        """Score a new cut; its scores, shape (n_outputs, n_rows)."""
        if self._n == len(self._scores):
            self._scores = np.pad(self._scores, ((0, max(16, self._n // 2)), (0, 0), (0, 0)))
        out = self._scores[self._n : self._n + 1]
        out[:] = 0.0
        cuts.similarity.add_scores(rows, self.rows, coefs, np.zeros(len(rows), np.int64), out)
        self._n += 1
        return np.asarray(out[0])

    def drop(self, is_stale: NDArray[np.bool_], sums: Floats) -> None:
        """Let cuts go that had these sums of weights."""
        self._past += self._weigh(np.where(is_stale, sums, 0.0))
        stays = np.flatnonzero(~is_stale)
        self._scores[: len(stays)] = self._scores[stays]
        self._n = len(stays)

    def _weigh(self, weights: Floats) -> Floats:
        total = np.zeros(self._past.shape)
        for t in np.flatnonzero(weights):
            total += weights[t] * self._scores[t]
        return total

    def now(self, cuts: Cuts) -> Floats:
        """The scores of w."""
        return self._weigh(cuts.alpha[: cuts.n])

    def average(self, cuts: Cuts) -> Floats:
        """The scores of the average w."""
        return (self._past + self._weigh(cuts.sums[: cuts.n])) / cuts.total


# Where rows come from --------------------------------------------------------------------------------------------


class Source:
    """Rows and classes at places, of an array or drawn on demand, and samples of places with their weights."""

    def __init__(self, n: int, take: Callable[[Ints], tuple[Any, Ints]], weights: Floats | None, factors: Floats):
        self.n, self.take, self.weights, self.factors = n, take, weights, factors
        self._cumulated = None if weights is None else np.cumsum(weights)

    def draw(self, rng: np.random.Generator, r: int) -> Ints:
        """r places, each row as likely as it weighs."""
        if self._cumulated is None:
            return np.asarray(rng.integers(self.n, size=r))
        at = rng.random(r) * self._cumulated[-1]
        return np.asarray(np.minimum(np.searchsorted(self._cumulated, at, "right"), self.n - 1))

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return 1.0 if self._cumulated is None else float(self._cumulated[-1])

    def share(self, codes: Ints) -> Floats:
        """What each of some drawn rows weighs."""
        return self.factors[codes] * (self.mass / len(codes))

    def each(self, codes: Ints) -> Floats:
        """What each of all rows weighs."""
        return self.factors[codes] / self.n if self.weights is None else self.weights


class Result(NamedTuple):
    """What a run of rounds found."""

    places: Ints
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

    source: Source
    settings: Settings

    def __init__(self, similarity: Similarity, C: float, n_outputs: int) -> None:
        self.similarity, self.C, self.n_outputs = similarity, C, n_outputs

    def run(self, source: Source, settings: Settings, rng: np.random.Generator, progress: Progress) -> Result:
        """Go on for some rounds."""
        self.source, self.settings = source, settings
        try:
            return self._run(rng, progress)
        finally:
            del self.source  # it holds the rows

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
        if np.count_nonzero(stale) >= 8:
            self.watched.drop(stale, self.cuts.sums[: self.cuts.n])
            self.cuts.drop(stale)

    def _rows(self, places: Ints) -> tuple[Singles, Ints]:
        X, codes = self.source.take(places)
        return self.similarity.prepare(X), codes


class ConstantTime(Rounds):
    """Each cut from rows drawn afresh. The average is judged by rows set aside."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings = self.settings
        if not hasattr(self, "cuts"):
            rows, codes = self._rows(self.source.draw(rng, HELD_OUT))
            self._start(Watched(rows, codes, self.source.share(codes), self.n_outputs))
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
        places, coefs = cuts.expansion(settings.average)
        objective, error = self.measure(places, coefs, rng)
        return Result(places, coefs, objective, error, math.inf, n_iter, is_done)

    def _round(self, rng: np.random.Generator) -> None:
        cuts = self.cuts
        places = self.source.draw(rng, self.settings.sample_size)
        rows, codes = self._rows(places)
        each = cuts.scores(rows)
        scores = np.tensordot(cuts.alpha[: cuts.n], each, 1)
        found = self._violations(scores, codes)
        lose = found.losses > 0.0
        share = self.source.share(codes) * found.factors
        coefs = differences(codes, found.labels, share, self.n_outputs)
        offset = float(self.source.share(codes) @ found.costs)
        rows, places, some = rows[lose], places[lose], coefs[lose]
        products = np.zeros(cuts.n + 1)
        products[:-1] = np.tensordot(each, coefs.T.astype(np.float64), 2)
        own = np.zeros((1, self.n_outputs, len(rows)), np.float32)
        self.similarity.add_scores(rows, rows, some, np.zeros(len(rows), np.int64), own)
        products[-1] = np.einsum("ci,ic->", own[0], some, dtype=np.float64)
        cuts.add(offset, rows, places, some, products)
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

    def measure(self, places: Ints, coefs: Singles, rng: np.random.Generator) -> tuple[float, float]:
        """The objective of an expansion by fresh rows, and its standard error."""
        vectors, _ = self._rows(places)
        rows, codes = self._rows(self.source.draw(rng, MEASURED))
        found = self._violations(self.similarity.decide(vectors, coefs, rows), codes)
        losses = self.source.share(codes) * found.losses * len(codes)
        square, error = square_norm(self.similarity, vectors, coefs, rng)
        variance = float(losses.var()) / len(losses) + (0.5 * error / self.C) ** 2
        return float(losses.mean()) + 0.5 * square / self.C, math.sqrt(variance)


class AllRows(Rounds):
    """The most violated label of all rows each round; the cut from all that have a loss, or from a sample of them."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, n_iter = self.settings, 0
        if not hasattr(self, "cuts"):
            rows, codes = self._rows(np.arange(self.source.n))
            self._start(Watched(rows, codes, self.source.each(codes), self.n_outputs))
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
        places, coefs = self.cuts.expansion(self.is_average)
        return Result(places, coefs, self.objective, 0.0, self.gap, n_iter, is_done)

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


class Whole(Rounds):
    """The whole problem, by coordinate ascent on its dual with all kernel values in memory. C may be None."""

    def _run(self, rng: np.random.Generator, progress: Progress) -> Result:
        settings, source = self.settings, self.source
        rows, codes = self._rows(np.arange(source.n))
        self.codes, self.shares = codes, source.each(codes)
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
        places = np.flatnonzero(coefs.any(axis=1))
        coefs = coefs[:, 1:] if self.n_outputs == 1 else coefs
        del self.gram
        return Result(places, coefs[places].astype(np.float32), objective, 0.0, gap, n_iter, gap <= settings.tol)

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


# The estimator ---------------------------------------------------------------------------------------------------


class Reduction(NamedTuple):
    """What a cut to a budget cost, at the rows it was measured with.

    Parameters
    ----------
    n_before, n_after
        Vectors.
    objective_before, objective_after
        |f|^2 / (2 C) + mean loss.
    accuracy_before, accuracy_after
        The share of right labels.
    """

    n_before: int
    n_after: int
    objective_before: float
    objective_after: float
    accuracy_before: float
    accuracy_after: float


class SampledCuts(BatchClassifier):
    """Kernel support vector machine by cutting planes of sampled rows, in a time that does not grow with the data.

    It minimises, over functions f in the kernel's space and without a bias,

        |f|^2 / (2 C) + mean over rows of the loss,

    which are C = n times the C of SVC and of SmoothedNewton's l2 = 1 / C. Of two classes f is one function with loss
    max(0, 1 - y f(x)); of more, one function f_c a class, and the loss is the largest over labels c of
    cost[y, c] + f_c(x) - f_y(x). All classes are learned in one problem.

    The mean loss is bounded from below by cuts, each a plane that rests on the most violated labels of `sample_size`
    rows. A round adds a cut at the current f and solves a small quadratic program over the cuts. The result is the
    average of f over the rounds, where round t counts t times [2]_.

    With a linear kernel a cut costs no more than its rows, so that large samples are cheap: they bound how near the
    optimum it ends. It needs a column of ones where the classes do not lie about zero.

    Parameters
    ----------
    C
        Weight of the loss: larger follows the rows more closely. It belongs to the rows that are seen: None for
        `sample_size` * `max_iter`, or for n where all rows are looked through. Where the whole problem is solved, None
        for n, as the C of 1 of SVC, if rows held out do not clearly speak for 10, 100 or 1,000 times that, or for less.
    kernel
        `"gaussian"` exp(-gamma |x - v|^2), `"laplacian"` exp(-gamma |x - v|_1), `"polynomial"`
        (gamma x.v + coef0)^degree, `"linear"` x.v, or a callable of two arrays of rows, float32, that gives the
        values of all pairs.
    gamma
        Of the kernel; "scale" for 1 / (n_features * variance of X), from at most 10,000 rows.
    degree, coef0
        Of the polynomial kernel.
    cost
        cost[i, j] for taking a row of classes_[i] for classes_[j], zero on the diagonal; None for 1 each.
    rescaling
        `"margin"`, as above, or `"slack"`: the largest of cost[y, c] * (1 + f_c(x) - f_y(x)).
    sampling
        `"constant"`: each cut from rows drawn afresh from all; time and memory do not depend on n. `"linear"`: all
        rows are looked through each round, the cut is drawn from those that have a loss, and the end is exact. Where
        there are no more rows than `sample_size`, all are looked through anyway.
    sample_size
        Rows of a cut. Where classes overlap little, or are many, hundreds of small cuts do better than few large ones.
        None for 500; but with sampling="constant" and at most 4,000 rows that `fit` is given, the whole problem is
        solved, without cuts: by coordinate ascent on its dual, with all kernel values in memory (64 MB).
    tol
        With all rows looked through: the end comes where the mean loss is above that of the cuts by no more than
        this, or the objective of the average above their bound. Else where the average's loss at rows set aside is no
        more than this, or has not fallen by more for a quarter of the rounds since the cuts tell of a loss.
    max_iter, max_seconds
        Most rounds, and seconds (None: no limit; with one, results depend on the machine).
    average
        Whether the result is the average over the rounds (where objectives are known, if it is better than the last
        f). False for the last f, the method as published: of single samples one to three points worse.
    budget
        The result is cut down to so many vectors; None leaves it. See `reduced`.
    reduction
        How: `"project"`, `"fit"`, or `"merge"`.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    warm_start
        Whether `fit` on the same rows goes on with the cuts of the last one. On other rows it starts anew: cuts of an
        old window do harm.
    callback
        Called after each round with the estimator and an `Iteration`; something true ends the fit.
    random_state
        Seed of the samples.

    Attributes
    ----------
    classes_
        The labels.
    support_, vectors_, dual_coef_
        Places of the rows that f rests on, these rows scaled by the kernel's parameters, and their coefficients, shape
        (1, n_vectors) for two classes, else (n_classes, n_vectors). After a merging, `support_` is empty.
    objective_, objective_error_
        The objective, and its standard error where it is an estimate by 2,000 fresh rows and 2,000 vectors; else 0.
    certificate_
        How far `objective_` can be above the optimum. It is proven where each cut has all rows with a loss; with
        sampled cuts of sampling="linear" it takes them for exact; with sampling="constant" none is known: inf.
    reduction_
        A `Reduction`, with `budget`.
    n_iter_
        Rounds.
    history_
        An `Iteration` for each. With sampling="constant" its objective has the loss at 2,000 rows set aside, and the
        mean of |f|^2 over the rounds, weighted so, which is at least that of their average.
    model_
        What was learned, as a `KernelExpansion`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SampledCuts
    >>> X = np.random.default_rng(0).random((20_000, 2))
    >>> y = np.floor(4 * X).sum(axis=1) % 2
    >>> model = SampledCuts(gamma=20.0).fit(X, y)
    >>> round(model.score(X[:1000], y[:1000]), 1)
    1.0
    >>> small = model.reduced(100, X[:2000], y[:2000])
    >>> small.reduction_.accuracy_before - small.reduction_.accuracy_after < 0.02
    True

    Notes
    -----
    After Yu and Joachims [1]_, with these changes: the average, the end by rows set aside instead of by a run of
    sampled cuts that are not violated, which is luck, and kernel values in single precision. Cuts inactive for 30
    rounds are dropped. In memory are the vectors of the cuts in the program, at most `sample_size` a cut, and 2^18
    kernel values at a time; with sampling="linear" also all rows in single precision, and a number a row and class for
    each cut.

    References
    ----------
    .. [1] C.-N. J. Yu, T. Joachims: Training structural SVMs with kernels using sampled cuts, KDD 2008.
    .. [2] S. Lacoste-Julien, M. Schmidt, F. Bach: A simpler approach to obtaining an O(1/t) convergence rate for the
       projected stochastic subgradient method, 2012 (arXiv 1212.2002), for the weights.
    """

    def __init__(
        self,
        C: float | None = None,
        kernel: Any = "gaussian",
        gamma: float | str = "scale",
        *,
        degree: int = 3,
        coef0: float = 1.0,
        cost: Any = None,
        rescaling: str = "margin",
        sampling: str = "constant",
        sample_size: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 150,
        max_seconds: float | None = None,
        average: bool = True,
        budget: int | None = None,
        reduction: str = "project",
        class_weight: Any = None,
        warm_start: bool = False,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.cost = cost
        self.rescaling = rescaling
        self.sampling = sampling
        self.sample_size = sample_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.average = average
        self.budget = budget
        self.reduction = reduction
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        if not callable(self.kernel):
            _check_choice("kernel", self.kernel, KERNELS)
        for name in ("gamma", "C", "max_seconds", "tol"):
            value: Any = getattr(self, name)
            if not (value is None and name in ("C", "max_seconds")) and not (name == "gamma" and value == "scale"):
                _check_number(name, value)
        for name in ("sample_size", "max_iter", "degree", "budget"):
            value = getattr(self, name)
            if not (name in ("sample_size", "budget") and value is None):
                _check_whole(name, value)
        coef0: Any = self.coef0
        if not isinstance(coef0, Real) or not 0.0 <= float(coef0) < math.inf:
            raise ValueError(f"`coef0` must be a finite number, 0 or more, got {coef0!r}")
        _check_choice("rescaling", self.rescaling, ("margin", "slack"))
        _check_choice("sampling", self.sampling, ("constant", "linear"))
        _check_choice("reduction", self.reduction, METHODS)
        if self.budget is not None and self.reduction == "merge" and self.kernel != "gaussian":
            raise ValueError(f"only Gaussian vectors can be merged, the kernel is {self.kernel!r}")

    def _check_magnitudes(self, X: Any) -> None:
        """Warn of such rows: they are cut to where kernel values are numbers."""
        try:
            super()._check_magnitudes(X)
        except ValueError as error:
            warnings.warn(f"rows may not be told apart: {error}", ConvergenceWarning, stacklevel=4)

    # Fitting -----------------------------------------------------------------------------------------------------

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: Progress) -> Solution:
        ones = np.ones(len(self.classes_))
        is_uniform = bool((weights == weights[0]).all()) and abs(weights.sum() - 1.0) < 1e-9
        source = Source(len(codes), lambda places: (X[places], codes[places]), None if is_uniform else weights, ones)
        is_whole = self.sample_size is None and self.sampling == "constant" and len(codes) <= WHOLE
        return self._find(source, _fingerprint(X, codes, weights) if self.warm_start else "", progress, is_whole)

    def fit_drawn(self, rows: Rows, classes: Sequence[Any] | NDArray[Any]) -> Self:
        """Fit rows that are drawn as they are needed, and are never all in memory.

        Parameters
        ----------
        rows
            `len(rows)` is how many there are; `rows[places]`, for an array of integers, gives an array of these rows,
            shape (m, d), and their m labels. The same places must give the same rows each time.
        classes
            All labels there are.

        Raises
        ------
        ValueError
            For values that are not finite, labels that are none of the classes, and parameters that cannot be.
        """
        progress = Progress(self, self.callback)
        self._check_params()
        self.classes_ = np.unique(np.asarray(classes))
        if len(self.classes_) < 2 or len(rows) < 1:
            raise ValueError(f"rows of at least two classes are needed, got {len(rows)} of {list(classes)}")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all labels: give a dict of weights with `fit_drawn`")
        factors = self._class_factors(np.ones(len(self.classes_)))
        drawn = Drawn(rows, self.classes_)
        source = Source(len(rows), drawn, None, factors)
        self.n_features_in_ = int(drawn(np.zeros(1, np.int64))[0].shape[1])
        return self._take_over(self._find(source, f"drawn {id(rows)}", progress), progress)

    def _find(self, source: Source, fingerprint: str, progress: Progress, is_whole: bool = False) -> Solution:
        seed = self.random_state
        rng = np.random.default_rng(seed.randint(2**31) if isinstance(seed, np.random.RandomState) else seed)
        n_classes = len(self.classes_)
        sample_size = self.sample_size or SAMPLE
        settings = Settings(
            sample_size,
            self.tol,
            self.max_iter,
            time.perf_counter() + (self.max_seconds or math.inf),
            _cost(self.cost, n_classes),
            self.rescaling,
            self.average,
        )
        similarity = self._similarity(source, rng)
        kind: type[Rounds] = AllRows if self.sampling == "linear" or sample_size >= source.n else ConstantTime
        kind = Whole if is_whole else kind
        defaults = {Whole: 0.0, AllRows: source.n, ConstantTime: sample_size * self.max_iter}
        C = float(self.C or defaults[kind])
        key = (fingerprint, kind, C, similarity.key, str(settings.cost), self.rescaling)
        rounds: Rounds = kind(similarity, C, 1 if n_classes == 2 else n_classes)
        held = getattr(self, "_held", None)
        if self.warm_start and held is not None and held[0] == key:
            _, rounds, rng = held
        result = rounds.run(source, settings, rng, progress)
        self._held = (key, rounds, rng) if self.warm_start else None
        self.C_, self.similarity_ = rounds.C, rounds.similarity
        self.support_, self.dual_coef_ = result.places, np.ascontiguousarray(result.coefs.T)
        self.vectors_ = self.similarity_.prepare(source.take(result.places)[0])
        self.objective_error_ = result.error
        if self.budget is not None:
            places = np.arange(source.n) if source.n <= MEASURED else source.draw(rng, MEASURED)
            X, codes = source.take(places)
            small = self._reduced(self.budget, X, codes, self.reduction, rng)
            for name in ("vectors_", "dual_coef_", "support_", "reduction_"):
                setattr(self, name, getattr(small, name))
        return Solution({}, result.objective, result.certificate, result.n_iter, self._warning(result, kind, progress))

    def _warning(self, result: Result, kind: type[Rounds], progress: Progress) -> str:
        if kind is ConstantTime or result.is_done:  # a cap is a usual end there
            return ""
        if progress.is_stopped:
            return f"SampledCuts was stopped by its callback, {result.certificate:.1e} above the bound of its cuts"
        return (
            f"SampledCuts stopped after {result.n_iter} rounds, {result.certificate:.1e} above the bound of its cuts, "
            f"where tol={self.tol:g} was asked for; raise max_iter={self.max_iter}"
            + (f" and max_seconds={self.max_seconds:g}" if self.max_seconds else "")
            + ", lower C, or raise tol"
        )

    def _similarity(self, source: Source, rng: np.random.Generator) -> Similarity:
        """The kernel function, scaled by all rows or by a sample of them."""
        places = np.arange(source.n) if source.n <= SCALED_BY else source.draw(rng, SCALED_BY)
        X, _ = source.take(places)
        X = X.astype(np.float64)
        is_sparse = scipy.sparse.issparse(X)
        centre = np.asarray(X.mean(axis=0)).ravel()
        gamma = self.gamma
        if isinstance(gamma, str):
            variance = float(X.multiply(X).mean() - X.mean() ** 2 if is_sparse else X.var())
            gamma = 1.0 / (X.shape[1] * variance) if 0.0 < variance < math.inf else 1.0
        return Similarity(self.kernel, float(gamma), int(self.degree), float(self.coef0), centre)

    # What was found ----------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Floats:
        X = self._validated(X)
        out = np.empty((len(self.dual_coef_), X.shape[0]))
        coefs = np.ascontiguousarray(self.dual_coef_.T)
        for first in range(0, X.shape[0], PASS):
            part = slice(first, first + PASS)
            out[:, part] = self.similarity_.decide(self.vectors_, coefs, self.similarity_.prepare(X[part]))
        return out[0] if len(out) == 1 else np.ascontiguousarray(out.T)

    @property
    def model_(self) -> KernelExpansion:
        """What was learned as plain arrays.

        Raises
        ------
        TypeError
            For a kernel that is a callable.
        """
        check_is_fitted(self)
        similarity = self.similarity_
        if callable(similarity.kernel):
            raise TypeError("a model with a callable for a kernel cannot be plain arrays")
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        coefs = self.dual_coef_.astype(np.float64)
        return KernelExpansion(
            self.classes_.tolist(),
            similarity.restore(self.vectors_),
            np.vstack([-coefs, coefs]) if len(coefs) == 1 else coefs,
            np.zeros(len(self.classes_)),
            similarity.gamma,
            np.ones(self.n_features_in_),
            Scaler.identity(names),
            similarity.kernel,
            similarity.degree,
            similarity.coef0,
        )

    def reduced(self, budget: int, X: Any, y: Any, method: str = "project") -> Self:
        """A copy with at most so many vectors, and a `reduction_` that tells what that cost.

        Parameters
        ----------
        budget
            The most vectors.
        X, y
            Rows to measure the loss with; for the method "fit" also those where the scores should be the same. Some
            thousands are enough.
        method
            `"project"`: onto landmarks among the vectors, nearest in the kernel's space. `"fit"`: onto such landmarks,
            nearest in the scores at X; better for small budgets. `"merge"`: two vectors into one, again and again, as
            in `BSGDClassifier`; for the Gaussian kernel.
        """
        _check_whole("budget", budget)
        _check_choice("method", method, METHODS)
        X, labels = self._validated(X), np.asarray(y)
        codes = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        if len(labels) != X.shape[0] or (self.classes_[codes] != labels).any():
            raise ValueError("`y` must have a known label for each row of X")
        return self._reduced(budget, X, codes, method, np.random.default_rng(0))

    def _reduced(self, budget: int, X: Any, codes: Ints, method: str, rng: np.random.Generator) -> Self:
        similarity, before = self.similarity_, np.ascontiguousarray(self.dual_coef_.T)
        rows = similarity.prepare(X)
        other = copy.copy(self)
        other._held = None
        other.vectors_, after = reduce(similarity, self.vectors_, before, int(budget), method, rng, rows)
        other.dual_coef_ = np.ascontiguousarray(after.T)
        other.support_ = self.support_ if other.vectors_ is self.vectors_ else np.empty(0, np.int64)
        cost = _cost(self.cost, len(self.classes_))

        def measure(vectors: Singles, coefs: Singles) -> tuple[float, float]:
            scores = similarity.decide(vectors, coefs, rows)
            loss = float(most_violated(scores, codes, cost, self.rescaling).losses.mean())
            square, _ = square_norm(similarity, vectors, coefs, np.random.default_rng(0))
            best = scores.argmax(axis=0) if len(scores) > 1 else (scores[0] > 0.0).astype(np.int64)
            return loss + 0.5 * square / self.C_, float(np.mean(best == codes))

        pairs = zip(measure(self.vectors_, before), measure(other.vectors_, after), strict=True)
        other.reduction_ = Reduction(len(before), len(after), *(value for pair in pairs for value in pair))
        return other


class Drawn:
    """Rows of a user's sequence, checked, with the codes of their labels."""

    def __init__(self, rows: Rows, classes: NDArray[Any]) -> None:
        self.rows, self.classes = rows, classes

    def __call__(self, places: Ints) -> tuple[Any, Ints]:
        X, labels = self.rows[places]
        X, labels = np.asarray(X), np.asarray(labels)
        if X.ndim != 2 or len(X) != len(places) or labels.shape != (len(places),):
            raise ValueError(
                f"rows[places] with {len(places)} places gave arrays of shapes {X.shape} and {labels.shape}; needed "
                f"are {len(places)} rows and as many labels"
            )
        is_bad = ~np.isfinite(X).all(axis=1)
        if is_bad.any():
            raise ValueError(f"row {places[is_bad.argmax()]} has values that are not finite")
        codes = np.searchsorted(self.classes, labels).clip(0, len(self.classes) - 1)
        is_bad = self.classes[codes] != labels
        if is_bad.any():
            at = is_bad.argmax()
            raise ValueError(f"row {places[at]} has the label {labels.tolist()[at]!r}, which is none of `classes`")
        return X, codes


def _cost(cost: Any, n_classes: int) -> Floats:
    """The cost matrix; raises ValueError for one that cannot be."""
    if cost is None:
        return 1.0 - np.eye(n_classes)
    matrix = np.asarray(cost, np.float64)
    if matrix.shape != (n_classes, n_classes):
        raise ValueError(f"`cost` must have shape {(n_classes, n_classes)}, got {matrix.shape}")
    if not np.isfinite(matrix).all() or (matrix < 0.0).any() or matrix.diagonal().any() or not matrix.any():
        raise ValueError("`cost` must be finite, 0 or more, zero on the diagonal, and not zero everywhere")
    check_scale("the largest `cost`", matrix.max(), "rescale them")
    return matrix


def _fingerprint(X: Any, codes: Ints, weights: Floats) -> str:
    """What tells these rows from others."""
    digest = hashlib.blake2b(digest_size=16)
    parts = [X.data, X.indices, X.indptr] if scipy.sparse.issparse(X) else [X]
    for part in (*parts, codes, weights):
        digest.update(f"{part.shape} {part.dtype}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, Real) or not 0.0 < float(value) < math.inf:
        raise ValueError(f"`{name}` must be a positive number, got {value!r}")
    check_scale(f"`{name}`", value, "give another")


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}")


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {choices}, got {value!r}")
