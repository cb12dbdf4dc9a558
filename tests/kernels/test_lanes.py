"""Lanes, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm.kernels import kernel
from streamsvm.kernels.lanes import (
    LANES,
    first_equal,
    lanes,
    lanes_at,
    larger,
    largest_of,
    put_lanes,
    sum_of,
    times_plus,
)

f32 = np.float32


@kernel
def compute(table, row, x, out):
    a, b = lanes_at(table, (1, 3)), lanes_at(row, 2)
    put_lanes(times_plus(a, b, x), out, (0, 0))
    put_lanes((x - a) * b + a, out, (1, 5))
    put_lanes(larger(a, lanes(x)), out, (2, 1))
    return sum_of(a), largest_of(b), first_equal(a, table[1, 10]), first_equal(b, f32(9.0))


@pytest.fixture(scope="module")
def computed():
    rng = np.random.default_rng(0)
    table, row = rng.normal(size=(3, LANES + 8)).astype(f32), rng.normal(size=LANES + 4).astype(f32)
    out = np.zeros((3, LANES + 8), f32)
    return table[1, 3 : 3 + LANES], row[2 : 2 + LANES], out, compute(table, row, f32(0.5), out)


def test_arithmetic_is_that_of_every_lane(computed):
    a, b, out, _ = computed
    np.testing.assert_allclose(out[0, :LANES], a * b + f32(0.5), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out[1, 5 : 5 + LANES], (f32(0.5) - a) * b + a, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(out[2, 1 : 1 + LANES], np.maximum(a, f32(0.5)))


def test_nothing_is_written_beside_the_lanes(computed):
    _, _, out, _ = computed
    assert not out[0, LANES:].any()
    assert not out[1, :5].any()
    assert not out[1, 5 + LANES :].any()


def test_what_is_made_of_all_lanes(computed):
    a, b, _, (total, top, first, none) = computed
    assert total == pytest.approx(a.sum(dtype=float), rel=1e-5)
    assert top == b.max()
    assert (first, none) == (7, LANES)
