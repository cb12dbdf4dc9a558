"""States: separate memory with names, also for equal layouts."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from streamsvm.core.schema import SCHEMAS, Array, Number, Schema, Substate, address, i64, records
from streamsvm.core.state import State
from streamsvm.core.template import Template
from streamsvm.keyed.snapshots import Snapshots
from tests.errors import raises

INNER = Schema("inner", {"count": Number("a count", i64, saved=True)})
OUTER = Schema(
    "outer",
    {
        "inner": Substate(INNER, "a state inside"),
        "rate": Number("a number that begins with something", start=0.5, saved=True),
        "code": address("where something is"),
        "values": Array(("rows", "columns"), "an array", saved=True, start=2.0),
        "empty": Array(("none",), "an array of nothing", saved=True),
        "given": Array(("given",), "an array that lives elsewhere", external=True),
        "heads": records(
            ("heads",), "records", weight=Number("a weight", start=1.0, saved=True), run=address("a function")
        ),
    },
)


def outer(rows: int = 2, heads: int = 1) -> State:
    return State(OUTER, {"rows": rows, "columns": 3, "none": 0, "heads": heads}, parts={"inner": State(INNER)})


def test_a_new_state_has_the_declared_values():
    state = outer()
    assert (state.rate, state.code, state.inner.count, state.heads[0].weight) == (0.5, 0, 0, 1.0)
    np.testing.assert_array_equal(state.values, np.full((2, 3), 2.0))
    assert state.values.ctypes.data % 64 == state.address % 64 == 0


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


@pytest.mark.parametrize(("before", "after"), [((3, 9), (3, 9)), ((3, 9), (12, 9)), ((3, 0), (3, 9)), ((3, 9), (2, 0))])
def test_arrays_are_taken_over_up_to_the_common_size(before, after):
    arrays = Schema("arrays", {f"array{i}": Array((dim,), "numbers") for i, dim in enumerate("aabaabba")})
    one, other = (State(arrays, dict(zip("ab", sizes, strict=True))) for sizes in (before, after))
    for i, dim in enumerate("aabaabba"):
        getattr(one, f"array{i}")[:] = np.arange(1.0, 1.0 + one.dims[dim]) + 100.0 * i
    other.take(one)
    for i in range(8):
        taken, given = getattr(other, f"array{i}"), getattr(one, f"array{i}")
        common = min(len(taken), len(given))
        np.testing.assert_array_equal(taken[:common], given[:common])
        assert not taken[common:].any()


def test_copies_and_saved_states_are_equal():
    state = outer()
    state.rate, state.inner.count = 0.25, 5
    state.values[1, 2] = 8.0
    copied, restored = copy.deepcopy(state), outer()
    restored.restore(state.saved())
    values = state.values.copy()
    state.rate, state.inner.count, state.values[:] = 7.0, 3, 9.0
    for other in (copied, restored):  # they share nothing that is written
        assert (other.rate, other.inner.count) == (0.25, 5)
        np.testing.assert_array_equal(other.values, values)
    assert sorted(state.saved()) == ["heads.weight", "inner.count", "rate", "values"]


def test_a_pickle_of_another_version_is_refused(monkeypatch):
    state = State(INNER)
    state.count = 5
    written = pickle.dumps(state)
    assert pickle.loads(written).count == 5
    monkeypatch.setitem(SCHEMAS, "inner", INNER)  # restores it after the test
    Schema("inner", {"number": Number("the count, with another name", i64, saved=True)})
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(written)
    del SCHEMAS["inner"]
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(written)


def test_external_arrays_are_found_and_undeclared_ones_are_not():
    state, given = outer(), np.arange(3.0)
    state.bind(given=given)
    assert state.given is given
    for name in ("nothing", "values"):
        with raises(AttributeError, named=f"'{name}'"):
            setattr(state, name, 1.0)
    with raises(AttributeError, named="'nothing'"):
        _ = state.nothing


# Snapshots --------------------------------------------------------------------------------------------------------


def filled(seed: int) -> State:
    rng, state = np.random.default_rng(seed), outer(heads=2)
    state.bind(given=rng.normal(size=3))
    state.rate, state.code, state.inner.count = rng.random(), seed, seed
    state.values[:], state.heads.weight[:], state.heads.run[:] = rng.normal(size=(2, 3)), rng.random(2), seed
    return state


def test_a_snapshot_stores_and_restores_saved_fields():
    template = Template(outer(heads=2))
    one, other, image = template.copy(), template.copy(), Snapshots(template)
    one.take(filled(1))
    image.put(other, image.take(one))
    assert {name: array.tolist() for name, array in other.saved().items()} == {
        name: array.tolist() for name, array in one.saved().items()
    }
    assert image.n_words == 1 + 6 + 2 + 1
    template.reset(other)
    assert (other.rate, other.inner.count, other.heads.weight.tolist()) == (0.5, 0, [1.0, 1.0])


def test_values_of_an_untrained_state_take_at_most_a_bit():
    template = Template(outer(heads=0))
    image, state, again = Snapshots(template), template.copy(), template.copy()
    state.values[1, 1] = 0.0
    packed = image.take(state)
    assert len(packed) == 8 + 1 + 1  # the value, its byte of the bitmap, and that this byte of the bitmap is not zero
    image.put(again, packed)
    np.testing.assert_array_equal(again.values, state.values)


def test_snapshots_refuse_values_out_of_bounds():
    bounded = Schema(
        "bounded",
        {
            "share": Number("a share", start=0.5, saved=True, bounds=(0.25, 1.0)),
            "count": Number("a count", i64, saved=True, bounds=(0.0, 5.0)),
            "singles": Array(("singles",), "in single precision", np.float32, saved=True, bounds=(-1.0, 1.0)),
        },
    )
    template = Template(State(bounded, {"singles": 3}))
    image = Snapshots(template)
    for name, value in (("share", 0.0), ("share", np.nan), ("count", -1), ("count", 6), ("singles", 2.0)):
        state = template.copy()
        if name == "singles":
            state.singles[2] = value
        else:
            setattr(state, name, value)
        with raises(ValueError, named=1):
            image.put(template.copy(), image.take(state))
