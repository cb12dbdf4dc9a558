"""Kernel functions between blocks of rows, in single precision and a bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch import cuts_kernels as kernels

Singles = NDArray[np.float32]

KERNELS = ("gaussian", "laplacian", "polynomial", "linear")
# The most kernel values held at a time.
BLOCK = 1 << 18
# The largest square and the largest kernel value that single precision is to hold.
LARGEST = 1e30
# Rows to decide for come in multiples of so many: what a row gets then does not depend on how many there are.
MULTIPLE = 64
# Up to so many columns, distances are summed column by column; beyond, they come from matrix products.
FEW_COLUMNS = 12


class Similarity:
    """A kernel function: gaussian exp(-gamma |x - v|^2), laplacian exp(-gamma |x - v|_1), polynomial
    (gamma x.v + coef0)^degree, linear x.v, or a callable of two arrays of rows that gives all pairs' values.

    Rows are centred (where that changes nothing) and scaled by `prepare` before they are cut to single precision, so
    that distances keep their digits wherever the data lies.
    """

    def __init__(self, kernel: Any, gamma: float, degree: int, coef0: float, centre: NDArray[np.float64]) -> None:
        self.kernel, self.gamma, self.degree, self.coef0, self.centre = kernel, gamma, degree, coef0, centre

        is_radial = kernel in ("gaussian", "laplacian")
        self._shift = centre if is_radial else np.zeros_like(centre)
        self._scale = {"gaussian": np.sqrt(gamma), "polynomial": np.sqrt(gamma), "laplacian": gamma}.get(
            kernel if isinstance(kernel, str) else "", 1.0
        )
        power = degree if kernel == "polynomial" else 1
        self._limit = float(np.sqrt(LARGEST ** (1.0 / power) / max(1, len(centre))))

    def prepare(self, X: Any) -> Singles:
        """Rows as the other methods want them, dense and contiguous.

        Values are cut where kernel values would not be finite.
        """
        rows = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, np.float64)
        rows = (rows - self._shift) * self._scale
        return np.ascontiguousarray(np.clip(rows, -self._limit, self._limit), np.float32)

    def restore(self, rows: Singles) -> NDArray[np.float64]:
        """Prepared rows as they were."""
        return np.asarray(rows.astype(np.float64) / self._scale + self._shift)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from others."""
        return (self.kernel, self.gamma, self.degree, self.coef0, self.centre.tobytes())

    def _of_products(self, products: Any) -> Any:
        return (products + self.coef0) ** self.degree if self.kernel == "polynomial" else products

    def values(self, vectors: Singles, rows: Singles) -> Singles:
        """All kernel values, shape (len(vectors), len(rows)); for small blocks."""
        if callable(self.kernel):
            return self._called(vectors, rows)
        if self.kernel in ("gaussian", "laplacian"):
            each = np.arange(len(vectors))
            out = np.zeros((len(vectors), 1, len(rows)), np.float32)
            self.add_scores(vectors, rows, np.ones((len(vectors), 1), np.float32), each, out)
            return out[:, 0]
        return np.asarray(self._of_products(vectors @ rows.T))

    def _called(self, vectors: Singles, rows: Singles) -> Singles:
        """What a callable gives, checked."""
        values, shape = np.asarray(self.kernel(vectors, rows)), (len(vectors), len(rows))
        if values.shape != shape or values.dtype.kind not in "fiub":
            raise ValueError(
                f"the kernel gave an array of shape {values.shape} and type {values.dtype} for {shape[0]} and "
                f"{shape[1]} rows: it must give a real number for each pair, in shape {shape}"
            )
        if not (np.abs(values) <= LARGEST).all():
            raise ValueError(f"the kernel gave values that are not finite, or beyond {LARGEST:g}")
        return np.ascontiguousarray(values, np.float32)

    def add_scores(
        self, vectors: Singles, rows: Singles, coefs: Singles, owners: NDArray[np.int64], out: Singles
    ) -> None:
        """out[owners[j], c, i] += coefs[j, c] * k(vectors[j], rows[i]), by blocks; owners are in order."""
        if self.kernel == "linear":
            bounds = np.searchsorted(owners, np.arange(len(out) + 1))
            for total, first, last in zip(out, bounds, bounds[1:], strict=False):
                total += (coefs[first:last].T @ vectors[first:last]) @ rows.T
            return
        if self.kernel == "laplacian" or (self.kernel == "gaussian" and rows.shape[1] <= FEW_COLUMNS):
            columns = np.ascontiguousarray(rows.T)
            kernels.add_near(vectors, columns, self.kernel == "laplacian", coefs, owners, out)
            return
        width = min(len(rows), BLOCK // 64)
        for first in range(0, len(rows), max(width, 1)):
            part = slice(first, first + width)
            self._add_block(vectors, rows[part], coefs, owners, out[:, :, part])

    def _add_block(self, vectors: Singles, rows: Singles, coefs: Singles, owners: Any, out: Singles) -> None:
        step = max(1, BLOCK // max(1, len(rows)))
        if self.kernel == "gaussian":
            half = -(rows * rows).sum(axis=1)
            columns = np.vstack([2.0 * rows.T, half, np.ones_like(half)])
        for first in range(0, len(vectors), step):
            part = slice(first, first + step)
            some = vectors[part]
            if self.kernel == "gaussian":
                square = (some * some).sum(axis=1)[:, None]
                exponents = np.hstack([some, np.ones_like(square), -square]) @ columns
                kernels.add_exponentials(exponents, coefs[part], owners[part], out)
            else:
                kernels.add_values(self.values(some, rows), coefs[part], owners[part], out)

    def decide(self, vectors: Singles, coefs: Singles, rows: Singles) -> NDArray[np.float64]:
        """sum_j coefs[j, c] k(vectors[j], x) of all prepared rows x, shape (n_outputs, len(rows)).

        Vectors are summed in groups in single precision, and the groups in double.
        """
        size = max(1, -(-len(vectors) // 64))
        owners = np.arange(len(vectors)) // size
        total = np.zeros((coefs.shape[1], len(rows)))
        width = max(1, BLOCK // 64)
        for first in range(0, len(rows), width):
            part = rows[first : first + width]
            m = len(part)
            if not callable(self.kernel):
                part = np.pad(part, ((0, -m % MULTIPLE), (0, 0)))
            out = np.zeros((64, coefs.shape[1], len(part)), np.float32)
            self.add_scores(vectors, part, coefs, owners, out)
            total[:, first : first + width] = out[:, :, :m].sum(axis=0, dtype=np.float64)
        return total
