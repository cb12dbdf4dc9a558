"""What kernels use: decorators, argument types, access to states, SIMD values.

A decorated function is compiled separately and cached on disk. If the compiled library has the code, the decorators do
not change the function; see `deferred`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamsvm.core.deferred import from_numba
from streamsvm.core.deferred import function as deferrable

types = from_numba("numba", "types")

# Argument types of entry points.
INTEGER, NUMBER, FLAG = types.int64, types.float64, types.boolean
INTEGERS, NUMBERS, FLAGS = INTEGER[::1], NUMBER[::1], FLAG[::1]
BYTES, WORDS = types.uint8[::1], types.uint64[::1]
WORD_TABLE, SHORT_WORD_TABLE = types.uint64[:, ::1], types.uint32[:, ::1]

# Unsigned indices need no handling of negative values, so loops over them vectorise.
uint = np.uint64
# Number of elements per SIMD value. float32 fills two or four registers, so that additions overlap; float64 fills one
# or two.
LANES, DOUBLES = 32, 8

_POINTERS = {"as_cfunc", "call_pointer"}
_SIMD = {"lanes", "lanes_at", "put_lanes", "times_plus", "larger", "sum_of", "largest_of", "first_equal"}


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    return deferrable(function, lambda: from_numba("streamsvm.core.jit_numba", "compiled")(function, **options))


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call; it runs without the GIL.

    The compiled code is cached on disk.
    """
    return _compiled(function)


def jit_holding_gil(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, but keep the GIL: for functions called once per event.

    Such a call takes less time than waiting for another thread to return the GIL.
    """
    return _compiled(function, nogil=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, and inline the function into its callers."""
    return _compiled(function, forceinline=True)


def jit_fma(function: Callable[..., Any]) -> Any:
    """Compile like `inlined`, and allow fused multiply-add instructions.

    A fused operation rounds once. Division by zero gives infinity instead of an error, so that loops with divisions
    vectorise.
    """
    return _compiled(function, forceinline=True, error_model="numpy", fastmath={"contract"})


def view(function: Callable[..., Any]) -> Any:
    """Compile like `inlined`, for a function that returns an array."""
    return _compiled(function, forceinline=True, counts=True)


def allocating(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, for a function that allocates arrays."""
    return _compiled(function, counts=True)


def jit_fastmath(function: Callable[..., Any]) -> Any:
    """Compile like `kernel`, and allow terms of a sum to be added in any order.

    Sums over long arrays then vectorise. Equal input gives equal bits on one machine. Division by zero gives infinity
    instead of an error.
    """
    return _compiled(function, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})


def __getattr__(name: str) -> Any:
    """Return a function or type for compiled code, which may be deferred."""
    module = "jit" if name in _POINTERS else "simd" if name in _SIMD else "access"
    return from_numba(f"streamsvm.core.{module}_numba", name)
