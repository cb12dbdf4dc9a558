"""Online classification of drifting streams."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from streamsvm.online import load, warmup
from streamsvm.online.budgeted import BSGDClassifier
from streamsvm.online.polytope import CPMClassifier

try:
    __version__ = version("streamsvm")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"

__all__ = ["BSGDClassifier", "CPMClassifier", "__version__", "load", "warmup"]
