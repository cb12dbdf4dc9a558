"""Rows wherever they are: what a solver that goes over them in blocks asks for, and rows in memory.

A solver sees `Rows` alone. Rows in a file larger than memory are those of a `MetricForest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix

# Rows in memory are passed over in blocks of so many numbers, which stay in the cache from one use to the next.
BLOCK = 1 << 18


class Rows(Protocol):
    """n rows of d columns in an order of their own: *positions*. Labels and weights are arrays over positions."""

    shape: tuple[int, int]
    # What a row takes in memory, in bytes, and the type in which as many numbers as there are rows are kept.
    row_bytes: float
    precision: Any

    def scan(self, plane: Floats | None = None, reach: float = np.inf) -> Iterator[tuple[slice, Matrix | float]]:
        """All rows in blocks, as ranges of positions that ascend.

        Where a hyperplane (w, b) is given, a block all of whose rows surely have |w . x + b| > reach may come as a
        score of the right sign and so large a magnitude in place of its rows.
        """

    def take(self, positions: Ints) -> Any:
        """Some rows, at ascending positions, copied into an array or CSR."""

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """Ascending positions of n rows chosen at random that are cheap to take, fewer where there are fewer."""

    def lend(self, n_bytes: float, share: float) -> AbstractContextManager[float]:
        """How many bytes of rows may be held beside `n_bytes` of other things.

        A share of the memory is set aside for rows that are taken again and again.
        """


class Index(Rows, Protocol):
    """Rows in leaves of neighbours, so that those near a hyperplane are in few leaves."""

    n_leaves: int
    starts: Ints
    is_costly: bool

    def spill(self) -> Any:
        """An empty set of `Rows` on disk, for rows that do not fit in memory: `add` fills it, `close` removes it."""

    def leaf_of(self, positions: Ints) -> Ints:
        """The leaves rows are in."""

    def leaf_scores(self, plane: Floats) -> Floats:
        """The scores of the leaves' means."""

    def leaves(self, leaves: Ints) -> Iterator[tuple[slice, Any]]:
        """Ranges of positions and rows of some leaves, in ascending order."""


class MemoryRows(Rows):
    """Rows in an array or in CSR."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.shape: tuple[int, int] = X.shape
        self.row_bytes = bytes_of(X) / max(1, X.shape[0])
        self.precision = np.float64
        self._blocks = list(_blocks(X))

    def scan(self, plane: Floats | None = None, reach: float = np.inf) -> Iterator[tuple[slice, Matrix | float]]:
        yield from self._blocks

    def take(self, positions: Ints) -> Any:
        return self.X[positions]

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        return np.sort(rng.choice(self.shape[0], min(n, self.shape[0]), replace=False))

    def lend(self, n_bytes: float, share: float) -> AbstractContextManager[float]:
        return nullcontext(np.inf)


def _blocks(X: Any) -> Iterator[tuple[slice, Matrix]]:
    """Views of a few rows each."""
    n, d = X.shape
    if scipy.sparse.issparse(X):
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        filled = X.nnz / max(1, n)
    else:
        filled = d
    step = max(1, int(BLOCK / max(1.0, filled)))
    for start in range(0, n, step):
        part = slice(start, min(n, start + step))
        yield part, as_matrix(slice_of(X, part) if scipy.sparse.issparse(X) else X[part])


def slice_of(X: Any, part: slice) -> Any:
    """Consecutive rows of a canonical CSR matrix, without copying their values."""
    first, last = X.indptr[part.start], X.indptr[part.stop]
    view = scipy.sparse.csr_matrix(
        (X.data[first:last], X.indices[first:last], X.indptr[part.start : part.stop + 1] - first),
        shape=(part.stop - part.start, X.shape[1]),
        copy=False,
    )
    view.has_canonical_format = True
    return view


def stack(parts: list[Any], d: int) -> Any:
    """Arrays and CSR matrices of d columns as one: an array if all are."""
    if not parts:
        return np.empty((0, d))
    if any(scipy.sparse.issparse(part) for part in parts):
        return scipy.sparse.vstack([scipy.sparse.csr_matrix(part) for part in parts], "csr")
    return np.concatenate(parts)


def bytes_of(X: Any) -> int:
    """What an array or CSR matrix takes."""
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if scipy.sparse.issparse(X) else X.nbytes)


def squares_of(X: Any) -> NDArray[np.float64]:
    """|x|^2 of rows."""
    if scipy.sparse.issparse(X):
        return np.asarray(X.multiply(X).sum(axis=1), np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))
