"""Numbers in other formats, and missing-value markers."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from connectors.columns.number_formats import NUMBER_FORMATS, NumberFormat
from connectors.errors import ConnectorError
from connectors.kafka.values import CsvValues, JsonValues
from connectors.options import Options
from connectors.registry import open_source
from tests.choices import each_choice
from tests.connectors.streams import resumed_everywhere, table, write
from tests.errors import raises


def column(path: Path, text: str, **options: str):
    return values(write(path, text), **options)


def values(url: str, **options: str):
    """Return the values of column a, and the reasons of rejected events."""
    batches = list(open_source(url, label="y", **options))
    return [row.get("a") for batch in batches for row in batch.rows()], [r.reason for b in batches for r in b.rejected]


def csv(cells: list[str]) -> str:
    return "a;b;y\n" + "".join(f"{cell};1;{i % 2}\n" for i, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("cells", "values", "named"),
    [
        (["21,5", "22,75", "-3"], [21.5, 22.75, -3.0], "--set decimal=,"),
        (["1,234.56", "12.5", "7"], [1234.56, 12.5, 7.0], "--set thousands=,"),
        (["1.234,5", "950", "2.000.000"], [1234.5, 950.0, 2e6], "--set thousands=."),
        (["1 234", "12\u00a0345", "3\u202f000"], [1234.0, 12345.0, 3000.0], "--set thousands=space"),
        (["$12.30", "-$5", "$ 1"], [12.3, -5.0, 1.0], "--types a:number"),
        (["12,30 €", "5,00 €", "-1 €"], [12.3, 5.0, -1.0], "--set decimal=,"),
        (["5.1 %", "7%", "0 %"], [5.1, 7.0, 0.0], "--types a:number"),
        (["0xff", "0x10", "0x0"], [255.0, 16.0, 0.0], "--types a:number"),
        (["(12.5)", "7", "( 3.0 )"], [-12.5, 7.0, -3.0], "--types a:number"),
        (["(1.234,50)", "0,5", "2"], [-1234.5, 0.5, 2.0], "--set thousands=."),
        (["\u22120.5", "7", "3.0"], [-0.5, 7.0, 3.0], "--types a:number"),
        (["1\u2019234.5", "12", "-2'000"], [1234.5, 12.0, -2000.0], """--set thousands="'" """),
        (["CHF 1\u2019234.50", "CHF 12.00", "-CHF 2'000.00"], [1234.5, 12.0, -2000.0], """--set thousands="'" """),
        (["1.234,50 EUR", "12,00 EUR", "-5,00 EUR"], [1234.5, 12.0, -5.0], "--set thousands=."),
        (["1.234,5-", "950,0", "2,0-"], [-1234.5, 950.0, -2.0], "--set thousands=."),
        (["\\1,842.5", "▲0.5", "\\7"], [1842.5, -0.5, 7.0], "--set thousands=,"),
    ],
)
def test_a_column_in_one_other_format_is_read_as_numbers_and_reported_once(tmp_path, caplog, cells, values, named):
    found, rejected = column(tmp_path / "a.csv", csv(cells * 8), delimiter=";")
    assert found == values * 8
    assert not rejected
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "'a'" in said
    assert named in said


@pytest.mark.parametrize(
    ("rare", "value"),
    [("(2.5)", -2.5), ("2.5-", -2.5), ("1,234.5", 1234.5), ("$7", 7.0), ("5 %", None), ("1,234", None)],
)
def test_rare_cells_in_one_other_format_are_read_among_plain_numbers(tmp_path, caplog, rare, value):
    cells = ["1.25" if rare != "1,234" else "7"] * 95 + [rare] * 5
    found, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found[95:] == ([] if value is None else [value] * 5)
    assert len(rejected) == (5 if value is None else 0)
    assert repr(rare) in caplog.text


def test_triangles_of_rise_and_fall_are_no_minus_signs(tmp_path):
    cells = ["▲0.5"] * 95 + ["▼0.5"] * 5
    assert column(tmp_path / "a.csv", csv(cells), delimiter=";") == (cells, [])


@pytest.mark.parametrize(("pointed", "value"), [(4, 1234.0), (95, 1.234)])
def test_a_rare_cell_does_not_change_the_meaning_of_most_plain_numbers(tmp_path, pointed, value):
    cells = ["1.234"] * pointed + ["7"] * (95 - pointed) + ["12,5"] * 2
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found[:pointed] == [value] * pointed


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_three_digits_after_a_point_are_a_fraction(tmp_path, suffix):
    url = table(tmp_path / f"a.{suffix}", a=["1.234", "52.500", "0.100"] * 8, y=["u", "d"] * 12)
    assert values(url)[0] == [1.234, 52.5, 0.1] * 8


@each_choice(
    ("suffix", ["csv", "parquet", "jsonl"]),
    ("types", [{}, {"types": "a:number"}]),
    (
        ("others", "meant"),
        [
            ({"b": ["0,5", "12,75"]}, [1.234, 2.5]),
            ({"b": ["1.234,5", "12,75"]}, [1.234, 2.5]),
            ({"b": ["0.5", "12.75"]}, [1234.0, 2500.0]),
            ({"b": ["1,234.5", "12.75"]}, [1234.0, 2500.0]),
            ({"b": ["0,5", "12,75"], "c": ["0.5", "12.75"]}, None),
            ({"b": ["7", "12"], "c": ["1.234", "2.500"]}, None),
        ],
    ),
)
def test_the_decimal_separator_of_other_columns_tells_which_meaning_numbers_have(
    tmp_path, caplog, suffix, types, others, meant
):
    cells = {"a": ["1,234", "2,500"]} | others | {"y": ["u", "d"]}
    url = table(tmp_path / f"a.{suffix}", delimiter=";", **{name: some * 40 for name, some in cells.items()})
    options = types | ({"delimiter": ";"} if suffix == "csv" else {})
    if meant is None and types:
        with raises(ConnectorError, reason="ambiguous", column="a"):
            values(url, **options)
        return
    assert values(url, **options)[0] == (meant or ["1,234", "2,500"]) * 40
    said = (
        "'a': numbers such as '1,234' have two meanings"
        if meant is None
        else ("'a': texts such as '1,234' are read as numbers with the decimal separator of other columns")
    )
    assert caplog.text.count(said) == 1


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({}, [1.234, 950.0]),
        ({"types": "a:number"}, [1.234, 950.0]),
        ({"decimal": ",", "thousands": "."}, [1234.0, 950.0]),
    ],
)
def test_points_that_may_be_of_thousands_are_reported_where_others_have_commas(tmp_path, caplog, options, values):
    text = "a;b;y\n" + "1.234;0,5;u\n950;1,5;d\n" * 8
    found, _ = column(tmp_path / "a.csv", text, delimiter=";", **options)
    assert found == values * 8
    said = [record.getMessage() for record in caplog.records if "'a'" in record.getMessage()]
    assert ["--set decimal=, --set thousands=." in each for each in said] == ([] if options else [True])


@pytest.mark.parametrize(
    ("early", "late", "option"),
    [
        ("12.5", "1,234.5", "--set decimal=. --set thousands=,"),
        ("12,5", "1.234,5", "--set decimal=, --set thousands=."),
    ],
)
def test_late_thousands_separators_are_reported_and_read_by_options(tmp_path, caplog, early, late, option):
    cells = [early] * 1100 + [late] * 40
    column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert "--set thousands= read" in caplog.text
    options = dict(part.split("=", 1) for part in option.split() if "=" in part)
    found, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";", **options)
    assert (found, rejected) == ([12.5] * 1100 + [1234.5] * 40, [])


def test_repeated_rejected_texts_are_reported_after_resumptions(tmp_path, caplog):
    url = write(tmp_path / "a.csv", "x,z\n" + "1,2.5\n1,oops\n" * 8)
    position = open_source(url, types="z:number").position
    while position is not None:  # one batch per start
        source = open_source(url, types="z:number", batch_size=2)
        source.seek(json.loads(json.dumps(position)))
        position = next((batch.position for batch in source), None)
        source.close()
    assert caplog.text.count("their events are rejected") == 1


@each_choice(
    (
        ("early", "late", "options"),
        [
            ("12", "1,234.5", {"decimal": ".", "thousands": ","}),
            ("12,5", "1 234,5", {"decimal": ",", "thousands": "space"}),
            ("12", "(12)", {"decimal": "."}),
            ("12", "−12", {"decimal": "."}),  # the Unicode minus sign
        ],
    ),
    ("declared", [False, True]),
)
def test_few_late_numbers_in_another_format_are_reported_once(tmp_path, caplog, early, late, options, declared):
    cells = [late if i > 1000 and i % 17 == 0 else early for i in range(1500)]
    types = {"types": "a:number"} if declared else {}
    _, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";", **types)
    assert len(rejected) == cells.count(late)
    said = [record.getMessage() for record in caplog.records if "their events are rejected" in record.getMessage()]
    assert len(said) == 1
    assert repr(late) in said[0]
    assert "--set decimal=" in said[0]
    assert column(tmp_path / "a.csv", csv(cells), delimiter=";", **types, **options)[1] == []


def test_a_number_in_another_spelling_than_declared_is_rejected(tmp_path):
    found, rejected = column(tmp_path / "a.csv", csv(["1,5"] * 30 + ["1.5"]), delimiter=";", decimal=",")
    assert found == [1.5] * 30
    assert "'1.5'" in rejected[0]


@pytest.mark.parametrize("options", [{"decimal": ";"}, {"decimal": ",", "thousands": ","}, {"thousands": "x"}])
def test_separators_that_do_not_fit_are_refused(tmp_path, options):
    with raises(ConnectorError, named=next(iter(options))):
        column(tmp_path / "a.csv", csv(["1"]), delimiter=";", **options)


def test_texts_and_declared_categories_stay_texts(tmp_path, caplog):
    cells = ["red", "2020-01-01", "1.2.3.4", "12:30"] * 8
    assert column(tmp_path / "a.csv", csv(["10.100.200.111"] * 9), delimiter=";")[0] == ["10.100.200.111"] * 9
    digits = [f"0x{i:05000x}" for i in range(9)]
    assert column(tmp_path / "a.csv", csv(digits), delimiter=";")[0] == digits
    assert column(tmp_path / "a.csv", csv(cells), delimiter=";")[0] == cells
    assert column(tmp_path / "a.csv", csv(["1,5"] * 9), delimiter=";", types="a:category")[0] == ["1,5"] * 9
    assert caplog.text == ""


def test_a_declared_spelling_fits_declared_numbers_and_leaves_plain_columns(tmp_path):
    text = "a;b;y\n" + "".join(f"{i},5;{i}.25;{i % 2}\n" for i in range(60))
    for types in ({}, {"types": "a:number"}):
        (tmp_path / "a.csv").write_text(text)
        source = open_source(str(tmp_path / "a.csv"), label="y", delimiter=";", decimal=",", **types)
        (batch,) = list(source)
        assert not batch.rejected
        assert batch.rows()[3] == {"a": 3.5, "b": 3.25}


@pytest.mark.parametrize(
    ("form", "example"),
    [("{} kg", "0 kg"), ("EUR {}/h", "EUR 0/h"), ("--{}.5", "--0.5"), ('="{}"', '="0"')],
)
def test_numbers_with_other_text_are_reported_once(tmp_path, caplog, form, example):
    cells = [form.format(i % 12) for i in range(60)]
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";", quote="none")
    assert found == cells
    (said,) = [record.getMessage() for record in caplog.records]
    assert repr(example) in said
    assert "leave only the numbers" in said


@pytest.mark.parametrize("form", ["ID{}", "10.0.0.{}", "2024-01-{}", "{}.01.2025", "{}-{}"])
def test_texts_that_hold_digits_are_categories_without_a_word(tmp_path, caplog, form):
    cells = [form.format(10 + i % 15, i % 15) for i in range(60)]
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found == cells
    cells = [f"{i % 20}{'ABCDEF'[i % 6]}" for i in range(60)]  # codes of a number and a letter
    assert column(tmp_path / "a.csv", csv(cells), delimiter=";")[0] == cells
    assert caplog.text == ""


@pytest.mark.parametrize("text", ["-9999", "-999.0", "1.70141e+38"])
def test_values_that_stand_for_missing_ones_are_reported_once(tmp_path, caplog, text):
    cells = [text if i % 20 == 0 else f"{i % 7}.5" for i in range(200)]
    column(tmp_path / "a.csv", csv(cells), delimiter=";")
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"--set missing={text}" in said
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";", missing=text)
    assert found[0] is None
    assert len(caplog.records) == 1


def test_large_values_that_are_plausible_are_not_reported(tmp_path, caplog):
    column(tmp_path / "a.csv", csv([str(i * 37 % 9999) for i in range(300)] + ["9999"] * 9), delimiter=";")
    column(tmp_path / "a.csv", csv(["0.5"] * 300 + ["100000"] * 9), delimiter=";")
    assert caplog.text == ""


@pytest.mark.parametrize("number_format", NUMBER_FORMATS, ids=str)
def test_a_number_format_reads_its_own_numbers(number_format: NumberFormat) -> None:
    for number in np.random.default_rng(0).normal(0.0, 1e5, 100):
        written = f"{number:,.3f}".replace(",", "T").replace(".", number_format.decimal)
        written = written.replace("T", number_format.thousands)
        assert number_format.reads(written)
        assert float(number_format.plain(written)) == pytest.approx(number, abs=1e-3)


TYPED = [
    (["21,5", "22,75", "-3"], [21.5, 22.75, -3.0], {}),
    (["1.5", "2", "-3e1"], [1.5, 2.0, -30.0], {}),
    (["1,234", "2", "7"], [1234.0, 2.0, 7.0], {"thousands": ","}),
    (["$5", "$6.50", None], [5.0, 6.5, None], {}),
]


@each_choice((("cells", "meant", "options"), TYPED), ("kind", ["parquet", "arff", "jsonl"]))
def test_texts_of_typed_sources_are_read_as_columns_of_csv(tmp_path, caplog, kind, cells, meant, options):
    url = table(tmp_path / f"a.{kind}", a=cells * 8, y=["p", "q"] * 12)
    assert values(url, **options) == (meant * 8, [])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (0 if options else 1)
    assert all("'a'" in one and "--types a:category" in one for one in said)
    assert values(url, types="a:category", **options)[0][0] == cells[0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_numbers_in_texts_are_read_the_same_after_a_resume(tmp_path, kind):
    url = table(tmp_path / f"a.{kind}", a=[None] * 1200 + [f"{i},5" for i in range(1000)], y=["p", "q"] * 1100)
    batches = resumed_everywhere(url, 500, step=500, label="y")
    assert batches[-1].rows()[-1] == {"a": 999.5}


@pytest.mark.parametrize("options", [{}, {"types": "a:number"}, {"decimal": ","}])
def test_a_column_that_is_empty_at_first_is_read_in_its_spelling(tmp_path, caplog, options):
    cells = [""] * 1500 + ["21,5", "x", "1"]
    found, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";", **options)
    assert found == [None] * 1500 + [21.5, 1.0]
    assert "'x'" in rejected[0]
    assert ("--set decimal=," in caplog.text) == ("decimal" not in options)


def test_a_column_that_is_empty_at_first_and_contains_texts_is_reported(tmp_path, caplog):
    cells = [""] * 1500 + ["red", "1", "blue"]
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found[1500:] == ["red", "1", "blue"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert "--types a:number" in said


def test_repeated_markers_among_numbers_in_another_spelling_are_missing(tmp_path, caplog):
    cells = [*(f"{i},5" for i in range(80)), *["unknown"] * 20]
    found, rejected = column(tmp_path / "a.csv", csv(cells * 20), delimiter=";")
    assert found[79:81] == [79.5, None]
    assert not rejected
    assert "'unknown'" in caplog.text
    assert "--set decimal=," in caplog.text


def test_a_late_marker_is_reported_once(tmp_path, caplog):
    cells = [f"{i % 37}.5" for i in range(2000)]
    cells[1200::40] = ["unknown"] * 20
    for options in ({}, {"types": "a:number"}):
        caplog.clear()
        _, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";", **options)
        assert len(rejected) == 20
        (said,) = [record.getMessage() for record in caplog.records]
        assert "--set missing=unknown" in said
    found, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";", missing="unknown")
    assert found[1200] is None
    assert not rejected


def test_numbers_and_texts_that_are_numbers_are_one_column_of_json(tmp_path, caplog):
    cells = [1.5, "2,5", 3, "4,25"] * 20
    url = table(tmp_path / "a.jsonl", a=cells, b=[1] * 80, y=[0] * 80)
    for options in ({}, {"types": "a:number"}):
        assert values(url, **options) == ([1.5, 2.5, 3, 4.25] * 20, [])


@pytest.mark.parametrize(
    ("cells", "examples"),
    [
        (["--118.83", "--7.5", "--1"], ["--118.83", "--types a:number"]),
        (["$5", "€6.50", "$1"], ["$5", "€6.50", "different units"]),
        (["5.1 %", "0.051", "7 %"], ["5.1 %", "0.051", "different units"]),
        (["1.5", "2,5", "3.25"], ["2,5"]),
        (["1,234", "2,500"], ["1,234", "--set decimal=,", "--set thousands=,", "two meanings"]),
    ],
)
def test_numbers_in_several_formats_are_reported_and_not_guessed(tmp_path, caplog, cells, examples):
    cells = [cell.replace("5", str(i)) for i in range(1, 9) for cell in cells]
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found == cells
    (said,) = [record.getMessage() for record in caplog.records]
    assert all(one.replace("5", "1") in said or one in said for one in ["'a'", *examples])


@pytest.mark.parametrize(
    "cells", [["CAD811", "CAD120"], ["EUR5", "EUR6"], ["EUR5", "EUR12", "XA7"], ["USD 007", "USD 12"]]
)
def test_codes_with_the_letters_of_a_currency_are_no_amounts(tmp_path, caplog, cells):
    assert column(tmp_path / "a.csv", csv(cells * 8), delimiter=";") == (cells * 8, [])
    assert not caplog.records
    rows = [json.dumps({"a": cell, "y": 0}).encode() for cell in cells * 50]
    assert [row["a"] for row in kafka(JsonValues).read(rows).features[100:]] == (cells * 50)[100:]
    amounts, _ = column(tmp_path / "b.csv", csv(cells[:1] * 8), delimiter=";", types="a:number")
    assert amounts[0] == float("".join(filter(str.isdigit, cells[0])))


@pytest.mark.parametrize("cells", [["EUR5", "EUR12"], ["EUR 100", "EUR 250"], ["EUR5.50", "EUR6.50"], ["$100", "$200"]])
def test_amounts_of_whole_numbers_are_no_codes(tmp_path, cells):
    found, _ = column(tmp_path / "a.csv", csv(cells * 8), delimiter=";")
    assert set(map(type, found)) == {float}


def test_a_late_unit_is_rejected(tmp_path):
    cells = ["5.1 %"] * 1000 + ["0 %", "0", "0.05"]
    found, rejected = column(tmp_path / "a.csv", csv(cells), delimiter=";")
    assert found[1000:] == [0.0, 0.0]
    assert "0.05" in rejected[0]


def kafka(kind: type, **options: str):
    return kind(Options("kafka://h:1/t", {"label": "y"} | options))


def test_texts_that_are_numbers_in_json_from_kafka_are_read_as_in_json_lines(caplog):
    values = kafka(JsonValues)
    records = [json.dumps({"a": f"{i},5", "y": i % 2}).encode() for i in range(300)]
    rows = [row for i in range(0, 300, 50) for row in values.read(records[i : i + 50]).features]
    assert rows[0] == {"a": 0.5}
    assert rows[200] == {"a": 200.5}
    assert "--set decimal=," in caplog.text
    resumed = kafka(JsonValues)
    resumed.restore(json.loads(json.dumps(values.decided)))
    assert resumed.read(records[:1]).features == [{"a": 0.5}]


@pytest.mark.parametrize("options", [{}, {"envelope": "debezium"}, {"key": "k", "time": "t", "types": "late:number"}])
def test_formats_in_json_from_kafka_do_not_depend_on_batches(options):
    def record(i: int) -> bytes:
        late = f"0,{i}" if i >= 90 else None
        d = f"{i}.123" if i < 150 else "1.5"
        row = {
            "a": f"{i},5",
            "u": "unknown" if i % 3 else f"{i}.5",
            "d": d,
            "late": late,
            "later": f"1.{i:03},5" if i >= 150 else None,
            "code": f"A{i}" if i >= 180 else None,
            "y": i % 2,
            "k": f"{i}",
            "t": i,
        }
        change = {"op": "d", "before": row} if i == 50 else {"op": "c", "after": row}
        text = json.dumps(change if "envelope" in options else row)
        return b"{" if i in (3, 99) else text.encode()

    def told(*sizes: int):
        values, found, at = kafka(JsonValues, **options), [], 0
        for n in itertools.cycle(sizes):
            if at >= 400:
                return found, values.notices
            events = values.read([record(i) for i in range(at, min(at + n, 400))])
            columns = events.features, events.labels, events.keys or [], [] if events.times is None else events.times
            found += [
                (events.bad.get(i), i in events.skipped, *map(str, each))
                for i, each in enumerate(itertools.zip_longest(*columns))
            ]
            at += n

    whole = told(1024)
    assert whole[0][99][2] != whole[0][103][2]
    assert [("'later': 1399.5" in row[2], "'code': 'A399'" in row[2]) for row in whole[0][-1:]] == [(True, True)]
    assert any("'later'" in text and "thousands=." in text for text in whole[1])
    assert [told(*sizes) for sizes in [(1,), (7,), (100,), (99, 1, 2), (101, 13)]] == [whole] * 5


def test_texts_in_json_from_kafka_are_numbers_if_they_are_declared():
    records = [b'{"a":"0,5","y":1}', b'{"a":"2.000,5","y":0}', b'{"a":7,"y":0}', b'{"a":"x","y":0}']
    assert kafka(JsonValues).read(records).features == [{"a": 0.5}, {"a": 2000.5}, {"a": 7}, {"a": "x"}]
    assert kafka(JsonValues).read([b'{"a":"1,234","b":"v1","c":"1.5","d":"10.0.0.1"}']).features == [
        {"a": None, "b": "v1", "c": 1.5, "d": "10.0.0.1"}
    ]
    declared = kafka(JsonValues, types="a:number", decimal=",", thousands=".").read(records)
    assert declared.features[:3] == [{"a": 0.5}, {"a": 2000.5}, {"a": 7}]
    assert "'x'" in declared.bad[3]


def test_numbers_in_csv_from_kafka_have_a_spelling():
    values = kafka(CsvValues, names="a,y", delimiter=";")
    assert values.read([b"21,5;p", b"1;q"]).features["a"].tolist() == [21.5, 1.0]
    declared = kafka(CsvValues, names="a,y", delimiter=";", decimal=",", thousands=".")
    assert declared.read([b"1.234,5;p", b"1.234;q"]).features["a"].tolist() == [1234.5, 1234.0]
    ambiguous = kafka(CsvValues, names="a,y", delimiter=";").read([b"1,234;p"])
    assert "1,234" in ambiguous.bad[0]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_numbers_that_stand_for_missing_ones_are_reported_where_numbers_are_typed(tmp_path, caplog, kind):
    cells = [-9999 if i % 20 == 0 else i % 7 + 0.5 for i in range(200)]
    url = table(tmp_path / f"a.{kind}", a=[*map(float, cells)], y=["p", "q"] * 100)
    assert values(url)[0] == cells
    (said,) = [record.getMessage() for record in caplog.records]
    assert "--set missing=-9999" in said
    assert values(url, missing="-9999")[0] == [None if cell == -9999 else cell for cell in cells]
    assert len(caplog.records) == 1


def test_many_columns_of_one_kind_are_reported_in_one_line(tmp_path: Path) -> None:
    columns = {f"c{k}": [f"{i * 37 % 97},{k:03}5" for i in range(60)] for k in range(20)} | {"y": ["a", "b"] * 30}
    (notice,) = open_source(table(tmp_path / "in.csv", **columns), label="y").notices
    assert notice.startswith("column 'c0': texts such as '0,0005' are read as numbers (--set decimal=, says so)")
    assert "(likewise 'c1', 'c2', 'c3', ...: 20 in all)" in notice
