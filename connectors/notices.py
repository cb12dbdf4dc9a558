"""Warnings that are logged once and grouped by kind."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

logger = logging.getLogger("connectors")

# Up to `_MOST_ALONE` notices of one kind are logged on separate lines. More share a line with the first `_NAMED` names.
_MOST_ALONE, _NAMED = 2, 4
# The first lines of one kind are logged immediately. After that, each line waits for twice as many names as the last.
_MOST_LINES = 5


class Notice(str):
    """A warning, optionally of a kind that applies to several columns.

    Parameters
    ----------
    text
        The message.
    kind
        Notices of one kind are logged on one line. If empty, the notice has its own line.
    name
        Name of the column.
    parts
        Notices of one kind that share this message, if it is that of several.

    Examples
    --------
    >>> Notice.of("column {name!r}: texts such as {text!r}", "a", text="x")
    "column 'a': texts such as 'x'"
    """

    kind: str
    name: Any
    parts: Sequence[Notice]

    def __new__(cls, text: str, kind: str = "", name: Any = None, parts: Sequence[Notice] = ()) -> Self:
        found = super().__new__(cls, text)
        found.kind, found.name, found.parts = kind, name, parts
        return found

    @classmethod
    def of(cls, form: str, name: Any, **details: Any) -> Self:
        """Create a warning about a column from a format string, which is also its kind."""
        return cls(form.format(name=name, **details), form, name)


class CountNotice(Notice):
    """Notice with a count that the source restores with its position."""


def separated(texts: Iterable[str]) -> list[Notice]:
    """Return the notices of messages, each once; a message may be that of several."""
    each = (text if isinstance(text, Notice) else Notice(text) for text in texts)
    return list(dict.fromkeys(part for notice in each for part in notice.parts or [notice]))


def grouped(texts: Iterable[str]) -> list[str]:
    """Return one message per kind of notice, with the first names and their number.

    Examples
    --------
    >>> grouped(Notice.of("column {name!r} is odd", name) for name in "abcdefg")
    ["column 'a' is odd (likewise 'b', 'c', 'd', ...: 7 in all)"]
    """
    notices = separated(texts)
    kinds: dict[str, list[Notice]] = {}
    for notice in notices:
        kinds.setdefault(notice.kind, []).append(notice)
    found: list[str] = []
    for notice in notices:
        alike = kinds[notice.kind]
        if not notice.kind or len(alike) <= _MOST_ALONE:
            found.append(notice)
        elif notice is alike[0]:
            more = ", ..." if len(alike) > _NAMED else ""
            others = ", ".join(repr(one.name) for one in alike[1:_NAMED])
            text = f"{notice} (likewise {others}{more}: {len(alike)} in all)"
            found.append(Notice(text, notice.kind, notice.name, alike))
    return found


class Notices:
    """Ordered collection of warnings, each logged once.

    Parameters
    ----------
    log
        Logger to use.
    """

    def __init__(self, log: logging.Logger = logger) -> None:
        self._logger = log
        self._all: dict[Notice, None] = {}
        self._waiting: list[Notice] = []
        self._lines: Counter[str] = Counter()
        self._gathering = 0

    @property
    def texts(self) -> list[str]:
        """Messages so far."""
        return grouped(self._all)

    def warn(self, *notices: str) -> None:
        """Log and store warnings, unless they were logged before.

        Parameters
        ----------
        *notices
            The warnings.
        """
        for notice in separated(notices):
            if notice not in self._all:
                self._all[notice] = None
                self._waiting.append(notice)
        if self._waiting and not self._gathering:
            self._log()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Context manager that delays logging to its end and groups notices by kind."""
        self._gathering += 1
        try:
            yield
        finally:
            self._gathering -= 1
            self.warn()

    def _log(self) -> None:
        n = Counter(notice.kind for notice in self._waiting)
        due = {kind for kind in n if not kind or n[kind] >= 2.0 ** (self._lines[kind] - _MOST_LINES)}
        now = [notice for notice in self._waiting if notice.kind in due]
        self._waiting = [notice for notice in self._waiting if notice.kind not in due]
        for kind in due:
            self._lines[kind] += min(n[kind], _MOST_ALONE)
        for text in grouped(now):
            self._logger.warning("%s", text)
