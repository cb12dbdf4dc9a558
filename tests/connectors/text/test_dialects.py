"""Encodings and dialects of CSV, as in pandas, which can be resumed anywhere."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

from connectors import ConnectorError, open_source
from connectors.kafka.values import CsvValues
from connectors.options import Options
from tests.choices import each_choice
from tests.connectors.streams import events, rejects, resumed_everywhere, write
from tests.errors import raises

ROWS = "".join(f"{i}.5,{'rötlich' if i % 2 else 'blau'},{'ja' if i % 3 else 'nein'}\n" for i in range(8))
PLAIN = "x,colour,y\n" + ROWS

DIALECTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "quote": ("x,c,y\n1,'a,b',u\n2,'it''s',v\n3,a\"b,u\n4,'two\nlines',v\n", {"quote": "'"}, {"quotechar": "'"}),
    "no quotes": ('x,c,y\n1,"a,u\n2,b",v\n3,6" nail,u\n', {"quote": "none"}, {"quoting": 3}),
    "escape": ('x,c,y\n1,"a\\"b",u\n2,a\\,b,v\n3,"c\\\\",u\n5,d,u\n', {"escape": "\\"}, {"escapechar": "\\"}),
    "escaped newline": ("x,c,y\n4,a\\\nb,v\n5,d,u\n", {"escape": "\\"}, {"escapechar": "\\"}),
    "comment": (
        '# made by hand\nx,c,y # names\n1,a,u\n# 2,b,v\n3,"#4",v # and so on\n\n5,"a\n#b",u#\n6,,v#w\n',
        {"comment": "#"},
        {"comment": "#"},
    ),
    "skip rows": ('Report of May\n\n# of "all\nx,c,y\n1,a,u\n2,b,v\n', {"skip_rows": 3}, {"skiprows": 3}),
    "spaces": (
        'x  c\ty\n1   a u \n 2 "b  c"   v\n3 d  \t  w\t\n4\t"" u\n',
        {"delimiter": "space"},
        {"sep": r"\s+"},
    ),
    "all": (
        "title\n;\nx;c;y\n1;'a;%b';u % hm\n%\n2;c\\;d;v\n3;\\%;u\n",
        {"skip_rows": 2, "delimiter": ";", "quote": "'", "escape": "\\", "comment": "%"},
        {"skiprows": 2, "sep": ";", "quotechar": "'", "escapechar": "\\", "comment": "%"},
    ),
}


def everywhere(url: str, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return all events and rejected events, wherever the stream is resumed."""
    whole = resumed_everywhere(url, **{"label": "y"} | options)
    return events(whole), rejects(whole)


@each_choice(("end", ["\n", "\r\n"]), ("name", DIALECTS))
def test_dialects_are_read_like_in_pandas(name, end, tmp_path):
    if (name, end) == ("escaped newline", "\r\n"):
        pytest.skip("to pandas, too, the escape is that of the carriage return alone")
    pandas = pytest.importorskip("pandas")
    text, options, own = DIALECTS[name]
    url = write(tmp_path / "a.csv", text.replace("\n", end))
    found, rejected = everywhere(url, types="c:category", missing="", **options)
    frame = pandas.read_csv(io.StringIO(text.replace("\n", end), newline=""), keep_default_na=False, **own)
    frame.columns = frame.columns.str.strip()
    expected = [(row["x"], row["c"] or None, str(row["y"]).strip()) for _, row in frame.iterrows()]
    assert [(row["x"], row.get("c"), label.strip()) for row, label, _ in found] == expected
    assert rejected == []


def test_rejected_lines_keep_their_numbers(tmp_path):
    text = "a title\nsep=;\n#\n# names\nx;y\n1;a\n#\n1;2;3\n2;b # fine\n;;;\n"
    _, rejected = everywhere(write(tmp_path / "a.csv", text), skip_rows=1, comment="#")
    assert [place for place, *_ in rejected] == [8, 10]


def test_excel_names_the_delimiter_in_the_first_line(tmp_path):
    for first in ("sep=;", "SEP=;\r", '"sep=;"'):
        url = write(tmp_path / "a.csv", f"{first}\nx;y\n1,5;a\n2;b\n")
        found, _ = everywhere(url, types="x:category")
        assert [(row["x"], label, origin["line"]) for row, label, origin in found] == [("1,5", "a", 3), ("2", "b", 4)]
    url = write(tmp_path / "a.csv", "sep=;\n1;a\n2;b\n")
    assert [label for _, label, _ in events(open_source(url, header="no", label="f2"))] == ["a", "b"]


