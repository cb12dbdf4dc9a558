"""What can stop a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from connectors.errors import ConnectorError, UnreachableError


class RunError(Exception):
    """A run that cannot go on: the message says what happened and what to do."""


class SetupError(RunError):
    """A run that was not begun, because its settings do not fit together; no data was touched."""


@contextlib.contextmanager
def refusing(before: str = "", after: str = "") -> Iterator[None]:
    """Errors of connectors are errors of the settings, unless brokers are away: what is said before and after them."""
    try:
        yield
    except UnreachableError:
        raise
    except ConnectorError as error:
        raise SetupError(f"{before}{error}{after}") from error
