"""How steps are compiled: as few times as can be, and large parts apart."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels import apart, call, entries, kernel, polytope
from streamsvm.kernels.access import address_of, state_at
from streamsvm.kernels.state import Array, Declaration, State


@kernel
def plus(x, i):
    return x + i


@kernel
def plus_constants(x):
    return plus(x, 1) + plus(x, 2)


FILLED = Declaration("filled", {"values": Array(("values",), "to be filled")})
filled_at = state_at(FILLED)


def fill(address, value):
    values = filled_at(address).values
    for i in range(values.size):
        values[i] = value


@kernel
def fill_apart(address, state, value):
    call(address, (address_of(state), value))


def test_a_function_is_compiled_once_whatever_constants_it_is_called_with():
    assert plus_constants(10) == 23
    assert len(plus.signatures) <= 1  # none where the caller's code is on disk


def test_what_is_apart_is_called_by_its_address():
    state = State(FILLED, {"values": 5})
    fill_apart(apart(fill, 2).address, state, 7)
    np.testing.assert_array_equal(state.values, 7.0)


def test_what_is_apart_is_compiled_once():
    assert apart(fill, 2) is apart(fill, 2)


def test_an_entry_knows_what_is_compiled_with_it_and_whether_it_is_on_disk():
    entry = polytope.ENTRIES["event"]
    assert {"polytope.event", "polytope.step", "rows.load", "rows.renew"} <= entry.reached()
    assert "blend.event" not in entry.reached()
    entry.compile()
    assert entry.is_compiled
    assert entries.find("polytope.event") is entry
