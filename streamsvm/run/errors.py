"""Errors of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from connectors.errors import ConnectorError, FencedError, UnreachableError


class RunError(Exception):
    """Ends a run; the message says what happened and what to do.

    Attributes
    ----------
    reason
        A short code, if the error has one.
    option
        Name of the option in question, if there is one.
    """

    def __init__(self, message: str, reason: str = "", *, option: str = "") -> None:
        super().__init__(message)
        self.reason, self.option = reason, option


class SetupError(RunError):
    """Invalid settings; the run did not start, and no data was touched."""


def check_repeated(option: str, one: str, other: str) -> None:
    """Refuse an option that is given again with another value.

    Parameters
    ----------
    option
        Name of the option.
    one, other
        Its values.
    """
    if one != other:
        raise SetupError(f"{option} is both {one!r} and {other!r}: give it once", "twice", option=option)


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Name a result in errors of writing it."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{what}: cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def refusing(before: str = "", after: str = "") -> Iterator[None]:
    """Raise connector errors as errors of settings.

    Unreachable brokers and takeovers by another run are not errors of settings.

    `before` and `after` enclose the message.
    """
    try:
        yield
    except (UnreachableError, FencedError):
        raise
    except ConnectorError as error:
        raise SetupError(f"{before}{error}{after}", error.reason, option=error.option) from error
