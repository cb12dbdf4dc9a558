"""Compiled code on disk, keyed by content: equal sources, compiler and processor share one folder.

Reading compiled code runs it, so the folder is used only if nobody but its owner and root can write to it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import pickle
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numba

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

NEWEST_TESTED = "0.68"
"""The newest version of numba whose inside is known."""

# Folders of other contents are removed when unused for this long; several versions may live beside one another.
UNUSED_S = 7 * 86_400.0
_MAGIC = b"streamsvm-code-1\n"
_DIGEST_BYTES = 32
_CORE = Path(__file__).parent
_PACKAGE = _CORE.parent
_IMPORTS_JIT = b"\nfrom streamsvm.core.jit import "
_PRIVATE = 0o700
# What a damaged file, or one of another version of numba, may raise when it is unpickled.
_CORRUPT_ERRORS = (Exception,)


@functools.cache
def is_tested() -> bool:
    """Return whether this version of numba has been tested with the parts of it that are private."""
    return tuple(numba.version_info[:2]) <= tuple(map(int, NEWEST_TESTED.split(".")))


@functools.cache
def kernel_sources() -> dict[Path, bytes]:
    """Return the modules of this package that define kernels, and what is in them: what compiled code depends on."""
    sources = {path: path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}
    return {path: text for path, text in sources.items() if path.parent == _CORE or _IMPORTS_JIT in text}


@functools.cache
def content_key() -> str:
    """Return the key of all that decides what compiled code is: sources, compiler, options and processor."""
    content = hashlib.blake2b(digest_size=8)
    for path, source in kernel_sources().items():
        content.update(path.relative_to(_PACKAGE).as_posix().encode() + source)
    config = numba.config
    options = (config.BOUNDSCHECK, config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE, config.CPU_NAME)
    processor = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), config.CPU_FEATURES)
    versions = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
    content.update(repr((options, processor, versions)).encode())
    return content.hexdigest()


@functools.cache
def cache_folder() -> Path:
    """Return the folder of compiled code for this content; it is made if it can be."""
    base = _asked_for()
    reason = unsafe_part(base / "streamsvm")
    if reason is not None:
        private = _private_place()
        logger.warning(
            "%s: compiled code is not read from %s, because other users could replace it; using %s",
            reason,
            base,
            private,
        )
        base = private
    folder = base / "streamsvm" / content_key()
    with contextlib.suppress(OSError):
        if not folder.exists():
            base.mkdir(parents=True, exist_ok=True)
            folder.parent.mkdir(_PRIVATE, exist_ok=True)
            folder.mkdir(_PRIVATE, exist_ok=True)
            remove_unused(folder)
        os.utime(folder)
    return folder


def _asked_for() -> Path:
    given = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME")
    return Path(os.path.abspath(given)) if given else Path.home() / ".cache"


def _private_place() -> Path:
    """Return a place that only this user can write to: the user's own cache, else a new temporary folder."""
    own = Path.home() / ".cache"
    if unsafe_part(own / "streamsvm") is None:
        return own
    place = Path(tempfile.gettempdir()) / f"streamsvm-{os.getuid()}"
    with contextlib.suppress(OSError):
        place.mkdir(_PRIVATE, exist_ok=True)
    return place if unsafe_part(place) is None else Path(tempfile.mkdtemp(prefix="streamsvm-"))


def unsafe_part(folder: Path) -> str | None:
    """Return why somebody else could replace what is in a folder, or None: its owner and mode, and its parents'.

    Parameters
    ----------
    folder
        A folder, which need not exist.

    Notes
    -----
    The rule is the one that OpenSSH has for its keys. A folder in which files can only be replaced by their owners
    (the sticky bit, as of ``/tmp``) may be a parent, and so may one that a group of this user alone can write to.
    """
    if not hasattr(os, "getuid"):
        return None
    resolved = folder.resolve()
    for place in (resolved, *resolved.parents):
        try:
            found = place.stat()
        except OSError:
            continue
        if found.st_uid not in (0, os.getuid()):
            return f"{place} belongs to another user"
        shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid))
        if shared and (place == resolved or not found.st_mode & stat.S_ISVTX):
            return f"{place} can be written to by other users"
    return None


