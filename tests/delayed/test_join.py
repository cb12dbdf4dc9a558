"""The label join, against a slow reference implementation with dictionaries."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.events import LateLabels, SparseRows
from streamsvm.decide.alarms import Alarms
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.costs import Costs
from streamsvm.decide.decisions import Decisions
from streamsvm.delayed import segments, slots
from streamsvm.delayed import store as stores
from streamsvm.delayed.join import Join
from streamsvm.delayed.protocol import Arrivals
from streamsvm.delayed.store import Store
from streamsvm.online.adapters import ModelRows, Predictions
from streamsvm.parameters import ParameterError
from tests.errors import raises

Ops = list[tuple[str, int, int, int]]  # kind, key, time, label
SLOT_BYTES = slots.SLOT_BYTES


class Echo:
    """A model whose predictions encode what it learned, how often, and with what."""

    model, memory_size, stores_proba = None, 2, False

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.n_learned = 0

    def run(self, asked: ModelRows) -> Predictions:
        n = len(asked.labels)
        codes, scores = np.full(n, -1), np.full(n, np.nan)
        features = _dicts(asked.features, n)
        for i in range(n):
            memory = None if asked.memory_rows[i] == 0 else asked.memories[asked.memory_rows[i] - 1]
            if asked.predicted[i]:
                codes[i], scores[i] = self.n_learned % 5, self.n_learned / 1e6
                if memory is not None:
                    memory[:] = self.n_learned, features[i]["x"]
            if asked.labels[i] is not None:
                then = None if memory is None or asked.predicted[i] else int(memory[0])
                if then is not None:
                    assert memory is not None
                    assert memory[1] == features[i]["x"]
                self.log.append((features[i]["x"], asked.labels[i], self.n_learned if then is None else then))
                self.n_learned += 1
        return Predictions(codes, scores, None)


class Blind(Echo):
    """A model that predicts nothing."""

    def run(self, asked: ModelRows) -> Predictions:
        n = len(asked.labels)
        return Predictions(np.full(n, -1), np.full(n, np.nan))


class Unsure(Echo):
    """A model with probabilities of two classes, which are stored."""

    stores_proba, classes = True, ("c0", "c1")

    def run(self, asked: ModelRows) -> Predictions:
        answer = super().run(asked)
        answer.probas = np.column_stack([0.5 + answer.codes / 10, 0.5 - answer.codes / 10])
        return answer


class Failing(Echo):
    """A model that fails once, before it learns or predicts."""

    fails = True

    def run(self, asked: ModelRows) -> Predictions:
        if self.fails:
            self.fails = False
            raise ArithmeticError
        return super().run(asked)


class Counting(Echo):
    """A model that counts the rows that it is given."""

    n_rows = 0

    def run(self, asked: ModelRows) -> Predictions:
        self.n_rows += len(asked.labels)
        return super().run(asked)


def _dicts(features: Any, n: int) -> list[dict[Any, Any]]:
    if isinstance(features, dict):
        return [{name: column[i] for name, column in features.items()} for i in range(n)]
    return list(features)


def _as_dict(x: float) -> dict[str, Any]:
    return {"x": x, "text": f"t{x}" * int(x % 7)} if x % 3 else {"x": x}


def _row(x: float, kind: str) -> bytes:
    """Return the words of a row."""
    values = [*_as_dict(x).values()] if kind == "dicts" else [x, 0.0]
    return orjson.dumps(values) if any(isinstance(value, str) for value in values) else bytes(8 * len(values))


def _padded(n: int) -> int:
    return -(-n // 8) * 8


class Twin:
    """Reference implementation of events and labels."""

    def __init__(
        self,
        wait: int | None,
        most: int,
        on_timeout: str | None,
        relearns: bool,
        most_bytes: float = math.inf,
        kind: str = "table",
    ) -> None:
        self.wait, self.most, self.on_timeout, self.relearns = wait, most, on_timeout, relearns
        self.most_bytes, self.kind, self.begin = most_bytes, kind, 0
        self.clock = -(10**18)
        self.slots: list[dict[str, Any]] = []
        self.known: dict[int, dict[str, Any]] = {}
        self.log: list[tuple[Any, ...]] = []
        self.predicted: list[int] = []
        self.joined: list[tuple[Any, ...]] = []
        self.n = dict.fromkeys(
            ("answered", "late", "repeated", "corrected", "duplicates", "expired", "unmatched", "dropped"), 0
        )

    def learn(self, slot: dict[str, Any], label: str) -> None:
        self.log.append((slot["x"], label, slot["then"]))

    def join(self, slot: dict[str, Any], label: str, lag: int | None, how: str) -> None:
        self.joined.append((str(slot["key"]), label, slot["then"] % 5, lag, how))

    def take(self, kind: str, key: int, time: int, label: int) -> None:
        self.clock = max(self.clock, time)
        self._expire()
        if kind == "event":
            self._event(key, time)
        else:
            self._label(key, time, f"c{label}")
        waiting = [slot for slot in self.slots if slot["fate"] in ("waiting", "early")]
        if len(waiting) > self.most:
            self._drop(waiting[0])
        while self.begin < len(self.slots) and self._bytes() > self.most_bytes:
            oldest = self.slots[self.begin]
            if oldest["fate"] in ("waiting", "early"):
                self._drop(oldest)
            elif oldest["fate"] != "gone":
                oldest["fate"] = "gone"
                del self.known[oldest["key"]]
            self.begin += 1

    def _drop(self, slot: dict[str, Any]) -> None:
        slot["fate"] = "gone"
        del self.known[slot["key"]]
        self.n["dropped"] += 1

    def _bytes(self) -> int:
        holds = {"waiting", "answered"} if self.relearns else {"waiting"}
        rows = [slot for slot in self.slots[self.begin :] if slot["fate"] in holds]
        held = sum(_padded(len(_row(slot["x"], self.kind))) + 8 + 8 * Echo.memory_size for slot in rows)
        return int(held + SLOT_BYTES * (len(self.slots) - self.begin))

    def _expire(self) -> None:
        if self.wait is None:
            return
        for slot in self.slots:
            if self.clock - slot["came"] > self.wait:
                if slot["fate"] == "waiting":
                    slot["fate"] = "expired"
                    self.n["expired"] += 1
                    if self.on_timeout is not None:
                        self.learn(slot, self.on_timeout)
                        self.join(slot, self.on_timeout, self.wait, "timeout")
                elif slot["fate"] == "early":
                    slot["fate"] = "gone"
                    del self.known[slot["key"]]
                    self.n["unmatched"] += 1
        for slot in self.slots:
            if slot["fate"] in ("answered", "expired") and self.clock - slot["came"] > 2 * self.wait:
                slot["fate"] = "gone"
                del self.known[slot["key"]]
        while self.begin < len(self.slots) and self.clock - self.slots[self.begin]["came"] > 2 * self.wait:
            self.begin += 1

    def _event(self, key: int, time: int) -> None:
        n = len(self.log)
        self.predicted.append(n % 5)
        slot = {
            "key": key,
            "time": time,
            "came": self.clock,
            "fate": "waiting",
            "then": n,
            "x": float(len(self.predicted)),
        }
        other = self.known.get(key)
        if other is None:
            self.slots.append(slot)
            self.known[key] = slot
        elif other["fate"] == "early":
            other["fate"], slot["fate"], slot["label"] = "gone", "answered", other["label"]
            self.slots.append(slot)
            self.known[key] = slot
            self.n["answered"] += 1
            self.learn(slot, other["label"])
            self.join(slot, other["label"], other["time"] - time, "in time")
        else:
            self.n["duplicates"] += 1

    def _label(self, key: int, time: int, label: str) -> None:
        slot = self.known.get(key)
        if slot is None:
            slot = {"key": key, "time": time, "came": self.clock, "fate": "early", "label": label}
            self.slots.append(slot)
            self.known[key] = slot
        elif slot["fate"] == "waiting":
            slot["fate"], slot["label"] = "answered", label
            self.n["answered"] += 1
            self.learn(slot, label)
            self.join(slot, label, time - slot["time"], "in time")
        elif "label" not in slot:
            slot["label"] = label
            self.n["late"] += 1
            self.join(slot, label, time - slot["time"], "late")
        elif slot["label"] == label:
            self.n["repeated"] += 1
        else:
            self.n["corrected"] += 1
            if slot["fate"] != "early":
                slot["label"] = label
            if slot["fate"] == "answered" and self.relearns:
                self.learn(slot, label)


def run(join: Join, ops: Ops, chunk: int, kind: str = "table") -> tuple[list[int], list[tuple[Any, ...]]]:
    """Process events and labels in batches."""
    codes: list[int] = []
    found: list[tuple[Any, ...]] = []
    n_before = getattr(join, "n_before", 0)
    for start in range(0, len(ops), chunk):
        part = ops[start : start + chunk]
        events = [(key, time) for kind_, key, time, _ in part if kind_ == "event"]
        numbers = np.arange(n_before + 1.0, n_before + 1.0 + len(events))
        n_before += len(events)
        before = [sum(k == "event" for k, *_ in part[:i]) for i, (k, *_) in enumerate(part) if k == "label"]
        labels = [(key, time, label) for kind_, key, time, label in part if kind_ == "label"]
        features: Any = {"x": numbers, "y": np.zeros(len(events))}
        if kind == "dicts":
            features = [_as_dict(x) for x in numbers.tolist()]
        late = LateLabels([f"c{one[2]}" for one in labels], [], [one[1] for one in labels], np.array(before, np.int64))
        taken = Arrivals(
            features,
            [str(key) for key, _ in events],
            np.array([t for _, t in events], np.int64),
            np.column_stack([numbers, numbers]).astype(np.int64),
        )
        answer, joined = join.step(taken, late, [str(key) for key, *_ in labels])
        assert joined.arrived.tolist() == [how != "timeout" for how in joined.outcomes]
        codes += answer.codes.tolist()
        found += zip(
            joined.keys, joined.labels, joined.codes.tolist(), joined.lags.tolist(), joined.outcomes, strict=True
        )
    join.n_before = n_before  # type: ignore[attr-defined]
    return codes, found


ops_of = st.lists(
    st.tuples(st.sampled_from(["event", "label"]), st.integers(0, 12), st.integers(0, 40), st.integers(0, 2)),
    max_size=60,
)


@settings(max_examples=150)
@given(
    ops=ops_of,
    wait=st.sampled_from([None, 0, 3, 10]),
    most=st.sampled_from([1, 3, 1000]),
    on_timeout=st.sampled_from([None, "no"]),
    relearns=st.booleans(),
    chunk=st.sampled_from([1, 4, 60]),
    kind=st.sampled_from(["table", "dicts"]),
    room=st.sampled_from([None, None, 8, 10]),
    segment=st.sampled_from([1, 7]),
    on_disk=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_a_join_equals_its_slow_reference(
    ops, wait, most, on_timeout, relearns, chunk, kind, room, segment, on_disk, cuts, tmp_path_factory
):
    """Random delays, losses, duplicates and orders; stores are restored."""
    most_bytes = 1 << 30 if room is None else room * (SLOT_BYTES + 40)
    twin = Twin(wait, most, on_timeout, relearns, most_bytes, kind)
    for op in ops:
        twin.take(*op)
    options: dict[str, Any] = {"wait_ms": wait, "most": most, "relearns": relearns, "most_bytes": most_bytes}
    echo, codes, joined, folder, n_before = Echo(), [], [], tmp_path_factory.mktemp("store"), 0
    state: Any = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "FIRST_SLOTS", 1)
        if room is None:  # the reference counts the bytes of one open segment
            patch.setattr(segments, "SEGMENT", segment)
            options["folder"] = tmp_path_factory.mktemp("waiting") if on_disk else None
        for start, end in pairwise([0, *sorted(cuts), len(ops)]):
            join = Join(Store(**options), echo, on_timeout=on_timeout)
            if state is not None:
                join.store.restore(*state, folder)
            join.n_before = n_before  # type: ignore[attr-defined]
            more_codes, more_joined = run(join, ops[start:end], chunk, kind)
            codes, joined = codes + more_codes, joined + more_joined
            state, n_before = join.store.state(folder), join.n_before  # type: ignore[attr-defined]
            for path in folder.iterdir():
                if path.name not in join.store.files:
                    path.unlink()
    assert codes == twin.predicted
    assert joined == twin.joined
    assert echo.log == twin.log
    totals = join.store.counts
    assert {name: totals[name] for name in twin.n} == twin.n
    assert totals["labels"] == sum(kind == "label" for kind, *_ in ops)
    assert totals["waiting"] == sum(slot["fate"] == "waiting" for slot in twin.slots)
    assert totals["early"] == sum(slot["fate"] == "early" for slot in twin.slots)


def predict_wide(join: Join, start: int) -> None:
    """Predict 500 events of 51 numbers."""
    n = np.arange(start, start + 500)
    events = Arrivals({f"{c}": n * 1.0 for c in ("x", *range(50))}, [f"k{i}" for i in n], n, np.zeros((500, 2), int))
    join.step(events, LateLabels([], [], [], np.zeros(0, np.int64)), [])


def test_pending_events_on_disk_use_no_memory_and_leave_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segments, "SEGMENT", 1_000)
    in_memory, on_disk = Store(), Store(folder=tmp_path)
    for store in (in_memory, on_disk):
        join = Join(store, Echo())
        for start in range(0, 5_000, 500):
            predict_wide(join, start)
    assert on_disk.n_bytes < 0.5 * in_memory.n_bytes
    some = np.array([3, 2_500, 4_999])
    assert on_disk.keys(some) == in_memory.keys(some) == ["k3", "k2500", "k4999"]
    for column, same in zip(on_disk.rows(some).values(), in_memory.rows(some).values(), strict=True):
        np.testing.assert_array_equal(column, same)
    assert not list(tmp_path.iterdir())


def test_objects_do_not_wait_on_disk(tmp_path: Path) -> None:
    with raises(ParameterError, parameter="folder"):
        Store(keeps_objects=True, folder=tmp_path)


def test_sparse_rows_are_restored_exactly() -> None:
    rows = SparseRows(np.array([0, 2, 2, 5]), np.array([3, 9, 0, 1, 9]), np.array([1.5, -2.0, 3.0, 4.0, 5.0]))
    store = Store()
    events = Arrivals(rows, ["a", "b", "c"], np.arange(3), np.zeros((3, 2), np.int64))
    Join(store, Blind()).step(events, LateLabels([], [], [], np.zeros(0, np.int64)), [])
    found = store.rows(np.arange(3))
    for name in ("indptr", "indices", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(rows, name))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT", 256)
    store = Store(most_bytes=1_000_000)
    join, most = Join(store, Echo()), 0
    for start in range(0, 8_000, 500):
        predict_wide(join, start)
        most = max(most, store.n_bytes)
    assert most <= 1_000_000
    assert store.counts["dropped"] == 8_000 - store.n_waiting
    assert 1_000 < store.n_waiting < 3_000


def test_a_too_small_bound_is_refused_with_the_least_one() -> None:
    with raises(stores.TooSmall, size=SLOT_BYTES):
        Store(most_bytes=900)
    join = Join(Store(most_bytes=8 * SLOT_BYTES + 100), Echo())
    with raises(stores.TooSmall, size=SLOT_BYTES + 16 + 8 + 16):
        run(join, [("event", 1, 1, 0)], 1)


@pytest.mark.parametrize("n_classes", [0, 2])
def test_each_byte_of_an_event_counts(n_classes: int, tmp_path: Path) -> None:
    """An event has a row, a key, memory, decision, alarm and probabilities.

    A restored store counts the bytes of its events.
    """
    size, ops = 16 + 8 + 8 * (2 + 2 + n_classes), [("label", 100 + i, 0, i) for i in range(n_classes)]
    ops += [("event", i, 0, 0) for i in range(10)]
    for spare in (0, -1):
        before, store = (Store(most_bytes=len(ops) * SLOT_BYTES + 10 * size + spare) for _ in range(2))
        run(Join(before, Unsure()), ops[:6], 3)
        store.restore(*before.state(tmp_path), tmp_path)
        run(Join(store, Unsure()), ops[6:], 3)
        assert store.counts["dropped"] == -spare


@pytest.mark.parametrize("wait", [None, 10])
def test_decisions_do_not_depend_on_batches(wait: int | None) -> None:
    dice, found = random.Random(1), []
    ops: Ops = [("event", i // 2, i // 2, 0) for i in range(150)]
    ops[1::2] = [("label", i - dice.choice([0, 0, 1, 4, 15]), i, dice.randrange(2)) for i in range(75)]
    for chunk in (1, 13, 150):
        sets, costs = ConformalSets(0.8), Costs(class_weight="balanced", abstain=0.4)
        decisions = Decisions(sets, costs, Alarms("share", 0.2), "c0")
        joined = run(Join(Store(wait_ms=wait), Unsure(), decisions=decisions), ops, chunk)
        states = [sets.state()[1], decisions.alarms.state()[1]]
        found.append((joined, [[part.tolist() for part in state.values()] for state in states], costs.counts.tolist()))
    assert found[0] == found[1] == found[2]
    assert {how for *_, how in found[0][0][1]} == {"in time"} | ({"late"} if wait else set())


def test_events_that_the_model_failed_to_predict_are_matched_but_not_learned() -> None:
    model = Failing()
    join = Join(Store(wait_ms=10), model, on_timeout="no")
    with pytest.raises(ArithmeticError):
        run(join, [("event", 1, 1, 0), ("event", 0, 1, 0)], 2)
    _, joined = run(join, [("event", 2, 2, 0), ("label", 1, 3, 0), ("label", 2, 3, 1), ("label", 3, 20, 0)], 4)
    assert [label for _, label, _ in model.log] == ["c1"]
    assert [(key, label) for key, label, *_ in joined] == [("1", "c0"), ("2", "c1")]
    assert (join.store.counts["answered"], join.store.counts["expired"]) == (2, 1)


@pytest.mark.parametrize(("relearns", "n_rows"), [(False, 6), (True, 7)])
def test_a_label_directly_after_its_event_is_learned_in_its_row(relearns: bool, n_rows: int) -> None:
    model = Counting()
    join = Join(Store(relearns=relearns), model)
    run(join, [("event", 0, 1, 0), *(("event", 1, 1, 0), ("label", 1, 1, 0)), ("event", 2, 2, 0)], 4)
    run(join, [("event", 3, 2, 0), ("label", 2, 2, 0), ("label", 0, 3, 0)], 3)  # with the memories of their events
    assert model.n_rows == n_rows
    assert [x for x, *_ in model.log] == [2.0, 3.0, 1.0]
