"""Linear SVM by smoothed Newton steps, with l2 and exact l1 penalties."""

from __future__ import annotations

from streamsvm.batch.smoothed_newton.estimator import SmoothedNewton, warmup

__all__ = ["SmoothedNewton", "warmup"]
