"""Runs: predict every event of a stream before learning it, measure, write results and save checkpoints."""

from __future__ import annotations

from typing import Any

DEFAULT_SOURCE = "synthetic:demo"
DEFAULT_MODEL = "blend"
SHORT_NAMES = {
    "blend": "streamsvm.StreamSVMClassifier",
    "bsgd": "streamsvm.BSGDClassifier",
    "cpm": "streamsvm.CPMClassifier",
}
"""Models by short name."""


def __getattr__(name: str) -> Any:
    """Import public names lazily, so that the command line starts fast."""
    if name == "RunConfig":
        from streamsvm.run.config import RunConfig

        return RunConfig
    if name == "Run":
        from streamsvm.run.start import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
