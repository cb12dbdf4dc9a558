"""The command line: ``streamsvm run [SOURCE] …``.

Exit codes are in `streamsvm.cli.commands.EXIT_CODES`. A run ends within 10 seconds of the first signal, even if work
remains.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from streamsvm.cli.terminal import TEMPORARY, complain, logged, prepare_streams

# Slow imports are local to their functions, so that `--help` and refusals are fast.

# Exit code of a program that SIGPIPE ended, because a reader such as `head` closed the pipe.
_READER_GONE = 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    started = time.perf_counter() - _age()
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        if argv is None:
            return _run_command(arguments, started)
        from streamsvm.cli.run import forgetting_deadlines

        with forgetting_deadlines():
            return _run_command(arguments, started)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ImportError as error:
        connectors = getattr(sys.modules.get("connectors"), "__file__", "missing")
        message = f"a package that streamsvm needs is missing or was overwritten by another one: {error}"
        hint = f"(`connectors` is {connectors}): reinstall streamsvm in a separate environment"
        print(f"streamsvm: error: {message} {hint}", file=sys.stderr)
        return 2


def _run_command(arguments: list[str], started: float) -> int:
    """Run a command; report an error in one line on standard error."""
    from connectors.errors import ConnectorError, UnreachableError
    from streamsvm.cli.parser import parse
    from streamsvm.core.library import CodeError
    from streamsvm.run.errors import RunError, SetupError

    try:
        options = parse(arguments)
        with logged(options.quiet):
            code: int = importlib.import_module(f"streamsvm.cli.{options.module}").main(options, started)
        return code
    except (SetupError, CodeError) as error:
        return complain(error, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the flush at exit fails again
        return _READER_GONE
    except UnreachableError as error:
        return complain(error, TEMPORARY)
    except (RunError, ConnectorError, OSError) as error:
        return complain(error, 1)
    except MemoryError as error:
        return complain(f"out of memory: {error}".removesuffix(": "), 1)


def _age() -> float:
    """Return seconds since the process started, 0 if unknown, including imports."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
