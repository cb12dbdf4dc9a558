"""CSV dialects, with options as in pandas."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.errors import ConnectorError
from connectors.options import Options


@dataclass(frozen=True, slots=True)
class Dialect:
    """Special characters of delimited text, one character each.

    Parameters
    ----------
    delimiter
        Field delimiter.
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
        """Create a dialect from options; a `single` record has no comments or skipped lines."""
        quote = options.text("quote", '"')
        quote = None if quote == "none" else quote
        dialect = cls(
            options.delimiter(delimiter),
            quote,
            options.text("escape"),
            None if single else options.text("comment"),
            0 if single else options.integer("skip_rows", 0),
        )
        marks = {"quote": quote, "escape": dialect.escape, "comment": dialect.comment}
        seen = {dialect.delimiter: "delimiter"}
        for name, mark in marks.items():
            if mark is None:
                continue
            if len(mark) != 1 or mark in "\r\n":
                none = " or none" if name == "quote" else ""
                raise ConnectorError(
                    f"{options.name}: option `{name}` must be one character{none}, got {mark!r}", option=name
                )
            if mark in seen:
                what = f"options `{seen[mark]}` and `{name}` are the same {mark!r}"
                raise ConnectorError(f"{options.name}: {what}", option=name)
            seen[mark] = name
        return dialect

    def reader(self, lines: Iterable[str], *, strict: bool = False) -> Iterator[list[str]]:
        """Return a csv reader of lines; it does not remove comments."""
        options: dict[str, Any] = {"delimiter": self.delimiter, "escapechar": self.escape, "strict": strict}
        quotes = {"quoting": csv.QUOTE_NONE} if self.quote is None else {"quotechar": self.quote}
        return csv.reader(lines, **options, **quotes)

    @property
    def marks(self) -> tuple[bytes, ...]:
        """Characters that lines without quotes, escapes and comments do not contain."""
        return tuple(mark.encode() for mark in (self.quote, self.escape, self.comment) if mark is not None)

    def has_comment(self, lines: Sequence[str]) -> bool:
        """Return whether any line contains the comment character."""
        return self.comment is not None and any(self.comment in line for line in lines)

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
        is_open = False
        for each in before:
            _, is_open = self._scan(each, is_open)
        return self._scan(line, is_open)[0]

    def _scan(self, line: str, is_open: bool) -> tuple[str, bool]:
        """Return a line without its comment, and whether it ends within quotes.

        `is_open` is the second result for the previous line.
        """
        begins, closed, i = not is_open, False, 0
        while i < len(line):
            mark = line[i]
            was_closed, closed = closed, False
            if mark == self.escape:
                i, begins = i + 2, False
                continue
            if is_open:
                if mark == self.quote:
                    is_open, closed = False, True
            elif mark == self.comment:
                return line[:i], False
            elif mark == self.quote and (begins or was_closed):  # a doubled quote is a literal one
                is_open = True
            begins = mark == self.delimiter and not is_open
            i += 1
        return line, is_open
