"""Growing files and pipes: prompt data, reported silence, incomplete lines."""

from __future__ import annotations

import fcntl
import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from connectors import Batch, ConnectorError, open_source
from connectors.text.bytestreams import Pipe
from tests.connectors.streams import write
from tests.errors import raises


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def following(path: Path, **options: Any) -> Any:
    return iter(open_source(str(path), at_end="wait", **options))


def growing(folder: Path, text: str, **options: Any) -> tuple[Path, Any]:
    """Return a new file and its batches."""
    write(path := folder / "a.csv", text)
    return path, following(path, **options)


def values(batch: Batch) -> list[Any]:
    return [row["x"] for row in batch.rows()]


@pytest.mark.parametrize(
    ("text", "first", "more", "then"),
    [
        ("x\n1\n2\n3", [1, 2], "0\n4\n", [30, 4]),  # not an empty batch, as after silence
        ('x,z\n"a\nb', [], '",1\n', ["a\nb"]),
        ("x,", [], "y\n1,0\n", [1]),
    ],
    ids=["lines", "a quoted record", "the header"],
)
def test_what_is_appended_is_returned_soon_and_what_is_incomplete_waits(tmp_path, text, first, more, then):
    path, batches = growing(tmp_path, text)
    assert values(next(batches)) == first
    append(path, more)
    assert values(next(batches)) == then


def test_a_late_header_without_the_label_stops(tmp_path):
    path, batches = growing(tmp_path, "", label="y")
    append(path, "x,z\n1,0\n")
    with raises(ConnectorError, reason="no column", column="y"):
        next(batches)


def test_truncation_and_rotation_stop_with_a_reason(tmp_path):
    path, batches = growing(tmp_path, "x\n1\n2\n")
    next(batches)
    os.truncate(path, 2)
    with raises(ConnectorError, reason="truncated"):
        next(batches)

    batches = following(path)
    path.rename(tmp_path / "a.csv.1")
    with raises(ConnectorError, reason="removed"):
        next(batches)

    write(path, "x\n1\n")
    batches = following(path)
    next(batches)
    path.rename(tmp_path / "a.csv.1")
    write(path, "x\n5\n6\n7\n")
    with raises(ConnectorError, reason="replaced"):
        next(batches)


@pytest.mark.parametrize("header", ["x,z", ",".join(["x", *(f"column {i}" for i in range(1000))])])
def test_a_file_rewritten_beyond_the_read_position_is_refused(tmp_path, header):
    gaps = "," * header.count(",") + "\n"
    path, batches = growing(tmp_path, f"{header}\n1{gaps}2{gaps}")
    position = next(batches).position
    write(path, f"{header}\n" + "".join(f"{i}{gaps}" for i in range(5, 99)))
    with raises(ConnectorError, reason="truncated"):
        next(batches)
    with raises(ConnectorError, reason="another"):
        open_source(str(path), at_end="wait").seek(position)


def test_the_fingerprint_is_checked_after_resuming(tmp_path):
    path = tmp_path / "a.csv"
    write(path, "x\n" + "1\n" * 3000)
    position = next(following(path, batch_size=2500)).position
    source = open_source(str(path), at_end="wait", batch_size=2500)
    source.seek(position)
    batches = iter(source)
    assert len(next(batches)) == 500
    append(path, "2\n")
    assert values(next(batches)) == [2]
    write(path, "x\n" + "3\n" * 4000)
    with raises(ConnectorError, reason="truncated"):
        next(batches)


def test_only_plain_files_can_be_followed(tmp_path):
    for url in ("-", write(tmp_path / "a.csv.gz", "")):
        with raises(ConnectorError, option="at_end"):
            open_source(url, at_end="wait")


def packed(data: bytes) -> bytes:
    """Return equal bytes at any time, because parameters name tests."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(("pack", "n", "reasons"), [(bytes, 296, []), (packed, 300, ["gzip file is truncated"])])
def test_a_pipe_returns_available_lines(tmp_path, pack, n, reasons):
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # does not wait for a reader
    first, second = pack(b"x\n1\n2\n"), pack(b"3\n4\n5\n" * 100)
    try:
        source = open_source(str(path))
        batches = iter(source)
        assert len(next(batches)) == 0
        os.write(writer, first[:1])
        assert len(next(batches)) == 0
        os.write(writer, first[1:])
        assert values(next(batches)) == [1, 2]
        os.write(writer, second[:-8])
        assert len(next(batches)) == n
        with raises(ConnectorError, reason="not seekable"):
            source.seek(source.position)
    finally:
        os.close(writer)
    assert [r.reason for batch in batches for r in batch.rejected] == reasons  # all writers have closed the pipe
    source.close()


def test_a_pipe_may_have_any_descriptor():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
    low, writer = os.pipe()
    pipe = Pipe(
        os.fdopen(fcntl.fcntl(low, fcntl.F_DUPFD, 1100), "rb", buffering=0), "pipe"
    )  # above the limit of select()
    try:
        assert pipe.read(0.0) == b""
        os.write(writer, b"x")
        assert pipe.read(1.0) == b"x"
    finally:
        pipe.close()
        os.close(low)
        os.close(writer)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


STANDARD = """
import sys
import threading
from contextlib import closing
from connectors import open_sink, open_source
source, sink = open_source(sys.argv[1], label="y"), open_sink(sys.argv[2])
for batch in source:
    sink.write({"line": list(batch.origins.columns["line"]), "y": batch.labels})
sink.close()
"""


@pytest.mark.parametrize(
    ("source", "sink", "given", "expected"),
    [
        ("-", "-", packed(b"x,y\n1,UP\n") + packed(b"2,DOWN\n"), b"line,y\n2,UP\n3,DOWN\n"),
        ("-?format=jsonl", "-?format=jsonl", b'{"x": 1, "y": 5}\n', b'{"line":1,"y":5}\n'),
    ],
)
def test_standard_input_and_output(source, sink, given, expected):
    done = subprocess.run(
        [sys.executable, "-c", STANDARD, source, sink], input=given, capture_output=True, check=True, timeout=60
    )
    assert done.stdout == expected
