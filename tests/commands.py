"""The command line, in this process or in a separate one.

Most of the time of a short run is the start of Python. Runs that need a process of their own, for example for signals,
are forks of a process that has imported and compiled everything (`tests.warm`). Tests of the start itself, or of
variables read then, start `command` instead.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.warm"])
_server: Any = forkserver._forkserver  # type: ignore[attr-defined]
_SHARED = "STREAMSVM_TEST_FORKS"
if _SHARED in os.environ:  # a worker of pytest-xdist
    _server._forkserver_address = os.environ[_SHARED]
    _server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
    _server.ensure_running = lambda: None


def preload(module: str) -> None:
    """Import another module, too, in the process to fork, unless it has started."""
    _forks.set_forkserver_preload(["tests.warm", module])


def share_forks() -> None:
    """Start one process to fork for all workers of pytest-xdist, which start later.

    Each worker's own would cost 3 s of processor time.
    """
    preload("streamsvm.keyed.worker")
    _server.ensure_running()
    os.environ[_SHARED] = _server._forkserver_address


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}


def command(*arguments: Any) -> list[str]:
    """Return the command that starts the command line in a new interpreter."""
    return [sys.executable, "-m", "streamsvm", *map(str, arguments)]


class Command:
    """A running command of `streamsvm`, modelled on `subprocess.Popen`.

    Parameters
    ----------
    arguments
        Arguments of the command line.
    cwd
        Working directory.
    stdin
        Input file.
    stdout, stderr
        Files to append to; they may be equal.
    more
        Additional environment variables.
    most_bytes
        Limit of file sizes in bytes. Larger writes fail, as on a full disk.
    prepare
        Module function to call before the command.
    """

    def __init__(
        self,
        *arguments: Any,
        cwd: Path,
        stdin: str | Path = os.devnull,
        stdout: str | Path = os.devnull,
        stderr: str | Path = os.devnull,
        more: Mapping[str, str] | None = None,
        most_bytes: int = resource.RLIM_INFINITY,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        asked = ([*map(str, arguments)], cwd, (stdin, stdout, stderr), more or {}, most_bytes, prepare)
        self._process = _forks.Process(target=_run, args=asked)
        self._process.start()

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None if it is running."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("streamsvm", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has exited."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()


def ran_here(*arguments: Any, cwd: Path, check: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process."""
    from streamsvm import cli

    given, out, err = [*map(str, arguments)], io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(given)
        except SystemExit as ended:  # help and version
            code = int(ended.code or 0)
    result = subprocess.CompletedProcess(given, code, out.getvalue(), err.getvalue())
    if check:
        result.check_returncode()
    return result


def completed(
    *arguments: Any, cwd: Path, input: str = "", timeout: float = 120.0, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in a fork, like `subprocess.run`.

    `how` are the options of `Command`.
    """
    with tempfile.TemporaryDirectory() as folder:
        stdin, stdout, stderr = (Path(folder, name) for name in ("in", "out", "err"))
        stdin.write_text(input, encoding="utf-8")
        files = {"stdin": stdin, "stdout": stdout, "stderr": stderr} | how
        with Command(*arguments, cwd=cwd, **files) as process:
            code = process.wait(timeout)
        said = stdout.read_text() if stdout.exists() else ""
        result = subprocess.CompletedProcess([*map(str, arguments)], code, said, stderr.read_text())
    if check:
        result.check_returncode()
    return result


def _run(
    arguments: list[str],
    cwd: Path,
    files: tuple[str | Path, ...],
    more: Mapping[str, str],
    most_bytes: int,
    prepare: Callable[[], object] | None,
) -> None:
    from streamsvm.__main__ import main

    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    os.environ.update(more)
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))  # like `python -m`
    sys.argv[1:] = arguments
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    if prepare is not None:
        prepare()
    sys.dont_write_bytecode = most_bytes != resource.RLIM_INFINITY  # it would be truncated
    sys.exit(main())


def wait_for(found: Callable[[], Any], what: str = "it", seconds: float = 60.0, every: float = 0.1) -> Any:
    """Wait until a function returns a true value, and return it."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(every)
    return value
