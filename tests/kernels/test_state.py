"""States: memory with names, each with its own, whatever they share of their layout."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from streamsvm.kernels.state import Array, Declaration, Number, Part, State, address, i64, records

INNER = Declaration("inner", {"count": Number("a count", i64, saved=True)})
OUTER = Declaration(
    "outer",
    {
        "inner": Part(INNER, "a state inside"),
        "rate": Number("a number that begins with something", start=0.5, saved=True),
        "code": address("where something is"),
        "values": Array(("rows", "columns"), "an array", saved=True, start=2.0),
        "empty": Array(("none",), "an array of nothing", saved=True),
        "given": Array(("given",), "an array that lives elsewhere", lent=True),
        "heads": records(
            ("heads",), "records", weight=Number("a weight", start=1.0, saved=True), run=address("a function")
        ),
    },
)


def outer(rows: int = 2, heads: int = 1) -> State:
    return State(OUTER, {"rows": rows, "columns": 3, "none": 0, "heads": heads}, parts={"inner": State(INNER)})


def test_it_begins_with_what_is_declared():
    state = outer()
    assert (state.rate, state.code, state.inner.count, state.heads[0].weight) == (0.5, 0, 0, 1.0)
    np.testing.assert_array_equal(state.values, np.full((2, 3), 2.0))
    assert state.values.ctypes.data % 64 == state.address % 64 == 0


def test_states_of_one_layout_share_nothing_that_is_written():
    first, second = outer(), outer()
    first.rate, first.inner.count = 7.0, 3
    first.values[:] = 9.0
    first.heads.weight[0] = 4.0
    assert (second.rate, second.inner.count, second.heads[0].weight) == (0.5, 0, 1.0)
    assert (outer().values == 2.0).all()
    assert (second.values == 2.0).all()


def test_a_larger_one_takes_over_all_but_addresses():
    small, large = outer(), outer(rows=4, heads=2)
    small.rate, small.code, small.inner.count = 0.25, 11, 5
    small.values[:] = np.arange(6.0).reshape(2, 3)
    small.heads[0].weight, small.heads[0].run = 3.0, 12
    large.code, large.heads[0].run = 21, 22
    large.take(small)
    assert (large.rate, large.inner.count, large.code) == (0.25, 5, 21)
    np.testing.assert_array_equal(large.values, [[0, 1, 2], [3, 4, 5], [2, 2, 2], [2, 2, 2]])
    assert large.heads.weight.tolist() == [3.0, 1.0]
    assert large.heads[0].run == 22


def test_copies_and_what_is_saved_hold_the_same():
    state = outer()
    state.rate, state.inner.count = 0.25, 5
    state.values[1, 2] = 8.0
    copied, restored = copy.deepcopy(state), outer()
    restored.restore(state.saved())
    for other in (copied, restored):
        assert (other.rate, other.inner.count) == (0.25, 5)
        np.testing.assert_array_equal(other.values, state.values)
    assert sorted(state.saved()) == ["heads.weight", "inner.count", "rate", "values"]


def test_what_is_lent_is_found_and_what_is_not_declared_is_not():
    state, given = outer(), np.arange(3.0)
    state.lend(given=given)
    assert state.given is given
    for name in ("nothing", "values"):
        with pytest.raises(AttributeError, match=f"'{name}'"):
            setattr(state, name, 1.0)
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = state.nothing
