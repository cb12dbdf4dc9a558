"""Entry points: functions compiled separately, with everything they call.

``python -m streamsvm.core.entry_points NAME...`` compiles entry points, so that several processes can compile in
parallel and share the results on disk.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from streamsvm.core.cache import code_path, is_tested
from streamsvm.core.clock import compiling
from streamsvm.core.deferred import resolve, use_numba
from streamsvm.core.jit import INTEGER
from streamsvm.core.library import library


@dataclass(frozen=True)
class EntryPoint:
    """Function with the types of its arguments.

    Parameters
    ----------
    function
        A kernel, or a plain function to compile by `as_cfunc`.
    arguments
        Types of the arguments.
    """

    function: Any
    arguments: tuple[Any, ...]

    @cached_property
    def name(self) -> str:
        """Module within the package, and function name."""
        return name_of(_plain(self.function))

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled code is loaded or on disk."""
        if self._in_library is not None:
            return True
        use_numba()
        return not is_tested() or "_compiled" in self.__dict__ or self._path.exists()

    @property
    def _path(self) -> Path:
        kind = "python" if hasattr(self.function, "compile") else "address"
        return code_path(_plain(self.function), tuple(map(resolve, self.arguments)), kind)

    @cached_property
    def _in_library(self) -> Any:
        """The compiled function of the library, or None."""
        used = library()
        return None if used is None else used.functions.get(self.name)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function."""
        return self._compiled(*arguments)

    def compile(self) -> Any:
        """Compile or load the function once, and return the callable."""
        return self._compiled

    @cached_property
    def _compiled(self) -> Any:
        if self._in_library is not None:
            return self._in_library
        use_numba()
        from streamsvm.core.jit_numba import as_cfunc

        function, arguments = resolve(self.function), tuple(map(resolve, self.arguments))
        if hasattr(function, "compile"):
            return function.compile(arguments)
        return function if arguments[0] != resolve(INTEGER) else as_cfunc(function, len(arguments))

    def reached(self) -> set[str]:
        """Return the names of all kernels compiled with it."""
        found: set[str] = set()
        _reach(self.function, found)
        return found


def name_of(function: Callable[..., Any]) -> str:
    """Return the module within the package and the name of a function."""
    return f"{function.__module__.removeprefix('streamsvm.')}.{function.__name__}"


def _plain(function: Any) -> Any:
    return getattr(function, "py_func", function)


def _reach(function: Any, found: set[str]) -> None:
    plain = _plain(function)
    if hasattr(function, "py_func"):
        found.add(name_of(plain))
    for name in plain.__code__.co_names:
        other = plain.__globals__.get(name)
        if hasattr(other, "py_func") and name_of(other.py_func) not in found:
            _reach(other, found)


def find(name: str) -> EntryPoint:
    """Return the entry point with this name."""
    module = importlib.import_module(f"streamsvm.{name.rpartition('.')[0]}")
    entries: dict[str, EntryPoint] = module.ENTRY_POINTS
    return next(entry for entry in entries.values() if entry.name == name)


def main() -> None:
    """Compile the entry points named on the command line."""
    with compiling():
        for name in sys.argv[1:]:
            find(name).compile()


if __name__ == "__main__":
    main()
