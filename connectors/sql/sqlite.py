"""Source of an SQLite table or query. Requires nothing but Python."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np

from connectors.columns.cells import Bad
from connectors.columns.roles import Roles
from connectors.columns.typed import SAMPLE, TypedColumns
from connectors.errors import ConnectorError
from connectors.options import Options
from connectors.sql.source import Page, SqlSource, sqlite_uri

_PAGE_ROWS = 1 << 14
"""Number of rows of a query. Short queries do not block processes that write."""
_NUMBERS = frozenset({int, float, NoneType})


class SqliteColumns(TypedColumns):
    """Convert values that may be of any type in each row, as SQLite allows.

    A column is numeric if its values in the first rows are numbers or NULL. Binary values are rejected.
    """

    def __init__(self, source: str, names: Sequence[str], roles: Roles) -> None:
        super().__init__(source, names, roles)
        self._is_deciding = False

    def refuse_binary(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Refuse first rows with binary values."""
        for name, values in columns.items():
            if bytes in map(type, values[:SAMPLE]):
                remedy = "name it in ignore=" if name in self._features else "choose a column of texts or numbers"
                raise ConnectorError(f"{self.source}: column {name!r} has binary values; {remedy}", "type", column=name)

    def infer_types(self, columns: Mapping[str, Any]) -> None:
        self._is_deciding = True
        super().infer_types(columns)
        self._is_deciding = False

    def cells(self, name: str, column: Any, bad: Bad) -> Any:
        wanted = self._roles.types.get(name) or self.types.get(name)
        kinds = set(map(type, column))
        if bytes in kinds:
            column = self.plain(name, column, bad)
        if wanted == "time":
            return list(column)
        is_numeric = wanted == "number" or (self._is_deciding and wanted is None and kinds != {NoneType})
        if is_numeric and kinds <= _NUMBERS:
            return self._without_absent(np.array(column, np.float64))
        return ["" if value is None else str(value) for value in column]

    def plain(self, name: str, column: Any, bad: Bad) -> list[Any]:
        values = list(column)
        for i, value in enumerate(values):
            if isinstance(value, bytes):
                bad.setdefault(i, f"'{name}' is binary")
                values[i] = None
        return values


class SqliteSource(SqlSource):
    """Read an SQLite database; see `SqlSource`.

    With a cursor, the database is not locked between two pages of rows.
    """

    _ahead: Iterator[Page] | None = None
    mark = "`"  # SQLite reads an unknown name in double quotes as a text

    def _opened(self, options: Options, roles: Roles) -> TypedColumns:
        options.finish()
        uri = sqlite_uri(self._url, "ro")
        with self._working():
            self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            with self._working():
                about = self._connection.execute(f"SELECT * FROM {self._base} LIMIT 0").description
                if self._cursor:  # which may be `rowid`, although it is not a column
                    self._connection.execute(f"SELECT {self._names(self._cursor)} FROM {self._base} LIMIT 0")
            columns = SqliteColumns(self.name, [name for name, *_ in about], roles)
            self._columns = columns
            pages = self._read_pages()
            first = list(itertools.islice(pages, 1))
            for page in first:
                columns.refuse_binary(page.columns)
            self._ahead = itertools.chain(first, pages)  # because a query may be slow
            return columns
        except BaseException:
            self._close_files()
            raise

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConnectorError(f"{self.name}: cannot be read{self._place}: {error}", "read") from error

    def _pages(self) -> Iterator[Page]:
        ahead, self._ahead = self._ahead, None
        return ahead if ahead is not None and not self._row else self._read_pages()

    def _read_pages(self) -> Iterator[Page]:
        columns = self._names([*self._columns.used, *self._cursor]) or "NULL"
        query = f"SELECT {columns} FROM {self._base}"
        with self._working():
            rows = None if self._cursor else self._connection.execute(query)
        while True:
            with self._working():
                if rows is not None:
                    page = rows.fetchmany(_PAGE_ROWS)
                else:
                    after = self._after("?" * len(self._cursor))
                    paged = f"{query}{after}{self._order} LIMIT {_PAGE_ROWS}"
                    page = self._connection.execute(paged, self._last or ()).fetchall()
            if page:
                yield self._page(page)
            if len(page) < _PAGE_ROWS:
                return

    def _page(self, rows: list[tuple[Any, ...]]) -> Page:
        columns = list(zip(*rows, strict=True))
        used = self._columns.used
        return Page(dict(zip(used, columns, strict=False)), len(rows), columns[len(used) :] if self._cursor else [])

    def _close_files(self) -> None:
        self._stop_reading()
        self._connection.close()
