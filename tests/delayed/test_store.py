"""The store of pending events: invalid states are refused, and memory is freed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.columns.strings import StringColumn
from streamsvm import CPMClassifier
from streamsvm.delayed import segments
from streamsvm.delayed import store as stores
from streamsvm.delayed.join import Join
from streamsvm.delayed.store import Store
from streamsvm.delayed.stored_features import PaddedKeys
from streamsvm.models.archive import write_archive
from streamsvm.online.adapters import BatchAdapter
from tests.delayed.test_join import SLOT_BYTES, Echo, run
from tests.errors import raises

Saved = dict[str, Any]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Saved:
    """State of a store with two closed segments, and two events in the open one.

    A closed segment has four events.
    """
    monkeypatch.setattr(segments, "SEGMENT", 4)
    store = Store()
    run(Join(store, Echo()), [("event", 10 + i, i, 0) for i in range(10)] + [("label", 10, 10, 1)], 1)
    header, arrays = store.state(tmp_path)
    arrays = {name: array.copy() for name, array in arrays.items()}
    records = stores.records_of(arrays["open.records"])
    return {"header": header, "arrays": arrays, "records": records, "folder": tmp_path, "store": store}


def test_a_state_is_restored_exactly(saved: Saved) -> None:
    again, store = Store(), saved["store"]
    again.restore(saved["header"], saved["arrays"], saved["folder"])
    assert (again.counts, again.clock) == (store.counts, store.clock)
    assert again.segments.n_bytes == store.segments.n_bytes == 10 * 40  # a quarter of a segment is not freed
    assert again.files == store.files == {path.name for path in saved["folder"].iterdir()}
    assert len(again.files) == 2
    assert again.keys(np.arange(1, 10)) == [str(key) for key in range(11, 20)]
    assert again.rows(np.arange(1, 10))["x"].tolist() == [*range(2, 11)]
    for key, n_events in [(11, 10), (12, 7)]:  # a half is not, and three quarters are
        run(Join(again, Echo()), [("label", key, 10, 1)], 1)
        assert again.segments.n_bytes == n_events * 40


@pytest.mark.parametrize(("relearns", "n_events"), [(False, 2), (True, 3)])
def test_a_state_contains_words_of_pending_and_relearnable_events(
    relearns: bool, n_events: int, tmp_path: Path
) -> None:
    store = Store(wait_ms=10, relearns=relearns)
    expired, labelled, pending = [("event", 0, 0, 0)], [("event", 1, 0, 0), ("label", 1, 5, 0)], [("event", 2, 5, 0)]
    run(Join(store, Echo()), [*expired, *labelled, *pending, ("event", 3, 12, 0)], 1)
    assert len(store.state(tmp_path)[1]["open.data"]) == 40 * n_events


def test_digests_of_keys_are_siphash(tmp_path: Path) -> None:
    """Expected digests are from `openssl mac -macopt size:16 SIPHASH`.

    The key is 000102...0f.
    """
    store, (header, arrays) = Store(), Store().state(tmp_path)
    store.restore(header | {"secret_of_digests": bytes(range(16)).hex()}, arrays, tmp_path)
    given = [b"", b"\0", b"abcdefgh", b"hello world, 17 b", bytes(range(200))]
    column = StringColumn(np.frombuffer(b"".join(given), np.uint8), np.cumsum([0, *map(len, given)]))
    keys = PaddedKeys.of(column)
    assert [digest.tobytes().hex() for digest in store.digests(keys)] == [
        "a3817f04ba25a8e66df67214c7550293",
        "da87c1d86b99af44347659119b22fc45",
        "8c93e201ac8e8396897e3133e447eda3",
        "1b88b5f18db57ccf9112cb0142d32ca3",
        "7c5853f4ed12ff9d836a79bc4047022d",
    ]
    assert Store().digests(keys).tolist() != store.digests(keys).tolist()


@pytest.mark.parametrize("on_disk", [False, True])
def test_words_are_removed_when_more_than_half_of_a_segment_is_freed(
    on_disk: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The open segment frees words when it closes; closed ones on disk use no memory."""
    monkeypatch.setattr(segments, "SEGMENT", 6)
    store = Store(folder=tmp_path if on_disk else None)
    join = Join(store, Echo())

    def held(kind: str, *keys: int) -> list[float]:
        found = []
        for key in keys:
            run(join, [(kind, key, 20, 0)], 1)
            found.append(store.segments.n_bytes / 40)
        return found

    held("event", *range(13))
    found = [*held("label", 6, 7, 8, 9, 10, 11), *held("label", 0, 1, 2, 3)]
    assert found == ([1] * 10 if on_disk else [13, 13, 13, 9, 9, 7, 7, 7, 7, 3])
    assert store.keys(np.array([4, 5, 12])) == ["4", "5", "12"]
    in_last = store.segments.n_bytes / 40
    assert held("event", 13, 14, 15, 16, 17) == [in_last + n for n in range(1, 6)]
    assert held("label", 12, 13, 14, 15) == [in_last + 5] * 4
    assert held("event", 18) == [1 if on_disk else 2 + 2 + 1]
    store.state(tmp_path / "state")
    assert held("event", 19) == [2 if on_disk else 2 + 2 + 2]
    assert store.keys(np.array([4, 16, 17, 18, 19])) == ["4", "16", "17", "18", "19"]


