"""SIMD values in kernels: names of `simd_numba`, which may be deferred."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.core.deferred import from_numba

# Unsigned indices need no handling of negative values, so loops over them vectorise.
uint = np.uint64
# Number of elements per SIMD value. float32 fills two or four registers, so that additions overlap; float64 fills one
# or two.
LANES, DOUBLES = 32, 8


def __getattr__(name: str) -> Any:
    return from_numba("streamsvm.core.simd_numba", name)
