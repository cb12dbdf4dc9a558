from __future__ import annotations

import csv
import io
import json
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import Batch, ConnectorError, open_sink, open_source
from tests.choices import each_choice
from tests.connectors.streams import events, labels, read, rejects, resumed_everywhere, rows, write
from tests.errors import raises

QUICK = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_columns_are_numbers_or_categories_by_their_values(tmp_path):
    url = write(tmp_path / "a.csv", "x,colour,y\n1.5,red,0\n-2,blue,1\n")
    (batch,) = open_source(url, label="y")
    assert batch.features["x"].dtype == np.float64
    assert batch.rows() == [{"x": 1.5, "colour": "red"}, {"x": -2.0, "colour": "blue"}]
    assert batch.labels == [0, 1]
    assert batch.raw == ["1.5,red,0", "-2,blue,1"]
    assert [batch.origins[i] for i in range(2)] == [{"file": url, "line": 2}, {"file": url, "line": 3}]


def test_labels_are_whole_numbers_only_where_written_so(tmp_path):
    url = write(tmp_path / "a.csv", "x,y\n1,7\n1,07\n1,+7\n1,7.0\n1,\n1,NA\n1,-3\n")
    assert labels(url, label="y", missing="-") == [7, "07", "+7", "7.0", None, "NA", -3]


def test_declared_types_keys_times_and_ignored_columns(tmp_path):
    url = write(tmp_path / "a.csv", "x,id,t,junk,y\n1,k1,1000,a,0\n2,k2,1970-01-01T00:00:02Z,b,1\n3,k3,noon,c,1\n")
    (batch,) = open_source(f"{url}?label=y&types=x:category&key=id&time=t&ignore=junk")
    assert batch.rows() == [{"x": "1"}, {"x": "2"}]
    assert (batch.keys, list(batch.times)) == (["k1", "k2"], [1000, 2000])
    assert "'t' is not a time" in batch.rejected[0].reason


def test_one_bad_line_never_costs_its_neighbours(tmp_path):
    text = b"x,z\n1,1\n2\n3,3,3\n\nfour,4\n5,5\n\xff,6\n7,7\n"
    seen, bad = read(write(tmp_path / "a.csv", text), types={"x": "number"})
    assert [(event[0]["x"], event[2]["line"]) for event in seen] == [(1, 2), (5, 7), (7, 9)]
    assert bad == [
        (3, "1 fields instead of 2", "2"),
        (4, "3 fields instead of 2", "3,3,3"),
        (6, "'x' is not a number: 'four'", "four,4"),
        (8, bad[3][1], "\ufffd,6"),
    ]
    assert bad[3][1].startswith("not valid utf-8: ")


def test_quoted_fields_may_hold_newlines_and_delimiters(tmp_path):
    text = 'name,z\n"a\nb, ""c""",1\nplain,2\n"d\n\ne",bad,3\nlast,4\n'
    seen, bad = read(write(tmp_path / "a.csv", text))
    assert [(e[0], e[2]["line"]) for e in seen] == [
        ({"name": 'a\nb, "c"', "z": 1.0}, 2),
        ({"name": "plain", "z": 2.0}, 4),
        ({"name": "last", "z": 4.0}, 8),
    ]
    assert [line for line, _, _ in bad] == [5, 7]


def test_a_table_of_very_many_columns_is_refused_before_they_are_looked_at(tmp_path):
    names = ",".join(f"c{i}" for i in range(100_001))
    with raises(ConnectorError, reason="too wide"):
        open_source(write(tmp_path / "a.csv", f"{names}\n{'1,' * 100_000}1\n"))


@pytest.mark.parametrize("batch_size", [1, 1024])
def test_a_stray_quote_costs_its_own_line_only(tmp_path, batch_size):
    lines = [f"a{i},{i}" for i in range(1000)]
    lines[300] = '"a300,300'
    seen, bad = read(write(tmp_path / "a.csv", "name,z\n" + "\n".join(lines)), batch_size=batch_size)
    assert len(seen) == 999
    assert bad == [(302, "a quoted field is not closed within 256 lines", '"a300,300')]


