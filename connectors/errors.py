"""What goes wrong with streams."""

from __future__ import annotations

import re

_SECRET = re.compile(r"(?<=:)(?!//)[^:@\s]+(?=@)|(?<=password=)[^&\s]+|(?<=secret=)[^&\s]+|(?<=token=)[^&\s]+")


def without_secrets(text: object) -> str:
    """Return a text with asterisks in place of the passwords of its URLs.

    Examples
    --------
    >>> without_secrets("kafka://me:hunter2@broker:9092/events: no such topic")
    'kafka://me:***@broker:9092/events: no such topic'
    """
    return _SECRET.sub("***", str(text))


class ConnectorError(Exception):
    """A stream that cannot be opened, read or written as asked: the message says what, where and what to do."""

    def __str__(self) -> str:
        return without_secrets(super().__str__())


class UnreachableError(ConnectorError):
    """A stream that cannot be reached now, which may pass: nothing need be wrong with what was asked."""
