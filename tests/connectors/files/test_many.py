"""Several files as one stream: which files, in which order, with which columns."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from connectors import ConnectorError, Source, open_source
from tests.connectors.streams import events, resumed_everywhere, table, write
from tests.errors import raises


def folder(path: Path, files: dict[str, str | bytes]) -> Path:
    """Write files by name."""
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        write(path / name, text)
    return path


def numbers(source: Source) -> list[tuple[Any, str]]:
    """Return the feature n and the file name of each event."""
    return [(row.get("n"), Path(origin["file"]).name) for row, _, origin in events(source)]


def csv(*values: Any) -> str:
    return "n,y\n" + "".join(f"{value},0\n" for value in values)


@pytest.fixture
def three(tmp_path: Path) -> Path:
    return folder(tmp_path / "in", {f"part-{i}.csv": csv(10 * i, 10 * i + 1) for i in (10, 9, 1)})


IN_ORDER = [(10, "part-1.csv"), (11, "part-1.csv"), (90, "part-9.csv"), (91, "part-9.csv"), (100, "part-10.csv")]
IN_ORDER += [(101, "part-10.csv")]


@pytest.mark.parametrize("name", ["", "/", "/*.csv", "/**/*.csv", "?order=name"])
def test_a_directory_and_a_glob_are_read_in_the_order_of_numbers(three, name):
    assert numbers(open_source(f"{three}{name}", label="y")) == IN_ORDER


def test_origins_name_file_and_line(three):
    batch = list(open_source(str(three), label="y"))[1]
    assert batch.origins[0] == {"file": str(three / "part-9.csv"), "line": 2}


def test_files_are_read_in_the_given_order_unless_the_shell_sorted_them(three):
    one, nine, ten = (str(three / f"part-{i}.csv") for i in (1, 9, 10))
    assert numbers(open_source([ten, one], label="y")) == IN_ORDER[4:] + IN_ORDER[:2]
    source = open_source([one, ten, nine], label="y")
    assert numbers(source) == IN_ORDER
    assert len(source.notices) == 1
    source = open_source([f"{one}?order=given", ten, nine], label="y")
    assert [name for _, name in numbers(source)][2] == "part-10.csv"


def test_the_order_of_modification(three):
    for age, i in enumerate((9, 1, 10)):
        os.utime(three / f"part-{i}.csv", (age, age))
    names = [name for _, name in numbers(open_source(f"{three}?order=time", label="y"))]
    assert names[::2] == ["part-9.csv", "part-1.csv", "part-10.csv"]


def test_hidden_and_unfinished_files_and_results_are_not_read(three):
    others = ("_SUCCESS", ".part-2.csv.crc", "part-3.csv.tmp", "part-3.csv.part", "part-3.inprogress", "_x/a.csv")
    folder(three, dict.fromkeys((*others, ".git/a.csv", "out.csv", "out/part-000000.csv"), csv(5)))
    (three / "loop").symlink_to(three)
    (three / "again.csv").symlink_to(three / "part-9.csv")
    results = [str(three / "out.csv"), str(three / "out")]
    source = open_source(str(three), label="y", exclude=results)
    assert sorted(number for number, _ in numbers(source)) == [10, 11, 90, 91, 100, 101]


def test_names_are_not_changed(tmp_path):
    names = ["a b.csv", "50%.csv", "ünicode.csv", "new\nline.csv", "[x].csv", "q?x.csv"]
    folder(tmp_path, {name: csv(i) for i, name in enumerate(names)})
    assert {name for _, name in numbers(open_source(str(tmp_path), label="y"))} == {*names}


WRONG: dict[str, tuple[dict[str, str | bytes], str, dict[str, Any], str]] = {
    "nothing matches": ({}, "/*.csv", {}, "missing"),
    "empty directory": ({}, "", {}, "missing"),
    "all empty": ({"a.csv": ""}, "", {}, "empty"),
    "several formats": ({"a.csv": csv(1), "b.jsonl": "{}"}, "", {}, "formats"),
    "min_age without waiting": ({"a.csv": csv(1)}, "?min_age=3", {}, "value"),
    "a column and a folder": ({"n=3/a.csv": csv(1)}, "", {}, "twice"),
    "folders of other keys": ({"k=3/a.csv": csv(1), "l=3/b.csv": csv(1)}, "", {}, "value"),
    "unknown option": ({"a.csv": csv(1)}, "?lable=y", {}, "unknown"),
    "no label": ({"a.csv": csv(1)}, "", {"label": "z"}, "no column"),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_stop_before_the_first_event(tmp_path, name):
    files, query, options, reason = WRONG[name]
    (tmp_path / "in").mkdir()
    with raises(ConnectorError, reason=reason):
        open_source(f"{folder(tmp_path / 'in', files)}{query}", **{"label": "y"} | options)


def test_streams_are_not_files(three):
    for other in ("-", "synthetic:sea", "kafka://a/b"):
        with raises(ConnectorError, reason="several"):
            open_source([str(three / "part-1.csv"), other], label="y")


LATER: dict[str, tuple[str | bytes, str]] = {
    "another delimiter": ("n;y\n1;0\n", ""),
    "no label": ("n,z\n1,0\n", "no column"),
    "another encoding": ("n,y\n1,0\n".encode("utf-16-le"), "no lines"),
}


@pytest.mark.parametrize("name", LATER)
def test_a_later_file_that_does_not_suit_is_named(tmp_path, name):
    text, reason = LATER[name]
    source = open_source(str(folder(tmp_path, {"1.csv": csv(1), "2.csv": text, "3.csv": csv(3)})), label="y")
    with raises(ConnectorError, named="2.csv", reason=reason):
        list(source)


def test_columns_are_matched_by_name_with_the_types_of_the_first_file(tmp_path):
    files: dict[str, str | bytes] = {
        "1.csv": "a,b,c,y\n1,x,2,0\n",
        "2.csv": b"\xef\xbb\xbfy,c,b\r\n0,3,5\r\n",
        "3.csv": "",
        "4.csv": "a,b,c,y\n",
        "5.csv": "d,A,y\nred,7,1\n",
    }
    source = open_source(str(folder(tmp_path, files)), label="y")
    rows = [row for row, _, _ in events(source)]
    assert rows == [{"a": 1.0, "b": "x", "c": 2.0}, {"b": "5", "c": 3.0}, {"d": "red", "A": 7.0}]
    assert [notice for notice in source.notices if "'a'" in notice and "'A'" in notice]


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_folders_are_columns(tmp_path):
    row = {"n": 1, "y": 0}
    for end, text in ((".csv", csv(1)), (".jsonl", jsonl(row))):
        where = folder(
            tmp_path / end,
            {f"dt=2026-01-02/kind=a%2Fb/x{end}": text, f"dt=2026-01-10/kind=__HIVE_DEFAULT_PARTITION__/x{end}": text},
        )
        batches = list(open_source(str(where), label="y", time="dt", types={"n": "number"}))
        assert [batch.rows() for batch in batches] == [[{"n": 1.0, "kind": "a/b"}], [{"n": 1.0}]]
        assert [list(batch.times) for batch in batches] == [[1767312000000], [1768003200000]]
        (batch, _) = open_source(f"{where}?hive_partitioning=no", label="y")
        assert batch.rows() == [{"n": 1.0}]
        (batch, _) = open_source(str(where), label="kind", ignore=["dt", "y"])
        assert (batch.rows(), list(batch.labels)) == ([{"n": 1.0}], ["a/b"])


def test_a_key_of_folders_is_a_number_if_all_are(tmp_path):
    where = folder(tmp_path, {f"year={year}/x.csv": csv(1) for year in (2025, 2026)})
    assert [row["year"] for row, _, _ in events(open_source(str(where), label="y"))] == [2025.0, 2026.0]


def test_parquet_files_may_differ_in_columns_and_types(tmp_path):
    tables = [{"a": [1.5], "b": ["x"], "y": [0]}, {"y": [1, 0], "b": [7, 8]}, {"a": ["2.5"], "c": [True], "y": [1]}]
    for i, columns in enumerate(tables):
        table(tmp_path / f"{i}.parquet", **columns)
    (tmp_path / "_metadata").write_bytes(b"x")
    found = events(open_source(str(tmp_path), label="y"))
    assert [row for row, _, _ in found] == [{"a": 1.5, "b": "x"}, {"b": "7"}, {"b": "8"}, {"a": 2.5, "c": 1.0}]
    assert found[2][2] == {"file": str(tmp_path / "1.parquet"), "row": 1}


# Resuming --------------------------------------------------------------------------------------------------------


def many(path: Path) -> Path:
    """Four files of CSV: one adds a column, and the last is an empty table."""
    files = {f"k={i % 2}/{i}.csv": csv(*range(10 * i, 10 * i + 7)) for i in range(3)}
    return folder(path, files | {"k=1/3.csv": "m,y,n\n0x1,1,\n7,1,2\n", "k=1/4.csv": "n,y\n"})


def test_every_position_resumes_to_the_same_events(tmp_path):
    batches = resumed_everywhere(f"{many(tmp_path)}?order=name", 3, step=3, label="y")
    assert sum(map(len, batches)) == 23


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_resumed_stream_knows_the_columns_of_the_files_before(tmp_path, suffix):
    for i, names in enumerate(("ab", "ac", "acd")):  # `c` is empty at first
        table(tmp_path / f"{i}.{suffix}", **{name: [None if i == 1 and name == "c" else 0.5] * 4 for name in names})
    batches = list(open_source(str(tmp_path), batch_size=2))
    for n, names in {2: "bcd", 3: "d", 5: ""}.items():
        again = open_source(str(tmp_path), batch_size=2)
        again.seek(json.loads(json.dumps(batches[n - 1].position)))
        list(again)
        assert {name for name in "abcd" if any(f"'{name}'" in notice for notice in again.notices)} == {*names}


def test_files_that_were_read_may_be_removed_and_new_ones_are_read(tmp_path):
    source = open_source(str(folder(tmp_path, {f"{i}.csv": csv(i) for i in (2, 3, 4)})), label="y")
    reader = iter(source)
    next(reader), next(reader)
    at = source.position
    (tmp_path / "2.csv").unlink()
    (tmp_path / "3.csv").unlink()
    folder(tmp_path, {"1.csv": csv(1), "5.csv": csv(5)})
    source = open_source(str(tmp_path), label="y")
    source.seek(at)
    assert [number for number, _ in numbers(source)] == [1, 4, 5]
    at = source.position
    for path in tmp_path.iterdir():
        path.unlink()
    folder(tmp_path, {"6.csv": csv(6)})
    source = open_source(str(tmp_path), label="y")
    source.seek(at)
    assert [number for number, _ in numbers(source)] == [6]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_text(csv(0, 1, 2)), "another"),
        (lambda path: path.write_text(csv(*range(50, 60))), "another"),
    ],
)
def test_a_file_that_was_read_in_part_must_remain(tmp_path, change, reason):
    folder(tmp_path, {"1.csv": csv(1), "2.csv": csv(*range(9))})
    source = open_source(f"{tmp_path}?batch_size=5", label="y")
    reader = iter(source)
    next(reader), next(reader)
    at = source.position
    change(tmp_path / "2.csv")
    source = open_source(f"{tmp_path}?batch_size=5", label="y")
    with raises(ConnectorError, named="2.csv", reason=reason):
        source.seek(at)


def test_a_file_that_changed_after_it_was_read_is_named(tmp_path):
    source = open_source(str(folder(tmp_path, {"1.csv": csv(1), "2.csv": csv(2)})), label="y")
    list(source)
    (tmp_path / "1.csv").write_text(csv(1, 2))
    again = open_source(str(tmp_path), label="y")
    again.seek(source.position)
    assert not list(again)
    assert any("1.csv" in notice for notice in again.notices)


# Following -------------------------------------------------------------------------------------------------------


def until(reader: Any, n: int) -> list[float]:
    """Return the feature n of the next n events."""
    found: list[float] = []
    while len(found) < n:
        found += [row["n"] for row in next(reader).rows()]
    return found


def test_new_files_are_read_once_they_are_complete(tmp_path):
    source = open_source(f"{tmp_path}?at_end=wait", label="y")
    reader = iter(source)
    assert not len(next(reader))
    folder(tmp_path, {"2.csv": csv(2), "3.csv.tmp": csv(3)})
    assert until(reader, 1) == [2]
    (tmp_path / "3.csv.tmp").rename(tmp_path / "3.csv")
    folder(tmp_path, {"1.csv": csv(1), "10.csv": csv(10)})
    assert until(reader, 3) == [1, 3, 10]
    assert any("1.csv" in notice for notice in source.notices)
    assert source.fraction is None
    source.close()


def test_a_file_may_have_to_be_unchanged_for_a_while(tmp_path):
    folder(tmp_path, {"1.csv": csv(1), "2.csv": csv(2), "3.csv": csv(3)})
    os.utime(tmp_path / "1.csv", (0, 0))
    os.utime(tmp_path / "3.csv", (4e9, 4e9))  # before a clock was set back
    source = open_source(f"{tmp_path}?at_end=wait&min_age=3600", label="y")
    reader = iter(source)
    assert until(reader, 1) == [1]
    assert not any(len(next(reader)) for _ in range(3))
    assert ["3.csv" in notice for notice in source.notices] == [True]
    source.close()
    with raises(ConnectorError, option="at_end"):
        open_source([str(tmp_path / "1.csv"), str(tmp_path / "2.csv")], at_end="wait", label="y")
