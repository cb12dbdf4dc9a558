"""The cuts of the quadratic program, and rows with cached scores by each cut."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.linear_systems import solve_damped
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel, Singles

# Number of inactive rounds after which a cut is dropped.
IDLE = 30
# Ridge on the products of the cuts, relative to the largest diagonal element. Without it the matrix may be indefinite,
# due to rounding in single precision.
RIDGE = 1e-7


class Cuts:
    """The cuts of the program: their products, weights alpha, and averages of alpha.

    A cut is the lower bound `offset` - w . D of the mean loss of w, where D is the sum of coefs * features over its
    vectors. Round t has weight t in averages over the rounds, because early rounds are far from the optimum
    (Lacoste-Julien, Schmidt and Bach, 2012).
    """

    def __init__(self, C: float, kernel: GaussianKernel, n_outputs: int, n_columns: int, tol: float) -> None:
        self.C, self.kernel, self.tol = C, kernel, tol
        self.n, self.n_vectors, self.n_rounds = 0, 0, 0
        self.vectors: Singles = np.empty((0, n_columns), np.float32)
        self.coefs: Singles = np.empty((0, n_outputs), np.float32)
        self.owners, self.indices = np.empty(0, np.int64), np.empty(0, np.int64)
        self.products = np.zeros((0, 0))
        self.offsets, self.alpha, self.sums = np.zeros(0), np.zeros(0), np.zeros(0)
        self.idle = np.zeros(0, np.int64)
        self.slack = 0.0
        self.largest = 0.0
        self.past: list[tuple[Ints, Singles]] = []

    def scores(self, rows: Singles) -> Singles:
        """Score prepared rows by each cut, shape (n, n_outputs, m)."""
        out = np.zeros((self.n, self.coefs.shape[1], len(rows)), np.float32)
        v = self.n_vectors
        self.kernel.add_scores(self.vectors[:v], rows, self.coefs[:v], self.owners[:v], out)
        return out

    def add(self, offset: float, rows: Singles, indices: Ints, coefs: Singles, products: Floats) -> None:
        """Add a cut; `products` are its products with all cuts and with itself."""
        t, v, m = self.n, self.n_vectors, len(rows)
        self._grow(t + 1, v + m)
        self.vectors[v : v + m], self.coefs[v : v + m], self.indices[v : v + m] = rows, coefs, indices
        self.owners[v : v + m] = t
        self.products[t, : t + 1] = self.products[: t + 1, t] = products
        self.offsets[t], self.alpha[t], self.sums[t], self.idle[t] = offset, 0.0, 0.0, 0
        self.largest = max(self.largest, float(products[t]))
        self.n, self.n_vectors = t + 1, v + m

    def _grow(self, n: int, n_vectors: int) -> None:
        have = len(self.alpha)
        if n > have:
            more = max(64, have)
            for name in ("offsets", "alpha", "sums", "idle"):
                setattr(self, name, np.pad(getattr(self, name), (0, more)))
            self.products = np.pad(self.products, ((0, more), (0, more)))
        have = len(self.vectors)
        if n_vectors > have:
            more = max(n_vectors - have, have // 2, 256)
            for name in ("vectors", "coefs"):
                setattr(self, name, np.pad(getattr(self, name), ((0, more), (0, 0))))
            for name in ("owners", "indices"):
                setattr(self, name, np.pad(getattr(self, name), (0, more)))

    def solve(self) -> None:
        """Solve the program for alpha, and add alpha to the average."""
        n, ridge = self.n, RIDGE * max(self.largest, 1e-20)
        self.n_rounds += 1
        alpha = self.alpha[:n]
        self.slack = solve_dual(self.products[:n, :n], self.offsets[:n], alpha, self.C, ridge, self.tol)
        self.sums[:n] += self.n_rounds * alpha
        self.idle[:n] = np.where(alpha > 0.0, 0, self.idle[:n] + 1)

    @property
    def total(self) -> float:
        """The total weight of the rounds."""
        return max(1.0, 0.5 * self.n_rounds * (self.n_rounds + 1))

    @property
    def square(self) -> float:
        """|w|^2 of the current w."""
        alpha = self.alpha[: self.n]
        return max(0.0, float(alpha @ self.products[: self.n, : self.n] @ alpha))

    def stale(self) -> NDArray[np.bool_]:
        """Return which cuts have been inactive for IDLE rounds."""
        return self.idle[: self.n] >= IDLE

    def drop(self, is_stale: NDArray[np.bool_]) -> None:
        """Remove cuts from the program; the average keeps them."""
        v = self.n_vectors
        goes = is_stale[self.owners[:v]]
        owners = self.owners[:v][goes]
        self.past.append((self.indices[:v][goes], self._weighted(self.coefs[:v][goes], self.sums[owners])))
        renamed = np.cumsum(~is_stale) - 1
        stays = np.flatnonzero(~is_stale)
        k, kv = len(stays), int(np.count_nonzero(~goes))
        for name in ("vectors", "coefs", "indices"):
            values = getattr(self, name)
            values[:kv] = values[:v][~goes]
        self.owners[:kv] = renamed[self.owners[:v][~goes]]
        for name in ("offsets", "alpha", "sums", "idle"):
            values = getattr(self, name)
            values[:k] = values[stays]
        self.products[:k, :k] = self.products[np.ix_(stays, stays)]
        self.n, self.n_vectors = k, kv

    @staticmethod
    def _weighted(coefs: Singles, weights: Floats) -> Singles:
        return np.asarray(coefs * weights[:, None], np.float32)

    def expansion(self, average: bool) -> tuple[Ints, Singles]:
        """Return row indices, each once, and coefficients of the average or the last w."""
        v = self.n_vectors
        weights = self.sums / self.total if average else self.alpha
        parts = [(self.indices[:v], self._weighted(self.coefs[:v], weights[self.owners[:v]]))]
        if average:
            parts += [(indices, coefs / np.float32(self.total)) for indices, coefs in self.past]
        indices, inverse = np.unique(np.concatenate([p for p, _ in parts]), return_inverse=True)
        coefs = np.zeros((len(indices), self.coefs.shape[1]))
        np.add.at(coefs, inverse, np.concatenate([c for _, c in parts]))
        keep = coefs.any(axis=1)
        return indices[keep], coefs[keep].astype(np.float32)


def solve_dual(G: Floats, h: Floats, alpha: Floats, most: float, ridge: float, tol: float) -> float:
    """Solve the dual problem of the cuts by a primal active-set method.

    Maximises h.a - a.(G + ridge I).a / 2 over a >= 0, sum(a) <= most.

    Parameters
    ----------
    G, h
        Products and offsets of the cuts.
    alpha
        A feasible point, which is replaced by the solution.
    most
        Upper bound on sum(alpha).
    ridge
        Ridge on the diagonal of G.
    tol
        Maximum violation of a cut at the solution.

    Returns
    -------
    float
        The multiplier of the bound on the sum, which is the largest loss among the cuts.
    """
    active, slack = alpha > 0.0, 0.0
    for _ in range(20 * len(alpha) + 100):
        a, slack = np.flatnonzero(active), 0.0
        if len(a):
            system = G[np.ix_(a, a)]
            system[np.diag_indices(len(a))] += ridge
            free, ones = solve_damped(system, np.column_stack([h[a], np.ones(len(a))])).T
            slack = max(0.0, float((free.sum() - most) / ones.sum()))
            goal, now = free - slack * ones, alpha[a]
            falls = np.flatnonzero(goal <= 0.0)
            if len(falls):
                steps = now[falls] / np.maximum(now[falls] - goal[falls], 1e-300)
                alpha[a] = np.maximum(0.0, now + steps.min() * (goal - now))
                blocking = a[falls[steps.argmin()]]
                alpha[blocking], active[blocking] = 0.0, False
                continue
            alpha[a] = goal
        gradient = np.where(active, -np.inf, h - G @ alpha)
        entering = int(gradient.argmax())
        if gradient[entering] <= slack + tol:
            break
        active[entering] = True
    return slack


class ScoredRows:
    """Held-out rows with cached scores by each cut."""

    def __init__(self, rows: Singles, codes: Ints, weights: Floats, n_outputs: int) -> None:
        self.rows, self.codes, self.weights = rows, codes, weights
        self._scores = np.zeros((0, n_outputs, len(rows)), np.float32)
        self._past = np.zeros((n_outputs, len(rows)))
        self._n = 0

    def add(self, cuts: Cuts, rows: Singles, coefs: Singles) -> None:
        """Compute and cache the scores by a new cut."""
        if self._n == len(self._scores):
            self._scores = np.pad(self._scores, ((0, max(16, self._n // 2)), (0, 0), (0, 0)))
        out = self._scores[self._n : self._n + 1]
        out[:] = 0.0
        cuts.kernel.add_scores(rows, self.rows, coefs, np.zeros(len(rows), np.int64), out)
        self._n += 1

    def drop(self, is_stale: NDArray[np.bool_], sums: Floats) -> None:
        """Drop the scores by some cuts; `sums` are their weights in the average."""
        self._past += self._weigh(np.where(is_stale, sums, 0.0))
        stays = np.flatnonzero(~is_stale)
        self._scores[: len(stays)] = self._scores[stays]
        self._n = len(stays)

    def _weigh(self, weights: Floats) -> Floats:
        total = np.zeros(self._past.shape)
        for t in np.flatnonzero(weights):
            total += weights[t] * self._scores[t]
        return total

    def average(self, cuts: Cuts) -> Floats:
        """Return the scores of the average w, shape (n_outputs, n_rows)."""
        return (self._past + self._weigh(cuts.sums[: cuts.n])) / cuts.total
