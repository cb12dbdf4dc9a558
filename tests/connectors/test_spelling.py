"""Numbers in another spelling, and values that stand for missing ones."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

import numpy as np
import pytest

from connectors.events import ConnectorError
from connectors.opening import open_source
from connectors.spelling import SPELLINGS, Spelling


def column(path: Path, text: str, **options: str):
    path.write_text(text, encoding="utf-8")
    source = open_source(str(path), label="y", **options)
    batches = list(source)
    source.close()
    rejected = [one for batch in batches for one in batch.rejected]
    return [row.get("a") for batch in batches for row in batch.rows()], rejected


def csv(cells: list[str]) -> str:
    return "a;b;y\n" + "".join(f"{cell};1;{i % 2}\n" for i, cell in enumerate(cells))


@pytest.mark.parametrize(
    ("cells", "values", "named"),
    [
        (["21,5", "22,75", "-3"], [21.5, 22.75, -3.0], "--decimal ,"),
        (["1,234.56", "12.5", "7"], [1234.56, 12.5, 7.0], "--thousands ,"),
        (["1.234,5", "950", "2.000.000"], [1234.5, 950.0, 2e6], "--thousands ."),
        (["1 234", "12\u00a0345", "3\u202f000"], [1234.0, 12345.0, 3000.0], "--thousands space"),
        (["$12.30", "-$5", "$ 1"], [12.3, -5.0, 1.0], "--types a:number"),
        (["12,30 €", "5,00 €", "-1 €"], [12.3, 5.0, -1.0], "--decimal ,"),
        (["5.1 %", "7%", "0 %"], [5.1, 7.0, 0.0], "--types a:number"),
        (["0xff", "0x10", "0x0"], [255.0, 16.0, 0.0], "--types a:number"),
    ],
)
def test_a_column_in_one_other_spelling_is_read_as_numbers_and_said_once(tmp_path, caplog, cells, values, named):
    found, rejected = column(tmp_path / "a.csv", csv(cells * 8), delimiter=";")
    assert found == values * 8
    assert not rejected
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "'a'" in said
    assert named in said


def test_numbers_of_two_meanings_are_reported_and_not_guessed(tmp_path, caplog):
    found, _ = column(tmp_path / "a.csv", csv(["1,234", "2,500"] * 8), delimiter=";")
    assert found == ["1,234", "2,500"] * 8
    assert "--decimal ," in caplog.text
    assert "--thousands ," in caplog.text


def test_declared_numbers_of_two_meanings_are_refused(tmp_path):
    with pytest.raises(ConnectorError, match="--thousands ,"):
        column(tmp_path / "a.csv", csv(["1,234", "2,500"] * 8), delimiter=";", types="a:number")


@pytest.mark.parametrize(
    ("options", "values"),
    [({"decimal": ","}, [1.234, 2.5]), ({"thousands": ","}, [1234.0, 2500.0])],
)
def test_options_say_which_is_meant(tmp_path, caplog, options, values):
    found, _ = column(tmp_path / "a.csv", csv(["1,234", "2,500"] * 8), delimiter=";", **options)
    assert found == values * 8
    assert caplog.text == ""


def test_a_number_in_another_spelling_than_declared_is_rejected(tmp_path):
    found, rejected = column(tmp_path / "a.csv", csv(["1,5"] * 30 + ["1.5"]), delimiter=";", decimal=",")
    assert found == [1.5] * 30
    assert "'1.5'" in rejected[0].reason


@pytest.mark.parametrize("options", [{"decimal": ";"}, {"decimal": ",", "thousands": ","}, {"thousands": "x"}])
def test_separators_that_do_not_fit_are_refused(tmp_path, options):
    with pytest.raises(ConnectorError, match=next(iter(options))):
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


def test_a_resume_reads_the_same(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(csv([f"{i},5" for i in range(3000)]))
    options = {"label": "y", "delimiter": ";", "batch_size": 500}
    source = open_source(str(path), **options)
    batches = list(source)
    for batch, following in itertools.pairwise(batches):
        again = open_source(str(path), **options)
        again.seek(batch.position)
        first = next(iter(again)).rows()[0]["a"]
        assert first == following.rows()[0]["a"]
        assert isinstance(first, float)


def test_numbers_in_texts_of_json_are_read_as_numbers(tmp_path, caplog):
    text = "".join(f'{{"a": "{i}.5", "y": {i % 2}, "c": "x"}}\n' for i in range(20))
    found, rejected = column(tmp_path / "a.jsonl", text + '{"a": "many", "y": 0}\n')
    assert found == [i + 0.5 for i in range(20)]
    assert "'many'" in rejected[0].reason
    assert "--types a:category" in caplog.text


@pytest.mark.parametrize("text", ["-9999", "999999", "-999.0"])
def test_values_that_stand_for_missing_ones_are_reported_once(tmp_path, caplog, text):
    cells = [text if i % 20 == 0 else f"{i % 7}.5" for i in range(200)]
    column(tmp_path / "a.csv", csv(cells), delimiter=";")
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"--missing={text}" in said
    found, _ = column(tmp_path / "a.csv", csv(cells), delimiter=";", missing=text)
    assert found[0] is None
    assert len(caplog.records) == 1


def test_two_values_that_stand_for_missing_ones_are_both_reported(tmp_path, caplog):
    cells = [{0: "-9999", 1: "9999"}.get(i % 20, f"{i % 7},5") for i in range(200)]
    column(tmp_path / "a.csv", csv(cells), delimiter=";", decimal=",")
    assert {record.getMessage().split("--missing=")[1].split()[0] for record in caplog.records} == {"-9999", "9999"}


def test_large_values_that_are_plausible_are_not_reported(tmp_path, caplog):
    column(tmp_path / "a.csv", csv([str(i * 37 % 9999) for i in range(300)] + ["9999"] * 9), delimiter=";")
    column(tmp_path / "a.csv", csv(["0.5"] * 300 + ["100000"] * 9), delimiter=";")
    assert caplog.text == ""


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_a_spelling_reads_what_is_written_in_it(spelling: Spelling) -> None:
    for number in np.random.default_rng(0).normal(0.0, 1e5, 100):
        written = f"{number:,.3f}".replace(",", "T").replace(".", spelling.decimal).replace("T", spelling.thousands)
        assert spelling.reads(written)
        assert float(spelling.plain(written)) == pytest.approx(number, abs=1e-3)
