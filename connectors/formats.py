"""Protocol of text formats: header, records and their conversion to events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from connectors.columns import Events, TextColumns

SAMPLE = 1000
"""How many lines of a file are looked at before the first event is handed out."""
_NOTHING: Mapping[str, Any] = MappingProxyType({"types": {}, "strays": {}})


@dataclass(slots=True)
class Records:
    """Records found in lines.

    Parameters
    ----------
    rows
        One per record, in the format's own form.
    starts
        The line each begins on, counted from the first given.
    raw
        The text of each.
    rejected
        Line, reason and text of what is no record.
    consumed
        Lines done with; the others are looked at again with more lines after them.
    """

    rows: list[Any] = field(default_factory=list)
    starts: Sequence[int] = ()
    raw: Sequence[str] = ()
    rejected: list[tuple[int, str, str]] = field(default_factory=list)
    consumed: int = 0


class TextFormat(Protocol):
    """A way to write events as lines of text. Lines come without their ends.

    By default nothing is decided about columns.
    """

    @property
    def is_apart(self) -> bool:
        """Whether reading mostly runs without the GIL."""
        return False

    @property
    def decided(self) -> Mapping[str, Any]:
        """Column types and formats inferred so far, as JSON; part of positions."""
        return _NOTHING

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return ()

    @property
    def categories(self) -> Sequence[str]:
        """Features with declared values."""
        return ()

    def restore(self, decided: Mapping[str, Any]) -> None:
        """Go back to what was decided when a position was taken.

        Parameters
        ----------
        decided
            A position, with what `decided` was then.
        """

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Read the header; the number of lines it takes, or None where more lines are needed.

        Parameters
        ----------
        lines
            The first lines.
        last
            Whether none come after.
        """

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Find at most `limit` records; lines in `bad` (with reasons) are damaged, `last` says none come after.

        Parameters
        ----------
        lines
            The next lines.
        bad
            Why a line is damaged, by its number among these.
        last
            Whether none come after.
        limit
            How many records to find at most.
        """

    def decide(self, rows: Sequence[Any], whole: bool) -> None:
        """Look at the first records before they are handed out; `whole` says a file's, not just some.

        Parameters
        ----------
        rows
            The first records.
        whole
            Whether they are all that a file has.
        """

    def events(self, rows: Sequence[Any]) -> Events:
        """What the records mean, which are used up by this.

        Parameters
        ----------
        rows
            Records, as `records` found them.
        """

    def at_once(self, lines: Sequence[bytes]) -> Events | None:
        """The events of lines of UTF-8, with their ends, or None where `records` must look at each.

        The events are those that `records` and `events` give, many times faster.

        Parameters
        ----------
        lines
            The next lines.
        """
        return None


class TypedColumns(TextFormat):
    """Text format with typed columns, which are known after the header."""

    _columns: TextColumns | None = None

    @property
    def decided(self) -> Mapping[str, Any]:
        """Column types declared or inferred so far."""
        return _NOTHING if self._columns is None else self._columns.decided

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        return () if self._columns is None else self._columns.numbers.notices.texts

    @property
    def categories(self) -> Sequence[str]:
        """Features with declared values."""
        return () if self._columns is None else self._columns.categories

    def restore(self, decided: Mapping[str, Any]) -> None:
        """Restore the types and formats in a position."""
        if self._columns is not None:
            self._columns.restore(decided)

    def events(self, rows: Sequence[Any]) -> Events:
        """Convert rows to columns."""
        assert self._columns is not None
        return self._columns.read(rows)


def line_records(
    lines: Sequence[str], bad: Mapping[int, str], limit: int, rows: Iterable[Any], skip: tuple[str, ...] = ()
) -> Records:
    """Return the records of a format with one record per line.

    A row that is a `ValueError` is rejected. Blank lines and lines that start with one of `skip` are skipped.
    """
    starts: list[int] = []
    found = Records()
    for i, (line, row) in enumerate(zip(lines, rows, strict=True)):
        if len(starts) == limit:
            break
        found.consumed = i + 1
        if i in bad:
            found.rejected.append((i, bad[i], line))
        elif not line or line.isspace() or (skip and line.lstrip().startswith(skip)):
            continue
        elif isinstance(row, ValueError):
            found.rejected.append((i, str(row), line))
        else:
            found.rows.append(row)
            starts.append(i)
    found.starts, found.raw = starts, [lines[i] for i in starts]
    return found
