"""Lines parsed at once give the same results as lines parsed one by one."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from connectors import open_source
from connectors.outputs.results import CsvLines
from connectors.text import arrow_cells
from connectors.text.csv import CsvFormat
from connectors.text.json import JsonFormat
from tests.connectors.streams import events, rejects, write

EXAMPLES = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])


def everything(url: str, at_once: bool, **options: Any) -> tuple[list[Any], int]:
    """Return all results of a file, and the number of batches parsed at once."""
    made: list[Any] = []

    def looking(careful: Callable[..., Any]) -> Callable[..., Any]:
        def look(*given: Any) -> Any:
            found = careful(*given) if at_once else None
            made.extend([found] if found is not None else [])
            return found

        return look

    with pytest.MonkeyPatch.context() as patch:
        for kind in (CsvFormat, JsonFormat):
            patch.setattr(kind, "at_once", looking(kind.at_once))
        source = open_source(url, label="y", batch_size=4, **options)
        batches = list(source)
        source.close()
    facts = [
        (
            *(b.position, repr(b.labels), list(b.raw or ()), b.keys and list(b.keys)),
            None if b.times is None else list(b.times),
            {k: v.dtype for k, v in _table(b).items()},
        )
        for b in batches
    ]
    return [repr(events(batches)), rejects(batches), facts], len(made)


def _table(batch: Any) -> dict[str, Any]:
    return batch.features if isinstance(batch.features, dict) else {}


@pytest.fixture(autouse=True)
def _from_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_LINES", "FEW_LINES"):
        monkeypatch.setattr(arrow_cells, name, 1)


plain = st.sampled_from(["1", "-2.5", "1e5", "0.1", "3"])
odd = st.sampled_from(
    [
        *("", "?", "NA", " 4 ", "+1", "1_0", "1.", ".5", ".", "-", "inf", "-nan", "nan(1)", "1e400", "1e-400", "0x10"),
        *("x", "é", "٣", "none", "\x00", '"q"', '"', 'a"b', "\r", "\ufeff1", "1\t", "5e-324", "2" * 40, "1,1"),
        "0.1" + "0" * 30,
    ]
)
numbers = st.one_of(plain, plain, plain, plain, plain, odd)
texts = st.one_of(st.sampled_from(["red", "blue"]), odd)
lines = st.tuples(numbers, numbers, texts, st.one_of(st.sampled_from("01"), odd)).map(",".join)
odd_lines = st.sampled_from(["", " ", "1", "1,1,red,1,1", '1,1,"a', '1,1,"a,b",0', "\ufeff1,1,red,0", "1,1,red,0\r"])


@EXAMPLES
@given(
    rows=st.lists(st.one_of(lines, lines, lines, lines, odd_lines), min_size=4, max_size=40),
    end=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    options=st.sampled_from(
        [
            *({}, {"key": "c"}, {"ignore": "c"}, {"missing": "x,-,1"}, {"types": "a:category"}, {"time": "a"}),
            *({"bare": "yes", "key": "c", "time": "b"}, {"key": "a", "time": "a"}, {"bare": "yes"}),
        ]
    ),
)
@example(rows=["1,2,red,0"] * 5 + ["1,none,blue,1"] * 8, end="\n", last=True, options={})
@example(rows=["0x10,2,red,0"] * 5 + ["1970-01-02,2,,0"] * 5, end="\n", last=True, options={"time": "a", "key": "c"})
def test_csv(tmp_path: Path, rows: list[str], end: str, last: bool, options: Any) -> None:
    data = end.join(["a,b,c,y", "1,2,red,0", *rows]) + end * last
    url = write(tmp_path / "a.csv", data.encode())
    assert everything(url, True, **options)[0] == everything(url, False, **options)[0]


def test_csv_of_bytes_that_are_no_text(tmp_path: Path) -> None:
    url = write(tmp_path / "a.csv", b"a,b,c,y\n" + b"1,2,red,0\n" * 9 + b"1,2,\xff,0\n" + b"1,2,red,0\n" * 9)
    for options in ({}, {"ignore": "c"}):
        found, n = everything(url, True, **options)
        assert found == everything(url, False, **options)[0]
        assert len(found[1]) == 1
        assert n == 4  # of the five batches, the one with that line was parsed line by line


def test_plain_csv_is_read_at_once_after_the_first_lines(tmp_path: Path, monkeypatch) -> None:
    url = write(tmp_path / "a.csv", "a,b,c,y\n" + "1,2,red,0\n" * 40)
    assert everything(url, True)[1] == 10
    monkeypatch.setattr(arrow_cells, "FIRST_LINES", 21)
    assert everything(url, True)[1] == 5


def test_a_column_that_turns_out_mixed_does_so_at_the_same_text(tmp_path: Path, caplog: Any) -> None:
    rows = ["1,2,red,0"] * 1000 + ["odd,2,red,1", "1,2,red,0"] * 20 + ["1,2,red,0"] * 30
    url = write(tmp_path / "a.csv", "\n".join(["a,b,c,y", *rows]))
    found, n = everything(url, True)
    assert found == everything(url, False)[0]
    assert n > 250
    assert "odd" in caplog.text


objects = st.sampled_from(
    [
        *('{"a":1,"b":2.5,"y":0}', '{"b":2,"a":-1,"y":"x"}', '{"a":"s","y":1}', '{"a":null,"b":true,"y":null}'),
        *('{"a":NaN,"y":1}', '{"a":1e400,"y":1}', '{"a":[1],"y":1}', '{"a":1,"y":[1]}'),
        *('{"a":1,"y":1234567890123456789}', '{"a":1,"y":123456789012345678901}'),
        *('{"a":1,"y":0} ', '\ufeff{"a":1,"y":0}', '{"a":"é","y":"\\ud800"}'),
        *("[1]", "7", "", " ", "{", "nonsense", '{"a":1},{"a":2}', '{"a":1,"y":0},'),
        *('{"a":1', '{"a":"x', '{","y":0}', "5,6}"),
    ]
)


@EXAMPLES
@given(rows=st.lists(objects, min_size=4, max_size=30), options=st.sampled_from([{}, {"key": "b"}, {"ignore": "b"}]))
def test_json_lines(tmp_path: Path, rows: list[str], options: Any) -> None:
    url = write(tmp_path / "a.jsonl", "\n".join(['{"a":1,"b":2,"y":0}', *rows]))
    assert everything(url, True, **options)[0] == everything(url, False, **options)[0]


cells = [
    st.integers(),
    st.one_of(st.text(max_size=5), st.none()),
    st.one_of(st.integers(-2, 2), st.booleans(), st.sampled_from([1.0, "1", None])),
    st.floats(),
]


@EXAMPLES
@given(st.data(), st.lists(st.sampled_from(cells), min_size=1, max_size=4), st.sampled_from(",\t"))
def test_tables_are_written_as_the_csv_module_writes_them(data: st.DataObject, kinds: list[Any], mark: str) -> None:
    n, lines = data.draw(st.integers(0, 5)), CsvLines(mark)
    for _ in range(2):  # cached texts
        columns = [data.draw(st.lists(kind, min_size=n, max_size=n)) for kind in kinds]
        table: dict[str, Any] = {
            str(i): np.array(column, float) if kind is cells[-1] else column
            for i, (kind, column) in enumerate(zip(kinds, columns, strict=True))
        } | {"line": range(7, 7 + n)}
        text = io.StringIO()
        quoting = csv.QUOTE_ALL if any("\r" in str(x) for column in columns for x in column) else csv.QUOTE_MINIMAL
        rows = zip(*columns, range(7, 7 + n), strict=True)
        csv.writer(text, delimiter=mark, lineterminator="\n", quoting=quoting).writerows(rows)
        assert lines.body(table) == text.getvalue().encode("utf-8", "replace")
