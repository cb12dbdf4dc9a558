"""Standard streams: errors and logs go to standard error, without passwords."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

TEMPORARY = 75
"""Exit code of a temporary failure.

It equals `os.EX_TEMPFAIL`, which some systems lack.
"""


def prepare_streams() -> None:
    """Prepare the standard streams for writing.

    A closed stream is replaced by the null device. Otherwise the next opened file would take its descriptor.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # terminals may not encode all labels


def complain(error: object, code: int) -> int:
    """Print an error without passwords on standard error, and return the exit code."""
    from connectors.errors import without_secrets

    with contextlib.suppress(OSError):  # for example if the disk of standard error is full
        print(f"streamsvm: error: {without_secrets(error)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def logged(quiet: bool | None) -> Iterator[None]:
    """Show log messages of the package on standard error; always show warnings."""
    import logging

    from streamsvm.run.formatting import width_of

    clear = f"\r{' ' * width_of(sys.stderr)}\r" if sys.stderr.isatty() else ""  # the line of progress
    level = logging.WARNING if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"{clear}%(asctime)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_mask_secrets)
    levels = {logger: logger.level for logger in map(logging.getLogger, ("streamsvm", "connectors"))}
    for logger in levels:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, before in levels.items():
            logger.removeHandler(handler)
            logger.setLevel(before)


def _mask_secrets(record: Any) -> bool:
    """Remove passwords of URLs from a log record."""
    from connectors.errors import without_secrets

    record.msg, record.args = without_secrets(record.getMessage()), ()
    return True
