from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import postgres
from tests.databases.tables import Database, sqlite


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    with postgres.server() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        made = sqlite(tmp_path / "a b.db")
    else:
        started = request.getfixturevalue("server")
        started.execute("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
        made = Database(started.url, lambda statement: started.execute(statement))
    made.run("CREATE TABLE events (id bigint PRIMARY KEY, x double precision, colour text, y text)")
    with made.opened:
        yield made
