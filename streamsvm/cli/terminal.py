"""Standard streams: what goes wrong and what is logged is said on standard error, without passwords."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import Any


def prepare_streams() -> None:
    """Make standard streams fit to be written.

    Where one is closed the null device takes its place, or a file opened later would be taken for that stream.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal need not know all letters of a label


def without_secrets(text: object) -> str:
    """A text without the passwords of the URLs in it."""
    from connectors.errors import without_secrets

    return without_secrets(text)


def complain(error: object, code: int) -> int:
    """Say what went wrong on standard error; the exit code."""
    with contextlib.suppress(OSError):  # such as a full disk that standard error goes to
        print(f"streamsvm: error: {without_secrets(error)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def logged(quiet: bool | None) -> Iterator[None]:
    """Show what the package has to say on standard error; warnings come in any case."""
    import logging

    level = logging.WARNING if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
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
    """Keep passwords of URLs out of the log."""
    record.msg, record.args = without_secrets(record.getMessage()), ()
    return True
