"""Rows and labels by index, and weighted samples of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Ints


class RowSequence(Protocol):
    """Rows that need not be in memory.

    It has a length, and returns rows and labels for an array of indices.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, indices: Ints) -> tuple[Any, Any]: ...


class Population:
    """Rows and classes by index, and weighted samples of indices."""

    def __init__(self, n: int, take: Callable[[Ints], tuple[Any, Ints]], weights: Floats | None, factors: Floats):
        self.n, self.take, self.weights, self.factors = n, take, weights, factors
        self._cumulated = None if weights is None else np.cumsum(weights)

    def draw(self, rng: np.random.Generator, r: int) -> Ints:
        """Draw r indices with probabilities proportional to the weights."""
        if self._cumulated is None:
            return np.asarray(rng.integers(self.n, size=r))
        at = rng.random(r) * self._cumulated[-1]
        return np.asarray(np.minimum(np.searchsorted(self._cumulated, at, "right"), self.n - 1))

    @property
    def mass(self) -> float:
        """The sum of the weights."""
        return 1.0 if self._cumulated is None else float(self._cumulated[-1])

    def share(self, codes: Ints) -> Floats:
        """Return the weights of drawn rows with these classes, in a mean over the sample."""
        return self.factors[codes] * (self.mass / len(codes))

    def each(self, codes: Ints) -> Floats:
        """Return the weight of each row, in a mean over all rows with these classes."""
        return self.factors[codes] / self.n if self.weights is None else self.weights


class Drawn:
    """Rows of a user's sequence, validated, with codes for labels."""

    def __init__(self, rows: RowSequence, classes: NDArray[Any]) -> None:
        self.rows, self.classes = rows, classes

    def __call__(self, indices: Ints) -> tuple[Any, Ints]:
        X, labels = self.rows[indices]
        X, labels = np.asarray(X), np.asarray(labels)
        if X.ndim != 2 or len(X) != len(indices) or labels.shape != (len(indices),):
            raise ValueError(
                f"rows[indices] with {len(indices)} indices gave arrays of shapes {X.shape} and {labels.shape}; needed "
                f"are {len(indices)} rows and as many labels"
            )
        is_bad = ~np.isfinite(X).all(axis=1)
        if is_bad.any():
            raise ValueError(f"row {indices[is_bad.argmax()]} has values that are not finite")
        codes = np.searchsorted(self.classes, labels).clip(0, len(self.classes) - 1)
        is_bad = self.classes[codes] != labels
        if is_bad.any():
            at = is_bad.argmax()
            raise ValueError(f"row {indices[at]} has the label {labels.tolist()[at]!r}, which is none of `classes`")
        return X, codes
