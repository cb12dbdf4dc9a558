"""SIGKILL at random moments: resumed results are equal byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.run.conftest import json_lines, killed_and_resumed, write_stream

N = 2_000


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
    whole, resumed = map(results, killed_and_resumed(tmp_path, lambda every: arguments(source, every)))
    kinds = [(alarm["column"], alarm["kind"]) for alarm in json_lines(tmp_path / "plain" / "alerts.jsonl")]
    assert ("b", "distribution") in kinds
    assert resumed.pop("process")["resumed_at"] > 0
    assert whole.pop("process")["resumed_at"] is None
    assert resumed == whole
