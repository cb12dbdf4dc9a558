"""Time features: hour and weekday, in all formats."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors import ConnectorError, open_source
from connectors.columns.time_texts import circles_of, milliseconds_of
from connectors.columns.times import SingleTimes, Times
from connectors.kafka.avro import AvroValues
from connectors.kafka.values import CsvValues, JsonValues
from connectors.options import Options
from connectors.text import arrow_cells
from tests.choices import each_choice
from tests.connectors.streams import avro, avro_schema, resumed_everywhere, table
from tests.errors import raises

NAMES = ["t hour sin", "t hour cos", "t weekday sin", "t weekday cos"]
EVENING = datetime(2024, 6, 2, 18, 30, tzinfo=UTC)  # a Sunday
MILLISECONDS = int(EVENING.timestamp() * 1000)
SPELLINGS = [
    "2024-06-02T18:30:00Z",
    "2024-06-02 18:30",
    "2024-06-02T20:30:00.000+02:00",
    str(MILLISECONDS),
    f"{MILLISECONDS}.0",
    "Sun, 02 Jun 2024 18:30:00 GMT",
    "2 Jun 2024 20:30:00 +0200",
    "2024-06-02 18:30 UTC",
    "2024-06-02 18:30:00 +0000",
]


def expected(moment: datetime) -> dict[str, float]:
    hour = 2.0 * math.pi * (moment.hour + moment.minute / 60) / 24
    weekday = 2.0 * math.pi * moment.weekday() / 7
    values = (math.sin(hour), math.cos(hour), math.sin(weekday), math.cos(weekday))
    return dict(zip(NAMES, map(pytest.approx, values), strict=True))


def test_hour_and_weekday_lie_on_circles():
    for hours in (*range(0, 200, 5), -800_000):
        moment = EVENING + timedelta(hours=hours)
        assert dict(zip(NAMES, circles_of(milliseconds_of(moment)), strict=True)) == expected(moment)


def timed(path: Path, suffix: str, cells: list[Any]) -> str:
    """Write a file of a format with these times."""
    n = len(cells)
    url = table(path / f"a.{suffix}", x=[1.5] * n, t=[None if cell == "" else cell for cell in cells], y=["a"] * n)
    if suffix == "arff":
        text = Path(url).read_text().replace("t string", 't date "yyyy-MM-dd HH:mm:ss"')
        Path(url).write_text(text)
    return url


each_format = pytest.mark.parametrize("suffix", ["csv", "jsonl", "arff", "parquet"])


@each_format
def test_times_become_features_where_they_are_declared(suffix, tmp_path):
    batches = list(open_source(timed(tmp_path, suffix, [*SPELLINGS, "", "soon"]), label="y", types="t:time"))
    found = [row for batch in batches for row in batch.rows()]
    assert found == [{"x": 1.5, **expected(EVENING)}] * len(SPELLINGS) + [{"x": 1.5}]
    (bad,) = (bad for batch in batches for bad in batch.rejected)
    assert bad.reason.startswith("'t' is not a time")
    assert bad.reason.endswith(": 'soon'")


@each_format
def test_a_time_is_missing_where_the_user_says_so(suffix, tmp_path):
    url = timed(tmp_path, suffix, [SPELLINGS[0], "-", "", "none"])
    batches = list(open_source(url, label="y", types="t:time", missing="-,?"))
    assert [row for batch in batches for row in batch.rows()] == [{"x": 1.5, **expected(EVENING)}, *[{"x": 1.5}] * 2]
    (bad,) = (bad for batch in batches for bad in batch.rejected)
    assert bad.reason.endswith(": 'none'")


def test_each_time_has_its_own_features(tmp_path):
    cells = [(EVENING + timedelta(seconds=977 * i)).isoformat() for i in range(50)]
    found = [row for batch in open_source(timed(tmp_path, "csv", cells), types="t:time") for row in batch.rows()]
    assert [[row[name] for name in NAMES] for row in found] == [
        list(circles_of(milliseconds_of(datetime.fromisoformat(cell)))) for cell in cells
    ]


def test_columns_of_times_in_parquet(tmp_path):
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


@each_choice(("far", [1 << 62, -(1 << 63), 10**30]), ("suffix", ["csv", "jsonl"]))
def test_times_further_than_can_be_counted_are_rejected(suffix, far, tmp_path):
    found, (reason,) = times_in(timed(tmp_path, suffix, [*range(100), far]))
    assert found == [*range(100)]
    assert reason.startswith("'t' is not a time")


def test_values_of_records():
    options = Options("kafka://h:1/t", {"types": "t:time", "label": "y"})
    got = JsonValues(options).read([b'{"t":"2024-06-02T18:30:00Z","y":1}', b'{"t":%d}' % MILLISECONDS, b'{"t":"x"}'])
    assert got.features[:2] == [expected(EVENING)] * 2
    assert got.bad[2].startswith("'t' is not a time")
    options = Options("kafka://h:1/t", {"types": "t:time", "names": "x,t"})
    got = CsvValues(options).read([b"1,2024-06-02T18:30", b"2,", b"3,x"])
    assert [column[0] for name, column in got.features.items() if name != "x"] == [*expected(EVENING).values()]
    assert math.isnan(got.features["t hour sin"][1])
    assert list(got.bad) == [2]


def test_values_of_records_in_avro(tmp_path):
    schema = avro_schema(t={"type": "long", "logicalType": "timestamp-micros"})
    (tmp_path / "e.avsc").write_text(json.dumps(schema))
    options = Options("kafka://h:1/t", {"types": "t:time", "schema": str(tmp_path / "e.avsc")})
    assert AvroValues(options).read([avro(schema, {"t": EVENING})]).features == [expected(EVENING)]


# Units of numbers ------------------------------------------------------------------------------------------------

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
NOON = 1_700_000_500  # 2023-11-14 22:21:40 UTC


def times_in(url: str, **options: Any) -> tuple[list[int], list[str]]:
    batches = list(open_source(url, label="y", time="t", **options))
    times = [int(time) for batch in batches for time in batch.times]
    return times, [bad.reason for batch in batches for bad in batch.rejected]


@each_choice(("suffix", ["csv", "jsonl", "parquet"]), ("unit", UNITS), ("kind", [int, float]))
def test_the_unit_of_numbers_is_inferred_from_their_size(suffix, unit, kind, tmp_path, caplog):
    caplog.set_level("INFO", "connectors")
    url = timed(tmp_path, suffix, [kind((NOON + i) * UNITS[unit]) for i in range(50)])
    assert times_in(url, batch_size=7) == ([1000 * (NOON + i) for i in range(50)], [])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "time_unit" in said[0]
    assert "2023-11-14 22:21:40 UTC" in said[0]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_numbers_that_tell_no_unit_are_milliseconds(suffix, tmp_path, caplog):
    times = [0, 1, 2, 1500, 0, 86_400_000, 200_000_000, 2_000_000_000, 100_000_000_000]
    assert times_in(timed(tmp_path, suffix, times), batch_size=2) == (times, [])
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@each_choice(("suffix", ["csv", "jsonl", "parquet"]), ("before", [NOON, 1500]))
def test_a_number_of_another_unit_is_rejected(suffix, before, tmp_path):
    times = [*range(before, before + 30), NOON * 1000, before + 30]
    found, rejected = times_in(timed(tmp_path, suffix, times))
    assert len(found) == 31
    assert ["time_unit" in reason for reason in rejected] == [True]
    assert times_in(timed(tmp_path, suffix, times), time_unit="ms") == (times, [])


@each_choice(
    ("suffix", ["csv", "jsonl"]),
    ("times", [[NOON, NOON * 1000] * 10, [*range(1, 30), *range(NOON, NOON + 30)], [20240602] * 3, [202406021830] * 3]),
)
def test_times_with_an_ambiguous_unit_are_refused_at_the_start(suffix, times, tmp_path):
    url = timed(tmp_path, suffix, times)
    with raises(ConnectorError, option="time_unit"):
        open_source(url, label="y", time="t")
    with raises(ConnectorError, option="time_unit"):
        open_source(url, label="y", types="t:time")
    assert len(times_in(url, time_unit="s")[0]) == len(times)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_format_of_times(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(arrow_cells, "FIRST_LINES", 1_000)
    url = timed(tmp_path, suffix, ["02.06.2024 18:30", "02.06.2024 18:31", "2024-06-02 18:30"])
    found, rejected = times_in(url, time_format="%d.%m.%Y %H:%M")
    assert found == [MILLISECONDS, MILLISECONDS + 60_000]
    assert len(rejected) == 1
    url, midnight = timed(tmp_path, suffix, ["20240602"] * 3000), MILLISECONDS - 1_110 * 60_000
    assert times_in(url, time_format="%Y%m%d") == ([midnight] * 3000, [])


@pytest.mark.parametrize("folder", ["", "day=20240602/"])
def test_columns_with_formats_of_their_own(folder, tmp_path):
    (tmp_path / folder).mkdir(exist_ok=True)
    day = ("", "") if folder else ("day,", "20240602,")
    (tmp_path / folder / "a.csv").write_text(f"{day[0]}at,other,y\n{day[1]}02.06.2024 18:30,2024-06-02,1\n")
    options: Any = {"time": "at", "types": "day:time,other:time", "label": "y"}
    for formats in ("at:%d.%m.%Y %H:%M,day:%Y%m%d", {"at": "%d.%m.%Y %H:%M", "day": "%Y%m%d"}):
        (batch,) = open_source(str(tmp_path if folder else tmp_path / "a.csv"), time_format=formats, **options)
        assert batch.times.tolist() == [MILLISECONDS]
        (row,) = batch.rows()
        assert row["day weekday sin"] == row["other weekday sin"]
    with raises(ConnectorError, option="time_format", named="'y'"):
        open_source(str(tmp_path), time_format="day:%Y%m%d,y:%Y", **options)
    with raises(ConnectorError, reason="value"):
        open_source(str(tmp_path), time_format="at:%d %b, %Y", **options)


@pytest.mark.parametrize(
    "options",
    [{"time_unit": "m"}, {"time_format": "date"}, {"time_format": "%Q"}, {"time_unit": "s", "time_format": "%Y"}],
)
def test_settings_of_times_that_do_not_fit_are_refused(options, tmp_path):
    with raises(ConnectorError, named="time_"):
        open_source(timed(tmp_path, "csv", [1]), time="t", **options)


@each_choice(("suffix", ["csv", "jsonl", "parquet"]), ("role", [{"time": "t"}, {"types": "t:time"}]))
def test_a_resumed_stream_decides_the_same(suffix, role, tmp_path):
    times = [0, 0, 1, NOON, *(10**7 * i for i in range(1, 22)), 300_000_000, NOON * 1000, 5 * 10**9]
    whole = resumed_everywhere(timed(tmp_path, suffix, times), 3, label="y", **role)
    assert sum(len(batch.rejected) for batch in whole) == 2


SPELLINGS_OF_ANY_KIND = st.sampled_from(["", "x", None, "1_000", "1.0e-10", "20240602", *SPELLINGS])
number = st.one_of(
    st.integers(-3, 10**9),
    st.builds(lambda n, unit: n * unit, st.integers(99_999_000, 100_001_000), st.sampled_from(list(UNITS.values()))),
    st.builds(lambda n, unit: n * unit, st.integers(NOON, NOON + 9), st.sampled_from(list(UNITS.values()))),
    st.floats(allow_nan=True),
    st.floats(1.6e9, 1.8e9),
)


@settings(max_examples=40)
@given(st.lists(st.one_of(number, number, number.map(str), SPELLINGS_OF_ANY_KIND), max_size=12), st.data())
def test_times_mean_the_same_one_by_one_and_at_once(values, data):
    single, bad = Times(), {}
    expected = []
    for i, value in enumerate(values):
        try:
            expected.append(single.of("t", value))
        except ValueError as error:
            expected.append(0)
            bad[i] = str(error)
    cut = data.draw(st.integers(0, len(values)))
    many, first, second = Times(), {}, {}
    found = [*many.milliseconds("t", values[:cut], first), *many.milliseconds("t", values[cut:], second)]
    assert [int(time) for time in found] == expected
    assert first | {i + cut: reason for i, reason in second.items()} == bad
    assert many.guesses == single.guesses


@pytest.mark.parametrize("unit", UNITS)
def test_a_time_is_the_same_in_all_units(unit):
    for nanoseconds in (NOON * 10**9 + 499_000, NOON * 10**9 + 501_000, -NOON * 10**9 - 501_000):
        value = nanoseconds * UNITS[unit] // 10**9 if unit in ("us", "ns") else nanoseconds / (10**9 // UNITS[unit])
        assert Times().of("t", value) == (nanoseconds + 500_000) // 1_000_000
        assert Times(unit).milliseconds("t", np.array([value]), {})[0] == (nanoseconds + 500_000) // 1_000_000


def test_a_worker_tells_the_unit_of_each_number():
    times = SingleTimes()
    found = [times.of("t", value) for value in (NOON, NOON * 1000, "1970-01-02", 0)]
    assert found == [NOON * 1000] * 2 + [86_400_000, 0]
    for value in (1500, 20240602):
        with raises(ValueError, named="time_unit"):
            times.of("t", value)
    assert SingleTimes("ms").of("t", 1500) == 1500
