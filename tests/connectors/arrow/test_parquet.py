from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from connectors import ConnectorError, open_source
from tests.connectors.streams import events, labels, resumed_everywhere
from tests.errors import raises

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "x": pa.array([1.5, None, math.nan, *range(97)], pa.float32()),
            "n": pa.array([*range(99), None], pa.int64()),
            "flag": [True, None, *[False] * 98],
            "c": pa.array(["red", None, "", *["blue"] * 97]).dictionary_encode(),
            "when": pa.array(range(100), pa.timestamp("ms")),
            "digits": [str(i) for i in range(99)] + ["x"],
            "y": pa.array([0, 1, None, *range(97)]),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=17)
    return str(tmp_path / "a.parquet")


def test_columns_by_their_types(path):
    batch = next(iter(open_source(path, label="y", time="when", ignore="digits", batch_size=3)))
    assert batch.rows() == [{"x": 1.5, "n": 0.0, "flag": 1.0, "c": "red"}, {"n": 1.0}, {"n": 2.0, "flag": 0.0}]
    assert (batch.labels, list(batch.times)) == ([0, 1, None], [0, 1, 2])
    assert batch.origins[2] == {"file": path, "row": 2}
    assert all(column.flags.writeable for column in batch.features.values())


def test_decimals_are_numbers(tmp_path):
    price = pa.array([Decimal("1.25"), None, Decimal("-3.00")])
    number = pa.array([Decimal(7), Decimal(10**20 + 1), None], pa.decimal128(38, 0))
    pyarrow.parquet.write_table(pa.table({"price": price, "y": price, "id": number}), tmp_path / "a.parquet")
    (batch,) = open_source(str(tmp_path / "a.parquet"), label="y", key="id")
    assert (batch.rows(), batch.labels) == ([{"price": 1.25}, {}, {"price": -3.0}], [1.25, None, -3.0])
    assert batch.keys == [7, 10**20 + 1, None]


def test_bytes_and_lists_are_no_times(tmp_path):
    pyarrow.parquet.write_table(pa.table({"b": [b"1"], "l": [[1]], "y": [0]}), tmp_path / "a.parquet")
    for column in ("b", "l"):
        with raises(ConnectorError, reason="type", column=column):
            open_source(str(tmp_path / "a.parquet"), label="y", ignore="b,l", time=column)


