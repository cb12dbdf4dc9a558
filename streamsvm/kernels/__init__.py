"""Compiled steps: plain functions over arrays, nothing of Python inside.

A learner's state is one float64 buffer (the *arena*, see `streamsvm.kernels.arena`) cut into sections, and one int64
array (the *layout*) with its counters and the sections' offsets. A call from Python thus passes two arrays whatever the
learner holds, which matters when a call should cost as little as the step it makes.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba


@functools.cache
def _cache_folder() -> str:
    """Where compiled code is kept: a folder for each state of the sources.

    Numba's own cache looks at the file of a function, but not at those of the functions it calls.
    """
    sources = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return str(Path(base) / "streamsvm" / sources.hexdigest())


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _cache_folder()
    try:
        return numba.njit(cache=True, nogil=True, **options)(function)
    except (OSError, RuntimeError):  # the folder cannot be written: numba finds a place, or compiles every time
        numba.config.CACHE_DIR = before
        return numba.njit(nogil=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and keep the result on disk. It runs without the interpreter's lock."""
    return _compiled(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for a short function that becomes a part of its callers."""
    return _compiled(function, forceinline=True)


def fused(function: Callable[..., Any]) -> Any:
    """Like `inlined`, where a product and a sum may be one instruction, which rounds once."""
    return _compiled(function, forceinline=True, fastmath={"contract"})


def reduction(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for sums over long arrays: terms may be added in any order, so the processor adds several at once.

    Equal input gives equal bits on one machine. A division by zero gives an infinity, not an error.
    """
    return _compiled(function, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})
