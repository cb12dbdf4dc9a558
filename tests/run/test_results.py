"""Output files: inputs are not overwritten, no file is written by two runs."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamsvm.core import cache, jit
from streamsvm.run.checkpoint import result_lock
from tests.commands import Command, command, environment, wait_for
from tests.run.conftest import write_stream
from tests.run.test_cli import CPM

READING = ("--label", "y", "--types", "a:number")


@contextmanager
def following(folder: Path, *arguments: Any) -> Iterator[Command]:
    """A run that waits for more data after predicting all events; stopped at the end."""
    arguments = ("run", "in.csv", "--at-end", "wait", *READING, *CPM, "--quiet", *arguments)
    with Command(*arguments, cwd=folder) as process:
        yield process
        process.terminate()
        process.wait(60)


# Inputs are not overwritten --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", ["hard link", "symbolic link", "standard input", "the configuration", "a loaded model"]
)
def test_files_are_compared_and_not_their_names(refused, tmp_path, other):
    source = write_stream(tmp_path / "in.csv", 100)
    before, asked, options = source.read_bytes(), "in.csv", ["--out", "twin.csv"]
    if other == "symbolic link":
        (tmp_path / "twin.csv").symlink_to("in.csv")
    else:
        os.link(source, tmp_path / "twin.csv")
    if other == "standard input":
        asked = "-"
    elif other == "the configuration":
        asked, options = "synthetic:demo", [*options, "--config", "in.csv"]
        source.write_text("window = 10\n")
        before = source.read_bytes()
    elif other == "a loaded model":
        asked, options = "synthetic:demo", [*options, "--model", "in.csv"]
    message = refused("run", asked, "--label", "y", *options, stdin=source)
    assert message.endswith("and --out are the same file twin.csv")
    assert source.read_bytes() == before


def test_parts_are_not_read_from_a_directory_that_is_replaced(refused, tmp_path):
    (tmp_path / "parts").mkdir()
    write_stream(tmp_path / "parts" / "in.csv", 10)
    message = refused("run", "parts/in.csv", "--label", "y", "--out", "parts?format=parquet")
    assert message.startswith("SOURCE lies in the directory ")


def test_nowhere_may_be_named_twice(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 10)
    streamsvm("run", "in.csv", "--label", "y", *CPM, "--out", "null:", "--dead-letter", "null:")


# One run at a time -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_results_are_written_by_one_run_at_a_time(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 300)
    (tmp_path / "link.csv").symlink_to("o.csv")
    names = {"--out": "o.csv", "--save": "m", "--summary": "s.json", "--plot": "p.png", "--dead-letter": "r.jsonl"}
    first = [part for option in names.items() for part in option]
    with following(tmp_path, *first):
        wait_for(lambda: (tmp_path / "o.csv").exists() and (tmp_path / "o.csv").read_bytes().count(b"\n") == 301)
        written = (tmp_path / "o.csv").read_bytes()
        for option, name in [*names.items(), ("--out", "link.csv"), ("--dead-letter", "o.csv"), ("--summary", "./m")]:
            message = refused("run", "in.csv", "--label", "y", *CPM, option, name)
            assert message == f"another run writes {option} {name}: wait for its end, or use another name"
        assert (tmp_path / "o.csv").read_bytes() == written
    assert not list(tmp_path.glob(".*"))
    streamsvm("run", "in.csv", "--label", "y", *CPM, "--out", "o.csv", "--save", "m")


def test_a_lock_of_a_killed_run_blocks_nobody(tmp_path):
    (tmp_path / ".o.csv.lock").touch()
    with result_lock("--out", str(tmp_path / "o.csv")):
        assert (tmp_path / ".o.csv.lock").exists()
    assert not list(tmp_path.iterdir())


# Errors name the file --------------------------------------------------------------------------------------------

SMALL = 4096  # limit of file sizes in bytes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--out", "o.csv"), "predictions: o.csv: cannot be written: File too large"),
        (("--out", "o.parquet"), "predictions: o.parquet/part-000000.parquet: cannot be written: File too large"),
        (
            ("--types", "a:number", "--dead-letter", "r.jsonl"),
            "rejected events: r.jsonl: cannot be written: File too large",
        ),
        (("--checkpoint", "ck"), "checkpoint: ck/checkpoint.safetensors: cannot be written: File too large"),
        (("--save", "m"), "the model could not be saved as m: File too large"),
        (("--plot", "p.svg"), "plot: p.svg: cannot be written: File too large"),
        (("--summary", "s.json"), "summary: s.json: cannot be written: File too large"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_full_disk_is_reported_with_the_file_and_its_purpose(streamsvm, tmp_path, options, message):
    write_stream(tmp_path / "in.csv", 6000 if "--dead-letter" in options else 2000, broken="--dead-letter" in options)
    # A label of a few thousand letters makes the summary large.
    if "--summary" in options:
        (tmp_path / "in.csv").write_text("x,y\n" + f"1,{'a' * 5000}\n2,b\n" * 10)
    model = ("--model", "bsgd", "--param", "budget=20") if {"--save", "--checkpoint", "--plot"} & {*options} else CPM
    result = streamsvm("run", "in.csv", "--label", "y", *model, *options, "--quiet", most_bytes=SMALL, code=1)
    *notices, last = result.stderr.splitlines()
    assert last == f"streamsvm: error: {message}"
    assert all("--set missing=oops" in line for line in notices)
    assert not list(tmp_path.glob(".*"))


def halved(x: float) -> float:
    return x / 2.0


def test_on_a_full_disk_code_is_compiled_and_not_kept(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(cache._Keeping, "failed", False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL // 4, hard))
    try:
        assert jit.kernel(halved)(4.0) == 2.0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caplog.text.count(f"compiled code cannot be kept in {tmp_path}: File too large") == 1
    assert not list(tmp_path.rglob("*.code"))


# The command line, which reports when it handles interrupts. The interpreter's own start is not covered.
GUARDED = """
import signal, sys, streamsvm.__main__
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
set_handler = signal.signal
def told(*arguments):
    set_handler(*arguments)
    print("begun", flush=True)
