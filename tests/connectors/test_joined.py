"""Merged events and labels: order, rejected records, resuming at any position."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors import ConnectorError, Source, open_source
from connectors.events import Batch, Origins
from connectors.joined import JoinedSource
from tests.connectors.streams import write
from tests.errors import raises

Item = tuple[Any, ...]


def made(seed: int, folder: Path) -> Callable[[], JoinedSource]:
    """Two random files, read in small batches of different sizes."""
    dice = random.Random(seed)

    def write(name: str, head: str, rows: list[str]) -> str:
        path = folder / f"{seed}-{name}"
        path.write_text("\n".join([head, *rows]) + "\n")
        return str(path)

    n, m = dice.randint(1, 25), dice.randint(1, 25)
    times = [dice.choice(["x", 3]) if dice.random() < 0.1 else dice.randint(0, 30) for _ in range(n)]
    events = write("e.csv", "id,t,x", [f"{'' if t == 29 else f'e{i}'},{t},{i}" for i, t in enumerate(times)])
    found = [f"e{dice.randint(0, 25)},{dice.randint(0, 40)},{dice.choice(['A', 'B', ''])}" for _ in range(m)]
    labels = write("l.csv", "id,t,y", found)
    sizes = dice.choice([1, 2, 3, 100]), dice.choice([1, 4, 100])

    def make() -> JoinedSource:
        return JoinedSource(
            open_source(events, key="id", time="t", types={"x": "number"}, batch_size=sizes[0]),
            open_source(labels, key="id", time="t", label="y", batch_size=sizes[1], bare=True),
        )

    return make


def in_turn(batch: Batch) -> tuple[list[Item], list[Item]]:
    """Return events and labels of a batch in order, and the rejected records."""
    late, items = batch.late, []
    assert late is not None
    labels = list(zip(late.before.tolist(), late.keys, late.times, late.labels, strict=True))
    for i in range(len(batch) + 1):
        items += [("label", key, time, label) for before, key, time, label in labels if before == i]
        if i < len(batch):
            assert batch.keys is not None
            assert batch.times is not None
            items.append(("event", batch.keys[i], batch.times[i], batch.rows()[i]["x"]))
    return items, [(one.origin["file"], one.origin["line"], one.reason) for one in batch.rejected]


@pytest.mark.parametrize("seed", range(15))
def test_both_are_merged_by_time_and_any_position_is_a_place_to_go_on_from(tmp_path, seed):
    make, dice = made(seed, tmp_path), random.Random(seed)
    whole: list[Item] = []
    rejected: list[Item] = []
    for batch in make():
        items, aside = in_turn(batch)
        whole, rejected = whole + items, rejected + aside
    newest = {"event": -1, "label": -1}
    merged = []
    for kind, _, time, _ in whole:
        newest[kind] = max(newest[kind], time)  # the newest time each stream has come to
        merged.append((newest[kind], kind))
    assert merged == sorted(merged)  # at equal times an event precedes a label
    source, found, found_rejected = make(), [], []
    batches = iter(source)
    while True:
        source.limit(most := dice.choice([1, 2, 5, float("inf")]))
        part = next(batches, None)
        if part is None:
            break
        assert len(part) <= most
        items, aside = in_turn(part)
        found, found_rejected = found + items, found_rejected + aside
        if dice.random() < 0.4:
            position = json.loads(json.dumps(part.position))
            source = make()
            source.seek(position)
            batches = iter(source)
    assert found == whole
    assert sorted(found_rejected) == sorted(rejected)


class Given(Source):
    """A stream of batches of one record each."""

    def __init__(self, name: str, records: list[Any], **attributes: Any) -> None:
        self.name, self._records, self.acknowledged = name, records, list[Any]()
        self._n = 0
        vars(self).update(attributes)

    @property
    def lag(self) -> Any:
        return vars(self).get("behind")

    @property
    def position(self) -> Any:
        return {"n": self._n}

    def seek(self, position: Any) -> None:
        self._n = position["n"]

    def __iter__(self) -> Iterator[Batch]:
        while self._n < len(self._records):
            key, time, label = self._records[self._n]
            self._n += 1
            origins = Origins({"stream": self.name}, {"line": [self._n]})
            keys = None if key is ABSENT else [key]
            yield Batch([{}], [label], origins, self.position, keys=keys, times=[time])

    def acknowledge(self, position: Any) -> None:
        self.acknowledged.append(position)

    def close(self) -> None:
        self._records = []


ABSENT: Any = object()


def read(events: list[Any], labels: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return keys of events, late labels, and lines of rejected records."""
    source, found = JoinedSource(Given("events", events), Given("labels", labels)), ([], [], [])
    for batch in source:
        assert batch.late is not None
        found[0].extend(batch.keys or [])
        found[1].extend(batch.late.labels)
        found[2].extend((one.origin["stream"], one.origin["line"], "is a" in one.reason) for one in batch.rejected)
    return found


