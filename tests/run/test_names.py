"""Empty and duplicate column names, and names with commas, in options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamsvm
from connectors import open_source
from connectors.errors import ConnectorError
from connectors.options import split_names
from streamsvm import cli
from tests.errors import raises

HEADER = '"",x,"income, yearly",x2,y\n'


@pytest.fixture(autouse=True)
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{(7 * i) % 11},{i % 7},{i % 5},{i % 3},{'ud'[i % 2]}\n" for i in range(60))
    Path("in.csv").write_text(HEADER + rows)


def features(*arguments: str, source: str = "in.csv") -> set[Any]:
    """Return the features that a run with these arguments learns."""
    assert cli.main(["run", source, "--model", "cpm", "--save", "m.svm", "--quiet", *arguments]) == 0
    return set(streamsvm.load("m.svm").model.scaler.names)


ALL = {"", "x", "income, yearly", "x2"}


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        (["--ignore", ""], {""}),
        (["--ignore", "x", "--ignore", "x2"], {"x", "x2"}),
        (["--ignore", '"income, yearly",x'], {"income, yearly", "x"}),
        (["--types", '"income, yearly:ignore",x:number'], {"income, yearly"}),
    ],
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_names_of_any_kind_can_be_given(arguments, left_out):
    assert features("--label", "y", *arguments) == ALL - left_out


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ('ignore = ["income, yearly", ""]', {"income, yearly", ""}),
        ('ignore = "x,x2"', {"x", "x2"}),
        ('[types]\n"income, yearly" = "ignore"\n"" = "ignore"', {"income, yearly", ""}),
    ],
    ids=lambda value: "" if isinstance(value, set) else str(value),
)
def test_lists_and_tables_of_toml_contain_names_unchanged(text, left_out):
    Path("c.toml").write_text(f'label = "y"\n{text}\n')
    assert features("--config", "c.toml") == ALL - left_out
    assert features("--config", "c.toml", "--ignore", "x", "--types", "x2:number") == ALL - {"x"}  # instead of those


def test_a_name_that_no_event_has_is_refused_where_all_are_seen(caplog):
    for n in (10, 3000):
        Path("a.jsonl").write_text((json.dumps({"a": 1, "y": 0}) + "\n") * n)
        for options in ({"ignore": ["b"]}, {"types": {"b": "category"}}):
            if n < 1000:
                with raises(ConnectorError, column="b"):
                    open_source("a.jsonl", label="y", **options)
            else:
                caplog.clear()
                open_source("a.jsonl", label="y", **options).close()
                assert "'b'" in caplog.text


def test_columns_of_the_same_name_can_be_left_out():
    Path("twice.csv").write_text("a,b,b,y\n" + "1,2,3,u\n1,2,4,d\n" * 9)
    assert cli.main(["run", "twice.csv", "--label", "y", "--quiet"]) == 2
    assert features("--label", "y", "--ignore", "b", source="twice.csv") == {"a"}


@pytest.mark.parametrize("name", ["a", "a, b", 'say "a"', "", "ü\nb", '"', "a:b"])
def test_any_name_is_found_again_in_a_text(name):
    quoted = name.replace('"', '""')
    assert split_names(f'"{quoted}"') == [name]
