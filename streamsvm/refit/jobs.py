"""Background jobs: each solves the window of a refit, in a process or a thread."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamsvm.refit.refitted_model import RefittedModel
from streamsvm.refit.solver_process import (
    NoProcess,
    SolverProcess,
    can_solve,
    end_processes,
    process_for,
    refused,
    turn,
)
from streamsvm.refit.solvers import Solver
from streamsvm.refit.tasks import Solution, Task

logger = logging.getLogger(__name__)

# Seconds of waiting for a solver after which a warning is logged.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Refit:
    """Number and events of a refit."""

    number: int  # from 1
    event: int  # labelled events before it started
    due: int  # labelled events before its model enters the vote


class Job:
    """A background job that solves a window.

    Parameters
    ----------
    solver
        The solver.
    refit
        The refit.
    make
        Function that makes the task, called in the thread of the job.
    """

    def __init__(self, solver: Solver, refit: Refit, make: Callable[[], Task]) -> None:
        self.refit, self._make = refit, make
        self.seconds = 0.0
        self._solver = solver
        self._found: Any = None
        self._error: BaseException | None = None
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._process: SolverProcess | None = None  # while it solves the window
        self._is_cancelled, self._over, self._making = False, threading.Event(), threading.Lock()
        # Reentrant, because garbage collection may cancel the job in the thread that holds the lock.
        self._ownership = threading.RLock()
        _jobs.add(self)  # waited for at the end of the program
        _thread.start_new_thread(self._run, ())  # unlike `Thread.start` this does not wait for the thread

    def __reduce__(self) -> Any:
        return _begun, (self._solver, self.refit, self.task)

    @property
    def task(self) -> Task:
        """The task of the solver."""
        with self._making:
            task = self._make()
            self._make = lambda: task
            return task

    def _run(self) -> None:
        start = time.perf_counter()
        try:
            self._found = RefittedModel(
                self._solve(self.task), self.refit.number, self.task
            )  # in this thread: no event waits
        except Exception as error:  # a foreign solver may raise anything; the stream continues
            self._error = error
        except SystemExit as error:
            self._error = RuntimeError(f"the solver tried to exit with code {error.code}")
        finally:
            self.seconds = time.perf_counter() - start
            self._over.set()

    def _solve(self, task: Task) -> Solution:
        """Solve in the process, or in this thread if no process can be used."""
        if can_solve(self._solver):
            try:
                return self._solve_elsewhere(task)
            except NoProcess as error:
                if not refused.is_set():
                    refused.set()
                    logger.warning("no process can be started for solvers; they run in this one and slow it: %s", error)
        return self._solver.solve(task)

    def _solve_elsewhere(self, task: Task) -> Solution:
        """Solve in the process."""
        with turn:
            if self._is_cancelled or _ending.is_set():
                raise RuntimeError("it was cancelled")
            self._process = process = process_for(self._solver)
            try:
                process.await_ready()
                if self._is_cancelled or _ending.is_set():  # during the start
                    process.end()
                return process.solve(self._solver, task)
            finally:
                with self._ownership:
                    self._process = None

    def cancel(self) -> None:
        """Cancel the job. A process is killed; a thread runs to its end."""
        self._is_cancelled = True
        if self._owner != os.getpid():
            return
        with self._ownership:  # otherwise the process may already solve the window of another job
            if self._process is not None:
                self._process.end()

    def wait(self) -> None:
        """Wait for the end of the job."""
        self._over.wait()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the model and return it.

        Raises
        ------
        TimeoutError
            If the job takes longer than `timeout` seconds.
        Exception
            As raised by the solver.
        """
        if self._owner != os.getpid() and self._found is None and self._error is None:
            self._begin()  # a forked child has no thread for the job
        if not self._is_over_within(timeout):
            self.cancel()
            raise TimeoutError(f"it took longer than {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._found

    def _is_over_within(self, timeout: float | None) -> bool:
        """Return whether the job ends within `timeout` seconds.

        The start of its process does not count.
        """
        patience = PATIENCE_S if timeout is None else min(timeout, PATIENCE_S)
        if self._over.wait(patience):
            return True
        if timeout is None or patience < timeout:
            logger.warning(
                "the stream waits for the refit after %d events by %s: use a faster solver, a smaller window, a longer "
                "delay, or fewer refits",
                self.refit.event,
                self._solver.name,
            )
            if self._over.wait(None if timeout is None else timeout - patience):
                return True
        process = self._process
        if process is None or process.has_started.is_set():
            return False
        process.has_started.wait()
        return self._over.wait(timeout)


def _begun(solver: Solver, refit: Refit, task: Task) -> Job:
    return Job(solver, refit, lambda: task)


class JobHandle:
    """A reference to a job; deleting the last one gives up the job."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __reduce__(self) -> Any:
        return JobHandle, (self.job,)

    def __del__(self) -> None:
        self.job.cancel()


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()
_ending = threading.Event()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_jobs.clear)


@atexit.register
def _end() -> None:
    """Wait for all jobs at the end of the program.

    The interpreter aborts if it exits while another thread runs compiled code.
    """
    _ending.set()
    end_processes()
    for job in list(_jobs):
        job.wait()
