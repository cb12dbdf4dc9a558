"""Process that solves the windows of all refits, one after another.

Solvers hold the interpreter's lock, which would stop the stream if they ran in this process.
"""

from __future__ import annotations

import _thread
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import IO, Any

import numpy as np

from streamsvm.locks import Lock
from streamsvm.refit.solvers import Solver
from streamsvm.refit.tasks import Solution, Task

# A process writes this when it is ready for windows, perhaps after output of modules that it imports.
_READY = b"ready for windows\n"
_NICENESS = 5  # of the process: the stream has priority


class NoProcess(Exception):
    """A process cannot be started here or cannot import this package."""


class SolverProcess:
    """Process that solves one window after another; it loads a solver at the start."""

    def __init__(self, solver: Solver | None = None) -> None:
        # The import path is that of this process: the working directory may contain modules of any names.
        code = f"import sys; sys.argv[1:], sys.path = [], sys.argv[1:]; from {__name__} import main; main()"
        command = [sys.executable, "-P", "-c", code, *map(str, sys.path)]
        # A separate process group, because Ctrl-C is for the program, which saves the task. Not a separate session,
        # because Linux distributes CPU time by session before niceness.
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        except (OSError, ValueError) as error:
            raise NoProcess(str(error)) from error
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
                raise NoProcess(f"it ended with code {self._code()}")
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


turn = Lock()
"""Lock of the process, held while it solves a window."""
refused = threading.Event()
"""Set once no process could be started here."""
_processes: list[SolverProcess] = []
# Processes of the parent process. Deleting them would flush their buffers into its pipes.
_inherited: list[SolverProcess] = []


def _reset_after_fork() -> None:
    """Start another process in a forked child."""
    _inherited.extend(_processes)
    _processes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


def can_solve(solver: Solver) -> bool:
    """Return whether a process may be started, and can unpickle the solver.

    It cannot if the class of the solver is defined in `__main__`.
    """
    if refused.is_set():
        return False
    try:
        return b"__main__" not in pickle.dumps(solver, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return False


def process_for(solver: Solver) -> SolverProcess:
    """Return the running process, or start one that loads a solver."""
    if not (_processes and _processes[-1].is_alive):
        _processes[:] = [SolverProcess(solver)]
    return _processes[-1]


def end_processes() -> None:
    """Kill the process, if there is one."""
    for process in _processes:
        process.end()


def get_ready(solver: Solver) -> None:
    """Start the process of the solver in the background."""
    if can_solve(solver) and turn.acquire(blocking=False):
        try:
            with suppress(NoProcess):  # reported by the first refit
                process_for(solver)
        finally:
            turn.release()


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