@each_choice(("batch_size", [7, 300, 4096]), ("apart", [255, 256, 900]))
def test_two_stray_quotes_lose_the_lines_between_them_only_if_few(tmp_path, batch_size, apart):
    lines = [f"{i},{i}" for i in range(1500)]
    lines[500] = lines[500 + apart] = '"open,1'
    found, bad = read(write(tmp_path / "a.csv", "\n".join(["a,b", *lines])), batch_size=batch_size)
    if apart == 255:  # one record of 256 lines, with text in a numeric column
        assert [line for line, *_ in bad] == [502]
        assert len(found) == 1500 - 256
    else:
        assert [line for line, *_ in bad] == [502, 502 + apart]
        assert len(found) == 1498


def test_a_quote_open_at_the_end_costs_its_own_line_only(tmp_path):
    seen, bad = read(write(tmp_path / "a.csv", 'name,z\n"a,1\nb,2\nc,3'))
    assert [e[0]["name"] for e in seen] == ["b", "c"]
    assert [(line, raw) for line, _, raw in bad] == [(2, '"a,1')]


field = st.text(st.sampled_from(list("ab,\"'\n\r ;0")), max_size=6)


@given(st.lists(st.tuples(field, field, st.just("end")), min_size=1, max_size=30), st.integers(1, 9))
@QUICK
def test_quoting_agrees_with_the_csv_module(tmp_path, table, batch_size):
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("f", "g", "h"), *table])
    url = write(tmp_path / "a.csv", text.getvalue())
    seen, bad = read(url, types="f:category,g:category", batch_size=batch_size)
    assert bad == []
    assert [(e[0].get("f", ""), e[0].get("g", ""), e[0]["h"]) for e in seen] == table


def test_types_are_decided_by_the_first_lines_whatever_the_batch_size(tmp_path):
    url = write(tmp_path / "a.csv", "id,z\n1,\n" + "2b,\n" * 200 + "3,\n" * 1000 + "4,5\n")
    for batch_size in (1, 4096):
        seen = rows(url, batch_size=batch_size)
        assert seen[0] == {"id": "1"}
        assert seen[-1] == {"id": "4", "z": 5.0}


@pytest.mark.parametrize("first", ["1", "1_0"])
def test_an_underscore_makes_no_number_though_python_would_read_one(tmp_path, first):
    url = write(tmp_path / "a.csv", f"x,z\n{first},1\n2,1_000\n3,\n_,4\n")
    seen, bad = read(url, types="x:number,z:number")
    assert seen[-1][0] == {"x": 3.0}
    reasons = {line: reason for line, reason, _ in bad if line > 2}
    assert reasons == {3: "'z' is not a number: '1_000'", 5: "'x' is not a number: '_'"}
    assert (first == "1_0") == (bad[0][:2] == (2, "'x' is not a number: '1_0'"))


class TestTextsAfterNumbers:
    """A column of numbers, by its first lines, with later texts."""

    TURNS = "x,y\n" + "1,0\n" * 1200 + "red,1\n7,0\nNA,0\nblue,1\n" * 300

    def test_the_column_takes_them_once_they_are_more_than_strays(self, tmp_path):
        seen, bad = read(write(tmp_path / "a.csv", self.TURNS), label="y")
        reasons = {line: reason for line, reason, _ in bad[:2]}
        assert reasons == {1202: "'x' is not a number: 'red'", 1205: "'x' is not a number: 'blue'"}
        assert len(bad) < 15
        assert [e[0] for e in seen[-4:]] == [{"x": "red"}, {"x": 7.0}, {}, {"x": "blue"}]

    def test_batches_and_resuming_make_no_difference(self, tmp_path):
        resumed_everywhere(write(tmp_path / "a.csv", self.TURNS), 100, 1024, step=301, label="y")

    def test_a_few_now_and_then_are_malformed(self, tmp_path):
        url = write(tmp_path / "a.csv", "x\n" + ("oops\n" + "1\n" * 9) * 300)
        seen, bad = read(url)
        assert (len(seen), len(bad)) == (2700, 300)

    def test_of_numbers_that_were_declared_texts_are_always_malformed(self, tmp_path):
        seen, bad = read(write(tmp_path / "a.csv", self.TURNS), label="y", types="x:number")
        assert (len(seen), len(bad)) == (1800, 600)