@each_choice(
    (
        ("codec", "options"),
        [
            ("latin-1", {"encoding": "latin-1"}),
            ("cp1252", {"encoding": "windows-1252"}),
            ("utf-8-sig", {}),
            ("utf-16", {}),
            ("utf-16-le", {"encoding": "utf-16-le"}),
            ("utf-16-be", {"encoding": "UTF-16BE"}),
            ("utf-32", {}),
            ("cp037", {"encoding": "cp037"}),
        ],
    ),
    ("packed", [False, True]),
)
def test_encodings(codec, options, packed, tmp_path):
    expected = events(open_source(write(tmp_path / "utf8.csv", PLAIN), label="y"))
    data = PLAIN.encode(codec)
    url = write(tmp_path / "a.csv.gz", gzip.compress(data)) if packed else write(tmp_path / "a.csv", data)
    found, rejected = everywhere(url, **options)
    assert [event[:2] for event in found] == [event[:2] for event in expected]
    assert [event[2]["line"] for event in found] == list(range(2, 10))
    assert rejected == []


def test_unicode_text_of_excel(tmp_path):
    text = "x\ty\r\n1\tä\r\n2\tb\r\n"
    url = write(tmp_path / "Book1.txt", text.encode("utf-16"))
    assert [event[:2] for event in everywhere(url, format="tsv")[0]] == [({"x": 1.0}, "ä"), ({"x": 2.0}, "b")]
    lines = '{"x": 1, "y": "ä"}\n{"x": 2, "y": "b"}\n'
    url = write(tmp_path / "a.jsonl", lines.encode("utf-16"))
    assert [event[1] for event in everywhere(url)[0]] == ["ä", "b"]
    url = write(tmp_path / "b.json", f"[{lines.replace('}', '},', 1)}]".encode("utf-16"))
    assert [event[1] for event in everywhere(url)[0]] == ["ä", "b"]


def test_damage_in_utf_16_costs_its_line(tmp_path):
    data = "x,y\n1,a\n2,".encode("utf-16-le") + b"\x00\xd8" + "\n3,c\n4,d".encode("utf-16-le") + b"\x00"
    found, rejected = everywhere(write(tmp_path / "a.csv", data), encoding="utf-16-le")
    assert [label for _, label, _ in found] == ["a", "c"]
    assert [place for place, *_ in rejected] == [3, 5]


def test_latin_1_without_the_option_is_named_with_it(tmp_path, caplog):
    few = "a,y\n" + "1,b\n" * 50 + "1,ä\n" * 2
    batches = list(open_source(write(tmp_path / "a.csv", few.encode("latin-1")), label="y"))
    assert (len(events(batches)), len(rejects(batches))) == (50, 2)
    assert all("encoding=" in reason for _, reason, _ in rejects(batches))
    assert caplog.text.count("encoding=") == 1
    with raises(ConnectorError, reason="encoding", option="encoding"):
        open_source(write(tmp_path / "a.csv", PLAIN.encode("latin-1")), label="y")
    with raises(ConnectorError, reason="header"):
        open_source(write(tmp_path / "b.csv", "größe,y\n1,a\n".encode("latin-1")), label="y")


def test_a_growing_file(tmp_path):
    path = tmp_path / "a.csv"
    write(path, "x,y\n1,ä\n".encode("utf-16-le"))
    source = open_source(str(path), label="y", at_end="wait", encoding="utf-16-le")
    batches = iter(source)
    assert [label for _, label, _ in events([next(batches)])] == ["ä"]
    with path.open("ab") as file:
        file.write("2,ö\n".encode("utf-16-le")[:5])
    assert len(next(batches)) == 0
    with path.open("ab") as file:
        file.write("2,ö\n".encode("utf-16-le")[5:])
    assert [label for _, label, _ in events([next(batches)])] == ["ö"]
    source.close()


def test_values_of_records():
    options = {"names": "x,c", "types": "c:category", "quote": "'", "escape": "\\"}
    got = CsvValues(Options("kafka://h:1/t", options)).read([b"1,'a,b'", b"2,a\\,b"])
    assert list(got.features["c"]) == ["a,b", "a,b"]
