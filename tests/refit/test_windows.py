"""Windows of a stream, each against a list of events."""

from __future__ import annotations

import copy
import json
import math
import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift import ADWIN

from streamsvm.features.rows import EncodedRows
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.parameters import ParameterError
from streamsvm.refit import windows
from streamsvm.refit.window_rows import WindowRows, csr_of, dense_of
from streamsvm.refit.windows import Adaptive, Latest, Since
from tests.choices import each_choice
from tests.errors import raises

N_COLUMNS = 12

KINDS = [Latest(n=7), Since(20.0, n=200), Since(20.0, n=8), Adaptive(n=60, delta=0.5)]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)


# Streams ----------------------------------------------------------------------------------------------------------


def stream(seed, n=120, form="mixed"):
    """Events as (columns, values, code, weight, time, error)."""
    rng = np.random.default_rng(seed)
    events, now = [], 1e9
    for i in range(n):
        width = 4 if form == "dense" else 3 + i // 40
        is_dense = form == "dense" or (form == "mixed" and rng.random() < 0.5)
        columns = np.arange(width) if is_dense else np.flatnonzero(rng.random(N_COLUMNS) < rng.random())
        values = np.where(rng.random(len(columns)) < 0.1, math.nan, rng.normal(size=len(columns)).round(2))
        code = -1 if rng.random() < 0.1 else int(min(rng.geometric(0.6) - 1, 1 + i // 30))
        weight = float(rng.choice([0.0, 0.5, 1.0], p=[0.05, 0.15, 0.8]))
        now += rng.exponential(2.0) if rng.random() < 0.95 else 15.0
        time = float(rng.choice([now, now - 9.0, math.nan], p=[0.7, 0.2, 0.1])) if i > 5 else math.nan
        error = math.nan if rng.random() < 0.05 else float(rng.random() < (0.1 if i % 80 < 50 else 0.9))
        events.append((columns, values, code, weight, time, error))
    return events


def encoded(events):
    """Rows that share their columns, if possible."""
    columns = [event[0] for event in events]
    shared = all(np.array_equal(own, columns[0]) for own in columns)
    values = np.concatenate([event[1] for event in events])
    indptr = np.concatenate([[0], np.cumsum([len(own) for own in columns])])
    return EncodedRows(values, columns[0] if shared else np.concatenate(columns), indptr, shared)


def feed(memory, events, cuts=()):
    edges = [0, *sorted(cuts), len(events)]
    for start, end in pairwise(edges):
        if part := events[start:end]:
            codes, weights, times, errors = (np.array([event[k] for event in part]) for k in (2, 3, 4, 5))
            memory.add(encoded(part), codes, weights, times, errors)
    return memory


def same(a: WindowRows, b: WindowRows) -> None:
    np.testing.assert_array_equal(a.rows.values, b.rows.values)
    np.testing.assert_array_equal(a.rows.indptr, b.rows.indptr)
    np.testing.assert_array_equal(dense_of(a.rows, N_COLUMNS), dense_of(b.rows, N_COLUMNS))
    for name in ("codes", "weights", "times", "numbers"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


# Reference windows ------------------------------------------------------------------------------------------------


class Kept:
    """Window as a list of events; those to keep are determined from all."""

    def __init__(self, kind):
        self.kind, self.all, self.n_taken, self.newest = kind, [], 0, math.nan
        self.detector, self.errors = ADWIN(delta=getattr(kind, "delta", 0.002)), []

    @property
    def held(self):
        events = self.all
        if self.kind.needs_times:
            expired = [i for i, event in enumerate(events) if self.newest - event["time"] > self.kind.seconds]
            events = events[expired[-1] + 1 if expired else 0 :]
        return events[-self.kind.n :]

    def add(self, columns, values, code, weight, time, error):
        if code < 0 or weight == 0.0:
            return
        self.newest = float(np.fmax(self.newest, time))
        row = {int(j): v for j, v in zip(columns, values.tolist(), strict=True) if not math.isnan(v)}
        new = {"number": self.n_taken, "code": code, "weight": weight, "time": self.newest, "row": row}
        self.all.append(new)
        self.n_taken += 1
        if isinstance(self.kind, Adaptive) and not math.isnan(error):
            self.detect(error)

    def detect(self, error):
        if self.detector.drift_detected:
            self.detector, self.errors = ADWIN(delta=self.kind.delta), []
        self.errors.append(error)
        self.detector.update(error)
        if self.detector.drift_detected and self.detector.estimation > np.mean(self.errors):
            self.all = [event for event in self.held if event["number"] >= self.n_taken - self.detector.width]

    def check(self, memory):
        held = self.held
        snapshot = memory.snapshot()
        assert len(memory) == len(snapshot) == len(held)
        for name, own in (("codes", "code"), ("weights", "weight"), ("times", "time"), ("numbers", "number")):
            np.testing.assert_array_equal(getattr(snapshot, name), [event[own] for event in held])
        half = len(held) // 2
        np.testing.assert_array_equal(memory.latest(half).numbers, snapshot.numbers[len(held) - half :])
        dense, csr = dense_of(snapshot.rows, N_COLUMNS), csr_of(snapshot.rows, N_COLUMNS)
        expected = np.full((len(held), N_COLUMNS), math.nan)
        for i, event in enumerate(held):
            for j, value in event["row"].items():
                expected[i, j] = value
        np.testing.assert_array_equal(dense, expected)
        np.testing.assert_array_equal(csr.toarray(), np.nan_to_num(expected))
        assert csr.nnz == (~np.isnan(expected)).sum()


@every_kind
@given(
    seed=st.integers(0, 10_000),
    form=st.sampled_from(["dense", "sparse", "mixed"]),
    cuts=st.lists(st.integers(0, 120), max_size=8),
)
@settings(max_examples=6)
def test_a_window_equals_a_list(kind, seed, form, cuts):
    events, kept, memory = stream(seed, form=form), Kept(kind), kind.begin()
    edges = [0, *sorted(cuts), len(events)]
    for start, end in pairwise(edges):
        feed(memory, events[start:end])
        for event in events[start:end]:
            kept.add(*event)
        kept.check(memory)
    assert memory.n_taken == kept.n_taken


def test_a_detector_is_reset_after_a_number_of_errors(monkeypatch):
    monkeypatch.setattr(windows, "MOST_ERRORS", 1_000)
    events = [(np.arange(1), np.zeros(1), 0, 1.0, math.nan, float(i >= 1_500)) for i in range(2_000)]
    memory, resumed = Adaptive().begin(), Adaptive().begin()
    feed(memory, events[:1_300])
    assert memory.state()[0]["detector"]["n"] == 300
    resumed.restore(*memory.state())
    for own in (memory, resumed):
        feed(own, events[1_300:])
        assert 500 <= len(own) < 1_000  # the alarm removed events before the restart of the detector, and more
    same(memory.snapshot(), resumed.snapshot())


# Properties of windows --------------------------------------------------------------------------------------------


def plain(n, d=3):
    return EncodedRows(np.zeros(n * d), np.arange(d), np.arange(n + 1) * d, True)


def test_time_that_runs_far_ahead_empties_a_window_once():
    memory = Since(10.0).begin()
    times = np.array([0.0, 1.0, 1e12, 2.0, math.inf, 3.0])
    memory.add(plain(6), np.zeros(6, int), times=times)
    np.testing.assert_array_equal(memory.snapshot().numbers, [2, 3, 4, 5])
    np.testing.assert_array_equal(memory.snapshot().times, [1e12] * 4)


def test_requests_keep_only_the_last_events():
    for kind in KINDS:
        memory = feed(kind.begin(), stream(1))
        before = memory.snapshot().numbers
        memory.keep_latest(4)
        np.testing.assert_array_equal(memory.snapshot().numbers, before[before >= memory.n_taken - 4])
        memory.keep_latest(0)
        assert len(memory) == 0
        feed(memory, stream(2))
        assert len(memory) > 0


@each_choice(("kind", KINDS), ("form", ["dense", "sparse", "mixed"]))
def test_snapshots_of_a_window_do_not_change(kind, form):
    events = stream(0, n=600, form=form)
    memory, kept = kind.begin(), []
    for i in range(0, 600, 100):
        feed(memory, events[i : i + 100], range(1, 100) if i % 200 else ())
        kept.append((memory.held(), memory.snapshot()))
    for held, snapshot in kept:
        same(held(), snapshot)


def test_parts_of_a_window():
    for form in ("dense", "sparse"):
        whole = feed(Latest(n=50).begin(), stream(0, form=form)).snapshot()
        part = whole.part(10, 30)
        assert len(part) == 20
        np.testing.assert_array_equal(
            csr_of(part.rows, 3).toarray(), np.nan_to_num(dense_of(whole.rows, N_COLUMNS)[10:30, :3])
        )
        np.testing.assert_array_equal(part.numbers, whole.numbers[10:30])


def test_arrays_may_be_read_only_and_are_not_written_to():
    events = stream(0)
    rows = encoded(events)
    codes, weights, times = (np.array([event[k] for event in events]) for k in (2, 3, 4))
    for array in (rows.values, rows.columns, rows.indptr, codes, weights, times):
        array.flags.writeable = False
    memory, resumed = Latest(n=50).begin(), Latest(n=50).begin()
    memory.add(rows, codes, weights, times)
    same(memory.snapshot(), feed(Latest(n=50).begin(), events).snapshot())
    header, arrays = memory.state()
    for array in arrays.values():
        array.flags.writeable = False
    resumed.restore(header, arrays)
    same(memory.snapshot(), resumed.snapshot())


def test_rows_without_values():
    memory = Latest(n=5).begin()
    assert dense_of(memory.snapshot().rows, 3).shape == csr_of(memory.snapshot().rows, 3).shape == (0, 3)
    memory.add(plain(3, 0), np.zeros(3, int))
    snapshot = memory.snapshot()
    assert np.isnan(dense_of(snapshot.rows, 2)).all()
    assert csr_of(snapshot.rows, 2).nnz == 0


# Memory -----------------------------------------------------------------------------------------------------------


def wide(seed, n, d=400):
    """Dense and sparse rows of all lengths."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        width = int(rng.integers(1, d))
        columns = np.arange(width) if rng.random() < 0.5 else np.sort(rng.choice(d, width, replace=False))
        yield columns, rng.normal(size=width), int(rng.integers(5)), 1.0, math.nan, math.nan


@pytest.mark.parametrize("kind", [Latest(n=300), Since(9.0, n=300)], ids=repr)
def test_memory_is_bounded(kind):
    kind = replace(kind, max_bytes=200_000)
    events = list(wide(0, 400))
    memory, single = kind.begin(), kind.begin()
    for i in range(0, 400, 50):
        feed(memory, events[i : i + 50])
        feed(single, events[i : i + 50], range(1, 50))
        held = memory.snapshot()
        assert held.rows.values.nbytes <= 200_000
        same(held, single.snapshot())
    assert held.rows.values.nbytes > 50_000  # the available memory is used
    for i in range(len(held)):
        columns, values = events[held.numbers[i]][:2]
        own = held.part(i, i + 1).rows
        np.testing.assert_array_equal(own.values, values)
        np.testing.assert_array_equal(own.columns, columns)
    np.testing.assert_array_equal(held.numbers, np.arange(400 - len(held), 400))


def test_a_row_larger_than_the_memory_is_alone_in_its_window():
    memory = Latest(n=10, max_bytes=100_000).begin()
    memory.add(plain(5), np.zeros(5, int))
    memory.add(plain(1, 50_000), np.zeros(1, int))
    np.testing.assert_array_equal(memory.snapshot().numbers, [5])
    memory.add(plain(2), np.zeros(2, int))
    np.testing.assert_array_equal(memory.snapshot().numbers, [6, 7])


# Saving -----------------------------------------------------------------------------------------------------------


@every_kind
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 120))
@settings(max_examples=4)
def test_a_saved_window_continues_unchanged(kind, seed, cut):
    events = stream(seed)
    begun, resumed, whole = kind.begin(), kind.begin(), feed(kind.begin(), events)
    feed(begun, events[:cut])
    header, arrays = begun.state()
    resumed.restore(json.loads(json.dumps(header)), arrays)
    for memory in (resumed, pickle.loads(pickle.dumps(begun)), copy.deepcopy(begun)):
        feed(memory, events[cut:])
        same(memory.snapshot(), whole.snapshot())
        assert memory.state()[0] == whole.state()[0]


def put(i, value):
    def change(array):
        array = array.copy()
        array[i] = value
        return array

    return change


DAMAGE = {
    "other settings": ("settings", lambda _: {"window": "Latest"}),
    "class negative": ("codes", put(0, -1)),
    "row beyond": ("indptr", put(1, 10**9)),
    "rows end elsewhere": ("indptr", put(-1, 3)),
    "column beyond": ("columns", put(-1, 2**31)),
    "columns out of order": ("columns", lambda a: a[::-1].copy()),
    "columns too few": ("columns", lambda a: a[:-1]),
    "value infinite": ("values", put(0, math.inf)),
    "weight zero": ("weights", put(0, 0.0)),
    "time infinite": ("times", put(0, math.inf)),
    "number twice": ("numbers", lambda a: np.full_like(a, a[0])),
    "number to come": ("numbers", put(-1, 10**9)),
    "events too few": ("weights", lambda a: a[1:]),
    "two dimensions": ("codes", lambda a: a[None]),
    "shared": ("shared", lambda _: True),
    "shared type": ("shared", lambda _: None),
    "taken": ("n_taken", lambda _: -1),
    "bytes": ("n_bytes", lambda _: 10**12),
    "errors": ("detector", lambda state: state | {"n": 10**9}),
    "errors packed": ("detector", lambda state: state | {"errors": "AA=="}),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_refused(damage):
    kind = Adaptive(n=50)
    header, arrays = feed(kind.begin(), stream(1)).state()
    name, change = DAMAGE[damage]
    place = header if name in header else arrays
    place[name] = change(place[name])
    with pytest.raises(CORRUPT_ERRORS):
        kind.begin().restore(header, arrays)


def test_missing_and_surplus_parts_of_a_state_are_refused():
    for kind in (Latest(n=50), Since(20.0), Adaptive(n=50)):
        header, arrays = feed(kind.begin(), stream(1)).state()
        for name in header:
            with pytest.raises(CORRUPT_ERRORS):
                kind.begin().restore({key: value for key, value in header.items() if key != name}, arrays)
        for name in arrays:
            with pytest.raises(CORRUPT_ERRORS):
                kind.begin().restore(header, {key: value for key, value in arrays.items() if key != name})
        with pytest.raises(CORRUPT_ERRORS):
            kind.begin().restore(header, arrays | {"more": np.zeros(1)})


# Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "bad", "parameter"),
    [
        (Latest, {"n": 2.5}, "n"),
        (Latest, {"max_bytes": 1000}, "max_bytes"),
        (Since, {"seconds": -1.0}, "seconds"),
        (Adaptive, {"delta": 1.0}, "delta"),
    ],
)
def test_settings_that_cannot_be_are_refused(kind, bad, parameter):
    with raises(ParameterError, parameter=parameter):
        kind(**bad)


def test_settings_are_values():
    assert {Latest(n=5), Latest(n=5), Adaptive(n=5)} == {Latest(n=5), Adaptive(n=5)} != {Latest(n=6), Adaptive(n=5)}
