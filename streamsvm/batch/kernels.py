"""Product of the rows of sparse matrices with each other."""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import allocating, uint


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
