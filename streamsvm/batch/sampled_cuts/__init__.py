"""Kernel SVM by cutting planes computed from samples of the rows."""

from __future__ import annotations

from streamsvm.batch.sampled_cuts.estimator import SampledCuts

__all__ = ["SampledCuts"]
