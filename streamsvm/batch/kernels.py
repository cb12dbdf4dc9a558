"""Products with the rows of sparse matrices, and the choice of rows for a Hessian."""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import allocating, kernel

# Unsigned indices spare numba's handling of negative ones.
u = np.uint64


@allocating
def scores_sparse(data, indices, indptr, weights, out):
    """out[:, i] = weights.T @ row i, for weights of shape (d, k) and rows in CSR."""
    n, k = len(indptr) - 1, weights.shape[1]
    if k == 1:
        w, z = weights[:, 0], out[0]
        for row in range(n):
            total = 0.0
            for p in range(indptr[row], indptr[row + 1]):
                total += data[u(p)] * w[u(indices[u(p)])]
            z[u(row)] = total
        return
    sums = np.empty(k)
    for row in range(n):
        sums[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[u(p)], u(indices[u(p)])
            for m in range(k):
                sums[u(m)] += value * weights[j, u(m)]
        for m in range(k):
            out[u(m), u(row)] = sums[u(m)]


@allocating
def adjoint_sparse(data, indices, indptr, r, out):
    """out[j] += r @ column j, for r of shape (k, n), out of shape (d, k), and rows in CSR."""
    n, k = len(indptr) - 1, len(r)
    if k == 1:
        single, target = r[0], out[:, 0]
        for row in range(n):
            factor = single[u(row)]
            if factor != 0.0:
                for p in range(indptr[row], indptr[row + 1]):
                    target[u(indices[u(p)])] += factor * data[u(p)]
        return
    factors = np.empty(k)
    for row in range(n):
        for m in range(k):
            factors[u(m)] = r[u(m), u(row)]
        for p in range(indptr[row], indptr[row + 1]):
            value, j = data[u(p)], u(indices[u(p)])
            for m in range(k):
                out[j, u(m)] += value * factors[u(m)]


@allocating
def gram_sparse(data, indices, indptr, rows, weights, place, out):
    """Add weights[i] * x x^T of the rows to the lower triangle of out.

    Column j of the rows is row and column place[j] of `out`, ascending in j, or left out where that is negative; the
    last row of `out` is that of a constant column.
    """
    last = u(len(out) - 1)
    longest = 0
    for k in range(len(rows)):
        longest = max(longest, indptr[rows[k] + 1] - indptr[rows[k]])
    columns, values = np.empty(longest, np.int64), np.empty(longest)
    for k in range(len(rows)):
        row = rows[u(k)]
        count = 0
        for p in range(indptr[row], indptr[row + 1]):
            j = place[u(indices[u(p)])]
            if j >= 0:
                columns[u(count)], values[u(count)] = j, data[u(p)]
                count += 1
        for a in range(count):
            scaled, i = weights[u(k)] * values[u(a)], u(columns[u(a)])
            for b in range(a + 1):
                out[i, u(columns[u(b)])] += scaled * values[u(b)]
            out[last, i] += scaled
        out[last, last] += weights[u(k)]


@kernel
def peaks_dense(X, out):
    """out[j] = the largest magnitude in column j."""
    for row in range(X.shape[0]):
        x = X[row]
        for j in range(X.shape[1]):
            out[u(j)] = max(out[u(j)], abs(x[u(j)]))


@kernel
def peaks_sparse(data, indices, out):
    """out[j] = the largest magnitude in column j."""
    for p in range(len(data)):
        j = u(indices[u(p)])
        out[j] = max(out[j], abs(data[u(p)]))


@kernel
def choose(h, c, cutoff, share, start, rows, weights):
    """Choose rows for the Hessian: those with h > cutoff * c, each with probability min(1, share * h).

    Sampling is systematic: a row is chosen whenever the running sum of the probabilities passes start + 0, 1, 2, ...
    Weights are divided by the probability, so that sums keep their expectation. Returns the number of rows chosen.
    """
    count = 0
    running = start
    for k in range(len(h)):
        i = u(k)
        if h[i] > cutoff * c[i]:
            p = min(1.0, share * h[i])
            running += p
            if running >= 1.0:
                running -= 1.0
                rows[count] = k
                weights[count] = h[i] / p
                count += 1
    return count
