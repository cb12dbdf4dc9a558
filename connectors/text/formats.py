"""Protocol of text formats: header, records and their conversion to events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from connectors.columns.roles import NEEDED, ROLES, Roles
from connectors.columns.text import Header, TextColumns
from connectors.events import Events
from connectors.options import Options

SAMPLE = 1000
"""Number of lines inspected before the first event is returned."""


@dataclass(slots=True)
class Records:
    """Records found in lines.

    Parameters
    ----------
    rows
        One row per record, in the representation of the format.
    starts
        Start line of each record, counted from the first line given.
    raw
        Text of each record.
    rejected
        Line, reason and text of each rejected record.
    consumed
        Number of complete lines. The others are parsed again with the lines that follow.
    """

    rows: list[Any] = field(default_factory=list)
    starts: Sequence[int] = ()
    raw: Sequence[str] = ()
    rejected: list[tuple[int, str, str]] = field(default_factory=list)
    consumed: int = 0


class TextFormat(ABC):
    """Base class of text formats, which find records in lines without newlines.

    Parameters
    ----------
    options
        Options of the stream.

    Attributes
    ----------
    columns
        Converts the records to events. CSV and ARFF know them after the header.
    is_apart
        Whether reading mostly runs without the GIL.
    is_first
        Whether no other file was read before.
    needs_sample
        Whether the first records determine column types before any is returned, also in live streams.
    """

    columns: TextColumns
    needs_sample = True
    is_apart = False
    _roles: Roles

    def __init__(self, options: Options) -> None:
        self._source, self.is_first = options.name, True

    def next_file(self, source: str) -> None:
        """Prepare for a later file with the same options, keeping what was inferred.

        Parameters
        ----------
        source
            Name of the file, for messages.
        """
        self._source, self.is_first = source, False

    def _take_header(self, header: Header, *, are_typed: bool = False) -> None:
        """Use the columns of a header; only the first file needs columns of all roles."""
        self._roles.check(self._source, header.names, ROLES if self.is_first else NEEDED)
        if self.is_first:
            self.columns = TextColumns(header, self._roles, are_typed=are_typed)
        else:
            self.columns = self.columns.renamed(self._source, header)

    @abstractmethod
    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Read the header. Return its number of lines, or None if more lines are needed.

        Parameters
        ----------
        lines
            The first lines.
        last
            Whether the stream ends after these lines.
        """

    @abstractmethod
    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Find at most `limit` records.

        Parameters
        ----------
        lines
            The next lines.
        bad
            Reason for damage, by line index.
        last
            Whether the stream ends after these lines.
        limit
            Maximum number of records.
        """

    def inspect(self, rows: Sequence[Any], whole: bool) -> None:
        """Infer types from the first records, before any is returned.

        Parameters
        ----------
        rows
            The first records.
        whole
            Whether they are the first records of a file, not of a live stream.
        """
        self.columns.inspect(self._source, rows, whole)

    def at_once(self, lines: Sequence[bytes]) -> Events | None:
        """Convert lines of UTF-8 with newlines; None if `records` must parse them.

        The result equals `records` and `events`, many times faster.

        Parameters
        ----------
        lines
            The next lines.
        """
        return None


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
