"""Products with all or some rows of a matrix, for arrays and CSR matrices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.kernels import gram_sparse

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Values that are converted to float64 or gathered at a time; they fit in the cache.
BLOCK = 1 << 17


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
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        self.X = X
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
