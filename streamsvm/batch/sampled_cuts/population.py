"""Rows and labels by index, and weighted samples of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.batch.matrix import Floats, Ints


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
