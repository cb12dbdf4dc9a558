"""Solving beside the stream: one window at a time, in a thread or in a process of its own."""

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
from numpy.typing import NDArray

from streamsvm.refit.experts import Expert
from streamsvm.refit.solvers import Solution, Solver, Task

logger = logging.getLogger(__name__)

Bytes = NDArray[np.uint8]

# What a process writes when it is ready for windows.
_READY = b"ready"
# How much a process of solvers stands back where cores are few: the stream goes first, and may have to wait for it.
_NICENESS = 5
# A stream that stands still for a solver says so after so many seconds.
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
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
    """

    number: int
    event: int
    due: int


class Job:
    """A refit under way.

    Parameters
    ----------
    solver
        Who solves it.
    refit
        Which refit it is for.
    make
        Gives what is solved; it is asked in the thread of the job.
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
        self._is_given_up, self._over, self._making = False, threading.Event(), threading.Lock()
        _jobs.add(self)  # at the end of the program `_end` looks after it
        _thread.start_new_thread(self._run, ())  # unlike `Thread.start` it does not wait until that runs

    def __reduce__(self) -> Any:
        return _begun, (self._solver, self.refit, self.task)

    @property
    def task(self) -> Task:
        """What is solved."""
        with self._making:
            task = self._make()
            self._make = lambda: task
            return task

    def _run(self) -> None:
        start = time.perf_counter()
        try:
            self._found = Expert(self._solve(self.task), self.refit.number)  # here, where no event waits for it
        except Exception as error:  # nobody knows what a foreign solver raises: the stream goes on
            self._error = error
        except SystemExit as error:
            self._error = RuntimeError(f"the solver wanted to end the program with code {error.code}")
        finally:
            self.seconds = time.perf_counter() - start
            self._over.set()

    def _solve(self, task: Task) -> Solution:
        """Solve in this thread, or in a process where the solver would hold the interpreter's lock, and one can be."""
        if self._solver.holds_lock and _can_be_sent(self._solver) and not _refused.is_set():
            try:
                return self._solve_elsewhere(task)
            except _NoProcess as error:
                if not _refused.is_set():
                    _refused.set()
                    logger.warning("no process can be started for solvers, which slow the stream down now: %s", error)
        return self._solver.solve(task)

    def _solve_elsewhere(self, task: Task) -> Solution:
        """Have it solved in another process, which the program has one of."""
        with _turn:
            if self._is_given_up or _ending.is_set():
                raise RuntimeError("nobody waits for it any more")
            self._worker = worker = _worker(self._solver)
            try:
                worker.await_ready()
                if self._is_given_up or _ending.is_set():  # while it was being started
                    worker.end()
                return worker.solve(self._solver, task)
            finally:
                self._worker = None

    def give_up(self) -> None:
        """Nobody waits for it any more: a process is ended, a thread comes to its end by itself."""
        self._is_given_up = True
        if (worker := self._worker) is not None:
            worker.end()

    @property
    def is_running(self) -> bool:
        """Whether the solver is still at it."""
        return not self._over.is_set()

    def wait(self) -> None:
        """Until it is over, whatever came of it."""
        self._over.wait()

    def result(self, timeout: float | None = None) -> Any:
        """What was made of the solution; it is waited for.

        Raises
        ------
        TimeoutError
            Where that takes longer than so many seconds.
        Exception
            What the solver raised.
        """
        if self._owner != os.getpid() and self._found is None and self._error is None:
            self._begin()  # a child process has the job of its parent, but not the thread
        if not self._is_over_within(timeout):
            self.give_up()
            raise TimeoutError(f"it took longer than {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._found

    def _is_over_within(self, timeout: float | None) -> bool:
        """Whether it is over in so many seconds, beside those that its process takes to start."""
        patience = PATIENCE_S if timeout is None else min(timeout, PATIENCE_S)
        if self._over.wait(patience):
            return True
        if timeout is None or patience < timeout:
            logger.warning(
                "the refit after %d events by %s is late, and the stream stands still until it is done: other solvers "
                "and smaller windows are quicker, and rarer refits less often waited for",
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


class Asked:
    """A job that is given up once nobody holds this any more: solvers work one at a time, and others wait."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __reduce__(self) -> Any:
        return Asked, (self.job,)

    def __del__(self) -> None:
        """What nobody will ask for is given up."""
        self.job.give_up()


def _can_be_sent(solver: Solver) -> bool:
    """Whether another process can make it: what is defined in the program itself is known there alone."""
    try:
        return b"__main__" not in pickle.dumps(solver, pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError):
        return False


class _NoProcess(Exception):
    """A process cannot be started here, or not use this package."""


class _Worker:
    """A process that solves, one window after another: what it has imported once it has at hand.

    Parameters
    ----------
    solver
        Whom it is to be ready for, where that can be sent.
    """

    def __init__(self, solver: Solver | None = None) -> None:
        command = [sys.executable, "-c", "from streamsvm.refit.jobs import main; main()"]
        # Ctrl-C and the like are for the program, which saves what is under way: the solver goes on until it is ended.
        # In a session of its own it would not stand back: Linux shares processors out by session first.
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        except (OSError, ValueError) as error:
            raise _NoProcess(str(error)) from error
        self._owner = os.getpid()
        self._was_ended = False
        self.has_started = threading.Event()
        """Set once it takes windows, or will never."""
        # A pipe holds little, and it reads only once it has imported all it needs.
        _thread.start_new_thread(self._introduce, (solver,))

    @property
    def is_alive(self) -> bool:
        """Whether it is there, and of this process: a child has the pipes of its parent, which are not its own."""
        return not self._was_ended and self._process.poll() is None and self._owner == os.getpid()

    def _introduce(self, solver: Solver | None) -> None:
        with suppress(OSError, ValueError):  # where it has ended, whoever needs it will see that
            self._ask(solver)

    def end(self) -> None:
        """Have it over, whatever it is at."""
        is_alive, self._was_ended = self.is_alive, True
        if is_alive:
            self._process.kill()

    def await_ready(self) -> None:
        """Until it takes windows."""
        assert self._process.stdout is not None
        if self.has_started.is_set():
            return
        try:
            if self._process.stdout.read(len(_READY)) != _READY and not self._was_ended:
                raise _NoProcess(f"it ended with code {self._process.wait()}")
        finally:
            self.has_started.set()

    def solve(self, solver: Solver, task: Task) -> Solution:
        """Ask, and wait for the answer."""
        assert self._process.stdout is not None
        try:
            self._ask((solver, task))
            found = _read(self._process.stdout)
        except (BrokenPipeError, EOFError) as error:
            raise RuntimeError(f"the process of the solver ended with code {self._process.wait()}") from error
        if isinstance(found, BaseException):
            raise found
        solution: Solution = found
        return solution

    def _ask(self, question: Any) -> None:
        """The modules of a solver are looked for as here, so the path has to be there before it is read."""
        assert self._process.stdin is not None
        _write(self._process.stdin, sys.path)
        _write(self._process.stdin, question)


_turn = threading.Lock()
_refused = threading.Event()
_workers: list[_Worker] = []
# Those of the parent of this process: were they let go, what is in their buffers would be written to its pipes.
_inherited: list[_Worker] = []
_jobs: weakref.WeakSet[Job] = weakref.WeakSet()
_ending = threading.Event()


def _start_anew() -> None:
    """Let go, in a child process, of what the threads of its parent held."""
    global _turn
    _turn = threading.Lock()
    _inherited.extend(_workers)
    _workers.clear()
    _jobs.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)


@atexit.register
def _end() -> None:
    """End what is under way: were the interpreter to end around a thread in compiled code, the program is aborted."""
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
    """Begin to start the process that the solver will run in: that takes as long as many events do."""
    if solver.holds_lock and _can_be_sent(solver) and not _refused.is_set() and _turn.acquire(blocking=False):
        try:
            with suppress(_NoProcess):  # whoever needs it will say so
                _worker(solver)
        finally:
            _turn.release()


def _write(pipe: IO[bytes], message: Any) -> None:
    """Write to another process. Arrays go as they are: to copy them would hold the interpreter's lock."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    parts = [memoryview(content), *(buffer.raw() for buffer in buffers)]
    for number in (len(parts), *(part.nbytes for part in parts)):
        pipe.write(number.to_bytes(8, "little"))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    return _understood(_read_parts(pipe))


def _understood(parts: list[Bytes]) -> Any:
    """The message that `_write` was given."""
    return pickle.loads(parts[0].data, buffers=parts[1:])


def _read_parts(pipe: IO[bytes]) -> list[Bytes]:
    lengths = [_read_number(pipe) for _ in range(_read_number(pipe))]
    return [_read_bytes(pipe, length) for length in lengths]


def _read_number(pipe: IO[bytes]) -> int:
    return int.from_bytes(_read_bytes(pipe, 8), "little")


def _read_bytes(pipe: IO[bytes], length: int) -> Bytes:
    content = np.empty(length, np.uint8)  # a `bytearray` would be cleared, and the interpreter's lock held so long
    if pipe.readinto(content) < length:  # type: ignore[attr-defined]
        raise EOFError
    return content


def main() -> None:
    """Solve what comes by the standard input, until it ends, or nobody is there to be answered."""
    try:
        _solve_what_comes()
    except BrokenPipeError:
        os._exit(0)  # another thread still reads what it would close


def _solve_what_comes() -> None:
    if hasattr(os, "nice"):
        os.nice(_NICENESS)
    answers, questions = os.fdopen(os.dup(sys.stdout.fileno()), "wb"), SimpleQueue[tuple[list[str], list[Bytes]]]()
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a solver prints is no answer
    warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)  # a window may have many
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    sys.path, question = questions.get()
    with suppress(Exception):  # what it cannot do it will say when it is asked
        _understood(question).warm_up()
    answers.write(_READY)
    answers.flush()
    while True:
        found: Any
        sys.path, question = questions.get()
        try:
            solver, task = _understood(question)
            found = solver.solve(task)
        except Exception as error:  # told to the process that asked
            found = error
        try:
            _write(answers, found)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            _write(answers, RuntimeError(f"{found!r} cannot be handed over: {error}"))


def _listen(questions: SimpleQueue[tuple[list[str], list[Bytes]]]) -> None:
    """Take down what is asked; where nobody is left to ask, whoever was killed wants no answer either."""
    asked = sys.stdin.buffer
    while True:
        try:
            questions.put((_read(asked), _read_parts(asked)))
        except EOFError:
            os._exit(0)
