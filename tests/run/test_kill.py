"""SIGKILL at random moments: resumed results are equal."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.models.archive import read_archive
from tests.run.conftest import json_lines, killed_and_resumed, write_stream


def arguments(source: Path, every: int) -> list[Any]:
    # Small batches give more points to be killed at. A refit starts every 400 events, and its model is added 200 later:
    # checkpoints in between have it pending.
    stream = ("run", f"{source}?batch_size=50", "--label", "y", "--types", "a:number", "--quiet")
    kept = ("--checkpoint", "check", "--checkpoint-every", every, "--save", "model")
    learned = ("--refit", "newton,every=400,window=800", "--alerts", "alerts.jsonl", "--reference", "512")
    return [*stream, *kept, *learned, "--out", "out.csv", "--summary", "summary.json"]


def timeless(path: Path) -> Any:
    """An archive without the durations of refits."""
    header, arrays = read_archive(path)
    kept = json.dumps(header, sort_keys=True)
    without = json.loads(kept, object_hook=lambda each: {k: v for k, v in each.items() if k != "seconds"})
    return without, {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def results(folder: Path) -> dict[str, Any]:
    """Return the results of a run, without clock times."""
    summary = json.loads((folder / "summary.json").read_text())
    files = {name: (folder / name).read_bytes() for name in ("out.csv", "out.csv.rejected.jsonl", "alerts.jsonl")}
    archives = {name: timeless(folder / name) for name in ("model", "check/checkpoint.safetensors")}
    return {"process": summary.pop("process"), "summary": summary} | files | archives


@functools.lru_cache(maxsize=1)
def _has_job(checkpoint: Path, _written: int) -> bool:
    header, _ = read_archive(checkpoint)
    return "job" in header["model"]


def is_refitting(folder: Path) -> bool:
    """Return whether a refit was running at the last checkpoint."""
    checkpoint = folder / "check" / "checkpoint.safetensors"
    try:
        return _has_job(checkpoint, checkpoint.stat().st_mtime_ns)
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.usefixtures("unsynced")
def test_killed_in_the_midst_of_refits_and_resumed(tmp_path):
    source = write_stream(tmp_path / "in.csv.gz", 2_000, broken=True, moved=True)
    whole, resumed = map(results, killed_and_resumed(tmp_path, lambda every: arguments(source, every), is_refitting))
    kinds = [(alarm["column"], alarm["kind"]) for alarm in json_lines(tmp_path / "plain" / "alerts.jsonl")]
    assert ("b", "distribution") in kinds
    assert resumed.pop("process")["resumed_at"] > 0
    assert whole.pop("process")["resumed_at"] is None
    assert resumed == whole
    assert whole["summary"]["refits"]["count"] >= 4
    assert np.isfinite(whole["summary"]["refits"]["share"])
