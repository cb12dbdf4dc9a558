"""The Gaussian kernel in single precision and bounded memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.batch.sampled_cuts import kernels

Singles = NDArray[np.float32]

# Maximum number of kernel values in memory.
BLOCK = 1 << 18
# Maximum squared distance in single precision.
LARGEST = 1e30
# Rows are scored in multiples of this number, so that a row's score does not depend on the number of rows.
MULTIPLE = 64
# Number of groups of vectors; scores are summed in single precision within a group.
GROUPS = 64
# Maximum number of columns for which distances are summed column by column instead of by matrix products.
FEW_COLUMNS = 12


class GaussianKernel:
    """The kernel exp(-gamma |x - v|^2) between rows that `prepare` has transformed.

    Rows are centred, because this reduces the rounding error of distances in single precision.
    """

    def __init__(self, gamma: float, centre: NDArray[np.float64]) -> None:
        self.gamma, self.centre = gamma, centre
        self._scale = np.sqrt(gamma)
        self._limit = float(np.sqrt(LARGEST / max(1, len(centre))))

    def prepare(self, X: Any) -> Singles:
        """Centre, scale and clip rows; the result is dense and contiguous."""
        rows = np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, np.float64)
        rows = (rows - self.centre) * self._scale
        return np.ascontiguousarray(np.clip(rows, -self._limit, self._limit), np.float32)

    def restore(self, rows: Singles) -> NDArray[np.float64]:
        """Undo `prepare`."""
        return np.asarray(rows.astype(np.float64) / self._scale + self.centre)

    def values(self, vectors: Singles, rows: Singles) -> Singles:
        """Compute all kernel values, shape (len(vectors), len(rows))."""
        out = np.zeros((len(vectors), 1, len(rows)), np.float32)
        self.add_scores(vectors, rows, np.ones((len(vectors), 1), np.float32), np.arange(len(vectors)), out)
        return out[:, 0]

    def add_scores(
        self, vectors: Singles, rows: Singles, coefs: Singles, owners: NDArray[np.int64], out: Singles
    ) -> None:
        """Add coefs[j, c] * k(vectors[j], rows[i]) to out[owners[j], c, i].

        `owners` are in ascending order.
        """
        if rows.shape[1] <= FEW_COLUMNS:
            kernels.add_near(vectors, np.ascontiguousarray(rows.T), coefs, owners, out)
            return
        width = max(1, min(len(rows), BLOCK // 64))
        for first in range(0, len(rows), width):
            part = rows[first : first + width]
            half = -(part * part).sum(axis=1)
            columns = np.vstack([2.0 * part.T, half, np.ones_like(half)])
            step = max(1, BLOCK // len(part))
            for begin in range(0, len(vectors), step):
                chunk = slice(begin, begin + step)
                square = (vectors[chunk] * vectors[chunk]).sum(axis=1)[:, None]
                exponents = np.hstack([vectors[chunk], np.ones_like(square), -square]) @ columns
                scores = out[:, :, first : first + width]
                kernels.add_exponentials(exponents, coefs[chunk], owners[chunk], scores)

    def decide(self, vectors: Singles, coefs: Singles, rows: Singles) -> NDArray[np.float64]:
        """Compute the scores sum_j coefs[j, c] k(vectors[j], x) of rows x.

        The result has shape (n_outputs, len(rows)). Groups of vectors are summed in single precision, and the groups in
        double precision.
        """
        owners = np.arange(len(vectors)) // max(1, -(-len(vectors) // GROUPS))
        total = np.zeros((coefs.shape[1], len(rows)))
        width = BLOCK // 64
        for first in range(0, len(rows), width):
            part = rows[first : first + width]
            m = len(part)
            part = np.pad(part, ((0, -m % MULTIPLE), (0, 0)))
            out = np.zeros((GROUPS, coefs.shape[1], len(part)), np.float32)
            self.add_scores(vectors, part, coefs, owners, out)
            total[:, first : first + width] = out[:, :, :m].sum(axis=0, dtype=np.float64)
        return total
