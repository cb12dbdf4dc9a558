"""Warnings that are logged once each; those of one kind share a line."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

logger = logging.getLogger("connectors")

# Up to `_MOST_ALONE` notices of one kind have a line each. More share a line with the first `_NAMED` names.
_MOST_ALONE, _NAMED = 2, 4
# The first lines of one kind are logged at once. Each later line waits until twice as many names have come.
_MOST_LINES = 5


class Notice(NamedTuple):
    """A warning, which may be of a kind that concerns many columns.

    Parameters
    ----------
    text
        The message.
    kind
        Notices of the same kind share a line. Empty: the notice has a line of its own.
    name
        The column.

    Examples
    --------
    >>> Notice.of("column {name!r}: texts such as {text!r}", "a", text="x").text
    "column 'a': texts such as 'x'"
    """

    text: str
    kind: str = ""
    name: Any = None

    @classmethod
    def of(cls, form: str, name: Any, **details: Any) -> Notice:
        """A warning about a column by a format string, which is its kind."""
        return cls(form.format(name=name, **details), form, name)


def grouped(notices: Iterable[Notice]) -> list[str]:
    """Return the messages of notices, one for each kind, with the first names and their number.

    Examples
    --------
    >>> grouped(Notice.of("column {name!r} is odd", name) for name in "abcdefg")
    ["column 'a' is odd (likewise 'b', 'c', 'd', ...: 7 in all)"]
    """
    notices = list(notices)
    kinds: dict[str, list[Any]] = {}
    for notice in notices:
        kinds.setdefault(notice.kind, []).append(notice.name)
    found = []
    for notice in notices:
        names = kinds[notice.kind] if notice.kind else []
        if len(names) <= _MOST_ALONE:
            found.append(notice.text)
        elif notice.name is names[0]:
            more = ", ..." if len(names) > _NAMED else ""
            others = ", ".join(map(repr, names[1:_NAMED]))
            found.append(f"{notice.text} (likewise {others}{more}: {len(names)} in all)")
    return found


class Notices:
    """Warnings that are logged and kept, once each, in order.

    Parameters
    ----------
    log
        Where they are logged.
    """

    def __init__(self, log: logging.Logger = logger) -> None:
        self._logger = log
        self._all: dict[Notice, None] = {}
        self._waiting: list[Notice] = []
        self._lines: Counter[str] = Counter()
        self._gathering = 0

    @property
    def texts(self) -> list[str]:
        """The messages so far."""
        return grouped(self._all)

    def say(self, *notices: Notice | str) -> None:
        """Log warnings and keep them, unless they were said before.

        Parameters
        ----------
        *notices
            The warnings.
        """
        for notice in (Notice(each) if isinstance(each, str) else each for each in notices):
            if notice not in self._all:
                self._all[notice] = None
                self._waiting.append(notice)
        if self._waiting and not self._gathering:
            self._log()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collect notices within the block and log them at its end, grouped by kind."""
        self._gathering += 1
        try:
            yield
        finally:
            self._gathering -= 1
            self.say()

    def _log(self) -> None:
        n = Counter(notice.kind for notice in self._waiting)
        due = {kind for kind in n if not kind or n[kind] >= 2.0 ** (self._lines[kind] - _MOST_LINES)}
        now = [notice for notice in self._waiting if notice.kind in due]
        self._waiting = [notice for notice in self._waiting if notice.kind not in due]
        for kind in due:
            self._lines[kind] += min(n[kind], _MOST_ALONE)
        for text in grouped(now):
            self._logger.warning("%s", text)
