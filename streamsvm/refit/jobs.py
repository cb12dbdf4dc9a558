"""Background jobs that solve a window each, in a separate process or a thread."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any

import numpy as np

from streamsvm.refit.refitted_model import RefittedModel
from streamsvm.refit.solvers import Solver
from streamsvm.refit.tasks import Solution, Task

logger = logging.getLogger(__name__)

# A process writes this when it is ready for windows, perhaps after output of modules that it imports.
_READY = b"ready for windows\n"
_NICENESS = 5  # of the process: the stream has priority
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
        self._worker: _Worker | None = None
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
        """Solve in a process, or in this thread if no process can be used.

        Solvers hold the GIL, which would stop the stream.
        """
        if _can_be_sent(self._solver) and not _refused.is_set():
            try:
                return self._solve_elsewhere(task)
            except _NoProcess as error:
                if not _refused.is_set():
                    _refused.set()
                    logger.warning("no process can be started for solvers; they run in this one and slow it: %s", error)
        return self._solver.solve(task)

    def _solve_elsewhere(self, task: Task) -> Solution:
        """Solve in the separate process."""
        with _turn:
            if self._is_cancelled or _ending.is_set():
                raise RuntimeError("it was cancelled")
            self._worker = worker = _worker(self._solver)
            try:
                worker.await_ready()
                if self._is_cancelled or _ending.is_set():  # during the start
                    worker.end()
                return worker.solve(self._solver, task)
            finally:
                with self._ownership:
                    self._worker = None

    def cancel(self) -> None:
        """Cancel the job. A process is killed; a thread runs to its end."""
        self._is_cancelled = True
        if self._owner != os.getpid():
            return
        with self._ownership:  # otherwise the process may already solve the window of another job
            if self._worker is not None:
                self._worker.end()

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
        worker = self._worker
        if worker is None or worker.has_started.is_set():
            return False
        worker.has_started.wait()
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


def _can_be_sent(solver: Solver) -> bool:
    """Return whether another process can unpickle a solver.

    It cannot if the class of the solver is defined in `__main__`.
    """
    try:
        return b"__main__" not in pickle.dumps(solver, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return False


class _NoProcess(Exception):
    """A process cannot be started here or cannot import this package."""


class _Worker:
    """Process that solves one window after another; it loads a solver at the start."""

    def __init__(self, solver: Solver | None = None) -> None:
        # The import path is that of this process: the working directory may contain modules of any names.
        code = "import sys; sys.argv[1:], sys.path = [], sys.argv[1:]; from streamsvm.refit.jobs import main; main()"
        command = [sys.executable, "-P", "-c", code, *map(str, sys.path)]
        # A separate process group, because Ctrl-C is for the program, which saves the task. Not a separate session,
        # because Linux distributes CPU time by session before niceness.
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        except (OSError, ValueError) as error:
            raise _NoProcess(str(error)) from error
        self._owner = os.getpid()
        self._was_ended = False
        self.has_started = threading.Event()
        """Set when the process is ready for windows or has failed."""
        # In a thread, because the pipe is small and the process first imports everything.
        _thread.start_new_thread(self._introduce, (solver,))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs and belongs to this process, not to its parent."""
        return not self._was_ended and self._process.poll() is None and self._owner == os.getpid()

    def _introduce(self, solver: Solver | None) -> None:
        with suppress(OSError, ValueError):  # the next call reports an ended process
            self._send(solver)

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, message)
        except OSError:
            with suppress(OSError):  # its buffer cannot be written; since Python 3.13, deleting the pipe would say so
                self._process.stdin.close()
            raise

    def end(self) -> None:
        """Kill the process."""
        is_alive, self._was_ended = self.is_alive, True
        if is_alive:
            self._process.kill()

    def await_ready(self) -> None:
        """Wait until the process is ready for windows."""
        assert self._process.stdout is not None
        if self.has_started.is_set():
            return
        try:
            if not any(line.endswith(_READY) for line in self._process.stdout) and not self._was_ended:
                raise _NoProcess(f"it ended with code {self._code()}")
        finally:
            self.has_started.set()

    def _code(self) -> int:
        """Return the exit code; kill a process that closed or broke its pipe, but runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0)
        self._process.kill()
        return self._process.wait()

    def solve(self, solver: Solver, task: Task) -> Solution:
        """Send a task and wait for the solution."""
        assert self._process.stdout is not None
        try:
            self._send((solver, task))
            found = _read(self._process.stdout)[1]()
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            raise RuntimeError(f"the process of the solver ended with code {self._code()}") from error
        if isinstance(found, BaseException):
            raise found
        solution: Solution = found
        return solution


_turn = threading.Lock()
_refused = threading.Event()
_workers: list[_Worker] = []
# Workers of the parent process. Deleting them would flush their buffers into its pipes.
_inherited: list[_Worker] = []
_jobs: weakref.WeakSet[Job] = weakref.WeakSet()
_ending = threading.Event()


def _reset_after_fork() -> None:
    """Reset, in a forked child, what belongs to the threads of the parent."""
    global _turn
    _turn = threading.Lock()
    _inherited.extend(_workers)
    _workers.clear()
    _jobs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@atexit.register
def _end() -> None:
    """Wait for all jobs at the end of the program.

    The interpreter aborts if it exits while another thread runs compiled code.
    """
    _ending.set()
    for worker in _workers:
        worker.end()
    for job in list(_jobs):
        job.wait()


def _worker(solver: Solver) -> _Worker:
    if not (_workers and _workers[-1].is_alive):
        _workers[:] = [_Worker(solver)]
    return _workers[-1]


def get_ready(solver: Solver) -> None:
    """Start the process of the solver in the background."""
    if _can_be_sent(solver) and not _refused.is_set() and _turn.acquire(blocking=False):
        try:
            with suppress(_NoProcess):  # reported by the first refit
                _worker(solver)
        finally:
            _turn.release()


def _write(pipe: IO[bytes], message: Any) -> None:
    """Write a message without a copy of its arrays.

    The import path precedes it, because unpickling may need it.
    """
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]  # a copy would hold the interpreter's lock
    pickle.dump((sys.path, content, [array.nbytes for array in arrays]), pipe)
    for array in arrays:
        pipe.write(array)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[list[str], Callable[[], Any]]:
    """Return the import path and a function that returns the message."""
    path, content, lengths = pickle.load(pipe)
    buffers = [np.empty(length, np.uint8) for length in lengths]
    for buffer in buffers:
        if pipe.readinto(buffer) < len(buffer):  # type: ignore[attr-defined]
            raise EOFError
    return path, lambda: pickle.loads(content, buffers=buffers)


def main() -> None:
    """Solve the tasks from standard input until it ends."""
    try:
        _serve()
    except BrokenPipeError:
        os._exit(0)  # another thread is still reading from the pipe


def _serve() -> None:
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    answers, questions = os.fdopen(os.dup(sys.stdout.fileno()), "wb"), SimpleQueue[Any]()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # solvers may print
    warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # expected in windows
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    sys.path, question = questions.get()
    with suppress(Exception):  # reported when a task comes
        question().warm_up()
    answers.write(_READY)
    answers.flush()
    while True:
        found: Any
        sys.path, question = questions.get()
        try:
            solver, task = question()
            found = solver.solve(task)
        except (Exception, SystemExit) as error:  # sent to the other process
            found = error
        try:
            if isinstance(found, BaseException):
                pickle.loads(pickle.dumps(found))  # many exceptions with parameters can be pickled, but not unpickled
            _write(answers, found)
        except Exception as error:
            _write(answers, RuntimeError(f"{found!r} cannot be sent: {error}"))


def _listen(questions: SimpleQueue[Any]) -> None:
    """Queue the questions, and exit when the other process ends."""
    while True:
        try:
            questions.put(_read(sys.stdin.buffer))
        except (EOFError, pickle.UnpicklingError):
            os._exit(0)
