"""Source of a Postgres table or query, read as Arrow batches (extra `sql`)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from connectors.arrow.columns import ArrowColumns, ArrowFlattening
from connectors.columns.roles import Roles
from connectors.columns.typed import TypedColumns
from connectors.errors import ConnectorError, UnreachableError
from connectors.options import Options
from connectors.sql.source import Page, SqlSource, quoted, without_user

_CONNECTION = (
    *("host", "hostaddr", "port", "passfile", "service", "options", "application_name", "connect_timeout"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl", "sslnegotiation", "ssl_min_protocol_version"),
    *("channel_binding", "require_auth", "gssencmode", "krbsrvname", "target_session_attrs", "load_balance_hosts"),
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout"),
)
"""Options of libpq that a URL may contain."""
_CURSOR = "streamsvm cursor "
_NOISE = re.compile(
    r"^[A-Z_]+: (?:\[libpq\] )?|Failed to (?:prepare|execute) query[^:]*: |ERROR:|\n(?:LINE \d|Query was)[\s\S]*"
)
"""Parts of messages of the driver that do not help."""
_REFUSED = re.compile(
    "FATAL|does not support|invalid|definition of service|channel binding|authentication method|certificate|private key"
    "|no password"
)
_PASSING = re.compile("FATAL: +(?:the database system is|sorry, too many|too many|remaining connection|terminating)")
"""Messages of failed connections: wrong settings, and servers not ready."""
_QUOTED = re.compile(r'"[^"]*"')
_UNCODED = re.compile(r"[/@]|%(?![0-9A-Fa-f]{2})|%00")
_PAGE_BYTES = str(1 << 22)


def connect(url: str, options: Options, *, autocommit: bool = True) -> Any:
    """Connect to a Postgres database.

    Options are passed to libpq, which also reads ``~/.pgpass`` and ``PGPASSWORD``.

    Raises
    ------
    ConnectorError
        If the password is not encoded, the extra is missing, or the connection is refused.
    """
    name = without_user(url)
    user, at, _ = url.partition("://")[2].rpartition("@")
    if at and ":" in user and _UNCODED.search(user):  # libpq would quote a part of the password in its message
        what = "user and password contain a character that must be encoded: write %25 for %, %2F for / and %40 for @"
        raise ConnectorError(f"{name}: {what}", "value")
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        what = "Postgres needs ADBC: pip install 'streamsvm[sql]'"
        raise ConnectorError(f"{name}: {what}", "no driver") from error
    given = {key: value for key in _CONNECTION if (value := options.text(key)) is not None}
    with convert_errors(name):
        return dbapi.connect(f"{url}?{urlencode(given, quote_via=quote)}" if given else url, autocommit=autocommit)


@contextlib.contextmanager
def convert_errors(name: str, place: str = "") -> Iterator[None]:
    """Convert errors of the database to a `ConnectorError` that names it.

    Parameters
    ----------
    name
        Name of the source or sink.
    place
        Where it happened, such as "after row 5".
    """
    import adbc_driver_manager
    import pyarrow

    try:
        yield
    except (adbc_driver_manager.Error, pyarrow.ArrowException, OSError) as error:
        text = " ".join(_NOISE.sub("", str(error)).split())
        unquoted = _QUOTED.sub("", text)
        is_refused = not place and _REFUSED.search(unquoted) and not _PASSING.search(unquoted)
        is_refused = is_refused or isinstance(error, adbc_driver_manager.ProgrammingError)
        raise (ConnectorError if is_refused else UnreachableError)(f"{name}: {place}{text}", "database") from error


class PostgresSource(SqlSource):
    """Read a Postgres database; see `SqlSource`.

    Each query is one statement, whose rows are streamed.

    Numerics become 64-bit floats. Types without an equivalent in Arrow, such as enumerations and UUIDs, are read as
    texts.
    """

    def _opened(self, options: Options, roles: Roles) -> TypedColumns:
        nested = ArrowFlattening(options, roles)
        self._connection = connect(self._url, options)
        try:
            options.finish()
            with convert_errors(self.name):
                schema = self._schema_of("*")
                casts = {one.name: cast for one in schema if (cast := _cast_of(one.type))}
                self._selected = {one.name: f"{quoted(one.name)}{casts.get(one.name, '')}" for one in schema}
                schema = self._schema_of(", ".join(self._list(schema.names)))
                texts = [f"{quoted(name)}::text AS {quoted(_CURSOR + name)}" for name in self._cursor]
                self._schema_of(", ".join(texts) or "1")
            columns = ArrowColumns(self.name, schema, roles, nested)
        except BaseException:
            self._close_files()
            raise
        self._names_read, self._flat = columns.names_read, columns.flat
        selected = ", ".join(self._list(self._names_read) + texts) or "NULL AS none"
        self._query = f"SELECT {selected} FROM {self._base}"
        return columns

    def _list(self, names: Sequence[str]) -> list[str]:
        return [f"{self._selected[name]} AS {quoted(name)}" for name in names]

    def _schema_of(self, columns: str) -> Any:
        with self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(f"SELECT {columns} FROM {self._base}")

    def _pages(self) -> Iterator[Page]:
        values = ["'" + str(value).replace("'", "''") + "'" for value in self._last or ()]
        with self._connection.cursor() as cursor:
            with self._working():
                cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": _PAGE_BYTES})
                # Without parameters, which would make the driver read the whole result into memory.
                cursor.execute(f"{self._query}{self._after(values)}{self._order}")
                pages = cursor.fetch_record_batch()
            with pages:
                while (rows := self._next_of(pages)) is not None:
                    yield self._page(rows)

    def _next_of(self, pages: Any) -> Any:
        with self._working():
            return next(pages, None)

    def _working(self) -> contextlib.AbstractContextManager[None]:
        return convert_errors(self.name, f"cannot be read{self._place}: ")

    def _page(self, rows: Any) -> Page:
        cursors = [rows.column(_CURSOR + name).to_pylist() for name in self._cursor]
        return Page(self._flat(rows.select(self._names_read)), len(rows), cursors)

    def _close_files(self) -> None:
        with contextlib.suppress(ConnectorError), convert_errors(self.name):  # the connection may be lost
            self._stop_reading()
            self._connection.close()


def _cast_of(kind: Any) -> str:
    """Return the cast of a column whose type Arrow lacks, empty for others."""
    extension = getattr(kind, "extension_name", None)
    if extension is None or extension == "arrow.json":
        return ""
    return "::float8" if getattr(kind, "type_name", None) == "numeric" else "::text"