def _is_private_group(group: int) -> bool:
    """Whether a group has no member but this user: where each user has a group, folders are often writable by it."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    return group == user.pw_gid and members <= {user.pw_name}


def remove_unused(folder: Path, unused_s: float = UNUSED_S) -> list[Path]:
    """Remove the folders of other contents that nobody has used for long; return them.

    Parameters
    ----------
    folder
        The folder in use.
    unused_s
        For how many seconds nobody has used them.
    """
    removed = []
    with contextlib.suppress(OSError):
        for other in folder.parent.iterdir():
            if other != folder and other.is_dir() and other.stat().st_mtime < time.time() - unused_s:
                shutil.rmtree(other, ignore_errors=True)
                removed.append(other)
    return removed


def n_bytes(folder: Path) -> int:
    """Return how many bytes the files of a folder have."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class _Keeping:
    """Whether what is compiled can be kept on disk."""

    failed = False


def is_kept() -> bool:
    """Return whether all that this process compiled is kept on disk."""
    return not _Keeping.failed


def can_keep() -> bool:
    """Return whether what is compiled now can be kept on disk, as far as can be told."""
    if not os.access(cache_folder(), os.W_OK):
        _cannot_keep("it cannot be written to")
    return is_kept()


def _cannot_keep(reason: object) -> None:
    """Say so once: this process goes on."""
    if not _Keeping.failed:
        _Keeping.failed = True
        logger.warning(
            "compiled code cannot be kept in %s: %s; it is compiled anew each time until that is mended, or "
            "NUMBA_CACHE_DIR names another place",
            cache_folder(),
            reason,
        )


@contextlib.contextmanager
def one_at_a_time(waiting: Callable[[], None]) -> Iterator[None]:
    """Let one process compile; the others wait, and find on disk what it compiled. The lock ends with its process.

    Parameters
    ----------
    waiting
        Called before waiting for another process.
    """
    file: int | None = None
    if fcntl is not None and can_keep():
        with contextlib.suppress(OSError):  # a file system without locks: both compile
            file = os.open(cache_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)


def code_path(function: Callable[..., Any], arguments: tuple[Any, ...], kind: str) -> Path:
    """Return where the compiled code of a function is kept for arguments of these types."""
    digest = hashlib.blake2b(repr(arguments).encode() + _own_source(function.__code__.co_filename), digest_size=6)
    module = function.__module__.removeprefix("streamsvm.")
    name = f"{module}.{function.__qualname__}-{kind}-{digest.hexdigest()}"
    return cache_folder() / f"{name}.code"


@functools.cache
def _own_source(file: str) -> bytes:
    """The source of a kernel that is not of this package, whose content is not in the key of the folder."""
    path = Path(file)
    return path.read_bytes() if path.is_file() and path not in kernel_sources() else b""


class CodeCache:
    """What numba asks for compiled code of one function, in place of its own cache.

    Numba's cache goes by the path and age of a function's file, and does not see that a function called in another
    file has changed. It stops at a damaged file.

    Parameters
    ----------
    function
        The function.
    kind
        What is compiled: a function for Python, or one called by its address.
    """

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        self._function, self._kind = function, kind

    @property
    def cache_path(self) -> str:
        """The folder."""
        return str(cache_folder())

    def enable(self) -> None:
        """It always is."""

    def flush(self) -> None:
        """Nothing is held back."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return what is kept for a signature, or None. A damaged file is removed."""
        from numba.core.compiler import CompileResult
        from numba.core.runtime import rtsys

        path = self._path(signature)
        try:
            payload = path.read_bytes()
        except OSError:
            return None
        # What compiled code calls at run time; `target.refresh` would import all that can be compiled, for 0.3 s.
        rtsys.initialize(target)
        try:
            return CompileResult._rebuild(target, *pickle.loads(_checked(payload)))
        except _CORRUPT_ERRORS as error:
            logger.warning("%s is damaged and is compiled again: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep what was compiled for a signature, if that is possible."""
        if not can_keep() or result.lifted or result.library.has_dynamic_globals:
            return
        from numba.core import serialize

        payload = serialize.dumps(result._reduce())
        try:
            write_atomically(self._path(signature), _MAGIC + hashlib.sha256(payload).digest() + payload)
        except OSError as error:
            _cannot_keep(error.strerror or error)

    def _path(self, signature: Any) -> Path:
        return code_path(self._function, tuple(getattr(signature, "args", signature)), self._kind)


def _checked(content: bytes) -> bytes:
    """The payload of a file, whose digest is compared first."""
    payload = content[len(_MAGIC) + _DIGEST_BYTES :]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != content[len(_MAGIC) :][:_DIGEST_BYTES]:
        raise ValueError("it is not what was written")
    return payload


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all, also after a loss of power."""
    descriptor, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
