"""Source of a database table or query: what SQLite and Postgres share."""

from __future__ import annotations

import csv
import os
import re
import time
from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from connectors.columns.roles import Roles
from connectors.columns.typed import SAMPLE, RowSource, TypedColumns
from connectors.errors import ConnectorError, OptionError
from connectors.events import BATCH_EVENTS, Batch, Origins, Position
from connectors.options import Options

POLL_S = 1.0
"""Default seconds between two queries of a source that waits for rows."""


class Page(NamedTuple):
    """Rows of a result.

    Parameters
    ----------
    columns
        Values by name.
    n
        Number of rows.
    cursors
        Values of each cursor column, as JSON.
    """

    columns: Mapping[str, Any]
    n: int
    cursors: Sequence[Sequence[Any]]


def quoted(name: str, mark: str = '"') -> str:
    """Return a quoted identifier.

    Examples
    --------
    >>> quoted('a"; DROP TABLE x')
    '"a""; DROP TABLE x"'
    """
    return mark + name.replace(mark, mark * 2) + mark


def split_table(text: str) -> list[str]:
    """Return the parts of a table name with an optional schema.

    A part that contains dots is given in double quotes.

    Examples
    --------
    >>> split_table("public.events"), split_table('"my.events"')
    (['public', 'events'], ['my.events'])
    """
    return next(csv.reader([text], delimiter="."), [])


def without_user(url: str) -> str:
    """Return the URL of a database without user and password.

    Examples
    --------
    >>> without_user("postgresql://me:secret@host/shop")
    'postgresql://host/shop'
    >>> without_user("postgresql://me:not/encoded@host/shop")
    'postgresql://host/shop'
    """
    return re.sub("//.*@", "//", url, count=1)


def sqlite_uri(url: str, mode: str) -> str:
    """Return the URI of ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Examples
    --------
    >>> sqlite_uri("sqlite:///a%20b.db", "rwc"), sqlite_uri("sqlite:////tmp/a.db", "rwc")
    ('file:a%20b.db?mode=rwc', 'file:/tmp/a.db?mode=rwc')
    """
    rest = url.partition("://")[2]
    if not rest.startswith("/") or rest == "/":
        raise ConnectorError(f"{url}: use sqlite:///FILE, or sqlite:////FILE for an absolute path", "value")
    path = unquote(rest[1:])
    if mode == "ro" and not os.path.exists(path):
        raise ConnectorError(f"{url}: no such file: {path}", "missing")
    return f"file:{quote(path)}?mode={mode}"


