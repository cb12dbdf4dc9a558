"""Runs: predict each event before learning it, measure, write and save."""

from __future__ import annotations

import importlib
from typing import Any

DEFAULT_SOURCE = "synthetic:demo"
DEFAULT_MODEL = "blend"
SHORT_NAMES = {
    "blend": "streamsvm.StreamSVMClassifier",
    "bsgd": "streamsvm.BSGDClassifier",
    "cpm": "streamsvm.CPMClassifier",
}
"""Models by short name."""


# Public names are imported lazily, so that the command line starts fast.
_HOMES = {"Run": "streamsvm.run.start", "RunConfig": "streamsvm.run.config"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
