"""Warnings that are logged once and grouped by kind."""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

logger = logging.getLogger("connectors")

# Up to `_MOST_ALONE` notices of one kind are logged on separate lines. More share a line with the first `_NAMED` names.
_MOST_ALONE, _NAMED = 2, 4
# The first lines of one kind are logged immediately. After that, each line waits for twice as many names as the last.
_MOST_LINES = 5


class Notice(NamedTuple):
    """A warning, optionally of a kind that applies to several columns.

    Parameters
    ----------
    text
        The message.
    kind
        Notices of one kind are logged on one line. If empty, the notice has its own line.
    name
        Name of the column.

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
        """Create a warning about a column from a format string, which is also its kind."""
        return cls(form.format(name=name, **details), form, name)


class CountNotice(str):
    """Notice with a count that the source restores with its position."""

    __slots__ = ()


class GroupedText(str):
    """Message of notices of one kind, which can be grouped again with others.

    Attributes
    ----------
    parts
        The notices.
    """

    parts: list[Notice]

    @classmethod
    def of(cls, text: str, parts: list[Notice]) -> GroupedText:
        """Create a message."""
        found = cls(text)
        found.parts = parts
        return found


def parts_of(text: str) -> list[Notice]:
    """Return the notices of a message."""
    return text.parts if isinstance(text, GroupedText) else [Notice(text)]


def grouped(notices: Iterable[Notice]) -> list[str]:
    """Return one message per kind of notice, with the first names and their number.

    Examples
    --------
    >>> grouped(Notice.of("column {name!r} is odd", name) for name in "abcdefg")
    ["column 'a' is odd (likewise 'b', 'c', 'd', ...: 7 in all)"]
    """
    notices = list(notices)
    kinds: dict[str, list[Notice]] = {}
    for notice in notices:
        kinds.setdefault(notice.kind, []).append(notice)
    found: list[str] = []
    for notice in notices:
        alike = kinds[notice.kind]
        if not notice.kind:
            found.append(notice.text)
        elif len(alike) <= _MOST_ALONE:
            found.append(GroupedText.of(notice.text, [notice]))
        elif notice is alike[0]:
            more = ", ..." if len(alike) > _NAMED else ""
            others = ", ".join(repr(one.name) for one in alike[1:_NAMED])
            found.append(GroupedText.of(f"{notice.text} (likewise {others}{more}: {len(alike)} in all)", alike))
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

    def say(self, *notices: Notice | str) -> None:
        """Log and store warnings, unless they were logged before.

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
        """Context manager that delays logging to its end and groups notices by kind."""
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
