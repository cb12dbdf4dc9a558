"""Rows that solvers read in blocks: the interface, and rows in memory.

A `MetricForest` implements the interface for a file larger than memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix

# Values in a block of rows in memory; a block fits in the cache.
BLOCK = 1 << 18


class Rows(ABC):
    """A set of n rows of d columns, numbered by *positions* 0 to n - 1.

    Labels and weights are arrays over positions.

    Attributes
    ----------
    shape
        (n, d).
    row_bytes
        Bytes of a row in memory.
    precision
        Type of arrays over positions.
    """

    shape: tuple[int, int]
    row_bytes: float
    precision: Any

    @abstractmethod
    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        """Iterate over all rows in blocks.

        Parameters
        ----------
        plane
            A hyperplane (w, b), shape (d + 1,), or None.
        reach
            Blocks may be skipped if |w . x + b| > reach for all of their rows.

        Yields
        ------
        (slice, Matrix or float)
            A range of positions, ascending, and the rows. For a skipped block, a score of the right sign and a large
            magnitude.
        """

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> tuple[Ints, Any]:
        """Draw random rows.

        Parameters
        ----------
        n
            Maximum number of rows.
        rng
            Random number generator.

        Returns
        -------
        positions, rows
            Ascending positions, and the rows as an array or CSR matrix.
        """

    def lend(self, n_bytes: float) -> float:
        """Return the bytes of rows that a fit may hold.

        Parameters
        ----------
        n_bytes
            Bytes of other data that the fit holds.

        Raises
        ------
        ValueError
            If no memory is left.
        """
        return math.inf


class MemoryRows(Rows):
    """Rows in an array or CSR matrix."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.shape = X.shape
        self.row_bytes = bytes_of(X) / max(1, X.shape[0])
        self.precision = np.float64
        self._blocks = list(_blocks(X))

    def scan(self, plane: Floats | None = None, reach: float = math.inf) -> Iterator[tuple[slice, Matrix | float]]:
        yield from self._blocks

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Ints, Any]:
        positions = np.sort(rng.choice(self.shape[0], min(n, self.shape[0]), replace=False))
        return positions, self.X[positions]


def _blocks(X: Any) -> Iterator[tuple[slice, Matrix]]:
    """Yield views of blocks of rows."""
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
        yield part, as_matrix(slice_of(X, part))


def slice_of(X: Any, part: slice) -> Any:
    """Return a view of consecutive rows of an array or canonical CSR matrix."""
    if not scipy.sparse.issparse(X):
        return X[part]
    first, last = X.indptr[part.start], X.indptr[part.stop]
    view = scipy.sparse.csr_matrix(
        (X.data[first:last], X.indices[first:last], X.indptr[part.start : part.stop + 1] - first),
        shape=(part.stop - part.start, X.shape[1]),
        copy=False,
    )
    view.has_canonical_format = True
    return view


def stack(parts: list[Any], d: int) -> Any:
    """Concatenate arrays and CSR matrices of d columns.

    The result is an array if all parts are.
    """
    if not parts:
        return np.empty((0, d))
    if any(scipy.sparse.issparse(part) for part in parts):
        return scipy.sparse.vstack([scipy.sparse.csr_matrix(part) for part in parts], "csr")
    return np.concatenate(parts)


def bytes_of(X: Any) -> int:
    """Return the size of an array or CSR matrix."""
    return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if scipy.sparse.issparse(X) else X.nbytes)
