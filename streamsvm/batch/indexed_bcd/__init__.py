"""Linear SVM with truncated losses, for rows in memory or on disk."""

from __future__ import annotations

from streamsvm.batch.indexed_bcd.estimator import IndexedBCD

__all__ = ["IndexedBCD"]
