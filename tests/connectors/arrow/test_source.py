"""Arrow data and data frames as sources: equal events, refused data, positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from connectors import ConnectorError, open_source
from tests.connectors.streams import resumed_everywhere
from tests.errors import raises

N = 3000
RNG = np.random.default_rng(1)
TABLE = pa.table(
    {
        "x": RNG.normal(size=N),
        "whole": pa.array([None, 2**62, 3] * 1000),
        "flag": pa.array([True, False, None] * 1000),
        "price": pa.array([Decimal("1.25"), None, Decimal("2.50")] * 1000),
        "colour": pa.array(["red", "blue", None] * 1000).dictionary_encode(),
        "digits": pa.array(["7", "8", "n"] * 1000),
        "at": pa.array([datetime(2026, 1, 1, i % 24, tzinfo=UTC) for i in range(N)]),
        "y": pa.array(["up", "down"] * 1500),
    }
)
OPTIONS = {"label": "y", "types": "at:time"}


def chunked(size: int) -> list[pa.RecordBatch]:
    return [batch for start in range(0, N, size) for batch in TABLE.slice(start, size).to_batches()]


def duckdb_relation() -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(TABLE, connection=duckdb.connect())


KINDS: dict[str, Callable[[], Any]] = {
    "Table": lambda: TABLE,
    "RecordBatch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(1024),
    "batches": lambda: iter(chunked(7)),
    "list": lambda: chunked(1000),
    "polars": lambda: pl.DataFrame(TABLE),
    "LazyFrame": lambda: pl.DataFrame(TABLE).lazy(),
    "DuckDB": duckdb_relation,
    "frames": lambda: (pl.DataFrame(batch) for batch in chunked(100)),
}


def events(source: Any, **options: Any) -> list[Any]:
    """Return rows, labels and row numbers of a source."""
    with_labels = open_source(source, **(OPTIONS | options))
    return [
        one
        for batch in with_labels
        for one in zip(batch.rows(), batch.labels, *batch.origins.columns.values(), strict=True)
    ]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    pyarrow.parquet.write_table(TABLE, path)
    return events(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_the_events_of_a_parquet_file(kind, expected):
    assert events(KINDS[kind]()) == expected


@pytest.mark.parametrize("kind", ["Table", "list", "LazyFrame", "DuckDB"])
def test_rereadable_data_resume_at_a_row(kind):
    batches = resumed_everywhere(KINDS[kind](), 700, step=700, **OPTIONS)
    assert sum(map(len, batches)) == N
    with raises(ConnectorError, reason="another"):
        open_source(TABLE.select(["x", "y"]), label="y").seek(batches[0].position)


def test_ipc_files_have_the_events_of_a_parquet_file(expected, tmp_path):
    paths = [str(tmp_path / "a.arrow"), str(tmp_path / "b.feather")]
    for path, compression in zip(paths, (None, "zstd"), strict=True):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(path, TABLE.schema, options=options) as file:
            file.write_table(TABLE, max_chunksize=700)
    assert events(paths[0]) == expected
    assert [row for row, _, _ in events(paths[0])] == [row for row, _, _, _ in events(paths)][N:]
    assert sum(map(len, resumed_everywhere(paths[1], 700, step=700, **OPTIONS))) == N
    Path(paths[1]).write_bytes(Path(paths[0]).read_bytes()[:5000])
    with raises(ConnectorError, reason="not Arrow"):
        open_source(paths[1], **OPTIONS)


@pytest.mark.parametrize("kind", ["reader", "batches", "frames"])
def test_a_stream_is_read_once(kind):
    source = open_source(KINDS[kind](), **OPTIONS)
    with raises(ConnectorError, reason="not seekable"):
        source.seek(source.position)


def test_floats_are_not_copied():
    (batch,) = open_source(TABLE.select(["x", "y"]).slice(0, 1000), label="y")
    assert batch.features["x"].ctypes.data == TABLE["x"].chunk(0).buffers()[1].address


def test_chunks_may_differ_in_types_of_numbers():
    """Pandas reads integers as floats where values are missing."""
    chunks = [pd.DataFrame({"x": [1, 2], "y": [0, 1]}), pd.DataFrame({"x": [1.5, np.nan], "y": [0, 1]})]
    batches = list(open_source(iter(chunks), label="y"))
    assert [row for batch in batches for row in batch.rows()] == [{"x": 1.0}, {"x": 2.0}, {"x": 1.5}, {}]


def batches_then(last: Any) -> Iterator[Any]:
    yield pa.table({"x": [1.0], "y": ["a"]})
    if isinstance(last, Exception):
        raise last
    yield last


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (pa.table({"y": ["a"], "x": [1.0]}), "columns differ"),
        (pa.table({"x": ["red"], "y": ["a"]}), "type"),
        (pa.table({"x": [1.0], "y": [1]}), "type"),
        (7, "type"),
        (RuntimeError("connection lost"), "read"),
    ],
)
def test_later_batches_must_have_the_same_schema(last, reason):
    source = open_source(batches_then(last), label="y")
    with raises(ConnectorError, reason=reason):
        list(source)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (7, "type"),
        ([1.0], "type"),
        ([{"x": 1.0}], "type"),
        (pd.DataFrame([[1.0, 2.0]], columns=["x", "x"]), "type"),
        (pd.DataFrame({"x": ["a", 1]}), "type"),
        (iter([]), "empty"),
        (pd.Series([1.0]), "read" if hasattr(pd.Series, "__arrow_c_stream__") else "type"),  # since pandas 3
    ],
)
def test_other_types_than_tables_are_refused(data, reason):
    with raises(ConnectorError, reason=reason):
        open_source(data)


@pytest.mark.parametrize("column", [pa.array([[("a", 1.0)]], pa.map_(pa.string(), pa.float64())), pa.array([b"a"])])
def test_types_without_a_feature_are_refused(column):
    with raises(ConnectorError, reason="type", column="odd"):
        open_source(pa.table({"odd": column, "y": [0]}), label="y")


def test_an_empty_table_has_no_events(tmp_path):
    assert list(open_source(TABLE.slice(0, 0), **OPTIONS)) == []
    assert list(open_source(pl.DataFrame(TABLE.slice(0, 0)).lazy(), **OPTIONS)) == []


def test_nested_columns_are_flattened_and_later_batches_must_have_them():
    first, other = (pa.Table.from_pylist([{"a": {"b": 1.0, name: [1, 2]}, "y": 0}]) for name in "lm")
    (batch,) = open_source(first, label="y", lists="length,mean")
    assert batch.rows() == [{"a.b": 1.0, "a.l.length": 2.0, "a.l.mean": 1.5}]
    with raises(ConnectorError, reason="columns differ"):
        list(open_source(iter([first, other]), label="y"))
