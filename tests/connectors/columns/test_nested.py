"""Nested records are flattened to columns, or rejected with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from connectors import ConnectorError, open_source
from connectors.columns.nested import MOST_LEVELS, MOST_NAMES
from connectors.kafka.values import JsonValues
from connectors.options import Options
from tests.connectors.streams import events, read, rejects, resumed_everywhere, rows, write
from tests.errors import raises


def lines(path: Path, *records: Any) -> str:
    return write(path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def deep(levels: int) -> dict[str, Any]:
    record: dict[str, Any] = {"x": 1}
    for _ in range(levels):
        record = {"a": record}
    return record


def test_objects_become_columns_of_all_levels(tmp_path):
    records = [
        {"x": 1, "u": {"größe": 2, "geo": {"lat": 1.5, "c": "a"}}},
        {"u": None, "x": 2},
        {"u": 7, "x": "?"},  # a scalar instead of an object
        {"u": {}, "x": 3},
        {"u": {"geo": {"lat": None, "q.r": 4}}},  # a key with a dot
    ]
    nested = {"x": 1, "u.größe": 2, "u.geo.lat": 1.5, "u.geo.c": "a"}
    assert rows(lines(tmp_path, *records)) == [nested, {"x": 2}, {"u": 7}, {"x": 3}, {"u.geo.q.r": 4}]


def test_levels_may_be_limited(tmp_path):
    seen, bad = read(lines(tmp_path, *map(deep, range(4))), flatten=2)
    assert [row for row, *_ in seen] == [{"x": 1}, {"a.x": 1}, {"a.a.x": 1}]
    assert [line for line, *_ in bad] == [4]
    assert "--set flatten=3" in bad[0][1]
    assert "--ignore a.a.a" in bad[0][1]


def test_too_few_levels_for_all_first_records_are_refused(tmp_path):
    with raises(ConnectorError, reason="nested", named="flatten=2"):
        open_source(lines(tmp_path, deep(2), deep(3)), flatten=1, label="x")


def test_too_many_levels_cost_their_record(tmp_path):
    seen, bad = read(lines(tmp_path, *map(deep, (MOST_LEVELS, MOST_LEVELS + 1, 3))))
    assert ([len(row) for row, *_ in seen], [line for line, *_ in bad]) == ([1, 1], [2])


def test_label_key_time_and_types_name_nested_fields(tmp_path):
    big = 2**64 + 1
    record = {"e": {"id": big, "at": {"ts": 5}, "y": "up", "zip": 123, "n": "1.5", "no": {"a": [1]}}, "z": 1}
    options: dict[str, Any] = {"label": "e.y", "key": "e.id", "time": "e.at.ts", "types": "e.zip:category,e.n:number"}
    (batch,) = open_source(lines(tmp_path, record, record), ignore="e.no", **options)
    found = batch.rows()[0], batch.labels[0], batch.keys[0], batch.times[0]
    assert found == ({"e.zip": "123", "e.n": 1.5, "z": 1}, "up", big, 5)
    values = JsonValues(Options("t", options | {"ignore": "e.no"}))
    got = values.read([json.dumps(record).encode()] * 2)
    assert (got.features[0], got.labels[0], got.keys[0]) == (batch.rows()[0], "up", big)


def test_names_that_no_event_has_stop_the_run(tmp_path):
    url = lines(tmp_path, {"a": {"b": 1, "c": {"d": 2}}})
    for option in ("label", "key", "time", "ignore"):
        with raises(ConnectorError, reason="no column", option=option, column="a.z"):
            open_source(url, **{option: "a.z"})
    assert rows(url, ignore="a.c") == [{"a.b": 1}]
    assert rows(url, types="a.c.d:ignore") == [{"a.b": 1}]
    assert rows(url, ignore="a") == [{}]


@pytest.mark.parametrize(
    "record",
    [
        {"a.b": 2, "a": {"b": 1}},
        {"a": {"b.c": 1, "b": {"c": 2}}},
        {"a": [1], "a.length": 2},
        {"a.length": 2, "a": [1]},
    ],
)
def test_two_fields_of_one_name_cost_their_record(tmp_path, record):
    seen, ((line, reason, _),) = read(lines(tmp_path, {"x": 1}, record, {"a": {"b": 3}}))
    assert ([row for row, *_ in seen], line) == ([{"x": 1}, {"a.b": 3}], 2)
    assert "two fields are named" in reason


def test_lists_are_their_length_and_declared_statistics(tmp_path):
    lists: list[Any] = [[3, 1, 2], [], [None, 4], ["b", "a"], [{"x": 1}, {}], [[1], [2]], None, 5]
    url = lines(tmp_path, *({"a": {"l": each}} for each in lists))
    source = open_source(url)
    assert [row for row, *_ in events(source)] == [*({"a.l.length": len(each)} for each in lists[:6]), {}, {"a.l": 5}]
    (notice,) = source.notices
    assert "'a.l' is a list" in notice
    assert rows(url, lists="mean,min,max,first,last,length")[:5] == [
        {"a.l.mean": 2, "a.l.min": 1, "a.l.max": 3, "a.l.first": 3, "a.l.last": 2, "a.l.length": 3},
        {"a.l.length": 0},
        {"a.l.mean": 4, "a.l.min": 4, "a.l.max": 4, "a.l.last": 4, "a.l.length": 2},
        {"a.l.first": "b", "a.l.last": "a", "a.l.length": 2},
        {"a.l.length": 2},
    ]
    with raises(ConnectorError, reason="value", option="lists"):
        open_source(url, lists="median")


def test_keys_that_are_data_are_bounded_and_reported(tmp_path):
    many = {str(i): i for i in range(MOST_NAMES + 1)}
    records = [{"m": many}, *({"x": i, "m": {f"k{i}": 1}} for i in range(MOST_NAMES + 10)), {"m": {"k0": 2}}]
    source = open_source(lines(tmp_path, *records))
    batches = list(source)
    assert sum(map(len, batches)) == MOST_NAMES + 1
    assert [line for line, *_ in rejects(batches)] == [1, *range(MOST_NAMES + 2, MOST_NAMES + 12)]
    assert "--ignore m)" in rejects(batches)[0][1]
    assert any("1,000 different keys" in notice and "--ignore m" in notice for notice in source.notices)


def test_resuming_anywhere_keeps_the_bound(tmp_path, monkeypatch):
    monkeypatch.setattr("connectors.columns.nested.MOST_NAMES", 20)
    url = lines(tmp_path, *({"m": {f"k{i % 30}": {"a": i}}, "l": [i]} for i in range(90)))
    assert sum(map(len, resumed_everywhere(url, 5, step=7))) == 57  # 19 keys of `m` and `l.length` fit
