"""Exceptions of sources and sinks."""

from __future__ import annotations

import copyreg
import re
from typing import Any

# Passwords in URLs (``USER:PASSWORD@``), even if the scheme or the slashes are misspelt, and secrets in options.
_SECRET = re.compile(
    r"((?://|kafka:/?)[^\s:@/]*:)\S+(?=@)|((?:password|secret|token|signature|credential|\bsig)=)[^&\s]+", re.IGNORECASE
)


def without_secrets(text: object) -> str:
    """Mask the passwords and secrets in a text.

    Examples
    --------
    >>> without_secrets("kafka://me:hunter@2@broker:9092/events: no such topic")
    'kafka://me:***@broker:9092/events: no such topic'
    >>> without_secrets("in.csv:3:a@b")
    'in.csv:3:a@b'
    """
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", str(text))


class ConnectorError(Exception):
    """Raised if a stream cannot be opened, read or written.

    Attributes
    ----------
    reason
        A short code of the error. Messages may change, codes do not.
    option, column
        Names of the option and the column in question.
    """

    def __init__(self, message: object, reason: str = "", *, option: str = "", column: str | None = "") -> None:
        super().__init__(message)
        self.reason, self.option, self.column = reason, option, column

    def __str__(self) -> str:
        return without_secrets(super().__str__())

    def __reduce__(self) -> Any:
        # Errors of worker processes are pickled; by default the message is passed to `__init__`.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class OptionError(ConnectorError):
    """Raised if an option of a stream is missing or does not fit.

    Parameters
    ----------
    name, option
        Names of the stream and of the option.
    what
        The rest of the message, after the name of the option.
    reason
        As for `ConnectorError`.
    """

    def __init__(self, name: str, option: str, what: str, reason: str = "value") -> None:
        super().__init__(f"{name}: option `{option}` {what}", reason, option=option)


class UnreachableError(ConnectorError):
    """Raised if a stream is temporarily unreachable; a retry may succeed."""


class FencedError(ConnectorError):
    """Raised if another run took over the results of this one."""
