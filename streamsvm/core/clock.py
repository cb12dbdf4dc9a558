"""A clock that stands still while kernels are compiled, so that compiling is part of no rate and no latency."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Compiling:
    """How long this process has compiled, since when it does, and in how many blocks."""

    lock = threading.Lock()
    blocks = 0
    clock: tuple[float, float | None] = (0.0, None)  # seconds until, and start of, the current compilation


def compile_seconds() -> float:
    """Return the seconds for which this process has waited for compilation."""
    seconds, began = _Compiling.clock
    return seconds + (0.0 if began is None else time.perf_counter() - began)


def working_time() -> float:
    """Return `time.perf_counter()` without the time that went into compilation."""
    return time.perf_counter() - compile_seconds()


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time within as compilation, once where blocks are nested or threads overlap."""
    with _Compiling.lock:
        if not _Compiling.blocks:
            _Compiling.clock = (compile_seconds(), time.perf_counter())
        _Compiling.blocks += 1
    try:
        yield
    finally:
        with _Compiling.lock:
            _Compiling.blocks -= 1
            if not _Compiling.blocks:
                _Compiling.clock = (compile_seconds(), None)
