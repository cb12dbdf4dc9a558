"""Rows on disk or in memory, those that lie near one another side by side, and a search for those near a hyperplane."""

from __future__ import annotations

from streamsvm.batch.metric_forest.forest import MetricForest, Nearest

__all__ = ["MetricForest", "Nearest"]