def test_resuming_on_another_file_is_refused(tmp_path):
    url = write(tmp_path / "a.csv", "x\n1\n2\n3\n")
    position = list(open_source(url))[-1].position
    write(tmp_path / "a.csv", "x\n1\n7\n3\n4\n")
    with raises(ConnectorError, reason="another"):
        open_source(url).seek(position)
    long = "x\n" + "1\n" * 4000
    write(tmp_path / "a.csv", long)
    position = list(open_source(url))[-1].position
    write(tmp_path / "a.csv", long[:5000])
    with raises(ConnectorError, reason="shorter"):
        open_source(url).seek(position)
    with raises(ConnectorError, reason="position"):
        open_source(url).seek({"rows": 3})


@pytest.mark.parametrize(
    ("text", "options", "reason", "option", "column"),
    [
        ("a,b\n1,2\n", {"label": "c"}, "no column", "label", "c"),
        ('"a,b"\n"1,2"\n', {"label": "b"}, "", "delimiter", ""),
        ("a,b\n1,2\n", {"ignore": "c"}, "no column", "ignore", "c"),
        ("a,b\n1,2\n", {"types": "a:nmber"}, "value", "types", ""),
        ("a,b\n1,2\n", {"lable": "b"}, "unknown", "lable", ""),
        ("a,b\n1,2\n", {"encoding": "utf-16"}, "byte order", "encoding", ""),
        ("a,b\n1,2\n", {"batch_size": 0}, "value", "batch_size", ""),
        ("a,b\n1,2\n", {"header": "maybe"}, "value", "header", ""),
        ("a,b\n1,2\n", {"names": "a,b"}, "value", "names", ""),
        ("a,b\n1,2\n", {"format": "xml"}, "value", "format", ""),
        ("a,b\n1,2\n", {"quote": "''"}, "value", "quote", ""),
        ("a,b\n1,2\n", {"escape": '"'}, "", "escape", ""),
        ("a,b\n1,2\n", {"comment": ","}, "", "comment", ""),
        ("a,b\n1,2\n", {"skip_rows": -1}, "value", "skip_rows", ""),
        ("a,b\n1,2\n", {"encoding": "base64"}, "value", "encoding", ""),
        ("1,2\n", {"header": "no", "names": "a,b,c"}, "count", "names", ""),
        ("a,a\n1,2\n", {}, "twice", "", "a"),
        ("", {}, "empty", "", ""),
        (b"\xff\xffa\n1\n", {}, "header", "", ""),
    ],
)
def test_wrong_configuration_stops_at_once(tmp_path, text, options, reason, option, column):
    url = write(tmp_path / "a.csv", text)
    with raises(ConnectorError, reason=reason, option=option, column=column):
        open_source(url, **options)


