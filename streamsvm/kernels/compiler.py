"""How kernels are compiled: once for each source, kept on disk, and large parts apart.

This, and `linkage`, are the places that touch what numba does not promise to keep.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite import ir
from numba import types
from numba.core import caching
from numba.extending import intrinsic

try:
    from streamsvm.kernels.linkage import Exported, Internal, link_internally
except ImportError:  # numba's inside has changed: all works as before, but takes longer to compile
    _EXPORTED: dict[str, Any] = {}
else:
    _EXPORTED = {"pipeline_class": Exported}

# Its name has lost an underscore on the way from one version to another.
_Given: Any = getattr(caching, "UserProvidedCacheLocator", None) or caching._UserProvidedCacheLocator

logger = logging.getLogger(__name__)

# Compiled code is removed where it was not used for so long: several versions may live beside one another.
UNUSED_S = 7 * 86_400.0


@functools.cache
def cache_folder() -> Path:
    """Where compiled code is kept: a folder for each state of the sources.

    Numba's own cache looks at the file of a function, but not at those of the functions it calls.
    """
    sources = hashlib.blake2b(digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        sources.update(path.read_bytes())
    sources.update(f"{numba.__version__} {sys.implementation.cache_tag}".encode())
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "streamsvm" / sources.hexdigest()
    with contextlib.suppress(OSError):
        if not folder.exists():
            folder.mkdir(parents=True)
            _remove_unused(folder.parent)
        os.utime(folder)
    return folder


def _remove_unused(folder: Path) -> None:
    """Remove what was compiled of sources that nobody has used for long."""
    for other in folder.iterdir():
        if other.is_dir() and other.stat().st_mtime < time.time() - UNUSED_S:
            shutil.rmtree(other, ignore_errors=True)


class _Keeping:
    """Whether what is compiled can be kept on disk."""

    failed = False


def is_kept() -> bool:
    """Whether all that this process compiled is kept on disk."""
    return not _Keeping.failed


def can_keep() -> bool:
    """Whether what is compiled now can be kept on disk, as far as can be told."""
    if not os.access(cache_folder(), os.W_OK):
        _cannot_keep("it cannot be written to")
    return is_kept()


def _cannot_keep(reason: object) -> None:
    """Say so once: this run goes on."""
    if not _Keeping.failed:
        _Keeping.failed = True
        logger.warning(
            "compiled code cannot be kept in %s: %s; it is compiled anew each time until that is mended, or "
            "NUMBA_CACHE_DIR names another place",
            cache_folder(),
            reason,
        )


class _Locator(_Given):  # type: ignore[misc]
    """Where compiled code is kept: a folder that is there may be one that can only be read, as in an image.

    Numba takes none that cannot be written to, and goes on to places where it does not notice that a function which is
    called by another has changed.
    """

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        found = cls(py_func, py_file)
        if os.access(found.get_cache_path(), os.R_OK | os.X_OK):
            return found
        return super().from_function(py_func, py_file)


class _Cached(caching.CompileResultCacheImpl):
    """What numba keeps of a function."""

    _locator_classes = [_Locator]  # noqa: RUF012 - as numba has it

    def check_cachable(self, cres: Any) -> bool:
        return can_keep() and bool(super().check_cachable(cres))


def _cached(compiler: Callable[..., Any], function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    before = numba.config.CACHE_DIR, caching.FunctionCache._impl_class
    numba.config.CACHE_DIR, caching.FunctionCache._impl_class = str(cache_folder()), _Cached
    try:
        return compiler(*arguments, cache=True, **options)(function)
    except OSError as error:
        _cannot_keep(error.strerror or error)
    except RuntimeError:  # the folder can neither be read nor made
        pass
    finally:
        numba.config.CACHE_DIR, caching.FunctionCache._impl_class = before
    return compiler(*arguments, **options)(function)


def _compiled(function: Callable[..., Any], nogil: bool = True, **options: Any) -> Any:
    exported = _cached(numba.njit, function, nogil=nogil, **_EXPORTED, **options)
    if numba.config.DISABLE_JIT:
        return exported
    compile_and_keep = exported.compile

    def compile_function(signature: Any) -> Any:
        try:
            return compile_and_keep(signature)
        except OSError as error:
            _cannot_keep(error.strerror or error)
            return compile_and_keep(signature)  # it is compiled by now

    exported.compile = compile_function
    if _EXPORTED:
        link_internally(exported, numba.njit(nogil=True, pipeline_class=Internal, **options)(function))
    return exported


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and keep the result on disk. It runs without the interpreter's lock."""
    return _compiled(function)


def brief(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for what is called for each event: it keeps the interpreter's lock.

    Another thread that took it meanwhile would keep it for longer than the call takes.
    """
    return _compiled(function, nogil=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for a short function that becomes a part of its callers."""
    return _compiled(function, forceinline=True)


def fused(function: Callable[..., Any]) -> Any:
    """Like `inlined`, where a product and a sum may be one instruction, which rounds once.

    A division by zero gives an infinity, not an error: loops with divisions vectorise.
    """
    return _compiled(function, forceinline=True, error_model="numpy", fastmath={"contract"})


def reduction(function: Callable[..., Any]) -> Any:
    """Like `kernel`, for sums over long arrays: terms may be added in any order, so the processor adds several at once.

    Equal input gives equal bits on one machine. A division by zero gives an infinity, not an error.
    """
    return _compiled(function, error_model="numpy", fastmath={"reassoc", "nsz", "contract"})


class _Plain:
    """Where nothing is compiled: what `apart` gives, and `call` takes."""

    functions: ClassVar[dict[int, Callable[..., Any]]] = {}

    def __init__(self, function: Callable[..., Any]) -> None:
        self.address = id(function)
        self.functions[self.address] = function

    def __call__(self, *arguments: Any) -> Any:
        """As a kernel that takes numbers alone is called."""
        return self.functions[self.address](*arguments)


@functools.cache
def apart(function: Callable[..., Any], n_arguments: int) -> Any:
    """Compile a function of integers, to be called by its `address` with `call`: its callers compile without it.

    The code of all that a function calls is made a part of it, and is optimised again with it, at each level.
    """
    if numba.config.DISABLE_JIT:
        return _Plain(function)
    return _cached(numba.cfunc, function, types.void(*[types.int64] * n_arguments), **_EXPORTED)


def _typed_call(_: Any, address: Any, arguments: Any) -> Any:
    """Call what is `apart`: its address, and a tuple of integers."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        integer = context.get_value_type(types.int64)
        function = ir.FunctionType(ir.VoidType(), [integer] * len(arguments))
        pointer = builder.inttoptr(values[0], function.as_pointer())
        builder.call(pointer, [builder.extract_value(values[1], i) for i in range(len(arguments))])
        return context.get_dummy_value()

    return types.void(types.int64, arguments), codegen


def _plain_call(address: int, arguments: tuple[int, ...]) -> None:
    _Plain.functions[int(address)](*arguments)


call: Any = _plain_call if numba.config.DISABLE_JIT else intrinsic(_typed_call)
