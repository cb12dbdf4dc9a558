"""A sink that is opened when the first row comes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from connectors.events import Position, Results, Sink
from connectors.results import check_replaced


class LazySink(Sink):
    """Leaves no file behind where nothing was written; its position is empty until then.

    Parameters
    ----------
    name
        The name of the sink to come.
    open_sink
        Opens it, or one of another name where that is taken; told by `resume` whether to keep what an earlier process
        wrote.
    replace
        Whether the file an earlier run left under this name goes, as soon as this run has begun, even where there is
        nothing to put in its place.
    overwrite
        Whether it may go also where it does not look like results.
    """

    can_rewind = True

    def __init__(
        self, name: str, open_sink: Callable[..., Sink], *, replace: bool = False, overwrite: bool = False
    ) -> None:
        self.name = name
        self._open, self._stale, self._overwrite = open_sink, replace, overwrite
        self._sink: Sink | None = None

    def write(self, table: Results) -> None:
        """Take rows."""
        if self._sink is None:
            self._sink = self._open(self.name, resume=False)
            self.name = self._sink.name
        self._sink.write(table)

    def check_replaced(self) -> None:
        """Refuse to remove what does not look like results."""
        if self._stale and not self._overwrite:
            check_replaced(self.name)

    def flush(self) -> None:
        """Make durable what was written, if anything."""
        if self._sink is not None:
            self._sink.flush()
        elif self._stale:
            self._stale = False
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.name)

    @property
    def position(self) -> Position:
        """What is durable; empty where nothing was written."""
        return {} if self._sink is None else self._sink.position | {"name": self.name}

    def rewind(self, position: Position) -> None:
        """Drop whatever was written after `position`."""
        if position:
            self.name = position.get("name", self.name)
            self._sink = self._open(self.name, resume=True)
            self._sink.rewind(position)

    def close(self) -> None:
        """Close what was opened."""
        if self._sink is not None:
            self._sink.close()
