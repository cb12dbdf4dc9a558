"""Batch solvers with the scikit-learn interface; they need the extra `batch`."""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
    import threadpoolctl  # noqa: F401
except ImportError as error:
    raise ImportError("batch solvers need scikit-learn: pip install 'streamsvm[batch]'") from error

from streamsvm.batch.base import Iteration
from streamsvm.batch.indexed_bcd import IndexedBCD
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.sampled_cuts import SampledCuts
from streamsvm.batch.smoothed_newton import SmoothedNewton, warmup

__all__ = ["IndexedBCD", "Iteration", "MetricForest", "SampledCuts", "SmoothedNewton", "warmup"]