def test_a_segment_is_removed_when_its_last_event_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT", 4)
    store, firsts = Store(wait_ms=1), []
    join = Join(store, Echo())
    for i in range(8):
        run(join, [("event", i, i, 0)], 1)
        firsts.append(store.segments.all[0].first)
    assert firsts == [0] * 6 + [4] * 2


def test_a_folder_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(segments, "SEGMENT", 1)
    with raises(OSError, named=tmp_path / "gone"):
        run(Join(Store(folder=tmp_path / "gone"), Echo()), [("event", i, i, 0) for i in range(2)], 1)


def changed(name: str, change: int, at: int = -1) -> Callable[[Saved], None]:
    """Change a number in the records of the open segment."""

    def change_it(saved: Saved) -> None:
        saved["records"][name][at] += change

    return change_it


def updated(kind: str, name: str, value: Callable[[Any], Any]) -> Callable[[Saved], None]:
    """Change an entry of the header or an array."""

    def update_it(saved: Saved) -> None:
        saved[kind][name] = value(saved[kind][name])

    return update_it


def replaced_segment(saved: Saved) -> None:
    write_archive(next(saved["folder"].iterdir()), {"class": "Other"}, {})


@pytest.mark.parametrize(
    "change",
    [
        changed("start", -6, at=0),  # six words: a row of two, a key, a memory of two; the first starts at 0
        changed("start", 1),
        changed("n_words", 1),
        changed("n_row", -3),
        changed("n_row", -1),  # a layout of two names
        changed("n_key", -3),
        changed("n_key", 3 * 8),  # the words of the memory, and one more
        changed("layout", 1),
        changed("layout", -4),
        replaced_segment,
        updated("header", "secret_of_digests", lambda secret: secret + "00"),
        updated("header", "segments", lambda firsts: [0, 3, 8]),
        updated("header", "segments", lambda firsts: firsts[:-1]),
        updated("arrays", "open.data", lambda data: np.append(data, data[:1])),
        updated("arrays", "open.data", lambda data: data[:-8]),
        updated("arrays", "open.records", lambda records: records[:-1]),
        updated("arrays", "open.records", lambda records: records[:, :-1]),
        *(updated("arrays", "slots.label", lambda labels, code=code: np.full_like(labels, code)) for code in (1, -2)),
    ],
)
def test_an_invalid_state_is_refused(saved: Saved, change: Callable[[Saved], None]) -> None:
    change(saved)
    with pytest.raises((ValueError, LookupError, TypeError, OSError)):
        Store().restore(saved["header"], saved["arrays"], saved["folder"])


def test_forgotten_events_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a store are always those of about the remembered events."""
    monkeypatch.setattr(segments, "SEGMENT", 16)
    store = Store(wait_ms=50)
    join = Join(store, Echo())
    for start in range(0, 3_000, 50):
        run(join, [("event", i, i, 0) for i in range(start, start + 50)], 50)
        assert store.n_bytes <= 2 * (50 + 101) * (SLOT_BYTES + 40) + 2_048 * 8
    assert len(store.segments.all) <= 1 + 200 // 16
    assert store.counts["waiting"] == 51


def test_single_events_take_no_memory_when_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT", 16)
    monkeypatch.setattr(stores, "SPARE", 4)
    store = Store(wait_ms=50)
    join = Join(store, BatchAdapter(CPMClassifier(), proba=True))
    for i in range(1_500):
        assert join.predict_one({"x": 1.0}, str(i), i)
    assert len(store.segments.all) <= 2 + 101 // 16
    assert store.n_bytes <= 2 * 101 * (SLOT_BYTES + 100) + 2_048 * 8
