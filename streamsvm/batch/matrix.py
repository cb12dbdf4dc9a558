"""Rows as arrays and CSR matrices: products, and the blocks that solvers read.

A `MetricForest` implements the interface `Rows` for a file larger than memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.kernels import gram_sparse

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Values that are converted to float64 or gathered at a time, and values in a block of rows; they fit in the cache.
BLOCK, SCANNED_BLOCK = 1 << 17, 1 << 18


class DenseMatrix:
    """Rows in an array."""

    def __init__(self, X: NDArray[Any]) -> None:
        self.X = X if X.flags.c_contiguous or X.flags.f_contiguous else np.ascontiguousarray(X)
        self.shape = X.shape

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the rows as float64, in blocks if they have to be converted."""
        if self.X.dtype == np.float64:
            yield slice(0, self.shape[0]), self.X
            return
        step = max(1, BLOCK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            part = slice(start, start + step)
            yield part, self.X[part].astype(np.float64)

    def scores(self, weights: Floats, out: Floats) -> Floats:
        """Compute weights . row for every row; shapes (k, d) and, for `out`, (k, n)."""
        for part, X in self._blocks():
            if len(weights) == 1:
                np.dot(X, weights[0], out=out[0, part])
            else:
                out[:, part] = weights @ X.T
        return out

    def adjoint(self, r: Floats) -> Floats:
        """Sum the rows with weights r, shape (k, n); the result has shape (k, d)."""
        total = np.zeros((len(r), self.shape[1]))
        for part, X in self._blocks():
            total += r[:, part] @ X
        return total

    def rows(self, rows: Ints) -> DenseMatrix:
        """Copy some of the rows."""
        return DenseMatrix(self.X[rows])

    def columns(self, columns: Ints) -> DenseMatrix:
        """Copy some of the columns."""
        return DenseMatrix(self.X[:, columns])

    def scaled(self, rows: Ints, factors: Floats, columns: Ints) -> Floats:
        """Copy some rows and columns, with each row multiplied by its factor."""
        whole = len(columns) == self.shape[1]
        part = self.X[rows] if whole else self.X[rows[:, None], columns]
        return np.asarray(np.multiply(part, factors[:, None], dtype=np.float64))

    def gram(self, rows: Ints, weights: Floats, columns: Ints) -> Floats:
        """Compute the lower triangle of the sum of weights * x x^T over some rows.

        x has the given columns and a constant one.
        """
        a = len(columns)
        out = np.zeros((a + 1, a + 1))
        roots = np.sqrt(weights)
        step = max(a, BLOCK // (a + 1), 1)
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            scaled = self.scaled(rows[part], roots[part], columns)
            out[:a, :a] += scaled.T @ scaled
            out[a, :a] += roots[part] @ scaled
        out[a, a] = weights.sum()
        return out

    def gram_cost(self, n_rows: int, n_columns: int) -> float:
        """Estimate the cost of `gram`, in multiplications of a matrix-vector product."""
        # A multiplication in a matrix-matrix product takes about 1/15 of the time of one in a matrix-vector product.
        return n_rows * float(n_columns) ** 2 / 15.0

    def peaks(self) -> Floats:
        """Compute the largest magnitude in each column."""
        if not self.shape[0]:
            return np.zeros(self.shape[1])
        largest: Floats = np.maximum(self.X.max(axis=0), -self.X.min(axis=0)).astype(np.float64)
        return largest


class SparseMatrix:
    """Rows in a CSR matrix, with the methods of `DenseMatrix`."""

    def __init__(self, X: Any) -> None:
        self.X = X = canonical(X)
        self.shape: tuple[int, int] = X.shape

    def scores(self, weights: Floats, out: Floats) -> Floats:
        """Compute weights . row for every row; shapes (k, d) and, for `out`, (k, n)."""
        if len(weights) == 1:
            out[0] = self.X @ weights[0]
        else:
            out[:] = (self.X @ np.ascontiguousarray(weights.T)).T
        return out

    def adjoint(self, r: Floats) -> Floats:
        """Sum the rows with weights r, shape (k, n); the result has shape (k, d)."""
        if len(r) == 1:
            return np.asarray(self.X.T @ r[0])[None]
        return np.ascontiguousarray((self.X.T @ np.ascontiguousarray(r.T)).T)

    def rows(self, rows: Ints) -> SparseMatrix:
        """Copy some of the rows."""
        return SparseMatrix(self.X[rows])

    def columns(self, columns: Ints) -> SparseMatrix:
        """Copy some of the columns."""
        return SparseMatrix(self.X[:, columns])

    def scaled(self, rows: Ints, factors: Floats, columns: Ints) -> Any:
        """Copy some rows and columns, with each row multiplied by its factor."""
        part = self.X[rows]
        if len(columns) < self.shape[1]:
            part = part[:, columns]
        data = part.data * np.repeat(factors, np.diff(part.indptr))
        return scipy.sparse.csr_matrix((data, part.indices, part.indptr), shape=part.shape)

    def gram(self, rows: Ints, weights: Floats, columns: Ints) -> Floats:
        """Compute the lower triangle of the sum of weights * x x^T over some rows.

        x has the given columns and a constant one.
        """
        a = len(columns)
        place = np.full(self.shape[1], -1)
        place[columns] = np.arange(a)
        out = np.zeros((a + 1, a + 1))
        gram_sparse(self.X.data, self.X.indices, self.X.indptr, rows, weights, place, out)
        return out

    def gram_cost(self, n_rows: int, n_columns: int) -> float:
        """Estimate the cost of `gram`, in multiplications of a matrix-vector product."""
        n, d = self.shape
        filled = float(self.X.nnz) / max(1, n * d) * n_columns
        return n_rows * filled * (filled + 1.0) / 2.0

    def peaks(self) -> Floats:
        """Compute the largest magnitude in each column."""
        out = np.zeros(self.shape[1])
        np.maximum.at(out, self.X.indices, np.abs(self.X.data))
        return out


Matrix: TypeAlias = DenseMatrix | SparseMatrix


def systematic_sample(h: Floats, share: float, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Sample rows for a Hessian; returns row numbers and weights.

    A row with weight h > 0 is drawn with probability p = min(1, share * h) and gets the weight h / p. It is drawn when
    the running sum of the probabilities, from a random start on, passes an integer.
    """
    p = np.minimum(1.0, share * h)
    passed = np.floor(np.cumsum(p) + rng.random())
    rows = np.flatnonzero(np.diff(passed, prepend=0.0))
    return rows, h[rows] / p[rows]


def as_matrix(X: Any) -> Matrix:
    """Wrap an array or CSR matrix of float32 or float64.

    Only arrays that are not contiguous and matrices that are not canonical are copied.
    """
    return SparseMatrix(X) if scipy.sparse.issparse(X) else DenseMatrix(X)


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

    def row_budget(self, n_bytes: float) -> float:
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
        X = canonical(X)
        filled = X.nnz / max(1, n)
    else:
        filled = d
    step = max(1, int(SCANNED_BLOCK / max(1.0, filled)))
    for start in range(0, n, step):
        part = slice(start, min(n, start + step))
        yield part, as_matrix(slice_of(X, part))


def slice_of(X: Any, part: slice) -> Any:
    """Return a view of consecutive rows of an array or canonical CSR matrix."""
    if not scipy.sparse.issparse(X):
        return X[part]
    first, last = X.indptr[part.start], X.indptr[part.stop]
    starts, shape = X.indptr[part.start : part.stop + 1] - first, (part.stop - part.start, X.shape[1])
    return canonical_of(X.data[first:last], X.indices[first:last], starts, shape)


def canonical(X: Any) -> Any:
    """Return a CSR matrix with sorted columns and no duplicates, as a copy if needed."""
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def canonical_of(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
    """Return a CSR matrix of arrays in canonical order, without a copy."""
    X = scipy.sparse.csr_matrix((data, indices, indptr), shape=shape, copy=False)
    X.has_canonical_format = True
    return X


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
