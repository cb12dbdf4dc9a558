"""Runs from and to databases, killed and resumed, write every row once."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from streamsvm.run import Run, RunConfig
from streamsvm.run.errors import SetupError
from tests.commands import Command, ran_here
from tests.databases.tables import Database
from tests.errors import raises
from tests.run.conftest import killed

N = 2_000
KILLS = 2
TEMPORARY = 75


def fill(database: Database) -> None:
    dice = random.Random(1)
    values = ((i, dice.gauss(0, 1), dice.choice(["red", "blue"])) for i in range(N))
    rows = ", ".join(f"({i}, {x}, '{colour}', '{'up' if x > 0.1 else 'down'}')" for i, x, colour in values)
    database.run(f"INSERT INTO events VALUES {rows}")
    # Events with a text in place of their time are rejected.
    database.run(
        "CREATE TABLE broken AS SELECT *, CASE id % 100 WHEN 7 THEN 'never' ELSE '2026-01-01' END AS t FROM events"
    )


def arguments(database: Database, out: str, every: int) -> list[Any]:
    source = f"{database.url}?table=broken&cursor=id&batch_size=50"
    stream = ("run", source, "--label", "y", "--time", "t", "--model", "cpm", "--quiet", "--set", "key=id")
    sinks = ("--out", f"{database.url}?table={out}", "--dead-letter", f"{database.url}?table={out}_rejected")
    return [*stream, *sinks, "--checkpoint", out, "--checkpoint-every", every]


def results(database: Database, out: str) -> list[Any]:
    return [database.run(f"SELECT * FROM {table} ORDER BY id") for table in (out, f"{out}_rejected")]


def count(database: Database, table: str) -> int:
    time.sleep(0.02)  # each look opens a connection
    try:
        ((n,),) = database.run(f"SELECT count(*) FROM {table}")
    except Exception:  # it does not exist yet, or is locked
        return 0
    return int(n)


@pytest.mark.slow
def test_killed_and_resumed(database: Database, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The run is killed, and then the server of Postgres."""
    fill(database)
    ran_here(*arguments(database, "whole", 1_000_000), cwd=tmp_path, check=True)
    whole = results(database, "whole")
    assert [len(rows) for rows in whole] == [N - N // 100, N // 100]
    dice = random.Random(2)
    kills = 0
    for share in sorted(dice.uniform(0.1, 0.6) for _ in range(KILLS)):
        asked = arguments(database, "broken_off", dice.randint(100, 300))
        kills += killed(*asked, cwd=tmp_path, when=lambda n=share * N: count(database, "broken_off") >= n)
    assert kills, "the process was too quick to be killed"
    if database.url.startswith("postgres"):
        log, at = tmp_path / "log", count(database, "broken_off")
        with Command(*arguments(database, "broken_off", 100), cwd=tmp_path, stderr=log) as process:
            while process.poll() is None and count(database, "broken_off") <= at:
                time.sleep(0.002)
            request.getfixturevalue("server").crash()
            assert process.wait(60) in (TEMPORARY, 0), log.read_text()  # 0 if it was too quick
        assert "Traceback" not in log.read_text()
    ran_here(*arguments(database, "broken_off", 500), cwd=tmp_path, check=True)
    assert results(database, "broken_off") == whole


def test_a_run_is_refused_before_it_reads(database: Database, tmp_path: Path) -> None:
    kept = {"checkpoint": str(tmp_path / "kept")}
    for options in (
        {"label": "z"},
        {"label": "y", "out": f"{database.url}?table=events"},
        {"label": "y", "out": database.url},
    ):
        with raises(SetupError):
            Run(RunConfig(source=f"{database.url}?table=events&cursor=id", **options)).start()
    with raises(SetupError, named="cursor"):
        Run(RunConfig(source=f"{database.url}?table=events", label="y", **kept)).start()


def test_events_and_late_labels_may_be_tables_of_one_database(database: Database) -> None:
    fill(database)
    database.run("CREATE TABLE answers AS SELECT id AS of, y, '2026-01-02' AS t FROM events")
    config = RunConfig(
        source=f"{database.url}?query=SELECT id AS of, x, colour, t FROM broken WHERE id %25 100 <> 7 ORDER BY id",
        label_source=f"{database.url}?table=answers&cursor=of",
        **{"label": "y", "join": "of", "time": "t", "model": "cpm", "out": f"{database.url}?table=joined"},
    )
    report = Run(config).start()
    assert report.metrics.events == N - N // 100 == count(database, "joined")
