"""Linear support vector machines with truncated losses, on rows wherever they are."""

from __future__ import annotations

from streamsvm.batch.indexed_bcd.estimator import IndexedBCD

__all__ = ["IndexedBCD"]