@pytest.mark.parametrize("packed", [True, False])
def test_texts_that_are_not_utf_8_cost_their_row(tmp_path, packed):
    texts = pa.array([b"red", b"\xff\xfe", b"blue", None], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 4, texts.buffers())
    table = pa.table({"x": [1.0, 2.0, 3.0, 4.0], "c": column, "y": [0, 1, 0, 1]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=packed)
    (batch,) = open_source(str(tmp_path / "a.parquet"), label="y")
    assert batch.rows() == [{"x": 1.0, "c": "red"}, {"x": 3.0, "c": "blue"}, {"x": 4.0}]
    assert [(one.reason, one.origin["row"]) for one in batch.rejected] == [("'c' is not valid utf-8", 1)]


def test_a_text_that_every_row_repeats_takes_its_memory_once(tmp_path):
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 5_000]))
    table = pa.table({"c": text, "y": pa.array([0, 1] * 10_000)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", store_schema=False)
    before = pa.total_allocated_bytes()
    n, most = 0, 0
    for batch in open_source(str(tmp_path / "a.parquet"), label="y"):
        n, most = n + len(batch), max(most, pa.total_allocated_bytes() - before)
    assert n == 20_000
    assert most < 10_000_000  # of 100 MB


def test_the_index_of_a_data_frame_is_left_out(tmp_path, caplog):
    table = pa.table({"x": [1.5, 2.5], "y": ["a", "b"], "__index_level_0__": [7, 3]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    url = str(tmp_path / "a.parquet")
    (batch,) = source = open_source(url, label="y")
    assert batch.rows() == [{"x": 1.5}, {"x": 2.5}]
    assert [record.getMessage() for record in caplog.records] == source.notices
    assert "--types __index_level_0__:number" in caplog.text
    (batch,) = open_source(url, label="y", types="__index_level_0__:number")
    assert batch.rows()[0] == {"x": 1.5, "__index_level_0__": 7.0}


def test_types_may_be_declared(path):
    batches = list(open_source(path, types="n:category,digits:number,when:ignore"))
    assert [batches[0].rows()[0][name] for name in ("n", "digits")] == ["0", 0.0]
    assert [(r.reason, r.origin["row"]) for b in batches for r in b.rejected] == [("'digits' is not a number: 'x'", 99)]


@pytest.mark.parametrize("step", [17, 64])
def test_resuming_anywhere_continues_with_exactly_the_same_events(path, nested, step):
    assert sum(map(len, resumed_everywhere(path, 7, step=step, label="y", ignore="when"))) == 99
    assert sum(map(len, resumed_everywhere(nested, 1, 64, step=step, label="a.c.y"))) == 60


def test_wrong_configuration_stops_at_once(path, tmp_path):
    with raises(ConnectorError, reason="no column", option="label", column="z"):
        open_source(path, label="z")
    with raises(ConnectorError, reason="type", column="when", named="or set types=when:time"):
        open_source(path)
    with raises(ConnectorError, reason="missing"):
        open_source(str(tmp_path / "b.parquet"))
    twice = pa.table([[1], [2], [3]], names=["a", "a", "y"])
    pyarrow.parquet.write_table(twice, tmp_path / "twice.parquet")
    with raises(ConnectorError, reason="twice", column="a"):
        open_source(str(tmp_path / "twice.parquet"), label="y")
    with raises(ConnectorError, reason="twice", column="a"):
        open_source(str(tmp_path / "twice.parquet"), label="a")
    assert labels(str(tmp_path / "twice.parquet"), label="y", ignore="a") == [3]
    (tmp_path / "c.parquet").write_bytes(b"PAR1 no")
    with raises(ConnectorError, reason="not Parquet"):
        open_source(str(tmp_path / "c.parquet"))
    with raises(ConnectorError, reason="another"):
        open_source(path, ignore="when").seek({"row": 3, "sha256": "other"})


def test_float_labels_that_are_nan_are_unknown(tmp_path):
    pyarrow.parquet.write_table(pa.table({"x": [1, 2], "y": np.array([math.nan, 0.5])}), tmp_path / "a.parquet")
    assert labels(str(tmp_path / "a.parquet"), label="y") == [None, 0.5]


def test_a_label_alone_makes_events_without_features(tmp_path):
    pyarrow.parquet.write_table(pa.table({"y": [1, 0, None]}), tmp_path / "a.parquet")
    (batch,) = open_source(str(tmp_path / "a.parquet"), label="y")
    assert (len(batch), batch.features, batch.rows(), batch.labels) == (3, {}, [{}, {}, {}], [1, 0, None])
    (batch,) = open_source(str(tmp_path / "a.parquet"), ignore="y")
    assert (batch.rows(), batch.labels) == ([{}, {}, {}], [None, None, None])


DEEP = {"x": 1, "a": {"b": 2.5, "c": {"d": "red", "y": "up", "t": 5}}}
NESTED = [
    DEEP | {"l": [3, None, 1], "s": ["u", "v"], "r": [{"q": 1}]},
    {"x": 2, "a": {"b": None, "c": None}, "l": [], "s": None, "r": []},
    {"x": 3, "a": None, "l": None, "s": [], "r": None},
]


@pytest.fixture
def nested(tmp_path: Path) -> str:
    pyarrow.parquet.write_table(pa.Table.from_pylist(NESTED * 20), tmp_path / "n.parquet", row_group_size=7)
    return str(tmp_path / "n.parquet")


def test_structs_and_lists_become_the_columns_of_json(nested, tmp_path):
    lines = tmp_path / "n.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in NESTED * 20))
    options = {"label": "a.c.y", "ignore": "a.c.t", "lists": "length,mean,min,max,first,last"}
    source = open_source(nested, **options)
    found, wanted = events(source), events(open_source(str(lines), **options))
    assert [event[:2] for event in found] == [event[:2] for event in wanted]
    assert found[0][0]["a.c.d"] == "red"
    assert any("'l' is a list" in notice and "3 in all" in notice for notice in source.notices)


def test_nested_columns_have_roles_and_only_those_used_are_read(nested):
    (batch, *_) = open_source(nested, key="x", time="a.c.t", ignore="l,s,r", types="a.c.d:ignore,a.c.y:category")
    assert (batch.rows()[0], batch.keys[0], batch.times[0]) == ({"a.b": 2.5, "a.c.y": "up"}, 1, 5)
    assert list(next(iter(open_source(nested, label="a.c.y", ignore="x,a.b,l,s,r,a.c.t"))).features) == ["a.c.d"]
    assert list(next(iter(open_source(nested, ignore="a,l,s,r"))).features) == ["x"]


def test_levels_and_names_of_nested_columns_are_checked(nested, tmp_path):
    with raises(ConnectorError, reason="type", column="a.c", named="flatten="):
        open_source(nested, flatten=1)
    assert "a.b" in next(iter(open_source(nested, flatten=1, ignore="a.c"))).features
    for option in ("label", "ignore"):
        with raises(ConnectorError, reason="no column", option=option, column="a.z"):
            open_source(nested, **{option: "a.z"})
    pyarrow.parquet.write_table(pa.Table.from_pylist([{"a": {"b": 1}, "a.b": 2}]), tmp_path / "twice.parquet")
    with raises(ConnectorError, reason="twice", column="a.b"):
        open_source(str(tmp_path / "twice.parquet"))
