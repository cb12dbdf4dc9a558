"""A private Postgres server for tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

USER = "nobody"  # of the server, which does not run as root
LOCKED = "locked"
"""A role of the database that needs the password `PASSWORD`."""
PASSWORD = "p@ss word"
_FLAGS = ("-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "shared_buffers=16MB")


def _programs() -> Path | None:
    found = shutil.which("postgres")
    return None if found is None else Path(os.path.realpath(found)).parent


class Server:
    """A Postgres server with an empty database; `url` connects without a password."""

    def __init__(self, folder: str, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._as = {"user": USER} if os.geteuid() == 0 else {}
        if self._as:
            shutil.chown(folder, USER)
        make = [programs / "initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8"]
        subprocess.run(make, check=True, capture_output=True, cwd=folder, **self._as)
        access = Path(folder, "data", "pg_hba.conf")
        access.write_text(f"host all {LOCKED} 127.0.0.1/32 scram-sha-256\n{access.read_text()}")
        self._start()
        self.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")

    def _start(self) -> None:
        command = [self._programs / "postgres", "-D", f"{self._folder}/data", "-p", str(self.port), "-k", self._folder]
        log = open(Path(self._folder, "log"), "ab")  # noqa: SIM115 - of the process
        how = {"cwd": self._folder, "stdout": log, "stderr": log, "start_new_session": True} | self._as
        self.process = subprocess.Popen([*command, *_FLAGS], **how)
        log.close()
        for _ in range(200):
            with contextlib.suppress(Exception):
                self.execute("SELECT 1")
                return
            time.sleep(0.05)
        raise RuntimeError(Path(self._folder, "log").read_text())

    def execute(self, *statements: str) -> list[Any]:
        """Run statements; return the rows of the last one."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(self.url, autocommit=True) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """Stop the server at once; connections are lost."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()

    def crash(self) -> None:
        """Kill all processes of the server and start it again, which recovers commits."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._start()

    def restart(self) -> None:
        """Stop and start the server."""
        self.stop()
        self._start()


@contextlib.contextmanager
def server() -> Iterator[Server]:
    """Run a server in a temporary folder; skip tests without Postgres or its driver."""
    pytest.importorskip("adbc_driver_postgresql", reason="needs the extra `sql`")
    programs = _programs()
    if programs is None:
        pytest.skip("needs the program `postgres`")
    with tempfile.TemporaryDirectory(prefix="streamsvm-postgres-") as folder:
        started = Server(folder, programs)
        try:
            yield started
        finally:
            started.stop()
