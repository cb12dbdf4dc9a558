"""Online classification of drifting data streams."""

from __future__ import annotations

import importlib

# Replaces `typing.TYPE_CHECKING`: importing `typing` would double the time until `__main__` handles interrupts.
# An import `as` the same name tells type checkers that the name is public.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from streamsvm.batch import IndexedBCD as IndexedBCD
    from streamsvm.batch import SampledCuts as SampledCuts
    from streamsvm.batch import SmoothedNewton as SmoothedNewton
    from streamsvm.budgeted.classifier import BSGDClassifier as BSGDClassifier
    from streamsvm.decide.deciding import DecidingClassifier as DecidingClassifier
    from streamsvm.delayed.budget import LabelBudget as LabelBudget
    from streamsvm.delayed.classifier import DelayedClassifier as DelayedClassifier
    from streamsvm.ensemble.classifier import StreamSVMClassifier as StreamSVMClassifier
    from streamsvm.keyed.classifier import KeyedClassifier as KeyedClassifier
    from streamsvm.loading import load as load
    from streamsvm.loading import warmup as warmup
    from streamsvm.monitor import FeatureMonitor as FeatureMonitor
    from streamsvm.polytope.classifier import CPMClassifier as CPMClassifier
    from streamsvm.refit.classifier import RefitClassifier as RefitClassifier

# Public names are imported lazily, because river and numba take a third of a second to import.
_HOMES = {
    "BSGDClassifier": "streamsvm.budgeted.classifier",
    "CPMClassifier": "streamsvm.polytope.classifier",
    "DecidingClassifier": "streamsvm.decide.deciding",
    "DelayedClassifier": "streamsvm.delayed.classifier",
    "FeatureMonitor": "streamsvm.monitor",
    "IndexedBCD": "streamsvm.batch",
    "KeyedClassifier": "streamsvm.keyed.classifier",
    "LabelBudget": "streamsvm.delayed.budget",
    "RefitClassifier": "streamsvm.refit.classifier",
    "SampledCuts": "streamsvm.batch",
    "SmoothedNewton": "streamsvm.batch",
    "StreamSVMClassifier": "streamsvm.ensemble.classifier",
    "load": "streamsvm.loading",
    "warmup": "streamsvm.loading",
}


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("streamsvm")
        except PackageNotFoundError:  # a source checkout without installation
            return "0+unknown"
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamsvm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, without batch solvers if scikit-learn is missing."""
    from importlib.util import find_spec

    is_there = find_spec("sklearn") is not None
    return sorted([*(name for name, home in _HOMES.items() if is_there or home != "streamsvm.batch"), "__version__"])
