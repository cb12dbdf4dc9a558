"""Objects of numba that are made when something has to be compiled.

Numba is not imported while the compiled library has all entry points that are called. Until then, decorators, types
and intrinsics are `Deferred`. The first call of a function outside the library calls `use_numba`, which replaces them
in all modules by the objects of numba.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from streamsvm.core.library import library


class _Mode:
    """Whether this process defers objects of numba, and whether all are replaced."""

    is_deferring = library() is not None
    is_done = not is_deferring
    lock = threading.RLock()


class Deferred:
    """An object of numba that is made at its first use by the compiler."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made = make, None

    def resolved(self) -> Any:
        """Return the object."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Deferred(lambda: getattr(self.resolved(), name))

    def __getitem__(self, key: Any) -> Deferred:
        return Deferred(lambda: self.resolved()[key])

    def __call__(self, *arguments: Any) -> Any:
        return Deferred(lambda: self.resolved()(*map(resolve, arguments)))


class DeferredFunction(Deferred):
    """A function that numba compiles if it is called."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any]) -> None:
        super().__init__(make)
        self.py_func = function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        use_numba()
        return getattr(self.resolved(), name)

    def __call__(self, *arguments: Any) -> Any:
        """Compile the function if necessary, and call it."""
        use_numba()
        return self.resolved()(*arguments)


def resolve(value: Any) -> Any:
    """Return the object of numba for a deferred one, and other objects unchanged."""
    return value.resolved() if isinstance(value, Deferred) else value


def use_numba() -> None:
    """Import numba, and replace the deferred objects in all modules.

    The compiler cannot handle deferred objects. Other threads wait meanwhile. After an interrupt, the next call
    continues.
    """
    if _Mode.is_done:
        return
    with _Mode.lock:
        if not _Mode.is_deferring:  # another thread has finished, or this call comes from `_replace_deferred`
            return
        try:
            importlib.import_module("numba")
            _Mode.is_deferring = False
            _replace_deferred()
            _Mode.is_done = True
        finally:
            _Mode.is_deferring = not _Mode.is_done


def _replace_deferred() -> None:
    """Make all deferred objects, and only then replace them.

    Other threads may compile functions as soon as one object has been replaced.
    """
    spaces = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    found = [(space, name, value) for space in spaces for name, value in list(space.items())]
    deferred = [(space, name, value) for space, name, value in found if isinstance(value, Deferred)]
    made = [value.resolved() for _, _, value in deferred]
    for (space, name, _), each in zip(deferred, made, strict=True):
        space[name] = each


def function(plain: Callable[..., Any], make: Callable[[], Any]) -> Any:
    """Return what `make` returns, or a function that makes it when it is called."""
    return DeferredFunction(plain, make) if _Mode.is_deferring else make()


def from_numba(module: str, name: str) -> Any:
    """Return an object of a module that imports numba."""
    if name.startswith("__"):
        raise AttributeError(name)
    if _Mode.is_deferring:
        return Deferred(lambda: getattr(importlib.import_module(module), name))
    return getattr(importlib.import_module(module), name)
