"""Products with the rows of sparse matrices, and sampling of rows for a Hessian."""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import allocating, kernel
from streamsvm.core.simd import uint


@allocating
def scores_sparse(data, indices, indptr, weights, out):
    """Compute out[m, i] = weights[:, m] . row i, for CSR rows.

    Shapes: weights (d, k), out (k, n).
    """
    n, k = len(indptr) - 1, weights.shape[1]
    if k == 1:
        w, z = weights[:, 0], out[0]
        for row in range(n):
            total = 0.0
            for p in range(indptr[row], indptr[row + 1]):
                total += data[uint(p)] * w[uint(indices[uint(p)])]
            z[uint(row)] = total
        return
    sums = np.empty(k)
    for row in range(n):
        sums[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[uint(p)], uint(indices[uint(p)])
            for m in range(k):
                sums[uint(m)] += value * weights[j, uint(m)]
        for m in range(k):
            out[uint(m), uint(row)] = sums[uint(m)]


@allocating
def adjoint_sparse(data, indices, indptr, r, out):
    """Add rows with weights r: out[j, m] += r[m] . column j, for CSR rows.

    Shapes: r (k, n), out (d, k).
    """
    n, k = len(indptr) - 1, len(r)
    if k == 1:
        single, target = r[0], out[:, 0]
        for row in range(n):
            factor = single[uint(row)]
            if factor != 0.0:
                for p in range(indptr[row], indptr[row + 1]):
                    target[uint(indices[uint(p)])] += factor * data[uint(p)]
        return
    factors = np.empty(k)
    for row in range(n):
        for m in range(k):
            factors[uint(m)] = r[uint(m), uint(row)]
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[uint(p)], uint(indices[uint(p)])
            for m in range(k):
                out[j, uint(m)] += value * factors[uint(m)]


@allocating
def gram_sparse(data, indices, indptr, rows, weights, place, out):
    """Add sum(weights[i] * x x^T) over some rows to the lower triangle of `out`.

    `place[j]` is the row and column of `out` for column j of the data, ascending in j, or negative for an ignored
    column. The last row of `out` belongs to a constant column.
    """
    last = uint(len(out) - 1)
    longest = 0
    for k in range(len(rows)):
        longest = max(longest, indptr[rows[k] + 1] - indptr[rows[k]])
    columns, values = np.empty(longest, np.int64), np.empty(longest)
    for k in range(len(rows)):
        row = rows[uint(k)]
        count = 0
        for p in range(indptr[row], indptr[row + 1]):
            j = place[uint(indices[uint(p)])]
            if j >= 0:
                columns[uint(count)], values[uint(count)] = j, data[uint(p)]
                count += 1
        for a in range(count):
            scaled, i = weights[uint(k)] * values[uint(a)], uint(columns[uint(a)])
            for b in range(a + 1):
                out[i, uint(columns[uint(b)])] += scaled * values[uint(b)]
            out[last, i] += scaled
        out[last, last] += weights[uint(k)]


@kernel
def peaks_sparse(data, indices, out):
    """Update out[j] with the largest magnitude in column j, for CSR arrays."""
    for p in range(len(data)):
        j = uint(indices[uint(p)])
        out[j] = max(out[j], abs(data[uint(p)]))


@kernel
def choose(h, c, cutoff, share, start, rows, weights):
    """Sample rows for the Hessian; returns the number of chosen rows.

    Candidates are rows with h > cutoff * c, each with probability min(1, share * h). Sampling is systematic: a row is
    chosen when the running sum of the probabilities, from `start` on, passes an integer. Weights are divided by the
    probabilities, so that sums keep their expectation.
    """
    count = 0
    running = start
    for k in range(len(h)):
        i = uint(k)
        if h[i] > cutoff * c[i]:
            p = min(1.0, share * h[i])
            running += p
            if running >= 1.0:
                running -= 1.0
                rows[count] = k
                weights[count] = h[i] / p
                count += 1
    return count