signal.signal = told
sys.exit(streamsvm.__main__.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.2])
def test_an_interrupt_while_starting_is_no_traceback(tmp_path, moment):
    arguments = [sys.executable, "-c", GUARDED, "run", "--quiet", "--plot", "p.png"]
    process = subprocess.Popen(
        arguments, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT), complaint
    assert complaint == ""


# Messages --------------------------------------------------------------------------------------------------------


def test_a_long_label_does_not_widen_the_table(streamsvm, tmp_path):
    label = f"two\nlines{'x' * 100_000}"
    (tmp_path / "in.csv").write_text("x,y\n" + f'1,"{label}"\n2,b\n' * 20)
    result = streamsvm("run", "in.csv", "--label", "y", *CPM, "--out", "o.jsonl")
    assert max(map(len, result.stdout.splitlines())) < 120
    assert "two\\nlinesxx" in result.stdout
    assert json.loads((tmp_path / "o.jsonl").read_text().splitlines()[2])["label"] == label


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        ("x,y\n", ("--label", "y"), "no events: nothing to measure"),
        ("x,y\n1,\n2,\n", ("--label", "y"), "no event had a label: nothing to learn or to measure"),
        ("x,y\n1,a\n", ("--label", "y"), "no event had both a label and a prediction: nothing to measure"),
    ],
)
def test_nothing_to_measure_says_why(streamsvm, tmp_path, lines, options, said):
    (tmp_path / "in.csv").write_text(lines)
    result = streamsvm("run", "in.csv", *options, *CPM)
    assert said in result.stdout
    assert ("--label" in result.stdout) == ("had a label" in said)


def test_predictions_without_labels_are_not_an_error(streamsvm, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n" + "1,a\n2,b\n" * 20)
    streamsvm("run", "in.csv", "--label", "y", *CPM, "--save", "m.svm", "--quiet")
    result = streamsvm("predict", "in.csv", "--ignore", "y", "--model", "m.svm")
    assert "nothing to measure" in result.stdout
    assert "learn" not in result.stdout


def test_labels_that_cannot_be_read_are_named(streamsvm, tmp_path):
    (tmp_path / "in.csv").write_text("id,t,x\n" + "".join(f"{i},{i},0\n" for i in range(300)))
    (tmp_path / "late.jsonl").write_text("".join(f'{{"id": {i}, "t": {i + 1}, "y": null}}\n' for i in range(300)))
    late = ("--label-source", "late.jsonl", "--join", "id", "--time", "t", "--set", "time-unit=s")
    result = streamsvm("run", "in.csv", *late, "--label", "y", *CPM, "--quiet", code=None)
    assert "--label-source" in result.stderr
    assert "file late.jsonl, line 300: the label is missing" in result.stderr


@pytest.mark.slow
def test_a_terminal_without_micro_signs(tmp_path):
    terminal = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    (tmp_path / "in.csv").write_text("x,y\n" + "1,änderung\n2,b\n" * 20, encoding="utf-8")
    plain = {key: value for key, value in environment().items() if key != "PYTHONIOENCODING"}
    arguments = command("run", "in.csv", "--label", "y", *CPM)
    for asked in (command("run", "--help"), arguments):
        done = subprocess.run(asked, cwd=tmp_path, env=plain | terminal, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
    assert b" us per event" in done.stdout
    assert b"\\xe4nderung" in done.stdout
