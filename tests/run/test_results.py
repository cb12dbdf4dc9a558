"""Where results go: nothing that is read is written over, no two runs write one file, and what fails is named."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamsvm.run.locks import held
from tests.run.conftest import Streamsvm, command, environment, write_stream
from tests.run.test_cli import CPM, error

READING = ("--label", "y", "--types", "a:number")


@contextmanager
def following(folder: Path, *arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A run that waits for more, once it has predicted all that is there; stopped at the end."""
    arguments = ("run", "in.csv", "--follow", *READING, *CPM, "--quiet", *arguments)
    process = subprocess.Popen(command(*arguments), cwd=folder, env=environment())
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert condition()


# What is read is not written over --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", ["hard link", "symbolic link", "standard input", "the configuration", "a loaded model"]
)
def test_files_are_compared_and_not_their_names(streamsvm: Streamsvm, tmp_path: Path, other: str) -> None:
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
        asked, options = "synthetic:demo", [*options, "--load", "in.csv"]
    with source.open() as file:
        message = error(streamsvm("run", asked, "--label", "y", *options, stdin=file))
    assert message.endswith("and --out are the same file twin.csv")
    assert source.read_bytes() == before


def test_parts_are_not_read_from_a_directory_that_is_replaced(streamsvm: Streamsvm, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    write_stream(tmp_path / "parts" / "in.csv", 10)
    result = streamsvm("run", "parts/in.csv", "--label", "y", "--out", "parts?format=parquet")
    assert error(result).startswith("SOURCE lies in the directory ")


def test_nowhere_may_be_named_twice(streamsvm: Streamsvm, tmp_path: Path) -> None:
    write_stream(tmp_path / "in.csv", 10)
    result = streamsvm("run", "in.csv", "--label", "y", *CPM, "--out", "null:", "--rejected", "null:")
    assert result.returncode == 0, result.stderr


# One run at a time -----------------------------------------------------------------------------------------------


def test_results_are_written_by_one_run_at_a_time(streamsvm: Streamsvm, tmp_path: Path) -> None:
    write_stream(tmp_path / "in.csv", 300)
    (tmp_path / "link.csv").symlink_to("o.csv")
    names = {"--out": "o.csv", "--save": "m", "--summary": "s.json", "--plot": "p.png", "--rejected": "r.jsonl"}
    first = [part for option in names.items() for part in option]
    with following(tmp_path, *first):
        until(lambda: (tmp_path / "o.csv").exists() and (tmp_path / "o.csv").read_bytes().count(b"\n") == 301)
        written = (tmp_path / "o.csv").read_bytes()
        for option, name in [*names.items(), ("--out", "link.csv"), ("--rejected", "o.csv"), ("--summary", "./m")]:
            message = error(streamsvm("run", "in.csv", "--label", "y", option, name))
            assert message == f"another run writes {option} {name}: wait for it, or give another name"
        assert (tmp_path / "o.csv").read_bytes() == written
    assert not list(tmp_path.glob(".*"))
    assert streamsvm("run", "in.csv", "--label", "y", *CPM, *first).returncode == 0


def test_a_lock_left_by_a_run_that_was_killed_holds_nobody(tmp_path: Path) -> None:
    (tmp_path / ".o.csv.lock").touch()
    with held("--out", str(tmp_path / "o.csv")):
        assert (tmp_path / ".o.csv.lock").exists()
    assert not list(tmp_path.iterdir())


def test_runs_in_one_directory_set_events_aside_in_files_of_their_own(streamsvm: Streamsvm, tmp_path: Path) -> None:
    write_stream(tmp_path / "in.csv", 300, broken=True)
    with following(tmp_path):
        until(lambda: (tmp_path / "rejected.jsonl").exists())
        result = streamsvm("run", "in.csv", *READING, *CPM)
        assert result.returncode == 0, result.stderr
        assert "kept in rejected-2.jsonl" in result.stdout
        assert len((tmp_path / "rejected-2.jsonl").read_text().splitlines()) == 4
        resumed = streamsvm("run", "in.csv", *READING, *CPM, "--checkpoint", "ck", "--max-events", 200)
        assert "kept in rejected-2.jsonl" in resumed.stdout
        resumed = streamsvm("run", "in.csv", *READING, *CPM, "--checkpoint", "ck")
        assert "kept in rejected-2.jsonl" in resumed.stdout
        assert len((tmp_path / "rejected-2.jsonl").read_text().splitlines()) == 4
    assert len((tmp_path / "rejected.jsonl").read_text().splitlines()) == 4
