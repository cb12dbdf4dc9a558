"""The command line: ``streamsvm run [SOURCE] …``.

Exit codes: 0 where the run came to its end, 2 where the settings do not fit (no data was touched), 1 where something
failed on the way, 3 where it came to its end but more than half of all events were set aside, 75 where brokers could
not be reached for as long as they were to be waited for, or when SIGINT or SIGTERM came (the same run may be started
again, and goes on from its checkpoint), 130 and 143 where SIGINT or SIGTERM ended it after the current batch, with
checkpoint and report; within 10 seconds in any case, after which what is not done stays undone.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from streamsvm.cli.options import build_parser
from streamsvm.cli.terminal import complain, prepare_streams

__all__ = ["build_parser", "main"]

# Whatever takes long to import is imported where it is used: `--help` and refusals come at once.

_TEMPORARY = 75  # as `os.EX_TEMPFAIL`, which not all systems have
# As the shell reports a program that SIGPIPE ended: the reader, such as `head`, has had enough.
_READER_GONE = 128 + 13


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    started = time.perf_counter() - _age()
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        _check_connectors()
        if argv is None:
            return _run_command(arguments, started)
        from streamsvm.run.stopping import forgetting_deadlines

        with forgetting_deadlines():
            return _run_command(arguments, started)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except ImportError as error:
        message = f"a package that streamsvm needs is missing, or another was installed over it: {error}"
        return complain(f"{message}: install streamsvm again, in an environment of its own", 2)


def _run_command(arguments: list[str], started: float) -> int:
    """Run a command; an error is one line on standard error."""
    from connectors import ConnectorError, UnreachableError
    from streamsvm.run.errors import RunError, SetupError

    try:
        args = _parse(arguments)
        given = {name: value for name, value in vars(args).items() if name not in ("command", "version")}
        command = importlib.import_module(f"streamsvm.cli.{args.command.replace('-', '_')}")
        code: int = command.main(given, started)
        return code
    except SetupError as error:
        return complain(error, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails again when it flushes at exit
        return _READER_GONE
    except UnreachableError as error:
        return complain(error, _TEMPORARY)
    except (RunError, ConnectorError, OSError) as error:
        return complain(error, 1)
    except MemoryError as error:
        return complain(f"out of memory: {error}".removesuffix(": "), 1)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The command and what was given to it."""
    parser = build_parser()
    # Standard input with options, as in '-?delimiter=;', looks like an option itself.
    args = parser.parse_args([f"file://{text}" if text.startswith("-?") else text for text in arguments])
    if "version" in args:
        from streamsvm import __version__

        print(f"streamsvm {__version__}")
        parser.exit(0)
    if args.command is None:
        parser.print_help()
        parser.exit(2)
    return args


def _age() -> float:
    """Seconds since this process began, where the system tells; imports count for the time to the first prediction."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


def _check_connectors() -> None:
    """Say so where a foreign package stands in the place of ours: the name is a common one."""
    spec = importlib.util.find_spec("connectors")
    if spec is not None and PathFinder.find_spec("connectors.events", spec.submodule_search_locations or []):
        return  # ours, whatever it lacks itself; what was installed over it is seen when it is imported
    if spec is None:
        sys.exit(complain("the package `connectors`, a part of streamsvm, is missing: install streamsvm again", 2))
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    message = f"{place} stands in the way of the package `connectors` that is a part of streamsvm"
    sys.exit(complain(f"{message}: rename it, or run from another directory", 2))
