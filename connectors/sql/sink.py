"""Sinks that write results to a table of SQLite or Postgres."""

from __future__ import annotations

import contextlib
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from connectors.errors import ConnectorError, OptionError
from connectors.events import Position, Results
from connectors.options import Options
from connectors.outputs.results import HeldRows, ReplacingSink, are_results, flat_columns
from connectors.registry import SinkSettings
from connectors.sql.postgres import connect, convert_errors
from connectors.sql.source import quoted, split_table, sqlite_uri, without_user

NUMBER = "id"
"""Column with the number of each row, counted from 0."""
_PART_ROWS = 1 << 15
BUSY_S = 30.0  # for other processes to unlock an SQLite database
_KINDS = {
    **dict.fromkeys(("partition", "offset", "line", "row", "element", "event", "number", NUMBER), "integer"),
    **dict.fromkeys(("score", "lag"), "float"),
    "alarm": "flag",
}


def kind_of(name: str) -> str:
    """Return the kind of a column: integer, float, flag or text.

    Labels, keys and nested values are text.
    """
    return _KINDS.get(name, "text")


class SqlSink(ReplacingSink):
    """Insert rows, numbered from 0 in the primary key `id`.

    Each insertion is a transaction. A resumed run deletes the rows after its checkpoint and inserts them again, so that
    every row exists once. Without a checkpoint, the first insertion replaces the rows of an earlier run.

    Parameters
    ----------
    url
        URL of the database without options.
    options
        `table`: the table, which is created.
    settings
        Settings of the run.
    """

    types: Mapping[str, str]
    """Types of the database by kind of column."""
    durable: str
    """Statement that lets commits wait for the disk."""
    begin = ""
    """Statement that begins a transaction, if the driver does not."""

    def __init__(self, url: str, options: Options, settings: SinkSettings) -> None:
        table = options.text("table")
        if table is None:
            raise OptionError(without_user(url), "table", "must name the table: ?table=NAME", "needs")
        self.name = f"{without_user(url)}?table={table}"
        self._parts = split_table(table)
        self._table = ".".join(map(quoted, self._parts))
        super().__init__(settings)
        self._rows = 0
        self._held = HeldRows()
        self._connection: Any = self._connected(url, options)
        try:
            options.finish()
            with self._working(), contextlib.closing(self._connection.cursor()) as cursor:
                cursor.execute(self.durable)
                self._names = self._found_names(cursor)
                self._connection.commit()
        except BaseException:
            self._disconnect()
            raise

    @abstractmethod
    def _connected(self, url: str, options: Options) -> Any:
        """Return a connection."""

    @abstractmethod
    def _working(self) -> contextlib.AbstractContextManager[None]:
        """Context that converts errors of the database."""

    @abstractmethod
    def _found_names(self, cursor: Any) -> list[str] | None:
        """Return the columns of the table, None if there is no table."""

    @abstractmethod
    def _append(self, cursor: Any, columns: dict[str, list[Any]]) -> None:
        """Insert rows."""

    def _disconnect(self) -> None:
        with contextlib.suppress(ConnectorError), self._working():  # the connection may be lost
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        """Context of a transaction, which returns a cursor."""
        # A statement that an error refers to would keep an SQLite database open, so the cursor is closed.
        with self._working(), contextlib.closing(self._connection.cursor()) as cursor:
            if self.begin:
                cursor.execute(self.begin)
            try:
                yield cursor
                self._connection.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # the connection may be lost
                    self._connection.rollback()
                raise

    def _is_replaceable(self) -> bool:
        return not self._names or (self._names[0] == NUMBER and are_results(self._names[1:]))

    def write(self, table: Results) -> None:
        """Buffer rows; insert them if there are many."""
        self._check_columns(table)
        self._held.add(flat_columns(table))
        if self._held.n >= _PART_ROWS:
            self._insert()

    def flush(self) -> None:
        """Insert the buffered rows."""
        self._touched = True
        self._insert()

    def _insert(self) -> None:
        held, n = self._held, self._held.n
        if not (n or self._fresh):
            return
        numbers = list(range(self._rows, self._rows + n))
        columns = {NUMBER: numbers} | {name: _converted(kind_of(name), values) for name, values in held.items()}
        with self._transaction() as cursor:
            if self._fresh:
                self._replace_table(cursor, list(columns) if held else None)
            elif self._names is None:
                self._create(cursor, list(columns))
            elif self._names != list(columns):
                raise self._differs(list(columns))
            if n:
                self._check_last(cursor)
                self._append(cursor, columns)
        self._fresh, self._rows = False, self._rows + n
        if held:
            self._names, self._held = list(columns), HeldRows()

    def _replace_table(self, cursor: Any, names: list[str] | None) -> None:
        """Delete the rows of an earlier run; replace a table that has other columns."""
        if self._names is not None and names not in (None, self._names):
            if not self._overwrite:
                raise self._differs(names or [])
            cursor.execute(f"DROP TABLE {self._table}")
            self._names = None
        if self._names is not None:
            cursor.execute(f"DELETE FROM {self._table}")
        elif names is not None:
            self._create(cursor, names)

    def _differs(self, names: list[str]) -> ConnectorError:
        what = f"has the columns {self._names}, and the results {names}: drop it, or name another table"
        return ConnectorError(f"{self.name}: {what}", "columns differ")

    def _create(self, cursor: Any, names: list[str]) -> None:
        columns = [f"{quoted(name)} {self.types[kind_of(name)]}" for name in names]
        cursor.execute(f"CREATE TABLE {self._table} ({', '.join(columns)}, PRIMARY KEY ({quoted(NUMBER)}))")

    def _check_last(self, cursor: Any) -> None:
        """Refuse to insert rows after those of another process."""
        cursor.execute(f"SELECT max({quoted(NUMBER)}) FROM {self._table}")
        (last,) = cursor.fetchone()
        if (-1 if last is None else last) != self._rows - 1:
            what = f"its last row is {last}, but row {self._rows - 1} was written last: another process changed it"
            raise ConnectorError(f"{self.name}: {what}", "changed")

    @property
    def position(self) -> Position:
        """Number of durable rows."""
        return {"rows": self._rows}

    def rewind(self, position: Position) -> None:
        """Delete the rows written after `position`."""
        rows = int(position["rows"])
        if rows and self._names is None:
            raise ConnectorError(f"{self.name}: is missing, but {rows} rows were written before", "missing")
        if self._names is not None and self._names[0] != NUMBER:
            raise ConnectorError(f"{self.name}: has no column {NUMBER!r} as written before: it was changed", "changed")
        if self._names is not None:
            with self._transaction() as cursor:
                cursor.execute(f"DELETE FROM {self._table} WHERE {quoted(NUMBER)} >= {rows}")
                cursor.execute(f"SELECT count(*) FROM {self._table}")
                (count,) = cursor.fetchone()
                if count != rows:
                    what = f"has {count} rows, but {rows} were written before: it was changed"
                    raise ConnectorError(f"{self.name}: {what}", "changed")
        self._fresh, self._touched, self._rows, self._held, self._columns = False, True, rows, HeldRows(), None

    def close(self) -> None:
        """Insert the buffered rows, and disconnect."""
        try:
            if self._touched:
                self.flush()
        finally:
            self._disconnect()


