"""What goes wrong with streams."""

from __future__ import annotations


class ConnectorError(Exception):
    """A stream that cannot be opened, read or written as asked: the message says what, where and what to do."""


class UnreachableError(ConnectorError):
    """A stream that cannot be reached now, which may pass: nothing need be wrong with what was asked."""
