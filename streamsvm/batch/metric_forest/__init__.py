"""Index of rows, in memory or on disk, with a search for rows near a hyperplane."""

from __future__ import annotations

from streamsvm.batch.metric_forest.forest import MetricForest

__all__ = ["MetricForest"]