def test_records_without_a_usable_key_or_label_are_rejected():
    events = [("a", 1, None), (None, 2, None), (["b"], 3, None), ("b", 4, None), (ABSENT, 5, None)]
    labels = [("a", 6, "x"), (None, 6, "x"), ({}, 7, "x"), ("a", 8, None), ("a", 9, math.nan)]
    labels += [("a", 9, ["x"]), (7, 9, 1)]
    keys, late, rejected = read(events, labels)
    assert keys == ["a", "b"]
    assert late == ["x", 1]
    of_events = [("events", 2, False), ("events", 3, True), ("events", 5, False)]
    of_labels = [("labels", line, line in (3, 6)) for line in (2, 3, 4, 5, 6)]
    assert sorted(rejected) == [*of_events, *of_labels]


def test_an_event_may_have_no_label_and_any_hashable_key():
    assert read([(("a", 1), 1, None), (1.5, 2, math.nan)], [(1.5, 3, 0.5)]) == ([("a", 1), 1.5], [0.5], [])


def test_both_streams_acknowledge_a_checkpoint():
    events, labels = Given("events", [("a", 1, None)]), Given("labels", [("a", 2, "x")])
    source = JoinedSource(events, labels)
    list(source)
    source.acknowledge(source.position)
    assert events.acknowledged == [{"n": 1}] == labels.acknowledged


@pytest.mark.parametrize("position", [{}, {"events": {}}, {"events": {"at": {"n": 0}, "clock": "x"}, "labels": {}}])
def test_another_position_is_refused(position):
    with raises(ConnectorError, reason="position", named="events"):
        JoinedSource(Given("events", []), Given("labels", [])).seek(position)


def test_identity_is_that_of_both_streams():
    identity = JoinedSource(Given("e", []), Given("l", [])).identity
    assert "e" in identity.split()
    assert "l" in identity.split()


class Live(Given):
    """A stream that goes on after its records with empty batches."""

    is_live = True

    @property
    def is_at_end(self) -> bool:
        return self._n == len(self._records)

    def __iter__(self) -> Iterator[Batch]:
        yield from super().__iter__()
        while True:
            yield Batch([], [], Origins({"stream": self.name}, {"line": []}), self.position)


@pytest.mark.parametrize("live", ["events", "labels"])
def test_a_live_stream_at_its_end_is_not_waited_for(live):
    events, labels = [("a", 1, None), ("b", 5, None)], [("a", 7, "x"), ("b", 9, "y")]
    kinds = {"events": Given, "labels": Given} | {live: Live}
    source = JoinedSource(kinds["events"]("events", events), kinds["labels"]("labels", labels))
    found: list[Any] = []
    for batch in itertools.islice(source, 20):
        assert batch.late is not None
        found += [*(batch.keys or []), *batch.late.labels]
    assert found == ["a", "b", "x", "y"]
    assert source.is_live


PAUSED, IDLE = "paused", "idle"


class Scripted(Given):
    """A stream with empty batches, at its end or not."""

    is_at_end = False

    def __iter__(self) -> Iterator[Batch]:
        while self._n < len(self._records):
            self.is_at_end = self._records[self._n] == IDLE
            if isinstance(self._records[self._n], str):
                self._n += 1
                yield Batch([], [], Origins({"stream": self.name}, {"line": []}), self.position)
            else:
                yield next(super().__iter__())


EVENTS = [("a", 1, None), ("b", 5, None), ("c", 9, None)]
LABELS = [("a", 2, "x"), ("b", 6, "y"), ("c", 10, "z")]


