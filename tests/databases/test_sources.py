"""Tables and queries of SQLite and Postgres as sources."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import quote

import pytest

from connectors import Batch, ConnectorError, open_source
from connectors.errors import UnreachableError
from tests.databases import postgres
from tests.databases.tables import Database, sqlite
from tests.errors import raises

N = 15_000


def row(i: int) -> tuple[Any, ...]:
    return i, None if i % 5 == 0 else i / 7, "red" if i % 3 else None, "up" if i % 2 else "down"


def insert(database: Database, first: int, last: int) -> None:
    def values(i: int) -> str:
        return "({})".format(", ".join("NULL" if v is None else repr(v) for v in row(i)))

    database.run(f"INSERT INTO events VALUES {', '.join(map(values, range(first, last)))}")


def events(batches: Any) -> list[Any]:
    return [
        one for batch in batches for one in zip(batch.rows(), batch.labels, batch.origins.columns["row"], strict=True)
    ]


def wanted(first: int, last: int) -> list[Any]:
    def features(i: int) -> dict[str, Any]:
        return {name: value for name, value in zip(("x", "colour"), row(i)[1:3], strict=True) if value is not None}

    return [(features(i), row(i)[3], i) for i in range(first, last)]


def test_a_table_is_read_in_the_order_of_its_cursor(database):
    insert(database, 500, 900)
    insert(database, 0, 500)
    assert events(database.source()) == wanted(0, 900)
    assert sum(map(len, database.source("table=events"))) == 900
    query = "query=SELECT id, x, y FROM events WHERE id < 10 -- first&cursor=id"
    assert [label for _, label, _ in events(database.source(query))] == [row(i)[3] for i in range(10)]


def test_reading_resumes_after_the_last_value(database):
    insert(database, 0, 900)
    first = next(iter(database.source(batch_size=300)))
    insert(database, 900, 1000)
    source = database.source(batch_size=300)
    source.seek(first.position)
    assert events(source) == wanted(300, 1000)


def test_several_columns_may_be_the_cursor(database):
    insert(database, 0, 900)
    source = "query=SELECT *, id / 10 AS hour FROM events&cursor=hour,id"
    first = next(iter(database.source(source, batch_size=305)))
    rest = database.source(source, batch_size=305)
    rest.seek(first.position)
    assert events([first]) + events(rest) == wanted(0, 900)


def test_new_rows_are_read_while_waiting(database):
    batches = iter(database.source("table=events&cursor=id&at_end=wait&poll=0.01s"))
    assert not len(next(batches))
    insert(database, 0, 20)
    found: list[Batch] = []
    for last in (20, 30):
        while sum(map(len, found)) < last:
            found.append(next(batches))
        if last == 20:
            insert(database, 20, 30)
    assert events(found) == wanted(0, 30)


@pytest.mark.parametrize("value", ["NULL", "7"])
def test_a_cursor_is_unique_and_never_null(database, value):
    database.run(f"CREATE TABLE twice AS SELECT 7 AS id, 1.5 AS x, 'a' AS y UNION ALL SELECT {value}, 2.5, 'b'")
    with raises(ConnectorError, reason="cursor", option="cursor"):
        list(database.source("table=twice&cursor=id"))


def test_without_a_cursor_nothing_resumes(database):
    source = database.source("table=events")
    with raises(ConnectorError, reason="not seekable", option="cursor"):
        source.seek(source.position)
    with raises(ConnectorError, reason="needs", option="cursor"):
        database.source("table=events", at_end="wait")


@pytest.mark.parametrize("more", ["", "table=events&query=SELECT 1", "table=nosuch", "table=events&cursor=nosuch"])
def test_unreadable_sources_are_refused_at_once(database, more):
    with raises(ConnectorError):
        database.source(more)


@pytest.mark.parametrize("name", ['odd "name"; DROP TABLE events', "a`b", "Ünïcode 'x'"])
def test_names_are_quoted(database, name):
    insert(database, 0, 2)
    quoted = '"' + name.replace('"', '""') + '"'
    database.run(f"CREATE TABLE {quoted} AS SELECT id AS {quoted}, y FROM events")
    asked = '"' + name.replace('"', '""') + '"'
    source = open_source(f"{database.url}", table=asked, cursor=[name], label="y", types={})
    assert [label for batch in source for label in batch.labels] == ["down", "up"]
    assert database.run("SELECT count(*) FROM events") == [(2,)]


def test_sqlite_values_may_be_of_any_type(tmp_path):
    database = sqlite(tmp_path / "a.db")
    database.run("CREATE TABLE events (x, late, code, y)")
    many = ", ".join(f"({i % 7}, {'NULL' if i < 1100 else 5}, 'c{i % 3}', 1)" for i in range(1200))
    database.run(f"INSERT INTO events VALUES {many}")
    database.run("INSERT INTO events VALUES ('oops', 5, 7, 1), (1, 5, X'00', 2), (2, 5, 'c1', X'00')")
    batches = list(database.source("table=events&cursor=rowid"))
    rows = [row for batch in batches for row in batch.rows()]
    assert rows[0] == {"x": 0.0, "code": "c0"}
    assert rows[-1] == {"x": 1199 % 7, "late": 5.0, "code": "c2"}
    assert [one.reason.partition(" ")[0] for batch in batches for one in batch.rejected] == ["'x'", "'code'", "'y'"]
    for roles in ({}, {"key": "b"}, {"time": "b"}):
        with raises(ConnectorError, reason="type", column="b"):
            database.source("query=SELECT 1 AS y, X'00' AS b", **roles)


def test_a_query_of_sqlite_runs_once(tmp_path, monkeypatch):
    database, statements = sqlite(tmp_path / "a.db"), list[str]()
    database.run("CREATE TABLE a (x)")

    def traced(*arguments: Any, **more: Any) -> Any:
        connection = connect(*arguments, **more)
        connection.set_trace_callback(statements.append)
        return connection

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", traced)
    for more in ("query=SELECT 1 AS id, 0 AS y", "query=SELECT 1 AS id, 0 AS y&cursor=id"):
        statements.clear()
        assert events(database.source(more)) == [({} if "cursor" in more else {"id": 1.0}, 0, 0)]
        assert len([text for text in statements if "LIMIT 0" not in text]) == 1


def test_sqlite_files_are_never_created_or_changed(tmp_path):
    with raises(ConnectorError, named="nosuch.db"):
        open_source(f"sqlite:///{tmp_path}/nosuch.db?table=a")
    assert not list(tmp_path.iterdir())
    database = sqlite(tmp_path / "a.db")
    database.run("CREATE TABLE a (x)")
    with raises(ConnectorError):
        list(open_source(f"{database.url}?query=DELETE FROM a"))
    with raises(ConnectorError):
        open_source("sqlite:a.db?table=a")


TYPES = """CREATE TABLE events (id bigint PRIMARY KEY, n numeric(9,2), big numeric, b bool, r real, s text, m mood,
    u uuid, ts timestamp, tz timestamptz, d date, j jsonb, a int[], bin bytea, iv interval, y mood)"""
VALUES = """(1, 1.50, 1e30, true, 1.5, 'x', 'calm', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2026-01-01 06:00',
    '2026-01-01 08:00+02', '2026-01-01', '{}', '{1}', '\\x00', '1 day', 'calm')"""


def test_types_of_postgres(server):
    server.execute("DROP TABLE IF EXISTS events", "DROP TYPE IF EXISTS mood", "CREATE TYPE mood AS ENUM ('calm')")
    server.execute(TYPES, f"INSERT INTO events VALUES {VALUES}, (2{', NULL' * 15})")
    source = f"{server.url}?table=public.events&cursor=id&ignore=j,bin,iv,d&types=ts:time,tz:time"
    first, second = (row for batch in open_source(source, label="y") for row in batch.rows())
    plain = {"n": 1.5, "big": 1e30, "b": 1.0, "r": 1.5, "s": "x", "m": "calm", "a.length": 1.0}
    assert {name: first[name] for name in plain} == plain
    assert first["u"] == "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert first["ts hour sin"] == first["tz hour sin"]
    assert second == {}
    for name in ("j", "bin", "iv", "d"):
        others = ",".join({"j", "bin", "iv", "d", "ts", "tz"} - {name})
        with raises(ConnectorError, reason="type", column=name):
            open_source(f"{server.url}?table=events&ignore={others}")


def test_passwords_are_read_as_libpq_does_and_never_shown(server, monkeypatch):
    url = f"postgresql://{postgres.LOCKED}@127.0.0.1:{server.port}/postgres?query=SELECT 1 AS x, 'a' AS y"
    with raises(ConnectorError, reason="database"):
        open_source(url)
    monkeypatch.setenv("PGPASSWORD", postgres.PASSWORD)
    assert [len(batch) for batch in open_source(url.replace("postgresql:", "postgres:"), label="y")] == [1]
    with raises(ConnectorError, reason="database") as caught:
        open_source(f"postgresql://{postgres.LOCKED}:wrong%20one@127.0.0.1:{server.port}/postgres?table=a")
    assert "wrong" not in str(caught.value)


def test_a_connection_that_a_setting_prevents_is_refused_for_good(server):
    for more in ("sslmode=require", "sslmode=sometimes", "channel_binding=require", "service=none", "port=no"):
        with raises(ConnectorError, reason="database") as caught:
            open_source(f"{server.url}?table=events&{more}")
        assert not isinstance(caught.value, UnreachableError), more
    server.execute("ALTER ROLE locked CONNECTION LIMIT 0")
    url = f"postgresql://{postgres.LOCKED}:{quote(postgres.PASSWORD)}@127.0.0.1:{server.port}/postgres?table=events"
    for lasting in (url, "postgresql://me@127.0.0.1:1/postgres?table=events"):
        with raises(UnreachableError, reason="database"):
            open_source(lasting)
    server.execute("ALTER ROLE locked CONNECTION LIMIT -1")


@pytest.mark.parametrize("password", ["hun%zz", "hun/ter", "12@hun", "hun%00"])
def test_passwords_that_are_not_encoded_are_refused_and_not_shown(password):
    with raises(ConnectorError, reason="value") as caught:
        open_source(f"postgresql://me:{password}@127.0.0.1:1/postgres?table=a")
    assert "hun" not in str(caught.value)


def test_a_lost_connection_is_an_error_after_which_reading_resumes(server):
    server.execute("DROP TABLE IF EXISTS events")
    server.execute(
        "CREATE TABLE events AS SELECT i AS id, i / 7.0::float8 AS x, repeat('a', 3000) AS y "
        f"FROM generate_series(1, {N}) i"
    )
    options = {"label": "y", "ignore": ["id"]}
    batches = iter(source := open_source(f"{server.url}?table=events&cursor=id", **options))
    read = len(next(batches))
    server.restart()
    with raises(ConnectorError, reason="database"):
        for batch in batches:
            read += len(batch)
    again = open_source(f"{server.url}?table=events&cursor=id", **options)
    again.seek(source.position)
    assert read + sum(map(len, again)) == N
