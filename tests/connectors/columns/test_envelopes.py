"""Records in the envelopes of Debezium and Kafka Connect."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors import ConnectorError, open_source
from connectors.kafka.values import JsonValues
from connectors.options import Options
from streamsvm.run import Run, RunConfig
from tests.connectors.streams import read, resumed_everywhere, write
from tests.errors import raises

SCHEMA = {"type": "struct", "fields": []}


def change(op: str, after: Any, before: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "source": {"table": "t", "ts_ms": 5}, "op": op, "ts_ms": 7}


def connect(payload: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "payload": payload}


CHANGES = [
    change("r", {"id": 1, "a": {"b": 2}, "y": "up"}),
    change("d", None, {"id": 1, "y": "up"}),
    change("u", {"id": 1, "y": "down"}, {"id": 1, "y": "up"}),
    connect(change("c", {"id": 2**64 + 1, "y": "up"})),
    connect(None),
    change("t", None),
    change("c", '{"id": 3, "a": {"b": 4}}'),  # as MongoDB has it
]
WRONG = [{"id": 1}, change("x", {"id": 1}), change("u", None), change("c", "{oops"), connect([1])]


def lines(path: Path, *records: Any) -> str:
    return write(path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def test_changes_are_the_records_after_them_and_deletes_are_counted(tmp_path: Path) -> None:
    source = open_source(lines(tmp_path, *CHANGES, *WRONG), envelope="debezium", label="y", key="id", time="ts_ms")
    (batch,) = source
    assert (batch.rows(), batch.labels) == ([{"a.b": 2}, {}, {}, {"a.b": 4}], ["up", "down", "up", None])
    assert (batch.keys, list(batch.times)) == ([1, 1, 2**64 + 1, 3], [7] * 4)
    assert [batch.origins[i]["line"] for i in range(4)] == [1, 3, 4, 7]
    assert [one.origin["line"] for one in batch.rejected] == [*range(8, 13)]
    assert any("1 deletes, 1 tombstones, 1 truncations" in notice for notice in source.notices)


def test_the_time_of_the_source_is_available_after_that_of_the_record(tmp_path: Path) -> None:
    own = change("c", {"x": 1, "ts_ms": 9})
    for name, time in (("ts_ms", 9), ("source.ts_ms", 5)):
        (batch,) = open_source(lines(tmp_path, own, own), envelope="debezium", time=name, ignore="x")
        assert list(batch.times) == [time] * 2


def test_records_of_connect(tmp_path: Path) -> None:
    records = [connect({"x": 1, "payload": {"z": 2}}), connect(None), {"payload": {"x": 1}}, connect({"x": 3})]
    seen, bad = read(lines(tmp_path, *records), envelope="connect")
    assert [event[0] for event in seen] == [{"x": 1, "payload.z": 2}, {"x": 3}]
    assert [line for line, *_ in bad] == [3]


@pytest.mark.parametrize(("records", "kind"), [(CHANGES, "debezium"), ([connect({"x": 1})] * 3, "connect")])
def test_envelopes_are_recognized_once(tmp_path: Path, records: list[Any], kind: str) -> None:
    source = open_source(lines(tmp_path, *records))
    list(source)
    assert sum(f"--set envelope={kind}" in notice for notice in source.notices) == 1
    values = JsonValues(Options("t", {}))
    for _ in range(3):
        values.read([json.dumps(record).encode() for record in records] * 40)
    assert sum(f"--set envelope={kind}" in notice for notice in values.notices) == 1


def test_resuming_anywhere_counts_the_same(tmp_path: Path) -> None:
    url = lines(tmp_path, *CHANGES * 20)
    whole = open_source(url, envelope="debezium", label="y")
    list(whole)
    for batch in resumed_everywhere(url, 1024, step=3, envelope="debezium", label="y"):
        resumed = open_source(url, envelope="debezium", label="y")
        resumed.seek(batch.position)
        list(resumed)
        assert resumed.notices == whole.notices


def test_tombstones_of_kafka() -> None:
    given = [None, *(json.dumps(each).encode() for each in CHANGES), None]
    records = [
        SimpleNamespace(value=value, key=b"k", partition=0, offset=i, timestamp=i, headers=[])
        for i, value in enumerate(given)
    ]
    values, again = (JsonValues(Options("t", {"envelope": "debezium", "label": "y"})) for _ in range(2))
    batch = values.batch("t", records, {"t": {"0": len(records)}})
    assert (len(batch), batch.rejected) == (4, [])
    assert [batch.origins[i]["offset"] for i in range(4)] == [1, 3, 4, 7]
    assert any("3 tombstones" in notice for notice in values.notices)
    again.restore(json.loads(json.dumps(batch.position)))
    assert again.notices == values.notices


def test_a_file_without_such_envelopes_is_refused_and_one_that_begins_with_deletes_is_read(tmp_path: Path) -> None:
    for kind in ("debezium", "connect"):
        with raises(ConnectorError, reason="value", option="envelope"):
            open_source(lines(tmp_path, {"x": 1, "y": 2}), envelope=kind, label="y")
    deletes = [change("d", None)] * 1000
    (batch,) = (each for each in open_source(lines(tmp_path, *deletes, *CHANGES), envelope="debezium", label="y"))
    assert batch.labels == ["up", "down", "up", None]


def test_unknown_envelopes_are_refused(tmp_path: Path) -> None:
    with raises(ConnectorError, reason="value", option="envelope"):
        open_source(lines(tmp_path, *CHANGES), envelope="soap")


def test_a_run_reports_skipped_records(tmp_path: Path) -> None:
    url = lines(tmp_path, *CHANGES * 20)
    config = RunConfig(source=url, label="y", model="cpm", envelope="debezium", dead_letter="null:")
    report = Run(config).start()
    assert (report.metrics.events, report.metrics.rejected) == (80, 0)
    assert any("20 deletes" in notice for notice in report.notices)
