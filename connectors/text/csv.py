"""Comma-separated values, quoted as by the csv module, with correct line numbers."""

from __future__ import annotations

import contextlib
import csv
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from connectors.columns.cells import is_number
from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError, OptionError
from connectors.events import Events
from connectors.options import Options
from connectors.outputs.files import open_lines
from connectors.outputs.results import CsvLines
from connectors.text.arrow_cells import ArrowCells
from connectors.text.formats import Records, TextFormat
from connectors.text.lines import MAX_LINE_BYTES
from connectors.text.source import TextSource

MOST_LINES = 256
"""Maximum number of lines of a quoted record.

A longer record has a stray quote: only its first line is rejected.
"""
_ROWS_BEYOND = 2
"""Minimum number of rows with one field more than the header to add a name."""
_MOST_ABOVE = 50
"""Number of lines in which a header below a title is searched."""
_STRAY_RETURN = "a carriage return in the middle: lines end in a newline (tr '\\r' '\\n' < FILE converts others)"
_SEPARATOR = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)
"""First line with which Excel declares the delimiter."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Special characters of delimited text, one character each.

    Parameters
    ----------
    delimiter
        Field delimiter. A space stands for any number of spaces and tabs.
    quote
        Quote character of fields with delimiters, quotes (doubled) or newlines. None: no quoting.
    escape
        Character that escapes the next one.
    comment
        Character that starts a comment, which extends to the end of the line, unless it is quoted.
    skip_rows
        Number of lines to skip at the start.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    comment: str | None = None
    skip_rows: int = 0

    @classmethod
    def of(cls, options: Options, delimiter: str, *, single: bool = False) -> Dialect:
        """Create a dialect from options; a `single` record has no comment lines."""
        quote, given = options.text("quote", '"'), options.text("delimiter") or delimiter
        dialect = cls(
            {"tab": "\t", "\\t": "\t", "space": " "}.get(given, given),
            None if quote == "none" else quote,
            options.text("escape"),
            None if single else options.text("comment"),
            0 if single else options.integer("skip_rows", 0),
        )
        seen: dict[str, str] = {}
        for name in ("delimiter", "quote", "escape", "comment"):
            mark = getattr(dialect, name)
            if mark is None:
                continue
            if len(mark) != 1 or mark in "\r\n":
                more = {"delimiter": ", tab or space", "quote": " or none"}.get(name, "")
                raise OptionError(options.name, name, f"must be one character{more}, got {mark!r}")
            if mark in seen:
                what = f"options `{seen[mark]}` and `{name}` are the same {mark!r}"
                raise ConnectorError(f"{options.name}: {what}", option=name)
            seen[mark] = name
        return dialect

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Iterator[list[str]]:
        """Return a csv reader of lines; it does not remove comments."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "escapechar": self.escape, "strict": strict}
        if self.delimiter == " ":  # spaces at the end of a line are no field
            lines = (line.replace("\t", " ").rstrip() + "\n" for line in lines)
            options["skipinitialspace"] = True
        quotes = {"quoting": csv.QUOTE_NONE} if self.quote is None else {"quotechar": self.quote}
        return csv.reader(lines, **options, **quotes)

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Characters that occur only in lines with quotes, escapes or comments.

        With a space as delimiter, runs of spaces count as well.
        """
        marks = (self.quote, self.escape, self.comment, " " if self.delimiter == " " else None)
        return tuple(mark.encode() for mark in marks if mark is not None)

    def without_comment(self, line: str, before: Sequence[str] = ()) -> str:
        """Remove the comment from a line.

        Parameters
        ----------
        line
            Line to strip.
        before
            Previous lines of this record, which may leave a quote open.

        Examples
        --------
        >>> Dialect(comment="#").without_comment('1,"#2",3 # and so on')
        '1,"#2",3 '
        >>> Dialect(comment="#").without_comment('#2",3', before=['1,"'])
        '#2",3'
        """
        if self.comment is None or self.comment not in line:
            return line
        text = "\n".join([*before, line])
        found = _before_comment(self).match(text)
        return line if found is None else line[: len(line) - len(text) + found.end()]


@functools.cache
def _before_comment(dialect: Dialect) -> re.Pattern[str]:
    """Return the pattern of a record up to its comment."""
    marks = (dialect.delimiter, dialect.quote, dialect.escape, dialect.comment)
    delimiter, quote, escape, comment = (re.escape(mark or "") for mark in marks)
    escaped = rf"{escape}(?:.|\Z)|" if escape else ""
    field = rf"(?:{escaped}[^{delimiter}{escape}{comment}])*+"
    if quote:  # a doubled quote is a literal one
        field = rf"(?:{quote}(?:{escaped}{quote}{quote}|[^{quote}{escape}])*+(?:{quote}|\Z))?+{field}"
    return re.compile(rf"{field}(?:{delimiter}{field})*+", re.DOTALL)


# The default limit of a field is 128 KiB. The limit is global to the process, so it is never lowered.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


class CsvFormat(TextFormat):
    """CSV with a header, or with names by option (`header=no`; else f1, f2, ...)."""

    def __init__(self, options: Options, delimiter: str) -> None:
        super().__init__(options)
        self._roles = Roles.of(options)
        self.columns = TextColumns(Header([]), self._roles)
        self._chosen = options.has("delimiter")
        self._given = Dialect.of(options, delimiter)
        self._has_header = options.flag("header", True)
        self._names = options.names("names")
        self._follow(self._given)
        if self._has_header and self._names:
            raise OptionError(self._source, "names", "requires `header=no`")

    def _follow(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._arrow = ArrowCells(dialect.delimiter, self._roles.missing_numbers, dialect.marks)

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Read the column names from the first record; with `header=no`, it is an event."""
        before = self._given.skip_rows
        declared = _SEPARATOR.fullmatch(lines[before]) if len(lines) > before else None
        dialect = self._given if declared is None or self._chosen else replace(self._given, delimiter=declared[1])
        if dialect != self._dialect:
            self._follow(dialect)
        before += declared is not None
        size = self._header(lines[before:], last)
        return None if size is None else before + size

    def _header(self, lines: Sequence[str], last: bool) -> int | None:
        feed = _Feed(lines, self._dialect)
        reader = self._dialect.reader(feed)
        first: list[str] | None = []
        try:
            while first == []:
                first = feed.record(reader)
        except csv.Error as error:
            raise ConnectorError(f"{self._source}: the header cannot be read: {error}") from None
        if (first is None or feed.starved) and not last:
            return None
        if first is None and not self._names:
            raise ConnectorError(f"{self._source}: the file is empty: no header", "empty")
        first = first or self._names
        self._check_comments(lines)
        if not self._has_header:
            if not self.is_first and len(first) != self._width:
                what = f"has {len(first)} fields, but the files before have {self._width}"
                raise ConnectorError(f"{self._source}: {what}", "columns differ")
            self._check_delimiter(first)
            self._name_columns(self._names or [f"f{i}" for i in range(1, len(first) + 1)])
            if len(first) != self._width:
                what = f"`names` has {self._width} names for {len(first)} fields"
                raise ConnectorError(f"{self._source}: {what}", "count", option="names")
            return 0
        self._check_delimiter(first)
        names = self._with_index([name.strip() for name in first], lines[feed.at :])
        try:
            self._name_columns(names)
        except ConnectorError as error:
            raise ConnectorError(f"{error}{self._hint(lines)}", **vars(error)) from None
        return feed.at

    def _check_comments(self, lines: Sequence[str]) -> None:
        """Raise an error if lines that look like comments precede the table.

        A line with the width of one of the next three is a header, or a row.
        """
        n = next((i for i, line in enumerate(lines[:_MOST_ABOVE]) if not line.startswith("#")), 0)
        if not n or self._dialect.comment is not None:
            return
        rows = [next(self._dialect.reader([line]), []) for line in lines[: n + 3]]
        widths, last = set(map(len, rows[n:])), rows[n - 1]
        is_header = self._has_header and len(self._with_index(last, lines[n:])) in widths
        if all(len(row) in widths for row in rows[: n - is_header]):
            return
        skipped = self._given.skip_rows + n - is_header
        remedy = f"set skip_rows={skipped}" + ("" if is_header else " if values contain a #, else comment=#")
        place = f"line {self._given.skip_rows + 1}"
        raise ConnectorError(f"{self._source}: {place} looks like a comment: {remedy}", "comment", option="comment")

    def _with_index(self, names: list[str], lines: Sequence[str]) -> list[str]:
        """Add an empty name if the first rows have one field more than the header.

        It is the first column if that contains row numbers, as R writes them. It is the last column if rows end in a
        delimiter.
        """
        rows = list(itertools.islice(self._first_rows(lines), _ROWS_BEYOND))
        if len(rows) < _ROWS_BEYOND or {*map(len, rows)} != {len(names) + 1}:
            return names
        if not any(row[-1] for row in rows):
            return [*names, ""]
        return ["", *names] if [row[0] for row in rows] == ["1", "2"] else names

    def _hint(self, lines: Sequence[str]) -> str:
        """Suggest the line of the header if it is not the first one, else return ""."""
        required, first = self._required, next(self._first_rows(lines), [])
        if 2 * sum(map(is_number, first)) > len(first):
            return "; the first line looks like values: set header=no if there is no header (columns are f1, f2, ...)"
        for i, row in enumerate(self._first_rows(lines)):
            if required and required <= {name.strip() for name in row}:
                n = self._dialect.skip_rows + i
                return f"; line {n + 1} names them: set skip_rows={n}" if i else ""
        return ""

    @property
    def _required(self) -> set[str]:
        return {name for name in (self._roles.label, self._roles.key, self._roles.time) if name}

    def _first_rows(self, lines: Sequence[str]) -> Iterator[list[str]]:
        with contextlib.suppress(csv.Error):
            yield from self._dialect.reader(map(self._dialect.without_comment, lines[:_MOST_ABOVE]))

    def _check_delimiter(self, header: list[str]) -> None:
        """Raise an error if a single name looks like several, unless this was declared."""
        if len(header) != 1 or self._chosen:
            return
        words = header[0].split()
        are_names = bool(self._required) and self._required <= {*words}
        has_spaces = are_names or 2 * sum(map(is_number, words)) > len(words)
        counts = {mark: header[0].count(mark) for mark in ";\t|,"} | {" ": has_spaces * header[0].strip().count(" ")}
        other = max(counts, key=counts.__getitem__)
        if not counts[other]:
            return
        own = self._dialect.delimiter
        what = f", {header[0]!r}: set delimiter={_named(other)} if it is several (or delimiter={_named(own)} if not)"
        if other == own:
            remedy = f"take the quotes off whole lines (or set delimiter={_named(other)} if it is one name)"
            what = f" in quotes, {header[0]!r}: {remedy}"
        which = "the header is a single name" if self._has_header else "the first line is a single value"
        raise ConnectorError(f"{self._source}: {which}{what}", option="delimiter")

    def _name_columns(self, names: list[str]) -> None:
        unnamed = _name_unnamed(names)
        if "" in self._roles.ignore:
            self._roles.ignore += unnamed[1:]
        if twice := [name for name, n in Counter(names).items() if n > 1 and name not in self._roles.unused]:
            what = f"column {twice[0]!r} appears twice in the header; name it in ignore= to drop both"
            raise ConnectorError(f"{self._source}: {what}", "twice", column=twice[0])
        self._take_header(Header(names, unnamed=unnamed))
        self._width, self._all_names = len(names), names

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Split lines into records: at once if all lines are simple, else one by one."""
        comment = self._dialect.comment
        has_comment = comment is not None and any(comment in line for line in lines)
        if not bad and len(lines) <= limit and not has_comment:
            try:
                # Strict mode detects an unclosed last field. If there is none, the lenient reader gives equal results.
                rows = list(self._dialect.reader(lines, strict=True))
            except csv.Error:
                rows = []
            if len(rows) == len(lines) and set(map(len, rows)) <= {self._width}:
                return Records(rows, range(len(lines)), lines, [], len(lines))
        return self._walk(lines, bad, last, limit)

    def _walk(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        feed, found = _Feed(lines, self._dialect), Records()
        starts: list[int] = []
        raw: list[str] = []
        reader = self._dialect.reader(feed)
        while feed.at < len(lines) and len(starts) < limit:
            start = feed.at
            feed.end = min(start + MOST_LINES, len(lines))
            try:
                row = feed.record(reader) or []
                reason = self._fault(row)
            except csv.Error as error:
                row, reason = [], _STRAY_RETURN if "new-line character" in str(error) else str(error)
            if feed.starved:
                if not last and feed.end - start < MOST_LINES:
                    feed.at = start
                    break
                reason = f"a quoted field is not closed within {feed.end - start} lines"
                feed.starved = False
            damaged = [bad[i] for i in range(start, feed.at) if i in bad]
            if reason is None and damaged:
                found.rejected.append((start, damaged[0], "\n".join(lines[start : feed.at])))
            elif reason is not None:
                # Reject the first line only: the others may be valid events.
                found.rejected.append((start, bad.get(start, reason), lines[start]))
                feed.at = start + 1
            elif row:
                found.rows.append(row)
                starts.append(start)
                raw.append("\n".join(lines[start : feed.at]))
        found.starts, found.raw, found.consumed = starts, raw, feed.at
        return found

    def _fault(self, row: list[str]) -> str | None:
        if len(row) == self._width or not row:
            return None
        if len(row) == 1 and not row[0].strip():
            row.clear()
            return None
        return f"{len(row)} fields instead of {self._width}"

    def at_once(self, lines: Sequence[bytes]) -> Events | None:
        """Parse lines without quotes with pyarrow if it is installed; else return None.

        Short files are parsed by the csv module.
        """
        cells = self._arrow.read(lines, self._all_names, self.columns.kinds)
        self.is_apart = self._arrow.is_in_use
        return None if cells is None else self.columns.convert(cells, len(lines))


def _name_unnamed(names: list[str]) -> list[str]:
    """Name unnamed columns after the first one as pandas does; return all of them."""
    unnamed = [i for i, name in enumerate(names) if not name]
    for i in unnamed[1:]:
        names[i] = f"Unnamed: {i}"
    return [names[i] for i in unnamed]


def _named(delimiter: str) -> str:
    return {"\t": "tab", " ": "space"}.get(delimiter, delimiter)


class _Feed:
    """Iterator of lines for a csv reader; it can be reset and records missing lines."""

    def __init__(self, lines: Sequence[str], dialect: Dialect) -> None:
        self._lines, self._dialect = lines, dialect
        self.at, self.end = 0, len(lines)
        self._start = 0
        self.starved = False

    def record(self, reader: Iterator[list[str]]) -> list[str] | None:
        """Return the next record of a reader of these lines, or None."""
        self._start = self.at
        return next(reader, None)

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        if self.at == self.end:
            self.starved = True
            raise StopIteration
        line = self._dialect.without_comment(self._lines[self.at], self._lines[self._start : self.at])
        self.at += 1
        return line + "\n"


open_csv = functools.partial(TextSource, make=functools.partial(CsvFormat, delimiter=","))
open_tsv = functools.partial(TextSource, make=functools.partial(CsvFormat, delimiter="\t"))
write_csv = functools.partial(open_lines, CsvLines(","))
write_tsv = functools.partial(open_lines, CsvLines("\t"))
