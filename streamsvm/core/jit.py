"""Decorators of kernels, which are compiled separately and cached on disk.

If the compiled library has the code, the decorators do not change the function; see `deferred`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamsvm.core.deferred import from_numba
from streamsvm.core.deferred import function as deferrable


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
    """Return `as_cfunc` and `call_pointer`."""
    return from_numba("streamsvm.core.jit_numba", name)
