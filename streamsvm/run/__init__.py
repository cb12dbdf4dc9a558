"""From source to sink: every event is predicted before it is learned, measured, written and kept."""

from __future__ import annotations

from typing import Any

DEFAULT_SOURCE = "synthetic:demo"
DEFAULT_MODEL = "blend"
SHORT_NAMES = {
    "blend": "streamsvm.StreamSVMClassifier",
    "bsgd": "streamsvm.BSGDClassifier",
    "cpm": "streamsvm.CPMClassifier",
}
"""Models by their short names."""


def __getattr__(name: str) -> Any:
    """Import the public names when they are asked for: the command line starts without them."""
    if name == "RunConfig":
        from streamsvm.run.config import RunConfig

        return RunConfig
    if name == "Run":
        from streamsvm.run.start import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
