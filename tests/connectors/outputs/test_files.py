from __future__ import annotations

import contextlib
import csv
import errno
import gzip
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connectors import ConnectorError, Sink, open_sink, open_source
from tests.choices import each_choice
from tests.connectors.streams import put, rows
from tests.errors import raises

KINDS = ["out.csv", "out.csv.gz", "out.jsonl", "out.jsonl.GZ", "out.tsv", "out.parquet"]
KINDS += ["out.csv.zst", "out.jsonl.bz2", "out.tsv.xz", "out.csv.lz4"]


def content(path: Path) -> list[dict[str, Any]]:
    return rows(str(path))


@pytest.mark.parametrize("kind", KINDS)
def test_written_rows_can_be_read(tmp_path, kind):
    sink = open_sink(str(tmp_path / kind))
    assert isinstance(sink, Sink)
    sink.write({"n": np.array([1, 2]), "name": ["a", 'b,\n"c"']})
    sink.write({"n": [3], "name": ["d"]})
    sink.close()
    sink.close()
    assert content(tmp_path / kind) == [{"n": 1, "name": "a"}, {"n": 2, "name": 'b,\n"c"'}, {"n": 3, "name": "d"}]


@pytest.mark.parametrize("kind", ["out.csv", "out.csv.gz", "out.jsonl", "out.parquet", "out.csv.zst", "out.csv.lz4"])
@given(st.lists(st.sampled_from(["write", "flush", "crash"]), max_size=12))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_a_crash_nothing_is_lost_or_doubled(tmp_path, kind, steps):
    path = tmp_path / kind
    sink, written, durable = open_sink(str(path)), 0, 0
    sink.flush()
    position = sink.position
    for step in steps:
        if step == "write":
            sink.write({"n": [written, written + 1], "s": ["x", None]})
            written += 2
        elif step == "flush":
            sink.flush()
            position, durable = json.loads(json.dumps(sink.position)), written
        else:
            sink = open_sink(str(path), resume=True)
            sink.rewind(position)
            assert sink.position == position
            written = durable
    sink.close()
    if written or kind.endswith(("jsonl", "parquet")):
        assert [row["n"] for row in (content(path) if written else [])] == list(range(written))
    else:
        assert path.stat().st_size == 0


@pytest.mark.parametrize("kind", ["out.csv", "out.csv.gz", "out.parquet"])
def test_an_existing_result_is_replaced_at_the_first_write(tmp_path, kind):
    path = tmp_path / kind
    put(path, {"n": [1]})
    with contextlib.closing(open_sink(str(path))) as sink:
        assert content(path) == [{"n": 1}]
        sink.write({"n": [2]})
    assert content(path) == [{"n": 2}]


@pytest.mark.parametrize("kind", ["out.csv", "out.parquet"])
def test_flushed_without_rows_the_file_or_folder_is_empty(tmp_path, kind):
    path = tmp_path / kind
    put(path, {"n": [1]})
    with contextlib.closing(open_sink(str(path))) as sink:
        sink.flush()
    assert list(path.iterdir()) == [] if path.is_dir() else path.read_bytes() == b""