class SqlSource(RowSource):
    """Read the rows of a table or query in the order of a cursor.

    Without a cursor, the rows are read once, in any order. With one, reading resumes after its last value, and
    ``at_end=wait`` repeats the query. A row that appears later with a smaller value of the cursor is not read.

    Parameters
    ----------
    url
        URL of the database without options.
    options
        - `table` or `query`: what to read.
        - `cursor`: columns whose values, taken together, are unique and not NULL, such as a primary key. They are not
        features.
        - `at_end`: stop, or wait for rows; `poll`: seconds between two queries.
        - `batch_size`, the options of roles such as `label`, and those of values such as `missing`.
    """

    mark = '"'
    """Quote of identifiers."""

    def __init__(self, url: str, options: Options) -> None:
        super().__init__()
        self._url = url
        table, query = options.text("table"), options.text("query")
        if (table is None) == (query is None):
            what = "is needed, or `query`: ?table=NAME or ?query=SELECT..."
            raise OptionError(without_user(url), "table", what, "needs")
        self._base = self._names(split_table(table), ".") if table else f"({str(query).strip().rstrip(';')}\n) AS q"
        self.name = f"{without_user(url)}?table={table}" if table is not None else f"{without_user(url)}?query=..."
        self._cursor = options.names("cursor")
        self._waits = options.one_of("at_end", ("stop", "wait")) == "wait"
        self._poll = options.seconds("poll", POLL_S)
        wanted = options.integer("batch_size", BATCH_EVENTS, 1)
        roles = Roles.of(options)
        if self._waits and not self._cursor:
            raise OptionError(self.name, "cursor", "must name unique, increasing columns for at_end=wait", "needs")
        roles.hidden += self._cursor
        self._is_decided = self._is_idle = False
        self._last: list[Any] | None = None
        self._columns = self._opened(options, roles)
        self._batch_size = self._columns.most_events(wanted)

    @property
    def _place(self) -> str:
        return f" after row {self._row}" if self._row else ""

    @abstractmethod
    def _opened(self, options: Options, roles: Roles) -> TypedColumns:
        """Connect, refuse unknown options, and return the columns."""

    @abstractmethod
    def _pages(self) -> Iterator[Page]:
        """Iterate over the rows after the last value of the cursor."""

    @property
    def _order(self) -> str:
        """Clause that orders the rows, empty without a cursor."""
        return f" ORDER BY {self._names(self._cursor)}" if self._cursor else ""

    def _after(self, values: Sequence[str]) -> str:
        """Clause that selects the rows after values of the cursor; empty at the start."""
        if self._last is None:
            return ""
        return f" WHERE ({self._names(self._cursor)}) > ({', '.join(values)})"

    def _names(self, names: Sequence[str], separator: str = ", ") -> str:
        return separator.join(quoted(name, self.mark) for name in names)

    def _batches(self) -> Iterator[Batch]:
        while True:
            for page in self._pages():
                if page.n:
                    self._is_idle = False
                    yield from self._split(page)
            self._is_idle = True
            if not self._waits:
                return
            wake, left = time.monotonic() + self._poll, 1.0
            while left > 0.0:
                yield Batch({}, [], Origins({self.unit: self.name}, {"row": range(0)}), self._read_position)
                left = wake - time.monotonic()
                time.sleep(max(0.0, min(1.0, left)))

    def _split(self, page: Page) -> Iterator[Batch]:
        self._check_cursor(page)
        if not self._is_decided:
            first = {name: column[:SAMPLE] for name, column in page.columns.items()}
            self._columns.infer_types(first)
            self._is_decided = True
        for start in range(0, page.n, self._batch_size):
            end = min(page.n, start + self._batch_size)
            self._last = [values[end - 1] for values in page.cursors] or None
            columns = {name: column[start:end] for name, column in page.columns.items()}
            yield self._next(columns, end - start)

    def _check_cursor(self, page: Page) -> None:
        """Refuse rows whose values of the cursor are missing or equal."""
        if not self._cursor:
            return
        names = ",".join(self._cursor)
        values = list(zip(*page.cursors, strict=True))
        if any(None in value for value in page.cursors):
            what = f"{names} is NULL in a row after row {self._row}; choose columns without NULL"
            raise OptionError(self.name, "cursor", what, "cursor")
        before = [] if self._last is None else [tuple(self._last)]
        pairs = pairwise([*before, *values])
        if (tie := next((one for one, other in pairs if one == other), None)) is not None:
            what = f"{names} = {', '.join(map(str, tie))} is in two rows; choose unique columns"
            raise OptionError(self.name, "cursor", what, "cursor")

    def _stop_reading(self) -> None:
        """End the query, before its connection is closed."""
        if isinstance(self._reading, Generator):
            self._reading.close()

    @property
    def is_at_end(self) -> bool:
        """Whether the last query returned no further rows."""
        return self._is_idle

    @property
    def _mark(self) -> Position:
        return {"cursor": self._last}

    def _seek(self, position: Position) -> None:
        if not self._cursor:
            what = "must name unique, increasing columns for a resume: ?cursor=NAME"
            raise OptionError(self.name, "cursor", what, "not seekable")
        self._row, self._last = int(position["row"]), position["cursor"]
        self._is_decided = self._row > 0
        self._columns.restore(position)
