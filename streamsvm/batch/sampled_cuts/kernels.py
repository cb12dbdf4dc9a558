"""Sums of Gaussian kernel values per cut.

Scores have shape (cuts, outputs, rows). Inner loops run along the rows, so they vectorise without a reduction, and the
vectors of a cut are summed in a fixed order.
"""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import allocating, jit_fma, kernel, uint
from streamsvm.core.math import exp32

# Rows scored at a time.
STRIP = 256


@jit_fma
def add(values, coefs, j, owner, out, first):
    """Add kernel values of vector j to the scores of its cut.

    The values belong to the rows from `first` on.
    """
    m = values.size
    for c in range(coefs.shape[1]):
        a = coefs[j, uint(c)]
        if a != 0.0:
            total = out[owner, uint(c)]
            for i in range(m):
                total[uint(first + i)] += a * values[uint(i)]


@kernel
def add_exponentials(exponents, coefs, owners, out):
    """Add coefs[j, c] * exp(exponents[j]) to out[owners[j], c].

    `exponents`, shape (vectors, rows), are overwritten.
    """
    for k in range(len(exponents)):
        row = exponents[uint(k)]
        for i in range(row.size):
            row[uint(i)] = exp32(min(row[uint(i)], np.float32(0.0)))
        add(row, coefs, uint(k), uint(owners[uint(k)]), out, 0)


@jit_fma
def subtract_squares(values, vector, columns, j, first):
    """Subtract squared differences in columns j to j + 3, for rows from `first` on."""
    v0, v1, v2, v3 = vector[uint(j)], vector[uint(j + 1)], vector[uint(j + 2)], vector[uint(j + 3)]
    c0, c1, c2, c3 = columns[uint(j)], columns[uint(j + 1)], columns[uint(j + 2)], columns[uint(j + 3)]
    for i in range(values.size):
        at = uint(first + i)
        d0, d1, d2, d3 = c0[at] - v0, c1[at] - v1, c2[at] - v2, c3[at] - v3
        values[uint(i)] -= (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)


@jit_fma
def subtract_square(values, vector, columns, j, first):
    """Subtract squared differences in column j, for the rows from `first` on."""
    v, c = vector[uint(j)], columns[uint(j)]
    for i in range(values.size):
        difference = c[uint(first + i)] - v
        values[uint(i)] -= difference * difference


@allocating
def add_near(vectors, columns, coefs, owners, out):
    """Add coefs[j, c] * exp(-|v_j - x|^2) to out[owners[j], c], for few columns.

    `columns` has shape (d, rows). A strip of rows stays in the L1 cache while the loop runs over all vectors.
    """
    d, m = columns.shape
    for first in range(0, m, STRIP):
        last = min(first + STRIP, m)
        values = np.empty(last - first, np.float32)
        for k in range(len(vectors)):
            vector = vectors[uint(k)]
            values[:] = np.float32(0.0)
            j = 0
            while j + 4 <= d:
                subtract_squares(values, vector, columns, j, first)
                j += 4
            while j < d:
                subtract_square(values, vector, columns, j, first)
                j += 1
            for i in range(values.size):
                values[uint(i)] = exp32(values[uint(i)])
            add(values, coefs, uint(k), uint(owners[uint(k)]), out, first)
