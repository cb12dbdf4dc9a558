"""Models as plain arrays, and archives of them on disk."""

from __future__ import annotations

from streamsvm.models.archive import ArchiveError
from streamsvm.models.arrays import KernelExpansion, LinearModel, Polytopes, Trees
from streamsvm.models.scaling import Scaler

__all__ = ["ArchiveError", "KernelExpansion", "LinearModel", "Polytopes", "Scaler", "Trees"]
