"""Decisions about undeclared columns: missing markers, counters, unnamed columns."""

from __future__ import annotations

import itertools
import json
import logging
import math
import random

import numpy as np
import pytest

from connectors import ConnectorError, open_source
from connectors.columns.counters import direction
from connectors.text import arrow_cells
from tests.choices import each_choice
from tests.connectors.streams import labels, resumed_everywhere, rows, table, write
from tests.errors import raises

PANDAS = [
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>"),
    *("N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
]
OTHERS = ["NaT", "nat", r"\N", "nil", "#DIV/0!", "#VALUE!", "#REF!"]
DASHES = ["-", "--", "."]


@pytest.fixture(autouse=True)
def _soon_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyArrow reads after a thousand lines."""
    monkeypatch.setattr(arrow_cells, "FIRST_LINES", 1_024)


def column(n: int, every: int, text: str) -> list[str]:
    """Return numbers with a text at regular positions."""
    values = random.Random(7)
    return [text if i % every == 0 else f"{values.random():.4f}" for i in range(n)]


def test_markers_of_missing_numbers_leave_the_column_numeric(tmp_path):
    texts = [*PANDAS, *OTHERS, *DASHES]
    columns = {f"x{i}": column(50, 3, text) for i, text in enumerate(texts)}
    (batch,) = open_source(table(tmp_path / "a.csv", **columns, z=["1"] * 50))
    for name, text in zip(columns, texts, strict=True):
        assert batch.features[name].dtype == np.float64, text
        assert np.isnan(batch.features[name]).tolist() == [i % 3 == 0 for i in range(50)], text
    assert batch.rejected == []


def test_words_are_missing_categories_and_labels(tmp_path):
    texts = [*PANDAS, *OTHERS]
    url = write(tmp_path / "a.csv", "x,y\n" + "".join(f"red,a\n{text},b\nblue,{text}\n" for text in texts))
    assert rows(url, label="y") == [{"x": "red"}, {}, {"x": "blue"}] * len(texts)
    assert labels(url, label="y") == ["a", "b", None] * len(texts)


def test_dashes_are_categories_and_labels(tmp_path, caplog):
    caplog.set_level(logging.INFO, "connectors")
    url = write(tmp_path / "a.csv", "strand,y\n+,+\n-,-\n.,+\n")
    assert rows(url, label="y") == [{"strand": "+"}, {"strand": "-"}, {"strand": "."}]
    assert labels(url, label="y") == ["+", "-", "+"]
    assert "missing=-" in caplog.text
    assert labels(url, label="y", missing="-") == ["+", None, "+"]


@pytest.mark.parametrize("rare", [".", "nUlL"])
def test_markers_are_missing_where_arrow_reads_and_where_python_does(tmp_path, rare):
    pytest.importorskip("pyarrow")
    n = 2_500
    cells = list(itertools.islice(itertools.cycle(["1", "2.5", "-", "N/A", rare]), n))
    url = table(tmp_path / "a.csv", x=cells, z=["1"] * n)
    values = np.concatenate([batch.features["x"] for batch in open_source(url)])
    assert np.isnan(values).tolist() == [cell in ("-", "N/A", rare) for cell in cells]


def test_markers_among_numbers_in_texts_of_json_may_have_spaces_around(tmp_path):
    texts = ["1.5", "-", "N/A ", " n.a.", "n.a."] * 8 + [f"{i}.5" for i in range(20)]
    (batch,) = open_source(write(tmp_path / "a.jsonl", "".join(json.dumps({"x": text}) + "\n" for text in texts)))
    assert not batch.rejected
    assert [row.get("x") for row in batch.rows()][:5] == [1.5, None, None, None, None]


def test_missing_numbers_in_json_and_parquet(tmp_path):
    url = write(tmp_path / "a.jsonl", '{"x": "1"}\n{"x": "-"}\n{"x": "#N/A"}\n')
    assert rows(url, types="x:number") == [{"x": 1.0}, {}, {}]
    url = table(tmp_path / "a.parquet", x=["1", "-", "<NA>"], c=["a", "-", "<NA>"])
    assert rows(url, types="x:number") == [{"x": 1.0, "c": "a"}, {"c": "-"}, {}]


@each_choice(("every", [3, 50]), ("n", [900, 2_500]))
def test_another_text_repeated_among_numbers_is_missing(tmp_path, caplog, every, n):
    url = table(tmp_path / "a.csv", x=column(n, every, "unknown"), z=["1"] * n)
    batches = list(open_source(url))
    values = np.concatenate([batch.features["x"] for batch in batches])
    assert values.dtype == np.float64
    assert np.flatnonzero(np.isnan(values)).tolist() == list(range(0, n, every))
    assert not any(batch.rejected for batch in batches)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert all(part in caplog.text for part in ("'x'", "'unknown'", "--set missing=", "x:category"))


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3", "A"] * 20,  # codes
        [*map(str, range(20)), *(f"V{i}" for i in range(15))],  # many texts
        [*map(str, range(20)), *["gone"] * 25],  # mostly texts, beside whole numbers
        [*(f"{i}.5" for i in range(20)), *["gone"] * 25, *["lost"] * 5],
        [*(f"{i}.5" for i in range(20)), *["A+", "A-", "+", "++"] * 10],
        [*(f"{i}.5" for i in range(9)), *["gone"] * 25],
        [*map(str, range(20)), *["90+"] * 6],  # a number in another format
    ],
)
def test_columns_of_numbers_and_texts_remain_categories(tmp_path, cells):
    (batch,) = open_source(table(tmp_path / "a.csv", x=cells, z=["1"] * len(cells)))
    assert batch.features["x"].tolist() == cells


@each_choice(
    ("suffix", ["csv", "jsonl", "parquet"]),
    (
        "texts",
        [["n.a."], ["n.a.", "N.A.", "n.a"], ["n.a.", "gone"], ["(null)", "< none >", "gone"], ["_", "\u2013", "n/a."]],
    ),
)
def test_a_text_in_most_cells_is_missing_beside_decimals(tmp_path, caplog, suffix, texts):
    cells = [texts[i // 3 % len(texts)] if i % 3 else f"{i}.5" for i in range(300)]
    url = table(tmp_path / f"a.{suffix}", x=cells, z=[1] * 300)
    assert sum(isinstance(row.get("x"), float) for row in rows(url)) == 100
    assert sum("x" in row for row in rows(url)) == 100
    assert all(repr(text) in caplog.text for text in texts)


def test_whole_numbers_beside_a_text_in_most_cells_cause_a_warning(tmp_path, caplog):
    cells = ["OK" if i % 3 == 1 else "ok" if i % 3 else str(i) for i in range(300)]
    (batch,) = open_source(table(tmp_path / "a.csv", x=cells, z=["1"] * 300))
    assert batch.features["x"].tolist() == cells
    assert all(part in caplog.text for part in ("'x'", "'OK'", "--set missing=OK,ok", "x:category"))


def test_repeated_texts_are_missing_after_a_resume_too(tmp_path):
    url = table(tmp_path / "a.csv", x=column(200, 4, "unknown"), z=["1"] * 200)
    assert sum("x" in row for batch in resumed_everywhere(url, 60, step=50) for row in batch.rows()) == 150


def test_numbers_that_count_up():
    random_state = np.random.default_rng(3)
    up = np.arange(100.0)
    assert direction(up) == "up"
    assert direction(np.where(random_state.random(100) < 0.1, math.nan, up)) == "up"
    assert direction(np.repeat(np.arange(21.0), 48)) == "up"  # days
    assert direction(1.7e9 + np.cumsum(random_state.exponential(5, 100) + (np.arange(100) == 50) * 1e6)) == "up"
    assert not direction(up[:40])
    assert not direction(np.repeat(up[:50], 2))
    assert not direction(np.repeat(up[1:22], 48))  # days of a month
    assert direction(np.repeat(up[1:22] + 0.5, 48)) == "up"
    assert not direction(np.zeros(1000))
    assert direction(-up) == direction(1e9 - up) == "down"
    assert not direction(np.sort(random_state.integers(0, 3, 1000)).astype(float))
    with np.errstate(invalid="raise"):
        assert not direction(np.append(up, math.inf))
        assert not direction(np.concatenate([up, [math.inf, math.inf], 1000 + up]))
    assert not direction(np.cumsum(random_state.normal(0.1, 1, 1000)))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arff"])
def test_features_that_count_up_are_warned_about(tmp_path, caplog, kind):
    n = 200
    values = [i / 7 % 1 for i in range(n)]
    columns = {"id": list(range(n)), "at": [1_700_000_000 + 60 * i for i in range(n)], "x": values}
    url, options = table(tmp_path / f"a.{kind}", **columns), {"label": "x"} if kind == "arff" else {}
    assert sum(len(batch) for batch in open_source(url, batch_size=30, **options)) == n
    messages = [record.getMessage() for record in caplog.records]
    assert ["--ignore id" in message for message in messages] == [True, False]
    assert ["--time at" in message for message in messages] == [False, True]
    caplog.clear()
    list(open_source(url, ignore="id", time="at", **options))
    list(open_source(url, types="id:number,at:time", **options))
    assert not any("counts up" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_features_that_count_down_and_dates_written_as_numbers_are_warned_about(tmp_path, caplog, kind):
    n = 300
    days = [int(f"2023{1 + i * 7 % 12:02}{1 + i * 11 % 28:02}") for i in range(n)]
    columns = {
        "left": [5000 - 3 * i for i in range(n)],
        "at": [1_700_000_000 - 60 * i for i in range(n)],
        "day": days,
        "hour": [day * 100 + i % 24 for i, day in enumerate(days)],
        "x": [20230000 + i * 37 % 4000 for i in range(n)],  # most are not dates
        "year": [2000 + i * 7 % 20 for i in range(n)],
    }
    source = open_source(url := table(tmp_path / f"a.{kind}", **columns))
    list(source)
    said = {notice.split("'")[1]: notice for notice in source.notices}
    assert list(said) == ["left", "at", "day", "hour"]
    assert "counts down" in said["left"]
    assert "--ignore left" in said["left"]
    assert "--time at" in said["at"]
    assert "sort the rows" in said["at"]
    assert "--types day:time --set time-format=%Y%m%d converts" in said["day"]
    assert "--types hour:time --set time-format=%Y%m%d%H" in said["hour"]
    caplog.clear()
    known = open_source(url, types="left:number,at:number,day:time,hour:ignore", time_format="%Y%m%d")
    [features] = [batch.rows()[0] for batch in itertools.islice(known, 1)]
    assert "day weekday sin" in features
    assert known.notices == []


@pytest.mark.parametrize("step", [1, 7])
def test_the_index_that_pandas_writes_is_left_out_also_where_rows_were_shuffled(tmp_path, caplog, step):
    url = write(tmp_path / "a.csv", ",x,y\n" + "".join(f"{i * step % 200},{i % 3},a\n" for i in range(200)))
    assert rows(url, label="y")[:2] == [{"x": 0.0}, {"x": 1.0}]
    assert ":number" in caplog.text
    assert rows(url, label="y", types=":number")[1] == {"": float(step), "x": 1.0}
    assert rows(url, label="y", ignore="")[1] == {"x": 1.0}
    drawn = write(tmp_path / "b.csv", ",x,y\n" + "".join(f"{i * 7 % 20},{i % 3},a\n" for i in range(200)))
    assert rows(drawn, label="y")[1] == {"": 7.0, "x": 1.0}
    few = write(tmp_path / "c.csv", ",x\n2,1\n1,1\n3,1\n")
    assert rows(few)[0] == {"": 2.0, "x": 1.0}


@pytest.mark.parametrize(
    ("text", "dropped"),
    [("x,y,,\n1,a,,\n2,b, ,\n", "3, 4"), ("x,y\n1,a,\n2,b,\n", "3")],  # the latter rows end in a delimiter
)
def test_unnamed_empty_columns_are_left_out(tmp_path, caplog, text, dropped):
    assert rows(write(tmp_path / "a.csv", text), label="y") == [{"x": 1.0}, {"x": 2.0}]
    (said,) = caplog.messages
    assert said.endswith(f"dropped: {dropped}")


@pytest.mark.parametrize("quote", ['"', ""])
def test_row_names_that_the_header_does_not_count_are_an_index(tmp_path, caplog, quote):
    header = ",".join(f"{quote}{name}{quote}" for name in "xy")
    lines = [f"{quote}{i + 1}{quote},{i % 3},a" for i in range(20)]
    assert rows(write(tmp_path / "a.csv", "\n".join([header, *lines]) + "\n"), label="y")[1] == {"x": 1.0}
    (said,) = caplog.records
    assert "numbers the rows" in said.getMessage()


def test_several_unnamed_columns_with_values_are_refused(tmp_path):
    url = write(tmp_path / "a.csv", "x,,,y\n1,2,3,a\n")
    with raises(ConnectorError, option="ignore"):
        open_source(url)
    for ignore in ("", [""], ["", "x"]):
        found = rows(url, label="y", ignore=ignore)
        assert found == [{} if "x" in ignore else {"x": 1.0}]
    with raises(ConnectorError, reason="twice", column="x"):
        open_source(write(tmp_path / "b.csv", "x,x,,\n1,2,,\n"))


def test_an_empty_name_that_no_column_has_is_refused(tmp_path):
    url = write(tmp_path / "a.csv", "x,y\n1,2\n")
    for options in ({"ignore": ""}, {"types": ":number"}):
        with raises(ConnectorError, reason="no column", column=""):
            open_source(url, **options)
    with raises(ConnectorError, reason="value", option="types"):
        open_source(url, types="number")


@pytest.mark.parametrize("n", [300, 2_500])
def test_a_resume_leaves_out_the_same_columns(tmp_path, n):
    url = write(tmp_path / "a.csv", ",x,y,,\n" + "".join(f"{i},{i % 3},a,,\n" for i in range(n)))
    batches = resumed_everywhere(url, 700, step=500, label="y")
    assert batches[0].rows()[:3] == [{"x": 0.0}, {"x": 1.0}, {"x": 2.0}]


def test_markers_of_several_columns_are_reported_with_each_text(tmp_path):
    rng = random.Random(3)
    cells = {
        f"{name}{k}": [name if rng.random() < 0.2 else f"{rng.random():.3f}" for _ in range(200)]
        for name in ("absent", "unknown")
        for k in range(3)
    }
    notices = open_source(table(tmp_path / "a.csv", **cells)).notices
    assert [notice.split("the text ")[1].split(",")[0] for notice in notices] == ["'absent'", "'unknown'"]
    assert all("3 in all" in notice for notice in notices)
