"""The command line in processes of their own.

Most of a short run is the start of Python: here a run is a fork of a process that has all imported and compiled
(`tests.warm`). What is about the start itself, or about variables that are read there, starts `command` instead.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.warm"])


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}


def command(*arguments: Any) -> list[str]:
    """What starts the command line anew."""
    return [sys.executable, "-m", "streamsvm", *map(str, arguments)]


class Command:
    """A command of `streamsvm` under way, for which `subprocess.Popen` stands model.

    Parameters
    ----------
    arguments
        Of the command line.
    cwd
        Where it runs.
    stdin
        A file that it reads.
    stdout, stderr
        Files that it appends to; they may be the same.
    more
        Variables added to the environment.
    most_bytes
        Writing beyond so many bytes of a file fails, as on a disk that is full.
    prepare
        Called there before, a function of a module.
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
        """The exit code, None where it is not over."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it is over."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("streamsvm", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it is over already."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()


def completed(
    *arguments: Any, cwd: Path, input: str = "", timeout: float = 120.0, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as `subprocess.run` does; `how` as `Command` has it."""
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
    sys.path.insert(0, str(cwd))  # as `python -m` does
    sys.argv[1:] = arguments
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    if prepare is not None:
        prepare()
    sys.dont_write_bytecode = most_bytes != resource.RLIM_INFINITY  # half of it would be kept
    sys.exit(main())
