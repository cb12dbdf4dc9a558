"""Memory and bit operations in kernels: names of `bits_numba`, which may be deferred."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.core.deferred import from_numba
from streamsvm.core.jit import inlined


@inlined
def mask_below(a, b):
    """Return -1 if a < b, else 0, from the sign bit of the difference.

    A comparison would compile to a branch. If both are zeros, b must be -0.0.
    """
    return np.float64(a - b).view(np.int64) >> 63


def __getattr__(name: str) -> Any:
    return from_numba("streamsvm.core.bits_numba", name)