def test_missing_files_and_unknown_suffixes_stop_at_once(tmp_path):
    with raises(ConnectorError, reason="missing"):
        open_source(str(tmp_path / "a.csv"))
    with raises(ConnectorError, reason="suffix", option="format"):
        open_source(write(tmp_path / "a.dat", "x\n1\n"))
    with raises(ConnectorError, reason="scheme"):
        open_source("gopher://example.org/a.csv")
    assert rows(write(tmp_path / "a.dat", "x\n1\n"), format="csv") == [{"x": 1.0}]


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.xlsx", b"PK\x03\x04", "is an Excel workbook: save the sheet as CSV"),
        ("a.XLS", b"", "is an Excel workbook: save the sheet as CSV; a text file with this suffix needs format=csv"),
        ("a.csv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook: save the sheet as CSV"),
        ("a.db", b"", r"is an SQLite database: use sqlite:///FILE\?table=NAME"),
        ("a.csv", b"SQLite format 3\0", "is an SQLite database"),
        ("a.avro", b"", "is an Avro container file: convert it to JSON lines"),
        ("a.jsonl", b"Obj\x01", "is an Avro container file: convert it to JSON lines"),
    ],
)
def test_workbooks_and_other_binary_files_are_refused_with_what_to_do(tmp_path, name, data, what):
    with pytest.raises(ConnectorError, match=what):
        open_source(write(tmp_path / name, data))


def test_byte_order_mark_crlf_delimiter_and_encoding(tmp_path):
    url = write(tmp_path / "a.csv", "\ufeffx;y\r\n1;é\r\n".encode())
    assert read(url, label="y", delimiter=";")[0][0][:2] == ({"x": 1.0}, "é")
    url = write(tmp_path / "b.tsv", "x\ty\n1\té\n".encode("latin-1"))
    assert labels(url, label="y", encoding="latin-1") == ["é"]


def concatenated(tmp_path, header, mark, n_first):
    lines = [f"{i % 7}.5,{'uv'[i % 2]},{'pq'[i % 3 > 0]}" for i in range(20_000)]
    text = "\n".join(["\ufeffa,b,y", *lines[:n_first], *header, mark + lines[n_first], *lines[n_first + 1 :]])
    return read(write(tmp_path / "a.csv", text), label="y")


@pytest.mark.parametrize("n_first", [20, 15_000])
def test_byte_order_marks_of_concatenated_files_are_removed(tmp_path, n_first):
    seen, rejected = concatenated(tmp_path, [], "\ufeff", n_first)
    assert {event[0]["b"] for event in seen} == {"u", "v"}
    assert (len(seen), rejected) == (20_000, [])
    seen, rejected = concatenated(tmp_path, ["\ufeffa,b,y"], "", n_first)
    assert [reason for _, reason, *_ in rejected] == ["the row repeats the header"]
    assert len(seen) == 20_000


def test_a_carriage_return_within_a_line_is_rejected_with_what_to_do(tmp_path):
    seen, rejected = read(write(tmp_path / "a.csv", "x,y\n1,2\r3,4\n5,6\n"))
    assert [event[0] for event in seen] == [{"x": 5.0, "y": 6.0}]
    assert [("a carriage return in the middle" in reason, line) for line, reason, _ in rejected] == [(True, 2)]


def test_a_header_with_the_columns_in_another_order_is_reported(tmp_path, caplog):
    _, rejected = concatenated(tmp_path, ["b,a,y"], "", 15_000)
    assert any("header with the columns in another order" in reason for _, reason, *_ in rejected)
    assert "write each table to a file of its own" in caplog.text


def test_rankings_of_the_names_of_columns_are_no_headers(tmp_path):
    seen, rejected = read(write(tmp_path / "a.csv", "a,b,y\n" + "b,a,y\na,y,b\n" * 20), label="y")
    assert (len(seen), rejected) == (40, [])


def test_repeated_headers_are_no_texts_in_a_column_of_numbers(tmp_path, caplog):
    text = "\n".join("a,y\n" + "\n".join(f"{i / 9},{i % 2}" for i in range(12)) for _ in range(300))
    seen, rejected = read(write(tmp_path / "a.csv", text), label="y")
    assert (len(seen), len(rejected)) == (3600, 299)
    assert all(isinstance(event[0]["a"], float) for event in seen)
    assert "not numbers" not in caplog.text
    assert "categories" not in caplog.text


