"""The compiled library: machine code of all entry points, built in advance.

``python -m streamsvm.core.build`` builds it for the current sources and one processor level. If it cannot be used,
numba compiles the entry points at their first use.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import os
from collections.abc import Callable, Iterable
from ctypes import CFUNCTYPE, c_int64
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

CODE = "STREAMSVM_CODE"
"""The environment variable that forces one kind of code: "library" or "numba"."""

LIBRARY, MERGING = "_library", "_merging.npy"
_CORE = Path(__file__).parent
_PACKAGE = _CORE.parent
_IMPORTS_JIT = b"\nfrom streamsvm.core.jit import "


class CodeError(OSError):
    """The code that the environment variable STREAMSVM_CODE requires is unusable."""


@functools.cache
def kernel_sources() -> dict[Path, bytes]:
    """Return path and source of each module that compiled code depends on."""
    sources = {path: path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}
    return {path: text for path, text in sources.items() if path.parent == _CORE or _IMPORTS_JIT in text}


def sources_key(names: Iterable[str]) -> str:
    """Return the digest of sources, given their paths in the package."""
    content = hashlib.blake2b(digest_size=8)
    for name in names:
        path = _PACKAGE / name
        content.update(name.encode() + (path.read_bytes() if path.exists() else b""))
    return content.hexdigest()


@dataclass(frozen=True)
class CompiledFunction:
    """Function of the library that compiled code calls by its address.

    Parameters
    ----------
    address
        Address of the machine code.
    n_arguments
        Number of arguments, which are integers.
    """

    address: int
    n_arguments: int

    @cached_property
    def ctypes(self) -> Callable[..., None]:
        """The function as a `ctypes` function."""
        return CFUNCTYPE(None, *(c_int64,) * self.n_arguments)(self.address)


@dataclass(frozen=True)
class Library:
    """A library that is in use.

    Parameters
    ----------
    target
        Processor level, for example "x86-64-v3".
    functions
        Compiled functions by the names of their entry points.
    path
        The file.
    """

    target: str
    functions: dict[str, Any]
    path: Path

    @property
    def merging(self) -> Path:
        """The table of merges of `BSGDClassifier`."""
        return self.path.with_name(MERGING)


def _load() -> Library | str | None:
    """Return the library, or why it cannot be used, or None if there is none."""
    if next(_CORE.glob(f"{LIBRARY}.*"), None) is None:
        return None
    try:
        module = importlib.import_module(f"streamsvm.core.{LIBRARY}")
    except ImportError as error:
        return str(error)
    if module.key != sources_key(module.sources.split()):
        return "it was built from other sources"
    if not (_CORE / MERGING).exists():
        return f"its file {MERGING} is missing"
    if not module.is_supported():
        return f"this processor is not of level {module.target}"
    functions = {
        name: CompiledFunction(*found) if isinstance(found, tuple) else found for name, found in module.entries
    }
    return Library(module.target, functions, Path(str(module.__file__)))


@functools.cache
def library() -> Library | None:
    """Return the library in use, or None if numba compiles the entry points.

    Raises
    ------
    CodeError
        If STREAMSVM_CODE is "library" and the library cannot be used, or if it has another value than documented.
    """
    asked = os.environ.get(CODE, "")
    if asked not in ("", "library", "numba"):
        raise CodeError(f"{CODE} is {asked!r}; set it to 'library' or 'numba', or unset it")
    if asked == "numba":
        return None
    found = _load()
    if isinstance(found, Library):
        return found
    if asked == "library":
        raise CodeError(f"{CODE} is 'library', but the compiled library cannot be used: {found or 'there is none'}")
    if found is not None:
        logger.warning("the compiled library cannot be used, so numba compiles the kernels: %s", found)
    return None


def kind_of_code() -> str:
    """Return the processor level of the library in use, or "numba"."""
    used = library()
    return "numba" if used is None else used.target


def code_in_use() -> str:
    """Return which code is used, for messages."""
    kind = kind_of_code()
    return "compiled by numba on this machine" if kind == "numba" else f"compiled library for {kind}"
