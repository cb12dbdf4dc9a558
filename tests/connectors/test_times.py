"""Times as features: hour and weekday, whatever the format they come in."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source
from connectors.kafka.values import AvroValues, CsvValues, JsonValues
from connectors.options import Options
from connectors.times import circles_of
from tests.connectors.streams import write

NAMES = ["t hour sin", "t hour cos", "t weekday sin", "t weekday cos"]
EVENING = datetime(2024, 6, 2, 18, 30, tzinfo=UTC)  # a Sunday
MILLISECONDS = int(EVENING.timestamp() * 1000)
SPELLINGS = [
    "2024-06-02T18:30:00Z",
    "2024-06-02 18:30",
    "2024-06-02T20:30:00.000+02:00",
    str(MILLISECONDS),
]


def expected(moment: datetime) -> dict[str, float]:
    hour = 2.0 * math.pi * (moment.hour + moment.minute / 60) / 24
    weekday = 2.0 * math.pi * moment.weekday() / 7
    values = (math.sin(hour), math.cos(hour), math.sin(weekday), math.cos(weekday))
    return dict(zip(NAMES, map(pytest.approx, values), strict=True))


@pytest.mark.parametrize("moment", [EVENING + timedelta(hours=h) for h in (*range(0, 200, 5), -800_000)], ids=str)
def test_hour_and_weekday_lie_on_circles(moment: datetime) -> None:
    assert dict(zip(NAMES, circles_of(moment.isoformat()), strict=True)) == expected(moment)


def csv_file(path: Path, cells: list[str]) -> Any:
    return write(path / "a.csv", "x,t,y\n" + "".join(f'1,"{cell}",0\n' for cell in cells))


def json_lines(path: Path, cells: list[str]) -> Any:
    return write(path / "a.jsonl", "".join(json.dumps({"x": 1, "t": cell or None, "y": 0}) + "\n" for cell in cells))


def arff(path: Path, cells: list[str]) -> Any:
    head = '@relation r\n@attribute x real\n@attribute t date "yyyy-MM-dd HH:mm:ss"\n@attribute y {0}\n@data\n'
    return write(path / "a.arff", head + "".join(f'1,"{cell or "?"}",0\n' for cell in cells))


def parquet_of_texts(path: Path, cells: list[str]) -> Any:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(
        pa.table({"x": [1.0] * len(cells), "t": cells, "y": [0] * len(cells)}), path / "a.parquet"
    )
    return str(path / "a.parquet")


@pytest.mark.parametrize("make", [csv_file, json_lines, arff, parquet_of_texts])
def test_times_become_features_where_they_are_declared(make: Any, tmp_path: Path) -> None:
    batches = list(open_source(make(tmp_path, [*SPELLINGS, "", "soon"]), label="y", types="t:time"))
    assert [row for batch in batches for row in batch.rows()] == [{"x": 1.0, **expected(EVENING)}] * 4 + [{"x": 1.0}]
    (bad,) = (bad for batch in batches for bad in batch.rejected)
    assert bad.reason.startswith("'t' is not a time")
    assert bad.reason.endswith(": 'soon'")


@pytest.mark.parametrize("make", [csv_file, json_lines, arff, parquet_of_texts])
def test_a_time_is_missing_where_the_user_says_so(make: Any, tmp_path: Path) -> None:
    url = make(tmp_path, [SPELLINGS[0], "-", "", "none"])
    batches = list(open_source(url, label="y", types="t:time", missing="-,?"))
    assert [row for batch in batches for row in batch.rows()] == [
        {"x": 1.0, **expected(EVENING)},
        {"x": 1.0},
        {"x": 1.0},
    ]
    (bad,) = (bad for batch in batches for bad in batch.rejected)
    assert bad.reason.endswith(": 'none'")


@pytest.mark.parametrize("size", [1, 3, 1024])
def test_the_size_of_batches_is_without_consequence(size: int, tmp_path: Path) -> None:
    cells = [(EVENING + timedelta(seconds=977 * i)).isoformat() for i in range(50)]
    url = csv_file(tmp_path, cells)
    rows = [row for batch in open_source(url, types="t:time", batch_size=size) for row in batch.rows()]
    assert [[row[name] for name in NAMES] for row in rows] == [list(circles_of(cell)) for cell in cells]


def test_columns_of_times_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    naive, zone = EVENING.replace(tzinfo=None), timezone(timedelta(hours=2))
    for kind, value, moment in (
        (pa.timestamp("ns"), naive, EVENING),
        (pa.timestamp("us"), naive, EVENING),
        (pa.timestamp("s"), naive, EVENING),
        (pa.timestamp("ms", "UTC"), EVENING, EVENING),
        (pa.timestamp("us", "+02:00"), EVENING.astimezone(zone), EVENING),
        (pa.date32(), date(2024, 6, 2), datetime(2024, 6, 2)),
        (pa.date64(), date(2024, 6, 2), datetime(2024, 6, 2)),
        (pa.int64(), MILLISECONDS, EVENING),
    ):
        parquet.write_table(pa.table({"t": pa.array([value, None], kind)}), tmp_path / "t.parquet")
        (batch,) = open_source(str(tmp_path / "t.parquet"), types="t:time")
        assert batch.rows() == [expected(moment), {}], kind


@pytest.mark.parametrize("far", [1 << 62, -(1 << 63), 10**30])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_times_further_than_can_be_counted_are_set_aside(name: str, far: int, tmp_path: Path) -> None:
    times = [*range(100), far]
    as_json = "".join(f'{{"x":1.5,"t":{t},"y":"a"}}\n' for t in times)
    as_csv = "x,t,y\n" + "".join(f"1.5,{t},a\n" for t in times)
    path = write(tmp_path / name, as_csv if name == "a.csv" else as_json)
    (batch,) = open_source(path, label="y", time="t")
    assert batch.times is not None
    assert list(batch.times) == times[:-1]
    assert [rejected.reason[:17] for rejected in batch.rejected] == ["'t' is not a time"]


def test_values_of_records() -> None:
    options = Options("kafka://h:1/t", {"types": "t:time", "label": "y"})
    got = JsonValues(options).read([b'{"t":"2024-06-02T18:30:00Z","y":1}', b'{"t":%d}' % MILLISECONDS, b'{"t":"x"}'])
    assert got.events.features[:2] == [expected(EVENING)] * 2
    assert got.events.bad == {2: "'t' is not a time: 'x'"}
    options = Options("kafka://h:1/t", {"types": "t:time", "names": "x,t"})
    got = CsvValues(options).read([b"1,2024-06-02T18:30", b"2,", b"3,x"])
    assert [column[0] for name, column in got.events.features.items() if name != "x"] == [*expected(EVENING).values()]
    assert math.isnan(got.events.features["t hour sin"][1])
    assert list(got.events.bad) == [2]


def test_a_time_is_missing_in_records_where_the_user_says_so() -> None:
    options = {"types": "t:time", "missing": "-"}
    got = JsonValues(Options("kafka://h:1/t", options)).read([b'{"t":"-"}', b'{"t":"none"}'])
    assert (got.events.features[0], list(got.events.bad)) == ({}, [1])
    got = CsvValues(Options("kafka://h:1/t", options | {"names": "x,t"})).read([b"1,-", b"2,none"])
    assert list(got.events.bad) == [1]


def test_values_of_records_in_avro(tmp_path: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {"type": "record", "name": "E", "fields": [{"name": "t", "type": kind}]}
    (tmp_path / "e.avsc").write_text(json.dumps(schema))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), {"t": EVENING})
    options = Options("kafka://h:1/t", {"types": "t:time", "schema": str(tmp_path / "e.avsc")})
    assert AvroValues(options).read([stream.getvalue()]).events.features == [expected(EVENING)]
