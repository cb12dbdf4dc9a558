"""Compilation before first use, in parallel processes that share the disk cache."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streamsvm.core.cache import cache_folder, can_keep, one_at_a_time
from streamsvm.core.clock import compiling
from streamsvm.core.entry_points import EntryPoint

logger = logging.getLogger(__name__)

JOBS = "STREAMSVM_JOBS"
"""Environment variable: number of compiling processes, by default one per core."""

# Minimum number of functions per process: starting one costs as much as compiling these.
_LEAST_SHARE = 20

_ready: set[str] = set()


def prepare(entries: Sequence[EntryPoint], jobs: int | None = None) -> None:
    """Compile entry points that are not in the cache yet.

    Parameters
    ----------
    entries
        Entry points about to be called.
    jobs
        Number of processes, by default as in `JOBS`. If no other process can be started, this one compiles everything.
    """
    # Small batches call this often, so the disk is checked once per entry point.
    cold = [entry for entry in entries if entry.name not in _ready and not entry.is_compiled]
    if cold:
        with compiling(), one_at_a_time(_say_waiting):
            cold = [entry for entry in cold if not entry.is_compiled]
            if cold:
                _compile(cold, jobs)
    _ready.update(entry.name for entry in entries)


def _compile(cold: Sequence[EntryPoint], jobs: int | None) -> None:
    shares = _shares(cold, (jobs or _jobs()) if can_keep() else 1)  # results of other processes pass through the cache
    say_compiling()
    others = list(filter(None, map(_start, shares[1:])))
    try:
        for entry in shares[0]:
            entry.compile()
        for other in others:
            other.wait()
    finally:
        for other in others:
            other.terminate()
            other.wait()


def _jobs() -> int:
    asked = os.environ.get(JOBS, "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(int(asked), 1) if asked.isdecimal() else cores


def _shares(entries: Sequence[EntryPoint], jobs: int) -> list[list[EntryPoint]]:
    """Distribute entry points over processes, each to the one with the least work."""
    sizes = {entry.name: len(entry.reached()) for entry in entries}
    jobs = max(min(jobs, len(entries), sum(sizes.values()) // _LEAST_SHARE), 1)
    shares: list[list[EntryPoint]] = [[] for _ in range(jobs)]
    reached: list[set[str]] = [set() for _ in range(jobs)]
    for entry in sorted(entries, key=lambda entry: -sizes[entry.name]):
        least = min(range(jobs), key=lambda i: len(reached[i] | entry.reached()))
        shares[least].append(entry)
        reached[least] |= entry.reached()
    return [share for share in shares if share]


def _import_path() -> list[str]:
    """Return absolute import paths for another process, including this package."""
    places = [os.path.abspath(place) for place in sys.path]
    package = str(Path(__file__).resolve().parents[2])
    return places if package in map(os.path.realpath, places) else [package, *places]


def _log_line(text: str, *arguments: object) -> None:
    """Log a line, or print it to standard error if logging is not configured."""
    package = logging.getLogger("streamsvm")
    if package.hasHandlers() or package.level != logging.NOTSET:
        logger.info(text, *arguments)
    elif sys.stderr is not None:
        print(f"streamsvm: {text % arguments}", file=sys.stderr, flush=True)


def _say_waiting() -> None:
    _log_line("waiting for another process that compiles the kernels")


class _Said:
    """Whether this process has announced that it compiles."""

    done = False


def say_compiling() -> None:
    """Announce once that compilation takes a while."""
    if _Said.done:
        return
    _Said.done = True
    kept = f", once on this machine; kept in {cache_folder()}" if can_keep() else ""
    _log_line("compiling kernels (15 to 40 s for the default classifier)%s", kept)


def _start(entries: Sequence[EntryPoint]) -> subprocess.Popen[bytes] | None:
    """Start another process that compiles entry points.

    If it cannot be started or fails, the first call of each entry point compiles it.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(_import_path())}
    command = [sys.executable, "-P", "-m", "streamsvm.core.entry_points", *(entry.name for entry in entries)]
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        return subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    return None
