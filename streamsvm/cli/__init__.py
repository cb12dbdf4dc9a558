"""The command line: ``streamsvm run [SOURCE] …``.

Exit codes:

- 0: done.
- 1: failed.
- 2: invalid settings; no data were read.
- 3: done, but more than half of the events were rejected.
- 75: brokers stayed unreachable until the timeout or a signal. A new run resumes from the checkpoint.
- 130, 143: ended by SIGINT or SIGTERM after the current batch, with checkpoint and report.

A run ends within 10 seconds of the first signal, even if work remains.
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
from typing import Any

from streamsvm.cli.commands import COMMANDS
from streamsvm.cli.parser import build_parser
from streamsvm.cli.terminal import complain, logged, prepare_streams
from streamsvm.run.config import RunConfig
from streamsvm.run.settings import read_settings

__all__ = ["build_parser", "main"]

# Slow imports are local to their functions, so that `--help` and refusals are fast.

_TEMPORARY = 75  # equals `os.EX_TEMPFAIL`, which some systems lack
# Exit code of a program that SIGPIPE ended, because a reader such as `head` closed the pipe.
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
    """Run a command; report an error in one line on standard error."""
    from connectors import ConnectorError, UnreachableError
    from streamsvm.run.errors import RunError, SetupError

    try:
        config = _configured(**vars(_parse(arguments)))
        with logged(config.quiet):
            code: int = importlib.import_module(f"streamsvm.cli.{config.module}").main(config, started)
        return code
    except SetupError as error:
        return complain(error, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the flush at exit fails again
        return _READER_GONE
    except UnreachableError as error:
        return complain(error, _TEMPORARY)
    except (RunError, ConnectorError, OSError) as error:
        return complain(error, 1)
    except MemoryError as error:
        return complain(f"out of memory: {error}".removesuffix(": "), 1)


def _parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments into a command and its options."""
    parser = build_parser()
    # Standard input with options, such as '-?delimiter=;', looks like an option.
    args = parser.parse_args([f"file://{text}" if text.startswith("-?") else text for text in arguments])
    if "version" in args:
        from streamsvm import __version__

        print(f"streamsvm {__version__}")
        parser.exit(0)
    if args.command is None:
        parser.print_help()
        parser.exit(2)
    return args


def _configured(command: str, **given: Any) -> Any:
    """Combine the options of a command; the command line overrides the configuration file."""
    options, kinds = COMMANDS[command], COMMANDS[command].kinds()
    given |= {name: ",".join(value) for name, value in given.items() if kinds.get(name) in ("Names", "Kinds")}
    if issubclass(options, RunConfig):
        given = read_settings(given.pop("set", ()), options) | given
        if "config" in given:
            return options.from_toml(given.pop("config"), **given)
    return options(**given)


def _age() -> float:
    """Return seconds since the process started, if known. The time to the first prediction includes imports."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


def _check_connectors() -> None:
    """Report another package named `connectors`, a common name, that shadows ours."""
    spec = importlib.util.find_spec("connectors")
    if spec is not None and PathFinder.find_spec("connectors.events", spec.submodule_search_locations or []):
        return  # ours; importing it reports missing or overwritten files
    if spec is None:
        sys.exit(complain("the package `connectors`, a part of streamsvm, is missing: install streamsvm again", 2))
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    message = f"{place} stands in the way of the package `connectors` that is a part of streamsvm"
    sys.exit(complain(f"{message}: rename it, or run from another directory", 2))
