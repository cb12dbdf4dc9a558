"""Locks, so that no two runs write the same files."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streamsvm.run.errors import SetupError


def lock(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """A file, made if absent, locked until it is closed or the process ends; None where somebody else holds it."""
    while True:
        file = open(path, "ab")  # noqa: SIM115 - held by the caller
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
        file.close()  # its last holder removed it after it was opened


@contextlib.contextmanager
def held(option: str, path: str) -> Iterator[None]:
    """Keep other runs from writing a file or directory of results, by a lock beside it that is removed at the end.

    It stands beside, because results may be made late, or moved into place whole. Where it cannot be made, as in a
    directory that may not be written or on a file system without locks, there is none.

    Raises
    ------
    SetupError
        Where another run holds it.
    """
    place = Path(path).resolve()
    beside = place.with_name(f".{place.name}.lock")
    file = None
    with contextlib.suppress(OSError):
        file = lock(beside)
        if file is None:
            raise SetupError(f"another run writes {option} {path}: wait for it, or give another name")
    try:
        yield
    finally:
        if file is not None:
            beside.unlink(missing_ok=True)
            file.close()
