"""Models as plain arrays, and archives of them on disk."""

from __future__ import annotations

from streamsvm.models.archive import ArchiveError
from streamsvm.models.arrays import KernelExpansion, LinearModel, Polytopes
from streamsvm.models.scaling import Scaler
from streamsvm.models.trees import Trees

__all__ = ["ArchiveError", "KernelExpansion", "LinearModel", "Polytopes", "Scaler", "Trees"]