@pytest.mark.parametrize(
    ("events", "labels", "most", "expected"),
    [
        # Labels before the next event follow the last one.
        *((EVENTS, LABELS, most, ["a", "x", "b", "y"][: 2 * most]) for most in (0, 1, 2)),
        # Records that arrive late, and the next ones, count with the newest time of their stream.
        ([("a", 9, None), ("b", 7, None)], [IDLE, ("a", 8, "x")], math.inf, ["a", "x", "b"]),
        ([IDLE, ("a", 8, None), ("b", 10, None)], [("a", 9, "x"), ("b", 7, "y")], math.inf, ["x", "a", "y", "b"]),
        # A stream that pauses before its end is waited for.
        ([PAUSED, PAUSED, ("a", 1, None)], [("a", 2, "x")], math.inf, ["a", "x"]),
        ([("a", 1, None), ("b", 3, None)], [PAUSED, PAUSED, ("a", 2, "x")], 1, ["a", "x"]),
        # Events that arrive later count too, and labels that arrive later than the last one do not.
        ([IDLE, IDLE, ("a", 1, None), ("b", 3, None)], [], 1, ["a"]),
        ([("a", 1, None), ("b", 3, None)], [IDLE, IDLE, IDLE, ("a", 2, "x")], 1, ["a"]),
    ],
)
def test_records_of_streams_that_pause_or_are_limited_are_in_order(events, labels, most, expected):
    source, found = JoinedSource(Scripted("events", events), Scripted("labels", labels)), list[Any]()
    source.limit(most)
    for batch in source:
        assert batch.late is not None
        before = batch.late.before.tolist()
        for i in range(len(batch) + 1):
            found += [label for label, n in zip(batch.late.labels, before, strict=True) if n == i]
            found += [] if batch.keys is None else batch.keys[i : i + 1]
        source.limit(most := most - len(batch))
    assert found == expected


def test_rejected_records_have_a_place_among_their_neighbours(tmp_path):
    for name, text in (
        ("e", "id,t\na,0\n,1\nb,x\nc,1\n,1\nd,9\n,9\n"),
        ("l", "id,t,y\n,0,A\na,3,A\na,3,\na,x,A\na,3,B\n"),
    ):
        (tmp_path / f"{name}.csv").write_text(text)
    events = open_source(str(tmp_path / "e.csv"), key="id", time="t")
    joined = JoinedSource(events, open_source(str(tmp_path / "l.csv"), key="id", time="t", label="y"))
    found = [[(Path(r.origin["file"]).stem, r.origin["line"], r.place) for r in batch.rejected] for batch in joined]
    of_a_c_and_two_labels = [("l", 2, -0.5), ("e", 3, 0.5), ("e", 4, 0.5), ("e", 6, 1.5), ("l", 4, 2.5), ("l", 5, 2.5)]
    of_d = [("e", 8, 0.5)]
    assert found == [of_a_c_and_two_labels, of_d]


def test_lag_and_stalls_are_those_of_both_streams():
    events, labels = Given("e", [], behind={"0": 3}, stalls=1), Given("l", [], behind={"0": 4}, stalls=2)
    source = JoinedSource(events, labels)
    assert (source.lag, source.stalls) == ({"0": 3, "labels 0": 4}, 3)
    assert JoinedSource(Given("e", []), labels).lag == {"labels 0": 4}
    assert JoinedSource(events, Given("l", [])).lag == {"0": 3}
    assert JoinedSource(Given("e", []), Given("l", [])).lag is None


class Telling(Given):
    """A stream with progress, categorical features and warnings."""

    fraction, categories, notices = 0.25, ("colour",), ("a warning",)


def test_progress_and_categories_are_those_of_the_events_and_warnings_those_of_both():
    source = JoinedSource(Telling("e", []), Telling("l", [], fraction=0.5))
    assert (source.fraction, source.categories) == (0.25, ("colour",))
    assert source.notices == ["a warning", "a warning"]


@pytest.mark.parametrize(("step", "warned"), [(1, 0), (-1, 1), (7, 1)])
def test_times_that_are_not_in_order_cause_one_warning(tmp_path, step, warned):
    times = [60 * (i * step % 200) + i % 3 for i in range(200)]  # seconds that overlap a little
    events = write(tmp_path / "events.csv", "id,t,x\n" + "".join(f"{i},{t},1\n" for i, t in enumerate(times)))
    labels = write(tmp_path / "labels.csv", "id,t,y\n" + "".join(f"{i},{60 * i},a\n" for i in range(200)))
    options = {"key": "id", "time": "t", "time_unit": "s"}
    source = JoinedSource(open_source(events, **options), open_source(labels, label="y", **options))
    for _ in source:
        pass
    assert [text for text in source.notices if "not in order" in text] == [
        f"{events}: the times are not in order, but events and labels are merged by time: sort the records by time"
    ][:warned]
