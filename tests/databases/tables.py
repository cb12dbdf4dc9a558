"""Databases with a table, for tests."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from connectors import open_source


class Database:
    """A table `events` in a database."""

    def __init__(self, url: str, run: Callable[[str], Any]) -> None:
        self.url, self.run = url, run
        self.opened = contextlib.ExitStack()

    def source(self, more: str = "table=events&cursor=id", **options: Any) -> Any:
        source = open_source(f"{self.url}?{more}", **({"label": "y"} | options))
        return self.opened.enter_context(contextlib.closing(source))


def sqlite(path: Path) -> Database:
    def run(statement: str) -> Any:
        connection = sqlite3.connect(path)
        with connection:
            rows = connection.execute(statement).fetchall()
        connection.close()
        return rows

    return Database(f"sqlite:///{path}", run)
