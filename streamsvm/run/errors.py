"""What can stop a run."""

from __future__ import annotations


class RunError(Exception):
    """A run that cannot go on: the message says what happened and what to do."""


class SetupError(RunError):
    """A run that was not begun, because its settings do not fit together; no data was touched."""
