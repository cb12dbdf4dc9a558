"""A sink that opens when the first row is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from connectors.events import Position, Results, Sink
from connectors.results import check_replaced


class LazySink(Sink):
    """Creates no file unless a row is written; its position is empty until then.

    Parameters
    ----------
    name
        Name of the sink.
    open_sink
        Opens the sink, possibly under another name if that exists. Its argument `resume` says whether to keep earlier
        contents.
    replace
        Whether to remove the file of an earlier run once this run has started, even if no row is written.
    overwrite
        Whether to remove the file even if it does not contain results.
    """

    can_rewind = True

    def __init__(
        self, name: str, open_sink: Callable[..., Sink], *, replace: bool = False, overwrite: bool = False
    ) -> None:
        self.name = name
        self._open, self._stale, self._overwrite = open_sink, replace, overwrite
        self._sink: Sink | None = None

    def write(self, table: Results) -> None:
        """Write rows."""
        if self._sink is None:
            self._sink = self._open(self.name, resume=False)
            self.name = self._sink.name
        self._sink.write(table)

    def check_replaced(self) -> None:
        """Refuse to remove a file that does not contain results."""
        if self._stale and not self._overwrite:
            check_replaced(self.name)

    def flush(self) -> None:
        """Make written rows durable."""
        if self._sink is not None:
            self._sink.flush()
        elif self._stale:
            self._stale = False
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.name)

    @property
    def position(self) -> Position:
        """Durable position; empty if nothing was written."""
        return {} if self._sink is None else self._sink.position | {"name": self.name}

    def rewind(self, position: Position) -> None:
        """Drop rows written after `position`."""
        if position:
            self.name = position.get("name", self.name)
            self._sink = self._open(self.name, resume=True)
            self._sink.rewind(position)

    def close(self) -> None:
        """Close the sink if it is open."""
        if self._sink is not None:
            self._sink.close()