@each_choice(("kind", KINDS), ("resume", [False, True]))
def test_a_sink_never_used_leaves_things_as_they_were(tmp_path, kind, resume):
    path = tmp_path / kind
    sink = open_sink(str(path), resume=resume)
    sink.close()
    sink.close()
    assert not path.exists()
    put(path, {"n": [1]})
    put(path, resume=resume)
    assert content(path) == [{"n": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_output_is_reported_as_missing(tmp_path, kind):
    sink = open_sink(str(tmp_path / kind), resume=True)
    with raises(ConnectorError, reason="missing"):
        sink.rewind({"bytes": 9, "parts": 9, "columns": ["n"]})


@pytest.mark.parametrize(
    ("lose", "what"), [(Path.unlink, "removed"), (lambda path: path.write_bytes(b""), "truncated")]
)
def test_a_file_that_another_program_removes_or_truncates_is_reported(tmp_path, lose, what):
    path = tmp_path / "out.csv"
    sink = open_sink(str(path))
    sink.write({"n": [1, 2, 3]})
    sink.flush()
    lose(path)
    sink.write({"n": [4]})
    with raises(ConnectorError, reason="changed", named=what):
        sink.flush()
    with raises(ConnectorError, reason="changed"):
        sink.close()


def test_a_temporary_file_without_a_name_may_be_standard_output():
    with tempfile.TemporaryFile() as file:
        sink = open_sink(f"/dev/fd/{file.fileno()}?format=csv")
        sink.write({"n": [1]})
        sink.close()
        assert file.read() == b"n\n1\n"


def test_pipes_and_devices_are_written_as_they_are():
    sink = open_sink("/dev/null?format=csv")
    assert not sink.can_rewind
    sink.write({"n": [1]})
    sink.flush()
    sink.close()
    assert Path("/dev/null").is_char_device()
    with raises(ConnectorError, reason="write") as caught:
        open_sink("/dev/full?format=csv").write({"n": [1]})
    assert caught.value.__cause__.errno == errno.ENOSPC


@pytest.mark.parametrize("kind", ["out.csv", "out.csv.gz", "out.parquet"])
def test_resuming_without_rewinding_appends(tmp_path, kind):
    for value in (1, 2):
        put(tmp_path / kind, {"n": [value]}, resume=True)
    assert content(tmp_path / kind) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("kind", ["out.csv", "out.parquet"])
def test_rewinding_a_removed_part_is_refused(tmp_path, kind):
    with contextlib.closing(open_sink(str(tmp_path / kind))) as sink:
        sink.flush()
    sink = open_sink(str(tmp_path / kind), resume=True)
    with raises(ConnectorError, reason="changed"):
        sink.rewind({"bytes": 100, "parts": 3, "columns": ["n"]})


@pytest.mark.parametrize("kind", ["out.csv", "out.parquet"])
def test_the_columns_are_fixed_by_the_first_write_also_across_runs(tmp_path, kind):
    path = str(tmp_path / kind)
    sink = open_sink(path)
    sink.write({"n": [1]})
    with raises(ConnectorError, reason="columns differ"):
        sink.write({"m": [1]})
    sink.flush()
    resumed = open_sink(path, resume=True)
    resumed.rewind(sink.position)
    with raises(ConnectorError, reason="columns differ"):
        resumed.write({"m": [1]})


def test_a_folder_that_was_rewound_to_its_start_may_get_other_columns(tmp_path):
    path = tmp_path / "out.parquet"
    put(path, {"n": [1]})
    for table in ({"m": ["a"]}, {}):
        with contextlib.closing(open_sink(str(path), resume=True)) as sink:
            sink.rewind({"parts": 0})
            if table:
                sink.write(table)
        assert content(path) == [{"m": "a"}] if table else list(path.iterdir()) == []
    path.rmdir()
    with contextlib.closing(open_sink(str(path), resume=True)) as sink:
        sink.rewind({"parts": 0})
    assert path.is_dir()


def test_json_lines_contain_values_without_a_json_form(tmp_path):
    values = [("a", 1), {3, 1}, 1 << 70, math.nan, None, True, np.float64(0.5), 1j]
    put(tmp_path / "out.jsonl", {"y": values, "p": [math.nan] * len(values)})
    found = [orjson.loads(line)["y"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert found == [["a", 1], [1, 3], float(1 << 70), None, None, True, 0.5, "1j"]


def test_nested_values_are_written_to_csv_with_integers_beyond_64_bits(tmp_path):
    table = {"set": [[1 << 70, 5], [], ["\ud800"]], "p": [{1 << 70: math.nan}, None, {"a": [math.inf]}]}
    put(tmp_path / "out.csv", table)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = [[json.loads(cell) if cell else None for cell in row] for row in list(csv.reader(file))[1:]]
    assert rows == [[[1 << 70, 5], {str(1 << 70): None}], [[], None], [["\ud800"], {"a": [None]}]]


def test_gzip_members_follow_the_flushes_and_the_content_does_not(tmp_path):
    packed = []
    for flushes in (True, True, False):
        sink = open_sink(str(tmp_path / "out.csv.GZ"))
        for value in range(3):
            sink.write({"n": [value]})
            if flushes:
                sink.flush()
        sink.close()
        packed.append((tmp_path / "out.csv.GZ").read_bytes())
    assert packed[0] == packed[1] != packed[2]
    assert gzip.decompress(packed[0]) == gzip.decompress(packed[2]) == b"n\n0\n1\n2\n"


def test_parquet_labels_of_mixed_types_become_text(tmp_path):
    path = tmp_path / "out.parquet"
    sink = open_sink(str(path))
    for values in ([None], [1, 2], ["a", 1], [3.5, None]):
        sink.write({"y": values})
        sink.flush()
    sink.close()
    assert len(list(path.iterdir())) == 4
    assert [batch.labels for batch in open_source(str(path), label="y")] == [[None], [1, 2], ["a", "1"], ["3.5", None]]


def test_columns_of_any_kind_are_lines_of_csv(tmp_path):
    table = {"line": range(2, 4), "x": np.array([0.5, 1e15]), "why": [[["x", 0.5]], None], "s": ["a,b", "c"]}
    put(tmp_path / "out.csv", table, table | {"why": [None, None]})
    line = '2,0.5,"[[""x"",0.5]]","a,b"'
    assert (tmp_path / "out.csv").read_text() == (
        f'line,x,why,s\n{line}\n3,1000000000000000.0,,c\n2,0.5,,"a,b"\n3,1000000000000000.0,,c\n'
    )


def test_a_parquet_part_ends_at_its_maximum_size(tmp_path, monkeypatch):
    monkeypatch.setattr("connectors.arrow.parquet_sink.PART_ROWS", 3)
    with contextlib.closing(open_sink(str(tmp_path / "out.parquet"))) as sink:
        found = []
        for n in range(4):
            sink.write({"n": [n]})
            found.append(len(list((tmp_path / "out.parquet").iterdir())))
    assert found == [0, 0, 1, 1]
    assert content(tmp_path / "out.parquet") == [{"n": n} for n in range(4)]


def test_parquet_parts_keep_the_types_of_earlier_ones(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    for n, values in enumerate(([1.5, None], [2])):
        put(tmp_path / "out.parquet", {"x": values}, resume=n > 0)
    kinds = [str(pq.read_schema(path).field("x").type) for path in (tmp_path / "out.parquet").iterdir()]
    assert kinds == ["double"] * 2


def test_a_parquet_folder_whose_first_parts_lack_a_column_reads_as_one_table(tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "out.parquet"
    for n, values in enumerate(([None], [None, None], ["UP"], [None])):
        put(path, {"n": [n] * len(values), "prediction": values}, resume=n > 0)
    assert pq.read_table(path).to_pydict() == {"n": [0, 1, 1, 2, 3], "prediction": [None, None, None, "UP", None]}


def test_standard_output_cannot_be_rewound():
    sink = open_sink("-")
    assert not sink.can_rewind
    with raises(ConnectorError, reason="not seekable"):
        sink.rewind(sink.position)


def test_rows_on_standard_output_follow_printed_text(capfd):
    print("before")
    with contextlib.closing(open_sink("-")) as sink:
        sink.write({"n": [1]})
        sink.write({"n": [2]})
        assert sink.position == {"bytes": 6}
    print("after")
    assert capfd.readouterr().out == "before\nn\n1\n2\nafter\n"


def test_null_takes_everything():
    sink = open_sink("null:")
    assert sink.can_rewind
    sink.write({"n": [1]})
    sink.rewind(sink.position)
    sink.close()
    assert isinstance(sink, Sink)


@pytest.mark.parametrize(
    ("url", "reason", "option"),
    [
        ("out.libsvm", "no sink", ""),
        ("out.xyz", "suffix", "format"),
        ("out.csv?overwrite=yes", "unknown", "overwrite"),
        ("missing/out.csv", "write", ""),
    ],
)
def test_wrong_configuration_stops_at_once(tmp_path, url, reason, option):
    with raises(ConnectorError, reason=reason, option=option):
        open_sink(str(tmp_path / url))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst", "lz4"])
def test_a_compressed_output_of_a_run_that_was_killed_early_is_replaced(suffix, tmp_path):
    with contextlib.closing(open_sink(str(tmp_path / f"out.csv.{suffix}"))) as sink:
        sink.write({"line": [1], "prediction": ["a"], "score": [0.5]})
        shutil.copy(tmp_path / f"out.csv.{suffix}", tmp_path / f"left.csv.{suffix}")
    with contextlib.closing(open_sink(str(tmp_path / f"left.csv.{suffix}"))) as sink:
        sink.check_replaced()
