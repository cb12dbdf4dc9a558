"""Linear SVM by smoothed Newton steps, with l2 and exact l1 penalties."""

from __future__ import annotations

from streamsvm.batch.smoothed_newton.estimator import SmoothedNewton, warmup
from streamsvm.batch.smoothed_newton.path import RegularizationPath

__all__ = ["RegularizationPath", "SmoothedNewton", "warmup"]
