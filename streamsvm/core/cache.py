"""Disk cache of compiled code, keyed by source, compiler, options and processor.

Loading compiled code executes it. The folder is therefore used only if nobody but its owner and root can write to it.
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

from streamsvm.core.library import kernel_sources

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

NEWEST_TESTED = "0.68"
"""The newest version of numba that was tested with this package."""

# Cache folders of other keys are removed after this time without use. Several versions can share a cache.
UNUSED_S = 7 * 86_400.0
_MAGIC = b"streamsvm-code-1\n"
_DIGEST_BYTES = 32
_PACKAGE = Path(__file__).parents[1]
_PRIVATE = 0o700
# Unpickling a damaged file, or one of another numba version, can raise any exception.
_CORRUPT_ERRORS = (Exception,)


@functools.cache
def is_tested() -> bool:
    """Return whether the private parts of this numba version have been tested."""
    import numba

    return tuple(numba.version_info[:2]) <= tuple(map(int, NEWEST_TESTED.split(".")))


@functools.cache
def content_key() -> str:
    """Return the digest of sources, compiler versions, options and processor."""
    import llvmlite
    import llvmlite.binding as llvm
    import numba

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
    """Return the cache folder for the current key, and create it if possible."""
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
    import numba

    given = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME")
    return Path(os.path.abspath(given)) if given else Path.home() / ".cache"


def _private_place() -> Path:
    """Return a folder only this user can write to: in the home folder, or temporary."""
    own = Path.home() / ".cache"
    if unsafe_part(own / "streamsvm") is None:
        return own
    place = Path(tempfile.gettempdir()) / f"streamsvm-{os.getuid()}"
    with contextlib.suppress(OSError):
        place.mkdir(_PRIVATE, exist_ok=True)
    return place if unsafe_part(place) is None else Path(tempfile.mkdtemp(prefix="streamsvm-"))


def unsafe_part(folder: Path) -> str | None:
    """Return why another user could replace files in a folder, or None.

    The check covers owner and mode of the folder and of its parents.

    Parameters
    ----------
    folder
        A folder, which need not exist.

    Notes
    -----
    The rule is the one OpenSSH applies to its keys. Two kinds of parents are also accepted: folders with the sticky
    bit, such as ``/tmp``, and folders writable by a group with no other member.
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
    """Return whether a group has no member but this user.

    Systems with one group per user often make folders writable by that group.
    """
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
        members = set(grp.getgrgid(group).gr_mem)
    except KeyError:
        return False
    return group == user.pw_gid and members <= {user.pw_name}


def remove_unused(folder: Path, unused_s: float = UNUSED_S) -> list[Path]:
    """Remove cache folders of other keys that have not been used for a while.

    Parameters
    ----------
    folder
        The folder in use.
    unused_s
        Minimum number of seconds since the last use.

    Returns
    -------
    list of Path
        The removed folders.
    """
    removed = []
    with contextlib.suppress(OSError):
        for other in folder.parent.iterdir():
            if other != folder and other.is_dir() and other.stat().st_mtime < time.time() - unused_s:
                shutil.rmtree(other, ignore_errors=True)
                removed.append(other)
    return removed


def n_bytes(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class _Keeping:
    """Whether writing to the cache has failed in this process."""

    failed = False


def is_kept() -> bool:
    """Return whether the cache holds everything this process compiled."""
    return not _Keeping.failed


def can_keep() -> bool:
    """Return whether the cache appears to be writable."""
    if not os.access(cache_folder(), os.W_OK):
        _cannot_keep("the directory is not writable")
    return is_kept()


def _cannot_keep(reason: object) -> None:
    """Warn once that the cache cannot be written."""
    if not _Keeping.failed:
        _Keeping.failed = True
        logger.warning(
            "compiled code cannot be kept in %s: %s. Each process compiles the kernels; to avoid this, set "
            "NUMBA_CACHE_DIR to another directory",
            cache_folder(),
            reason,
        )


@contextlib.contextmanager
def one_at_a_time(waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the cache lock, so that one process compiles while the others wait.

    The others then load its results. The operating system releases the lock when the process ends.

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
    """Return the cache file of a function for these argument types."""
    digest = hashlib.blake2b(repr(arguments).encode() + _own_source(function.__code__.co_filename), digest_size=6)
    module = function.__module__.removeprefix("streamsvm.")
    name = f"{module}.{function.__qualname__}-{kind}-{digest.hexdigest()}"
    return cache_folder() / f"{name}.code"


@functools.cache
def _own_source(file: str) -> bytes:
    """Return the source of a kernel outside the package, not part of the cache key."""
    path = Path(file)
    return path.read_bytes() if path.is_file() and path not in kernel_sources() else b""


class CodeCache:
    """Replacement for numba's cache of one function.

    Numba's cache depends on path and age of the source file. It misses changes in called functions and fails on damaged
    files.

    Parameters
    ----------
    function
        The function.
    kind
        `"python"` for a function called from Python, `"address"` for one called by address.
    """

    def __init__(self, function: Callable[..., Any], kind: str) -> None:
        self._function, self._kind = function, kind

    @property
    def cache_path(self) -> str:
        """Path of the cache folder."""
        return str(cache_folder())

    def enable(self) -> None:
        """Do nothing: the cache is always enabled."""

    def flush(self) -> None:
        """Do nothing: entries are written immediately."""

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the cached code for a signature, or None; remove a damaged file."""
        from numba.core.compiler import CompileResult
        from numba.core.runtime import rtsys

        path = self._path(signature)
        try:
            payload = path.read_bytes()
        except OSError:
            return None
        # Compiled code needs this runtime. `target.refresh` would also import every lowering module, which takes 0.3 s.
        rtsys.initialize(target)
        try:
            return CompileResult._rebuild(target, *pickle.loads(_checked(payload)))
        except _CORRUPT_ERRORS as error:
            logger.warning("%s is damaged and is compiled again: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Write the compiled code of a signature, if possible."""
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
    """Verify the digest of a cache file and return its payload."""
    payload = content[len(_MAGIC) + _DIGEST_BYTES :]
    if content[: len(_MAGIC)] != _MAGIC or hashlib.sha256(payload).digest() != content[len(_MAGIC) :][:_DIGEST_BYTES]:
        raise ValueError("its checksum differs")
    return payload


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is complete or absent, also after a power failure."""
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
