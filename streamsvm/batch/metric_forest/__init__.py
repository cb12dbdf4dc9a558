"""Index of rows on disk, with passes that skip rows far from a hyperplane."""

from __future__ import annotations

from streamsvm.batch.metric_forest.forest import MetricForest

__all__ = ["MetricForest"]
