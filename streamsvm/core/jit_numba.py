"""Compilation of kernels by numba, for the decorators in `jit`.

This module, `cache` and `linkage` use private parts of numba, for the versions they were tested with. With a newer
numba, plain `numba.njit` with its own cache compiles the functions, which takes longer.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import event
from numba.extending import intrinsic

from streamsvm.core.cache import NEWEST_TESTED, is_tested

logger = logging.getLogger(__name__)

if numba.config.DISABLE_JIT:
    raise ImportError("streamsvm needs numba's compiler: unset NUMBA_DISABLE_JIT")
if is_tested():
    from numba.core.ccallback import CFunc

    from streamsvm.core.cache import CodeCache
    from streamsvm.core.linkage import Exported, Internal, link_internally
else:
    logger.warning(
        "numba %s is newer than %s, the newest that this streamsvm was tested with: compiling takes longer",
        numba.__version__,
        NEWEST_TESTED,
    )


# Functions inherit options that they do not set from their callers. Without these defaults, numba would also inline
# everything that an inlined function calls.
_OPTIONS: dict[str, Any] = {"forceinline": False, "fastmath": False, "error_model": "python"}


def compiled(function: Callable[..., Any], nogil: bool = True, counts: bool = False, **options: Any) -> Any:
    """Compile a function; `counts` enables numba's reference counting of arrays."""
    options = _OPTIONS | options
    if not is_tested():
        return numba.njit(nogil=nogil, cache=True, **options)(function)
    options["_nrt"] = counts
    exported = numba.njit(nogil=nogil, pipeline_class=Exported, **options)(function)
    exported._cache = CodeCache(function, "python")
    link_internally(exported, numba.njit(nogil=True, pipeline_class=Internal, **options)(function))
    return exported


ADDRESSES = (types.int64,) * 8


@functools.cache
def as_cfunc(function: Callable[..., Any], n_arguments: int) -> Any:
    """Compile a function of integers to separate machine code.

    `call_pointer` calls it by its `address`. Callers compile faster, because they do not contain its code.
    """
    if not is_tested():
        return numba.cfunc(types.void(*ADDRESSES[:n_arguments]), cache=True)(function)
    compiled = CFunc(function, (ADDRESSES[:n_arguments], types.void), {}, {}, pipeline_class=Exported)  # type: ignore[arg-type]
    compiled._cache = CodeCache(function, "address")
    compiled.compile()
    return compiled


@intrinsic
def call_pointer(_: Any, address: Any, arguments: Any) -> Any:
    """Call a function compiled by `as_cfunc` with a tuple of integers."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        integer = context.get_value_type(types.int64)
        function = ir.FunctionType(ir.VoidType(), [integer] * len(arguments))
        pointer = builder.inttoptr(values[0], function.as_pointer())
        builder.call(pointer, [builder.extract_value(values[1], i) for i in range(len(arguments))])
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


class _Listener(event.Listener):
    """Announces compilations of functions that no `prepare` has compiled."""

    def on_start(self, event: event.Event) -> None:
        """Announce the compilation of a kernel."""
        from streamsvm.core.precompile import say_compiling

        if event.data["dispatcher"].py_func.__module__.startswith("streamsvm."):
            say_compiling()

    def on_end(self, event: event.Event) -> None:
        """Ignore the end of a compilation."""


event.register("numba:compile", _Listener())