def test_no_header_with_or_without_names(tmp_path):
    url = write(tmp_path / "a.csv", "1,2\n3,4\n")
    assert read(url, header="no", names="a,b", label="b")[0][1][:2] == ({"a": 3.0}, 4)
    assert rows(url, header=False) == [{"f1": 1.0, "f2": 2.0}, {"f1": 3.0, "f2": 4.0}]
    assert rows(write(tmp_path / "empty.csv", ""), header="no", names="a,b") == []


def test_an_over_long_line_is_set_aside_without_holding_it(tmp_path, monkeypatch):
    monkeypatch.setattr("connectors.text.lines.MAX_LINE_BYTES", 1 << 20)
    url = write(tmp_path / "a.csv", "x\n1\n" + "9" * (5 << 20) + "\n2\n3\n")
    source = open_source(url)
    batches = list(source)
    assert [e[0]["x"] for e in events(batches)] == [1, 2, 3]
    assert [(line, len(raw or "")) for line, _, raw in rejects(batches)] == [(3, 1024)]
    assert source.position["offset"] == (tmp_path / "a.csv").stat().st_size


def test_a_field_may_be_as_long_as_a_line(tmp_path):
    (batch,) = open_source(write(tmp_path / "a.csv", 'x,z\n1,a\n2,"' + "b" * 200_000 + '"\n3,c\n'))
    assert [len(row["z"]) for row in batch.rows()] == [1, 200_000, 1]


def test_a_field_of_several_lines_that_is_longer_costs_its_first_line_only(tmp_path):
    half = "b" * 60_000
    before = csv.field_size_limit(100_000)
    try:
        seen, bad = read(write(tmp_path / "a.csv", f'x,z\n1,a\n2,"{half}\n{half}"\n3,c\n'))
    finally:
        csv.field_size_limit(before)
    assert [e[0]["x"] for e in seen] == [1, 3]
    reasons = {line: reason for line, reason, _ in bad}
    assert reasons == {3: "field larger than field limit (100000)", 4: "1 fields instead of 2"}


def test_a_batch_of_malformed_rows_only_is_empty_and_decides_nothing(tmp_path):
    url = write(tmp_path / "a.csv", "x,c,y\n" + "1,red,0,5\n" * 1500 + "2,blue,1\n")
    first, second = open_source(url, label="y", batch_size=1024)
    assert (len(first), first.rows(), first.labels, len(first.rejected)) == (0, [], [], 1024)
    assert {len(column) for column in first.features.values()} == {0}
    assert (second.rows(), second.labels, len(second.rejected)) == ([{"x": 2.0, "c": "blue"}], [1], 476)
    assert first.rejected[0].reason == "4 fields instead of 3"


def test_a_label_alone_makes_events_without_features(tmp_path):
    (batch,) = open_source(write(tmp_path / "a.csv", "y\n1\n0\n\n1\n"), label="y")
    assert (len(batch), batch.features, batch.rows(), batch.labels) == (3, {}, [{}, {}, {}], [1, 0, 1])


@pytest.mark.parametrize("suffix", ["jsonl", "libsvm"])
def test_an_empty_file(tmp_path, suffix, caplog):
    open_source(url := write(tmp_path / f"a.{suffix}", "")).close()  # inspecting it logs nothing
    assert rows(url) == []
    assert caplog.messages == [f"{url}: is empty"]


def test_a_name_that_is_no_utf_8_is_shown_as_bytes(tmp_path):
    path = os.path.join(os.fsencode(tmp_path), b"a\xff.csv")
    with open(path, "w") as file:
        file.write("x,y\n1,a\n1\n")
    source = open_source(os.fsdecode(path), label="y")
    (batch,) = source
    assert source.name == str(tmp_path / "a\\xff.csv")
    sink = open_sink(str(tmp_path / "out.jsonl"))
    sink.write(rejection_of(batch))
    sink.close()
    assert json.loads((tmp_path / "out.jsonl").read_text())["file"] == source.name


def rejection_of(batch: Batch) -> dict[str, list[Any]]:
    return {name: [one.origin[name] for one in batch.rejected] for name in batch.rejected[0].origin}
