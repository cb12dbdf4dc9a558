"""Entries: functions that are compiled by themselves, with all that they call.

``python -m streamsvm.core.entry_points NAME...`` compiles some, so that several processes can do so side by side: what
one has compiled, the others find on disk. It prints the name of each function that is done.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numba import config, types
from numba.core import event

from streamsvm.core.cache import code_path, is_tested
from streamsvm.core.jit import as_cfunc


@dataclass(frozen=True)
class EntryPoint:
    """A function and what it is called with.

    Parameters
    ----------
    function
        A kernel, or a plain function that is compiled by `as_cfunc`.
    arguments
        The types of its arguments.
    """

    function: Any
    arguments: tuple[Any, ...]

    @cached_property
    def name(self) -> str:
        """Its module of this package, and its own name."""
        return name_of(_plain(self.function))

    @property
    def is_compiled(self) -> bool:
        """Whether it is loaded, or on disk."""
        return config.DISABLE_JIT or not is_tested() or "_compiled" in self.__dict__ or self._path.exists()

    @property
    def _path(self) -> Path:
        kind = "python" if hasattr(self.function, "compile") else "address"
        return code_path(_plain(self.function), self.arguments, kind)

    def compile(self) -> Any:
        """Compile it, or load it, once; returns what is called."""
        return self._compiled

    @cached_property
    def _compiled(self) -> Any:
        if hasattr(self.function, "compile"):
            return self.function.compile(self.arguments)
        return self.function if self.arguments[0] != types.int64 else as_cfunc(self.function, len(self.arguments))

    def reached(self) -> set[str]:
        """The names of all kernels that are compiled with it."""
        found: set[str] = set()
        _reach(self.function, found)
        return found


def name_of(function: Callable[..., Any]) -> str:
    """The module of a function in this package, and its own name."""
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


class Listener(event.Listener):
    """Tells of each kernel that has been compiled."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def on_start(self, event: event.Event) -> None:
        """Nothing is said."""

    def on_end(self, event: event.Event) -> None:
        """Say which."""
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("streamsvm."):
            self._tell(name_of(function))


def find(name: str) -> EntryPoint:
    """The entry of a name."""
    module = importlib.import_module(f"streamsvm.{name.rpartition('.')[0]}")
    entries: dict[str, EntryPoint] = module.ENTRY_POINTS
    return next(entry for entry in entries.values() if entry.name == name)


def main() -> None:
    """Compile the entries named on the command line."""
    event.register("numba:compile", Listener(lambda name: print(name, flush=True)))
    for name in sys.argv[1:]:
        find(name).compile()


if __name__ == "__main__":
    main()
