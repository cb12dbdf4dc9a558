"""Errors of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from connectors.errors import ConnectorError, UnreachableError


class RunError(Exception):
    """Ends a run; the message says what happened and what to do."""


class SetupError(RunError):
    """Invalid settings; the run did not start, and no data was touched."""


@contextlib.contextmanager
def refusing(before: str = "", after: str = "") -> Iterator[None]:
    """Raise errors of connectors, except unreachable brokers, as errors of the settings, with text before and after."""
    try:
        yield
    except UnreachableError:
        raise
    except ConnectorError as error:
        raise SetupError(f"{before}{error}{after}") from error
