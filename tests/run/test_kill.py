"""SIGKILL at random moments: resumed results are equal byte for byte."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.commands import ran_here
from tests.run.conftest import has_size, json_lines, killed, write_stream

N = 2_000
KILLS = 3


def arguments(source: Path, every: int) -> list[Any]:
    # Small batches give more points to be killed at.
    stream = ("run", f"{source}?batch_size=50", "--label", "y", "--types", "a:number", "--quiet")
    kept = ("--checkpoint", "check", "--checkpoint-every", every, "--save", "model")
    monitored = ("--alerts", "alerts.jsonl", "--reference", "512")
    return [*stream, *kept, *monitored, "--out", "out.csv", "--summary", "summary.json"]


def results(folder: Path) -> dict[str, Any]:
    """Return the results of a run, without clock times."""
    summary = json.loads((folder / "summary.json").read_text())
    process = summary.pop("process")
    names = ("out.csv", "out.csv.rejected.jsonl", "alerts.jsonl", "model", "check/checkpoint.safetensors")
    return {"summary": summary, "process": process} | {name: (folder / name).read_bytes() for name in names}


@pytest.mark.slow
@pytest.mark.usefixtures("unsynced")
def test_killed_and_resumed(tmp_path):
    source = write_stream(tmp_path / "in.csv.gz", N, broken=True, moved=True)
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.mkdir()
    broken.mkdir()
    ran_here(*arguments(source, 1_000_000), cwd=plain, check=True)
    whole = results(plain)
    kinds = [(alarm["column"], alarm["kind"]) for alarm in json_lines(plain / "alerts.jsonl")]
    assert ("b", "distribution") in kinds
    dice = random.Random(1)
    full = len(whole["out.csv"])
    kills = 0
    for share in sorted(dice.uniform(0.02, 0.95) for _ in range(KILLS)):
        # A resumed run first truncates the file. Wait for that, so that the kill comes during new events.
        asked = arguments(source, dice.randint(100, 900))
        kills += killed(*asked, cwd=broken, when=lambda size=share * full: has_size(broken / "out.csv", size))
    assert kills >= 2, "the process was too quick to be killed"
    ran_here(*arguments(source, 5000), cwd=broken, check=True)
    resumed = results(broken)
    assert resumed.pop("process")["resumed_at"] > 0
    assert whole.pop("process")["resumed_at"] is None
    assert resumed == whole
