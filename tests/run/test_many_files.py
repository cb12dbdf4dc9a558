"""Runs over several files: settings, resumed runs, and late labels."""

from __future__ import annotations

import pytest

from streamsvm.run import Run, RunConfig
from tests.run.conftest import json_lines, table, write_stream

CPM = ("--model", "cpm", "--quiet")


def test_several_sources_on_the_command_line_in_toml_and_in_python(streamsvm, tmp_path):
    for name in ("b", "a"):
        write_stream(tmp_path / f"{name}.csv", 20)
    (tmp_path / "run.toml").write_text('source = ["b.csv", "a.csv"]\nlabel = "y"\nout = "toml.csv"\nmodel = "cpm"\n')
    streamsvm("run", "b.csv", "a.csv", "--label", "y", *CPM, "--out", "out.csv")
    streamsvm("run", "--config", "run.toml", "--quiet")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "toml.csv").read_bytes()
    assert [row["file"] for row in table(tmp_path / "out.csv")] == ["b.csv"] * 20 + ["a.csv"] * 20
    assert RunConfig(source=["a.csv?label=y", "b.csv"]).urls["source"].query == {"label": "y"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("none/*.csv",),
        ("a.csv", "missing.csv"),
        ("a.csv", "b.csv", "--out", "b.csv"),
        ("a.csv?delimiter=;", "b.csv?delimiter=,"),
        ("a.csv", "-"),
    ],
)
def test_mistakes_are_refused_before_data_are_touched(streamsvm, tmp_path, arguments):
    for name in ("a", "b"):
        write_stream(tmp_path / f"{name}.csv", 20)
    before = (tmp_path / "b.csv").read_bytes()
    streamsvm("run", *arguments, "--label", "y", *CPM, "--dead-letter", "null:", code=2)
    assert (tmp_path / "b.csv").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv"]


def test_a_resumed_run_groups_warnings_as_an_uninterrupted_one(tmp_path):
    for i in range(6):
        (tmp_path / f"{i}.csv").write_text(f"a,b{i},y\n" + "1,5,0\n2,4,1\n" * 5)
    asked = {"source": str(tmp_path / "*.csv"), "label": "y", "model": "cpm"}
    once = Run(RunConfig(**asked)).start()
    for n in (25, 45, 60):
        resumed = Run(RunConfig(**asked, max_events=n, checkpoint=str(tmp_path / "check"))).start()
    assert resumed.source_notices == once.source_notices
    assert ["in all" in text for text in once.source_notices] == [True] * 2


def test_late_labels_of_several_files(streamsvm, tmp_path):
    for i in range(2):
        times = range(30 * i, 30 * i + 30)
        (tmp_path / f"e{i}.csv").write_text("id,t,x\n" + "".join(f"{t},{t},{t % 7}\n" for t in times))
        (tmp_path / f"l{i}.csv").write_text("id,t,y\n" + "".join(f"{t},{t + 3},{int(t % 7 > 3)}\n" for t in times))
    options = ("--label-source", "l0.csv", "--label-source", "l1.csv", "--join", "id", "--time", "t", "--label", "y")
    out = ("--out", "out.csv", "--label-output", "joined.csv", "--checkpoint", "check")
    streamsvm("run", "e0.csv", "e1.csv", *options, *CPM, *out, "--max-events", 40)
    streamsvm("run", "e0.csv", "e1.csv", *options, *CPM, *out, "--max-events", 60)
    joined = table(tmp_path / "joined.csv")
    assert [(row["file"], row["line"]) for row in joined] == [
        (f"e{i}.csv", str(line)) for i in range(2) for line in range(2, 32)
    ]


def test_a_run_that_ended_continues_with_files_that_were_added(streamsvm, tmp_path):
    (tmp_path / "in").mkdir()
    kept = ("--types", "a:number", "--out", "in/out.csv", "--checkpoint", "in/check")
    for i in range(2):
        write_stream(tmp_path / "in" / f"{i}.csv", 100, broken=True)
        streamsvm("run", "in", "--label", "y", *CPM, *kept)
    # The results lie in the directory of the source, and are not read.
    assert len(table(tmp_path / "in" / "out.csv")) + len(json_lines(tmp_path / "in" / "out.csv.rejected.jsonl")) == 200