def _converted(kind: str, values: Sequence[Any]) -> list[Any]:
    """Return values of the type of a column."""
    if kind == "text":
        return [None if value is None else _text(value) for value in values]
    if kind == "float":
        return [None if value is None else float(value) for value in values]
    return list(values)


def _text(value: Any) -> str:
    """Return a value as text without characters that databases cannot store."""
    return str(value).replace("\0", "\ufffd").encode("utf-8", "replace").decode()


class SqliteSink(SqlSink):
    """Write to a table of an SQLite database, which is created."""

    types: Mapping[str, str] = {"integer": "INTEGER", "float": "REAL", "flag": "BOOLEAN", "text": "TEXT"}
    # With FULL, a power failure may bring a deleted journal back, which undoes the last transaction.
    durable = "PRAGMA synchronous = EXTRA"
    begin = "BEGIN IMMEDIATE"

    def _connected(self, url: str, options: Options) -> Any:
        options.finish()  # before the file is created
        with self._working():
            uri = sqlite_uri(url, "rwc")
            return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_S)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            what = f"{self.name}: cannot be written: {error}"
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                what += f" for {BUSY_S:g} s; if the run reads from it, name a cursor there, such as ?cursor=rowid"
            raise ConnectorError(what, "write") from error

    def _found_names(self, cursor: Any) -> list[str] | None:
        *schema, table = self._parts
        found = cursor.execute("SELECT name FROM pragma_table_info(?, ?)", (table, *(schema or ["main"])))
        return [name for (name,) in found] or None

    def _append(self, cursor: Any, columns: dict[str, list[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        cursor.executemany(f"INSERT INTO {self._table} VALUES ({marks})", zip(*columns.values(), strict=True))


_ARROW_TYPES = {"integer": "int64", "float": "float64", "flag": "bool", "text": "string"}


class PostgresSink(SqlSink):
    """Write to a table of a Postgres database by COPY."""

    types: Mapping[str, str] = {"integer": "bigint", "float": "double precision", "flag": "boolean", "text": "text"}
    durable = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"

    def _connected(self, url: str, options: Options) -> Any:
        return connect(url, options, autocommit=False)

    def _working(self) -> contextlib.AbstractContextManager[None]:
        return convert_errors(self.name, "cannot be written: ")

    def _found_names(self, cursor: Any) -> list[str] | None:
        cursor.execute(f"SELECT to_regclass('{self._table.replace(chr(39), 2 * chr(39))}') IS NOT NULL")
        (is_there,) = cursor.fetchone()
        return cursor.adbc_execute_schema(f"SELECT * FROM {self._table}").names if is_there else None

    def _append(self, cursor: Any, columns: dict[str, list[Any]]) -> None:
        import pyarrow

        arrays = {name: pyarrow.array(values, _ARROW_TYPES[kind_of(name)]) for name, values in columns.items()}
        *schema, table = self._parts
        more = {"db_schema_name": schema[0]} if schema else {}
        cursor.adbc_ingest(table, pyarrow.table(arrays), mode="append", **more)
