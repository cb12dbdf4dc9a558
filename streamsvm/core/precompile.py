"""Compilation before first use, in parallel processes that share the disk cache."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numba.core import event

from streamsvm.core.cache import cache_folder, can_keep, one_at_a_time
from streamsvm.core.clock import compiling
from streamsvm.core.entry_points import EntryPoint, Listener

logger = logging.getLogger(__name__)

JOBS = "STREAMSVM_JOBS"
"""The environment variable that says in how many processes to compile; by default in as many as there are cores."""

# Minimum number of functions per process: starting one costs as much as compiling these.
_LEAST_SHARE = 20
_SAY_EVERY_S = 5.0

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
    progress = _Progress(len(set[str]().union(*(entry.reached() for entry in cold))))
    others = [_Other(share, progress) for share in shares[1:]]
    try:
        _Current.progress = progress
        for entry in shares[0]:
            entry.compile()
        for other in others:
            other.wait()
    finally:
        _Current.progress = None
        for other in others:
            other.stop()
        progress.close()


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


def _say(text: str, *arguments: object) -> None:
    """Log a line, or print it to standard error if logging is not configured."""
    package = logging.getLogger("streamsvm")
    if package.hasHandlers() or package.level != logging.NOTSET:
        logger.info(text, *arguments)
    elif sys.stderr is not None:
        print(f"streamsvm: {text % arguments}", file=sys.stderr, flush=True)


def _say_waiting() -> None:
    _say("waiting for another process that compiles the kernels")


class _Said:
    """Whether this process has announced that it compiles."""

    done = False


def _say_compiling(total: int | None = None) -> None:
    """Announce once that compilation takes a while."""
    if _Said.done:
        return
    _Said.done = True
    what = "kernels" if total is None else f"{total} functions"
    if can_keep():
        _say(
            "compiling %s, once on this machine (15 to 40 s for the default classifier); kept in %s",
            what,
            cache_folder(),
        )
    else:
        _say("compiling %s (15 to 40 s for the default classifier)", what)


class _Other:
    """Another process that compiles entry points."""

    def __init__(self, entries: Sequence[EntryPoint], progress: _Progress) -> None:
        self._progress = progress
        names = [entry.name for entry in entries]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(_import_path())}
        command = [sys.executable, "-P", "-m", "streamsvm.core.entry_points", *names]
        self._process: subprocess.Popen[str] | None = None
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return  # its entry points are compiled at their first call
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, lines: Any) -> None:
        for line in lines:
            self._progress.done(line.strip())

    def wait(self) -> None:
        if self._process is not None:
            self._reader.join()
            self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


class _Progress:
    """Progress of the compilation: a bar on a terminal, lines in the log otherwise."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._lock = total, set[str](), threading.Lock()
        self._said = time.monotonic()
        self._bar: Any = None
        if sys.stderr is not None and sys.stderr.isatty() and logging.getLogger("streamsvm").level <= logging.INFO:
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc="compiling, once on this machine", unit=" functions", leave=False)
        else:
            _say_compiling(total)

    def done(self, name: str) -> None:
        """Count a function as compiled, by this or another process."""
        with self._lock:
            if name in self._done:
                return
            self._done.add(name)
            n = min(len(self._done), self._total)
            if self._bar is not None:
                self._bar.set_postfix_str(name, refresh=False)
                self._bar.update(n - self._bar.n)
            elif time.monotonic() - self._said > _SAY_EVERY_S:
                self._said = time.monotonic()
                _say("%d of %d functions are compiled", n, self._total)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Current:
    """Progress that receives the compilations of this process."""

    progress: _Progress | None = None


def _tell(name: str) -> None:
    if _Current.progress is not None:
        _Current.progress.done(name)
    else:
        _say_compiling()


event.register("numba:compile", Listener(_tell))
