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
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


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


def _cached(compiler: Callable[..., Any], function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = _cache_folder()
    try:
        return compiler(*arguments, cache=True, **options)(function)
    except (OSError, RuntimeError):  # the folder cannot be written: numba finds a place, or compiles every time
        numba.config.CACHE_DIR = before
        return compiler(*arguments, **options)(function)
    finally:
        numba.config.CACHE_DIR = before


def _compiled(function: Callable[..., Any], **options: Any) -> Any:
    compiled = _cached(numba.njit, function, nogil=True, **options)
    if not numba.config.DISABLE_JIT:
        # Numba compiles a function anew for each constant it is called with, which more than doubles the time.
        template = compiled.get_call_template
        compiled.get_call_template = lambda args, kws: template(tuple(map(types.unliteral, args)), kws)
    return compiled


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


@functools.cache
def apart(function: Callable[..., Any], n_arguments: int) -> Any:
    """Compile a function of integers, to be called by its `address` with `call`: its callers compile without it.

    The code of all that a function calls is made a part of it, and is optimised again with it, at each level.
    """
    return _cached(numba.cfunc, function, types.void(*[types.int64] * n_arguments))


@intrinsic
def call(_, address, arguments):
    """Call what is `apart`: its address, and a tuple of integers."""

    def codegen(context, builder, signature, values):
        integer = context.get_value_type(types.int64)
        function = ir.FunctionType(ir.VoidType(), [integer] * len(arguments))
        pointer = builder.inttoptr(values[0], function.as_pointer())
        builder.call(pointer, [builder.extract_value(values[1], i) for i in range(len(arguments))])
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen
