"""Locks that prevent two runs from writing one file."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streamsvm.run.errors import SetupError


def lock(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Return a locked file, created if absent, or None if it is locked; closing the file unlocks it."""
    while True:
        file = open(path, "ab")  # noqa: SIM115 - the caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            file.close()
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        file.close()  # another process removed it after it was opened


@contextlib.contextmanager
def held(option: str, path: str) -> Iterator[None]:
    """Prevent other runs from writing a file or directory of results, by a lock file that is removed at the end.

    The lock is a separate file, because results may be created later or moved into place. If it cannot be created, for
    example in a read-only directory or on a file system without locks, there is no lock.

    Raises
    ------
    SetupError
        If another run holds the lock.
    """
    place = Path(path).resolve()
    beside = place.with_name(f".{place.name}.lock")
    file = None
    with contextlib.suppress(OSError):
        file = lock(beside)
        if file is None:
            raise SetupError(f"another run writes {option} {path}: wait for its end, or use another name")
    try:
        yield
    finally:
        if file is not None:
            with file, contextlib.suppress(OSError):  # a file that remains is not locked
                beside.unlink()
