"""Windows in memory: chains and arena hold together whatever leaves, and where nothing is compiled."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamsvm.core.state import State
from streamsvm.refit import window_kernels as windows
from tests.core.programs import printed, printed_uncompiled

N_WORDS = 256


def fresh(**numbers):
    sizes = {"slots": 20, "classes": 4, "generators": 1}
    state = State(windows.WINDOW, sizes, parts={"copy": State(windows.COPY)})
    arena = np.empty(N_WORDS)
    state.lend(values=arena, columns=arena.view(np.int32))
    state.n_most, state.most_classes, state.capacity, state.is_largest = 20, 4, N_WORDS - N_WORDS // 8, 1
    for name, value in numbers.items():
        setattr(state, name, value)
    return state


def some_rows(rng, n):
    lengths = rng.integers(0, 20, n)
    columns = [np.arange(m) if rng.random() < 0.5 else np.sort(rng.choice(40, m, replace=False)) for m in lengths]
    values = rng.normal(size=lengths.sum())
    return values, np.concatenate(columns), np.concatenate([[0], np.cumsum(lengths)])


def follow(state, first, after):
    slots, found = state.slots, []
    while first >= 0:
        found.append(int(first))
        first = slots[first][after]
    return found


def check(state):
    """All that is to be true between two events."""
    slots, held = state.slots[: state.held], int(state.held)
    order = follow(state, state.first, "after")
    assert sorted(order) == list(range(held))
    assert order[::-1] == follow(state, state.last, "before")
    assert (np.diff(slots.number[order]) > 0).all()
    assert (np.diff(slots.clock[order]) >= 0.0).all() or state.newest == -math.inf
    for c in range(len(state.classes)):
        group = state.classes[c]
        own = follow(state, group.first, "class_after")
        assert own == [slot for slot in order if slots.code[slot] == c]
        assert own[::-1] == follow(state, group.last, "class_before")
        assert group.held == len(own)
    late = order.index(int(state.in_time)) if state.in_time >= 0 else held
    assert state.n_late == late
    assert [group.late for group in state.classes] == [sum(slots.code[order[:late]] == c) for c in range(4)]
    taken = [windows.words(slots.length[slot], slots.listed[slot]) for slot in order]
    ends = slots.start[order] + np.array(taken, int)
    assert (slots.start[order][1:] >= ends[:-1]).all()
    assert state.live == sum(taken) <= state.capacity
    lengths, listed = slots.length[order], slots.listed[order]
    assert (state.n_values, state.n_squares, state.n_listed) == (lengths.sum(), (lengths**2).sum(), listed.sum())
    assert not held or ends[-1] <= state.end <= N_WORDS


SETTINGS = [
    {},
    {"n_most": 5},
    {"n_most": 5, "balanced": 1},
    {"span": 10.0},
    {"span": 10.0, "balanced": 1},
    {"n_most": 6, "chances": 6},
    {"n_most": 6, "chances": 6, "balanced": 1},
]


@pytest.mark.parametrize("numbers", SETTINGS, ids=str)
def test_chains_and_arena_hold_together(numbers):
    rng = np.random.default_rng(0)
    state, n = fresh(**numbers), 600
    values, columns, indptr = some_rows(rng, n)
    codes = np.minimum(rng.geometric(0.5, n) - 1, 3)
    times = np.cumsum(rng.exponential(1.0, n))
    for i in range(n):
        assert windows.add_rows(state, values, columns, indptr, False, codes, np.ones(n), times, i, i + 1) == i + 1
        check(state)
        if i % 97 == 0:
            windows.keep_latest(state, 2)
            check(state)
        if i % 89 == 0:
            windows.maintain(state, -1, 150)
            check(state)
    assert state.taken == n


def test_it_stops_before_the_row_that_needs_more_capacity():
    state = fresh(is_largest=0, most_classes=6)
    codes = np.array([0, 1, 5, 9, 0])
    lengths = np.array([100, 100, 1, 1, 100])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    columns = np.concatenate([np.arange(m) for m in lengths])
    arguments = (np.zeros(302), columns, indptr, False, codes, np.ones(5), np.full(5, math.nan))
    assert windows.add_rows(state, *arguments, 0, 5) == 2
    assert windows.add_rows(state, *arguments, 3, 5) == 4
    assert (state.held, state.dropped, state.asked) == (2, 1, 300)
    state.is_largest = 1
    assert windows.add_rows(state, *arguments, 4, 5) == 5
    np.testing.assert_array_equal(np.sort(state.slots.number[: state.held]), [1, 3])
    assert state.dropped == 2


WATCH = """
import json
import numpy as np
from streamsvm.features.space import EncodedRows
from streamsvm.refit.windows import Adaptive, Latest, Reservoir, Since

rng = np.random.default_rng(0)
columns = np.concatenate([np.flatnonzero(rng.random(8) < 0.6) for _ in range(300)])
indptr = np.concatenate([[0], np.flatnonzero(np.diff(columns) <= 0) + 1, [len(columns)]])
rows = EncodedRows(rng.normal(size=len(columns)), columns, indptr, False)
n = len(rows)
for kind in (Latest(20, True), Since(30.0, 50, True), Reservoir(20), Adaptive(40)):
    memory = kind.begin()
    memory.add(rows, rng.integers(4, size=n), np.ones(n), np.arange(n) * 1.0, np.ones(n))
    other = kind.begin()
    other.restore(*memory.state())
    print(json.dumps([other.snapshot().numbers.tolist(), np.nansum(other.snapshot().dense(8))]))
"""


@pytest.mark.slow
def test_windows_are_the_same_without_the_compiler():
    assert printed_uncompiled(WATCH) == printed(WATCH)
