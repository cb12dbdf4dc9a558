"""Wording of messages. Other tests check errors by class and attributes."""

from __future__ import annotations

import bz2
import lzma
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors import ConnectorError, open_sink, open_source
from tests.connectors.streams import write

TWO_MEANINGS = "a;b;y\n" + "1,234;1;0\n2,500;1;1\n" * 8


@pytest.mark.parametrize(
    ("name", "content", "options", "advice"),
    [
        ("a.csv", "a,b\n1,2\n", {"label": "c"}, "no column 'c' for `label`; the columns are 'a', 'b'"),
        ("a.csv", "Report,\n\na,b\n1,2\n", {"label": "b"}, "line 3 names them: say skip_rows=2"),
        ("a.csv", "# by me\na,b\n1,2\n", {"label": "b"}, "line 2 names them: say skip_rows=1"),
        ("a.csv", '"a,b"\n"1,2"\n', {"label": "b"}, "take the quotes off whole lines"),
        ("a.csv", "x;y\n1;2\n", {"label": "y"}, "say delimiter=; if it is several (or delimiter=, if not)"),
        ("a.csv", "x\ty\n1\t2\n", {"label": "y"}, "say delimiter=tab if it is several"),
        ("a.csv", "0.5,1.5,7,up\n0.7,1.1,9,down\n", {"label": "y"}, "the first line looks like values: say header=no"),
        (
            "a.csv",
            "x,,,y\n1,2,3,a\n",
            {},
            "columns 2, 3 have values, but no name",
        ),
        ("a.csv", TWO_MEANINGS, {"label": "y", "delimiter": ";", "types": "a:number"}, "--set thousands=,"),
        ("a.csv", "a,b\n1,2\n", {"encoding": "utf-16"}, "say encoding=utf-16-le"),
        ("a.csv", "größe,y\n1,a\n".encode("latin-1"), {"label": "y"}, "encoding="),
        ("a.csv", "x,y\r1,2\r3,4\r", {}, "carriage returns alone: convert them first: tr "),
        ("a.csv", bz2.compress(b"x\n1\n"), {}, "is packed by bzip2: unpack it first, or pipe it in"),
        ("a.csv", lzma.compress(b"x\n1\n"), {}, "is packed by xz"),
        ("a.csv", b"\x28\xb5\x2f\xfd rest", {}, "is packed by zstd"),
        ("a.csv", b"PK\x03\x04 rest", {}, "is a ZIP archive, as spreadsheets are too"),
        ("a.csv", b"PAR1\x15\x04 rest", {}, "is Parquet: say format=parquet"),
        ("a.csv.zst", "", {}, "or pipe it in: zstdcat FILE"),
        ("a.csv.bz2", "", {}, "or pipe it in: bzcat FILE"),
        ("a.csv.xz", "", {}, "or pipe it in: xzcat FILE"),
        ("a.dat", "x\n1\n", {}, "say format="),
        ("a.jsonl", '{"x": 1, "class": 2}\n', {"label": "clas"}, "if it comes later, say late_label=yes"),
        ("a.jsonl", '{\n"x": 1\n}\n', {}, "an object goes on in line 2, but each must be in one line"),
        ("a.json", '[{"x": 1}', {"at_end": "wait"}, "jq -c '.[]'"),
        *(
            (f"a.{suffix}", "1 x:1\n2 x:1\n".encode(encoding), {}, f"UTF-16: say encoding={encoding}")
            for suffix in ("csv", "jsonl", "libsvm")
            for encoding in ("utf-16-le", "utf-16-be")
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_what_to_do(tmp_path: Path, name, content, options, advice) -> None:
    url = write(tmp_path / name, content)
    with pytest.raises(ConnectorError, match=re.escape(advice)):
        open_source(url, **options)


def without_pyarrow(path: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow.parquet", None)
        open_source(path)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: open_source("null:"), "null:: no events can be read from there"),
        (lambda: open_sink("synthetic:demo"), "results cannot be written as synthetic; use one of csv, tsv, jsonl"),
        (lambda: open_sink("-?format=parquet"), "results cannot be written as parquet; use one of csv, tsv, jsonl"),
        (
            lambda: open_sink("/dev/full?format=csv").write({"n": [1]}),
            "/dev/full: cannot be written: No space left on device",
        ),
        (lambda: open_sink("none/a.csv"), "none/a.csv: cannot be written: No such file or directory"),
        (lambda: open_sink("a.csv").write({"a": [1], "b": []}), "columns of unequal length: {'a': 1, 'b': 0}"),
        (lambda: without_pyarrow("a.parquet"), "Parquet needs pyarrow: pip install 'streamsvm[parquet]'"),
    ],
)
def test_a_message_says_what_is_wrong_and_what_to_do(
    act: Callable[[], Any], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=re.escape(text)):
        act()
