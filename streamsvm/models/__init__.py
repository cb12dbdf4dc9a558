"""What a learner knows, as plain arrays, and how it is kept on disk."""

from __future__ import annotations

from streamsvm.models.archive import ArchiveError
from streamsvm.models.arrays import KernelExpansion, LinearModel, Polytopes, Scaler, Trees

__all__ = ["ArchiveError", "KernelExpansion", "LinearModel", "Polytopes", "Scaler", "Trees"]
