"""SIMD vectors, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.core.jit import (
    DOUBLES,
    LANES,
    first_equal,
    kernel,
    lanes,
    lanes_at,
    larger,
    largest_of,
    put_lanes,
    sum_of,
    times_plus,
)


@kernel
def compute(table, row, x, nine, out):
    a, b = lanes_at(table, (1, 3)), lanes_at(row, 2)
    put_lanes(times_plus(a, b, x), out, (0, 0))
    put_lanes((x - a) * b + a, out, (1, 5))
    put_lanes(larger(a, lanes(x)), out, (2, 1))
    return sum_of(a), largest_of(b), first_equal(a, table[1, 10]), first_equal(b, nine)


@pytest.fixture(scope="module", params=[(np.float32, LANES), (np.float64, DOUBLES)], ids=["float32", "float64"])
def computed(request):
    element, n = request.param
    rng = np.random.default_rng(0)
    table, row = rng.normal(size=(3, n + 8)).astype(element), rng.normal(size=n + 4).astype(element)
    out = np.zeros((3, n + 8), element)
    return table[1, 3 : 3 + n], row[2 : 2 + n], out, compute(table, row, element(0.5), element(9.0), out)


def test_arithmetic_is_that_of_every_lane_and_nothing_is_written_beside_them(computed):
    a, b, out, (total, top, first, none) = computed
    n, half = len(a), a.dtype.type(0.5)
    np.testing.assert_allclose(out[0, :n], a * b + half, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[1, 5 : 5 + n], (half - a) * b + a, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out[2, 1 : 1 + n], np.maximum(a, half))
    assert not out[0, n:].any()
    assert not out[1, :5].any()
    assert not out[1, 5 + n :].any()
    assert total == pytest.approx(a.sum(dtype=float), rel=1e-5)
    assert top == b.max()
    assert (first, none) == (7, n)
