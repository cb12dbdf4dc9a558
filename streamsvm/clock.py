"""A clock that stands still while kernels are compiled, so that compiling is part of no rate and no latency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class _Compiling:
    """How long this process has compiled, and since when it does."""

    seconds = 0.0
    began: float | None = None


def compile_seconds() -> float:
    """Return the seconds for which this process has waited for compilation."""
    began = _Compiling.began
    return _Compiling.seconds + (0.0 if began is None else time.perf_counter() - began)


def working_time() -> float:
    """Return `time.perf_counter()` without the time that went into compilation."""
    return time.perf_counter() - compile_seconds()


@contextmanager
def compiling() -> Iterator[None]:
    """Count the time within as compilation."""
    if _Compiling.began is not None:  # another thread, or an outer block, counts it
        yield
        return
    _Compiling.began = time.perf_counter()
    try:
        yield
    finally:
        _Compiling.seconds, _Compiling.began = compile_seconds(), None
