"""Solving beside the stream: one window at a time, in a thread or in a process of its own."""

from __future__ import annotations

import atexit
import pickle
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsvm.refit.solvers import Solution, Solver, Task

# The prompt by which the other process says that what follows is the answer, and not a print of somebody's.
_READY = b"streamsvm solution\n"


@dataclass(slots=True)
class Refit:
    """A window that is being solved, or was.

    Parameters
    ----------
    number
        The how many-th it is.
    event
        The labelled event after which it was begun.
    due
        The labelled event after which its model enters.
    task
        What is solved.
    """

    number: int
    event: int
    due: int
    task: Task


class Job:
    """A refit under way."""

    def __init__(self, solver: Solver, refit: Refit) -> None:
        self.refit = refit
        self.seconds = 0.0
        self._solver = solver
        self._solution: Solution | None = None
        self._error: BaseException | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        # A daemon: at the end of the program `end` looks after it.
        self._thread = threading.Thread(target=self._run, name="streamsvm-refit", daemon=True)
        _jobs.add(self)
        self._thread.start()

    def __reduce__(self) -> Any:
        return Job, (self._solver, self.refit)

    def _run(self) -> None:
        start = time.perf_counter()
        try:
            if self._solver.holds_lock:
                self._solution = _solve_elsewhere(self._solver, self.refit.task, self._take_process)
            else:
                self._solution = self._solver.solve(self.refit.task)
        except Exception as error:  # nobody knows what a foreign solver raises: the stream goes on
            self._error = error
        self.seconds = time.perf_counter() - start

    def _take_process(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self._is_ended:
            process.kill()

    def end(self) -> None:
        """Have it over: another process is ended; a thread cannot be, and is waited for."""
        self._is_ended = True
        if self._process is not None:
            self._process.kill()
        self._thread.join()

    def result(self, timeout: float | None = None) -> Solution:
        """What the solver found; it is waited for.

        Raises
        ------
        TimeoutError
            Where that takes longer than so many seconds.
        Exception
            What the solver raised.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"it took longer than {timeout:g} s")
        if self._error is not None:
            raise self._error
        assert self._solution is not None
        return self._solution


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End what is under way: where the interpreter ends around a thread in compiled code, the program is aborted."""
    for job in list(_jobs):
        job.end()


def _solve_elsewhere(solver: Solver, task: Task, started: Callable[[subprocess.Popen[bytes]], None]) -> Solution:
    """Have it solved in another process, which is told by its standard input and tells by its output."""
    command = [sys.executable, "-m", "streamsvm.refit.jobs"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with process:
        started(process)
        try:
            said, complained = process.communicate(pickle.dumps((sys.path, solver, task), pickle.HIGHEST_PROTOCOL))
        finally:
            process.kill()
    _, ready, answer = said.partition(_READY)
    if not ready:
        raise RuntimeError(f"the process of the solver ended: {complained.decode(errors='replace')[-1000:]}")
    found = pickle.loads(answer)
    if isinstance(found, BaseException):
        raise found
    solution: Solution = found
    return solution


def main() -> None:
    """Solve what comes by the standard input."""
    found: Any
    try:
        sys.path, solver, task = pickle.loads(sys.stdin.buffer.read())
        found = solver.solve(task)
    except Exception as error:  # told to the process that asked
        found = RuntimeError(f"{type(error).__name__}: {error}")
    sys.stdout.buffer.write(_READY + pickle.dumps(found, pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
