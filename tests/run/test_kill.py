"""SIGKILL at random moments: the results of a resumed run equal those of an uninterrupted run, byte for byte."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Command, completed
from tests.run.conftest import write_stream

N = 6_000
KILLS = 3


def arguments(source: Path, every: int) -> list[Any]:
    # Small batches give more points to be killed at.
    stream = ("run", f"{source}?batch_size=50", "--label", "y", "--types", "a:number", "--quiet")
    kept = ("--checkpoint", "check", "--checkpoint-every", every, "--save", "model")
    return [*stream, *kept, "--out", "out.csv", "--summary", "summary.json"]


def results(folder: Path) -> dict[str, Any]:
    """Return the results of a run, without clock times."""
    summary = json.loads((folder / "summary.json").read_text())
    process = summary.pop("process")
    names = ("out.csv", "out.csv.rejected.jsonl", "model", "check/checkpoint.safetensors")
    return {"summary": summary, "process": process} | {name: (folder / name).read_bytes() for name in names}


def killed_at(folder: Path, source: Path, every: int, size: int) -> bool:
    """Start a process and kill it when the predictions reach a size. Return whether it was still running."""
    process = Command(*arguments(source, every), cwd=folder)
    out = folder / "out.csv"
    # A resumed run first truncates the file. Wait for that, so that the kill comes during new events.
    while process.poll() is None and not (out.exists() and out.stat().st_size >= size):
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_killed_and_resumed(tmp_path: Path, name: str) -> None:
    source = write_stream(tmp_path / name, N, broken=True)
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    plain.mkdir()
    broken.mkdir()
    completed(*arguments(source, 1_000_000), cwd=plain, check=True)
    whole = results(plain)
    dice = random.Random(name)
    full = len(whole["out.csv"])
    kills = 0
    for share in sorted(dice.uniform(0.02, 0.95) for _ in range(KILLS)):
        kills += killed_at(broken, source, dice.randint(300, 3000), int(share * full))
    assert kills >= 2, "the process was too quick to be killed"
    completed(*arguments(source, 5000), cwd=broken, check=True)
    resumed = results(broken)
    assert resumed.pop("process")["resumed_at"] > 0
    assert whole.pop("process")["resumed_at"] is None
    assert resumed == whole
