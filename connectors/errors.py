"""What goes wrong with streams."""

from __future__ import annotations

import re

# What follows USER: in a URL, also in one whose scheme or slashes are misspelt, and secrets among the options.
_SECRET = re.compile(r"((?://|kafka:/?)[^\s:@/]*:)\S+(?=@)|((?:password|secret|token)=)[^&\s]+")


def without_secrets(text: object) -> str:
    """Return a text with asterisks in place of the passwords of its URLs.

    Examples
    --------
    >>> without_secrets("kafka://me:hunter@2@broker:9092/events: no such topic")
    'kafka://me:***@broker:9092/events: no such topic'
    >>> without_secrets("in.csv:3:a@b")
    'in.csv:3:a@b'
    """
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", str(text))


class ConnectorError(Exception):
    """A stream that cannot be opened, read or written as asked: the message says what, where and what to do."""

    def __str__(self) -> str:
        return without_secrets(super().__str__())


class UnreachableError(ConnectorError):
    """A stream that cannot be reached now, which may pass: nothing need be wrong with what was asked."""
