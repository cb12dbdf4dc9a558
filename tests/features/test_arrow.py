"""Arrow data, lazy frames and DuckDB relations equal a pandas frame's results."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from streamsvm import CPMClassifier
from streamsvm.features.tables import frame_of, table_of_frame
from tests.errors import raises

N = 60
RNG = np.random.default_rng(0)
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(20)] * 3
TABLE = pa.table(
    {
        "x": RNG.normal(size=N),
        "whole": pa.array([None, *range(1, N)]),
        "flag": pa.array([True, False, None] * 20),
        "price": pa.array([Decimal("1.25"), None, Decimal("2.50")] * 20),
        "exact": pa.array([Decimal(10**40), Decimal(1), None] * 20, pa.decimal256(45, 0)),
        "colour": pa.array(["red", "blue", None] * 20).dictionary_encode(),
        "code": pa.array([3, None, 5] * 20).dictionary_encode(),
        "view": pa.array(["a", "b", "b"] * 20, pa.string_view()),
        "at": pa.array(HOURS, pa.timestamp("us", "Europe/Berlin")),
        "empty": pa.nulls(N),
    }
)
LABELS = ["up", "down"] * 30
COMMON = TABLE.drop_columns(["exact"])  # polars and DuckDB lack decimals of this size


class OneArray:
    """An object with nothing but the Arrow interface of one array."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, schema: Any = None) -> Any:
        return self._batch.__arrow_c_array__(schema)


class OneStream:
    """An object with nothing but the Arrow interface of a stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(schema)


def in_chunks(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(start, 7) for start in range(0, len(table), 7)])


def in_duckdb(table: pa.Table) -> Any:
    duckdb = pytest.importorskip("duckdb")
    return duckdb.from_arrow(table, connection=duckdb.connect())


KINDS: dict[str, Callable[[pa.Table], Any]] = {
    "Table": lambda table: table,
    "chunks": in_chunks,
    "RecordBatch": lambda table: table.to_batches()[0],
    "RecordBatchReader": lambda table: in_chunks(table).to_reader(),
    "__arrow_c_stream__": OneStream,
    "__arrow_c_array__": OneArray,
    "polars": pl.from_arrow,
    "LazyFrame": lambda table: pl.DataFrame(table).lazy(),
    "DuckDB": in_duckdb,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_equals_pandas(kind: str) -> None:
    table = COMMON if kind in ("polars", "LazyFrame", "DuckDB") else TABLE
    make, frame = KINDS[kind], table.to_pandas()
    model, wanted = CPMClassifier(), CPMClassifier()
    answers = model.test_then_train(make(table), LABELS)
    assert list(answers.to_numpy()) == list(wanted.test_then_train(frame, LABELS))
    model.learn_many(make(table), LABELS)
    wanted.learn_many(frame, LABELS)
    np.testing.assert_array_equal(model.proba_array(make(table)), wanted.proba_array(frame))
    assert list(model.predict_many(make(table)).to_numpy()) == list(wanted.predict_many(frame))


@pytest.mark.parametrize(
    ("kind", "library"), [("RecordBatchReader", pa.Table), ("LazyFrame", pl.DataFrame), ("DuckDB", pa.Table)]
)
def test_results_are_of_the_kind_of_the_rows(kind: str, library: type) -> None:
    model = CPMClassifier()
    model.learn_many(COMMON, LABELS)
    assert isinstance(model.predict_proba_many(KINDS[kind](COMMON)), library)


@pytest.mark.parametrize("kind", ["Table", "RecordBatch", "__arrow_c_stream__", "polars", "LazyFrame"])
def test_a_column_of_floats_is_not_copied(kind: str) -> None:
    table = TABLE.select(["x"])
    values = table_of_frame(frame_of(KINDS[kind](table)))["x"]
    assert values.ctypes.data == table["x"].chunk(0).buffers()[1].address


@pytest.mark.parametrize(
    "column", [pa.array([{"a": 1.0}]), pa.array([[1.0]]), pa.array([b"a"]), pa.array([1], pa.duration("s"))]
)
def test_values_that_are_no_features_are_refused(column: pa.Array) -> None:
    model = CPMClassifier()
    with raises((TypeError, ValueError), named="'odd'"):
        model.learn_many(pa.table({"x": [1.0], "odd": column}), [0])
    assert not model.classes_
