"""Tables of SQLite and Postgres as outputs."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from connectors import ConnectorError, Sink, open_sink
from tests.databases.tables import Database
from tests.errors import raises


@contextlib.contextmanager
def opened(database: Database, table: str = "results", **options: Any) -> Iterator[Sink]:
    sink = open_sink(f"{database.url}?table={table}", **options)
    try:
        yield sink
    finally:
        sink.close()


def results(first: int, last: int) -> dict[str, Any]:
    n = range(first, last)
    return {"row": n, "prediction": ["up"] * len(n), "score": [0.5] * len(n), "label": [1] * len(n)}


def rows(database: Database) -> list[Any]:
    return [tuple(row) for row in database.run("SELECT * FROM results ORDER BY id")]


def wanted(n: int) -> list[Any]:
    return [(i, i, "up", 0.5, "1") for i in range(n)]


def test_rows_are_numbered_and_typed(database):
    with opened(database) as sink:
        sink.write({"line": [2, 3], "prediction": [None, True], "score": [None, 1.0], "reasons": [[["x", 0.5]], None]})
        sink.flush()
        sink.write({"line": [4], "prediction": ["it's \0"], "score": [0.25], "reasons": [None]})
    assert rows(database) == [
        (0, 2, None, None, '[["x",0.5]]'),
        (1, 3, "True", 1.0, None),
        (2, 4, "it's �", 0.25, None),
    ]


def test_rows_after_a_position_are_dropped(database):
    with opened(database) as sink:
        sink.write(results(0, 3))
        sink.flush()
        position = sink.position
        sink.write(results(0, 9))
    with opened(database, resume=True) as sink:
        sink.rewind(position)
        sink.write(results(3, 5))
    assert rows(database) == wanted(5)


def test_the_next_run_replaces_the_rows(database):
    for n in (9, 5):
        with opened(database) as sink:
            sink.check_replaced()
            sink.write(results(0, n))
    assert rows(database) == wanted(5)
    with opened(database) as sink:
        sink.flush()
    assert rows(database) == []
    with opened(database):
        pass


def test_other_tables_are_never_replaced(database):
    with opened(database, "events") as sink, raises(ConnectorError, named="overwrite"):
        sink.check_replaced()
    with opened(database) as sink:
        sink.write(results(0, 2))
    sink = open_sink(f"{database.url}?table=results")
    sink.check_replaced()
    sink.write(results(0, 1) | {"alarm": [True]})
    for finish in (sink.flush, sink.close):
        with raises(ConnectorError, reason="columns differ"):
            finish()
    assert rows(database) == wanted(2)


def test_overwrite_replaces_any_table(database):
    database.run("CREATE TABLE results (a text)")
    with opened(database, overwrite=True) as sink:
        sink.check_replaced()
        sink.write(results(0, 2))
    assert rows(database) == wanted(2)


@pytest.mark.parametrize(
    ("change", "reason"), [("DELETE FROM results WHERE id = 1", "changed"), ("DROP TABLE results", "missing")]
)
def test_changes_by_others_are_noticed_on_resumption(database, change, reason):
    with opened(database) as sink:
        sink.write(results(0, 3))
        sink.flush()
        position = sink.position
    database.run(change)
    with opened(database, resume=True) as sink, raises(ConnectorError, reason=reason):
        sink.rewind(position)


def test_changes_by_others_are_noticed_while_writing(database):
    sink = open_sink(f"{database.url}?table=results")
    sink.write(results(0, 3))
    sink.flush()
    with opened(database) as other:
        other.write(results(0, 1))
    sink.write(results(3, 4))
    with raises(ConnectorError, reason="changed"):
        sink.flush()
    with raises(ConnectorError, reason="changed"):
        sink.close()
    assert rows(database) == wanted(1)


def test_a_table_must_be_named(database):
    with raises(ConnectorError, reason="needs", option="table"):
        open_sink(database.url)


def test_an_sqlite_database_that_is_read_by_one_long_query_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("connectors.sql.sink.BUSY_S", 0.01)
    url = f"sqlite:///{tmp_path}/a.db?table=results"
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("CREATE TABLE events (x)")
        reading = other.execute("BEGIN IMMEDIATE")
        sink = open_sink(url)
        sink.write(results(0, 3))
        with raises(ConnectorError, reason="write", named="cursor"):
            sink.flush()
        reading.close()
        other.rollback()
        sink.close()
        assert other.execute("SELECT count(*) FROM results").fetchall() == [(3,)]


def test_commits_of_postgres_wait_for_the_disk(server):
    server.execute(
        "DROP TABLE IF EXISTS settings",
        "CREATE TABLE settings (id bigint PRIMARY KEY, prediction text)",
        "CREATE OR REPLACE FUNCTION setting() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.prediction = current_setting(''synchronous_commit''); RETURN NEW; END'",
        "CREATE TRIGGER setting BEFORE INSERT ON settings FOR EACH ROW EXECUTE FUNCTION setting()",
    )
    for given, used in (("off", "on"), ("local", "local")):
        url = f"{server.url}?table=settings&options=-c%20synchronous_commit%3D{given}"
        with contextlib.closing(open_sink(url)) as sink:
            sink.write({"prediction": ["up"]})
        assert server.execute("SELECT prediction FROM settings") == [(used,)]
