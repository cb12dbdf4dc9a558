"""Outputs in parts by size and event time, equal for any batches and crashes."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors import ConnectorError, Sink, open_sink, open_source
from tests.connectors.streams import events, put
from tests.errors import raises

HOUR = 3_600_000
START = 1_767_225_600_000  # 2026-01-01


def stream(n: int) -> tuple[dict[str, list[Any]], list[int]]:
    """Return rows, and times around midnight, up to three hours out of order."""
    dice = random.Random(5)
    texts = ["plain", 'a "quoted", cell', "two\nlines", None, "é"]
    table = {"line": list(range(n)), "s": [dice.choice(texts) for _ in range(n)], "score": [i / 7 for i in range(n)]}
    times = [START + 20 * HOUR + i * HOUR // 10 - dice.choice([0, 0, 0, 1, 3]) * HOUR for i in range(n)]
    return table, times


def files(path: Path) -> dict[str, bytes]:
    return {str(one.relative_to(path)): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file()}


def put_at(sink: Sink, start: int, end: int) -> None:
    table, times = stream(200)
    sink.write_at({name: column[start:end] for name, column in table.items()}, times[start:end])


URLS = ["out?format=csv&rotate_bytes=300", "out?format=csv&partition_by=date", "out.jsonl?partition_by=hour"]
URLS += ["out.tsv?partition_by=hour&rotate_bytes=200"]
URLS += ["out.parquet?rotate_bytes=900", "out?format=parquet&partition_by=hour&rotate_bytes=500"]


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize("seed", range(2))
def test_parts_do_not_depend_on_batches_flushes_and_crashes(tmp_path, url, seed):
    (tmp_path / "whole").mkdir()
    sink = open_sink(str(tmp_path / "whole" / url))
    put_at(sink, 0, 200)
    sink.close()
    sink.close()
    given: dict[str, Any] = {"source": open_source("synthetic:sea?n=9") if seed else None}  # whether for checkpoints
    sink, dice = open_sink(str(tmp_path / url), **given), random.Random(seed)
    sink.flush()
    name = url.partition("?")[0]
    position, durable, at, kept = sink.position, 0, 0, files(tmp_path / name)
    while at < 200:
        step = dice.choice(["write", "write", "flush", "crash", "end"])
        if step == "write":
            end = min(200, at + dice.choice([1, 7, 60]))
            put_at(sink, at, end)
            at = end
        elif step == "flush":
            sink.flush()
            position, durable, kept = json.loads(json.dumps(sink.position)), at, files(tmp_path / name)
        else:
            if step == "end":
                sink.close()
            sink = open_sink(str(tmp_path / url), resume=True, **given)
            sink.rewind(position)
            assert sink.position == position
            assert files(tmp_path / name).keys() == kept.keys()
            at = durable
    sink.close()
    found, expected = files(tmp_path / name), files(tmp_path / "whole" / name)
    assert found == expected
    assert len(found) > 1
    assert all(name.endswith((".csv", ".jsonl", ".tsv", ".parquet")) for name in found)


def test_parts_of_parquet_have_equal_types(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {"n": [1, 2, 3, 4, 5, 6, 7, 8], "s": [None] * 5 + ["a", "b", None]}
    put(tmp_path / "out.parquet?rotate_bytes=40", table)
    assert len(files(tmp_path / "out.parquet")) == 4
    assert parquet.read_table(tmp_path / "out.parquet").to_pydict() == table


def test_a_part_is_complete_before_it_exceeds_its_size(tmp_path):
    sink = open_sink(str(tmp_path / "out?format=csv&rotate_bytes=100"))
    rows = ["x" * 30, "y" * 60, "z" * 200, "w"]
    sink.write({"line": range(4), "s": rows})
    assert [*files(tmp_path / "out")][-1] == "part-00003.csv.inprogress"
    sink.close()
    found = files(tmp_path / "out")
    assert [*found] == [f"part-{i:05d}.csv" for i in range(4)]
    assert [len(text) for text in found.values()] == [40, 70, 210, 11]
    assert all(text.startswith(b"line,s\n") for text in found.values())
    assert [row["s"] for row, _, _ in events(open_source(str(tmp_path / "out")))] == rows


def test_folders_of_event_time_are_complete_after_two_of_them(tmp_path):
    sink = open_sink(str(tmp_path / "out?format=csv&partition_by=date"))

    def at(*days):
        sink.write_at({"n": np.array(days)}, [START + int(24 * HOUR * day) for day in days])

    at(0, 1.5, 0.5)
    assert {*files(tmp_path / "out")} == {f"dt=2026-01-0{i}/part-00000.csv.inprogress" for i in (1, 2)}
    at(2.1, 0.7, 0.8)
    first_day = {name for name in files(tmp_path / "out") if "-01/" in name}
    assert first_day == {f"dt=2026-01-01/part-0000{end}" for end in ("0.csv", "1.csv.inprogress")}
    sink.close()
    found = files(tmp_path / "out")
    assert found["dt=2026-01-01/part-00000.csv"] == b"n\n0.0\n0.5\n"
    assert found["dt=2026-01-01/part-00001.csv"] == b"n\n0.7\n0.8\n"
    rows = [row["dt"] for row, _, _ in events(open_source(str(tmp_path / "out")))]
    assert sorted(rows) == ["2026-01-01"] * 4 + ["2026-01-02", "2026-01-03"]


@pytest.mark.parametrize("suffix", ["gz", "xz"])
def test_compressed_parts_are_rotated_by_their_size_before_compression(tmp_path, suffix):
    url = str(tmp_path / f"out.csv.{suffix}?rotate_bytes=500")
    sink = open_sink(url)
    sink.write({"n": range(100)})
    sink.flush()
    position = sink.position
    sink.write({"n": range(100, 300)})
    sink = open_sink(url, resume=True)
    sink.rewind(position)
    sink.write({"n": range(100, 300)})
    sink.close()
    path = tmp_path / f"out.csv.{suffix}"
    assert [row["n"] for row, _, _ in events(open_source(str(path), types={"n": "number"}))] == list(range(300))
    assert all(name.endswith(f".csv.{suffix}") for name in files(path))


def test_earlier_results_are_replaced_and_other_files_kept(tmp_path):
    url = str(tmp_path / "out?format=csv&rotate_bytes=50")
    table = {"line": range(20), "prediction": ["a"] * 20, "score": [0.5] * 20}
    for n in (20, 1):
        sink = open_sink(url)
        sink.check_replaced()
        sink.write({name: column[:n] for name, column in table.items()})
        sink.close()
        (tmp_path / "out" / "notes.txt").write_text("mine")
    assert {*files(tmp_path / "out")} == {"part-00000.csv", "notes.txt"}
    (tmp_path / "out" / "part-00001.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ConnectorError):
        open_sink(url).check_replaced()


FORMATS = ("?format=csv&rotate_bytes=90", "?format=csv&partition_by=date", "?format=parquet")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_with_parts_of_another_format_is_refused(tmp_path, overwrite):
    table = {"line": range(20), "prediction": ["a"] * 20, "score": [0.5] * 20}
    lines, days, parquet = FORMATS
    for earlier, later in ((days, parquet), (parquet, lines), (parquet, "?format=jsonl&rotate_bytes=9")):
        path = tmp_path / earlier[8:14] / later[8:14]
        path.parent.mkdir(exist_ok=True)
        with contextlib.closing(open_sink(f"{path}{earlier}")) as sink:
            sink.write_at(table, [START] * 20)
        before = files(path)
        sink = open_sink(f"{path}{later}", overwrite=overwrite)
        with contextlib.closing(sink), raises(ConnectorError, reason="another format"):
            sink.check_replaced()
        assert files(path) == before
        open_sink(f"{path}{earlier}").check_replaced()


def test_mistakes(tmp_path):
    for query, option in (("rotate_bytes=0", "rotate_bytes"), ("partition_by=week", "partition_by")):
        with raises(ConnectorError, reason="value", option=option):
            open_sink(str(tmp_path / f"out?format=csv&{query}"))
    sink = open_sink(str(tmp_path / "out?format=csv&partition_by=date"))
    with raises(ConnectorError, reason="no times", option="partition_by"):
        sink.write({"n": [1]})
    sink = open_sink(str(tmp_path / "out?format=csv&rotate_bytes=50"))
    sink.write({"n": [1]})
    with raises(ConnectorError, reason="columns differ"):
        sink.write({"m": [1]})
    sink.flush()
    position = sink.position
    (tmp_path / "out" / "part-00000.csv.inprogress").write_text("n\n")
    with raises(ConnectorError, reason="changed"):
        open_sink(str(tmp_path / "out?format=csv&rotate_bytes=50"), resume=True).rewind(position)
