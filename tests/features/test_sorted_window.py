"""Ranks among recent values, against numpy's search, and replacement of values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.core.jit import kernel
from streamsvm.features.sorted_window import count_below, count_upto, next_above, replace

FEW = st.sampled_from([-1e100, -2.5, -1.0, -0.0, 0.0, 5e-324, 1.0, 3.5, 1e100])
VALUES = st.lists(FEW | st.floats(-1e100, 1e100), min_size=1, max_size=70)


@kernel
def look_up_rank(values, x, held):
    """Return how many values are below x, at most x, and below the next number."""
    below = count_below(values, x, held)
    return below, count_upto(values, x, held, below), count_below(values, next_above(x), held)


@kernel
def replace_one(values, at, stop, x):
    replace(values, at, stop, x)


@given(VALUES, FEW | st.floats(-1e100, 1e100), st.integers(0, 70))
def test_a_value_stands_where_numpy_finds_it(values: list[float], x: float, held: int) -> None:
    ordered, held = np.sort(np.array(values)), min(held, len(values))
    expected = tuple(int(np.searchsorted(ordered[:held], x, side)) for side in ("left", "right", "right"))
    assert look_up_rank(ordered, x, held) == expected


@given(VALUES, FEW | st.floats(-1e100, 1e100), st.data())
def test_a_value_takes_the_place_of_another(values: list[float], x: float, data: st.DataObject) -> None:
    ordered = np.sort(np.array(values))
    at = data.draw(st.integers(0, len(values) - 1))
    expected = np.sort(np.append(np.delete(ordered, at), x))
    replace_one(ordered, at, int(np.searchsorted(ordered, x)), x)
    np.testing.assert_array_equal(ordered, expected)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("x", [0.0, -0.0])
def test_both_zeros_are_the_same(zero: float, x: float) -> None:
    assert look_up_rank(np.array([-1.0, zero, zero, 1.0]), x, 4) == (1, 3, 3)
