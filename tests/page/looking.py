"""Helpers of page tests, with and without a browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from streamsvm.run.page import dashboard
from tests.commands import Command, wait_for

__all__ = ["Running", "eager", "free_port", "get", "wait_for"]


def free_port() -> int:
    with socket.socket() as some:
        some.bind(("127.0.0.1", 0))
        return int(some.getsockname()[1])


def get(
    port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> tuple[int, bytes, dict[str, str]]:
    """Return status, content and headers of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def eager() -> None:
    """Update the page after nearly every batch, even on a busy machine."""
    for share in ("_PUBLISHING", "_LOOKING", "_ANSWERING"):
        setattr(dashboard, share, 1.0)


class Running:
    """The command line in a separate process, with a page."""

    def __init__(self, *arguments: Any, cwd: Path, what: str = "run", **more: str) -> None:
        self.port, self.log = free_port(), cwd / f"{what}-{time.monotonic_ns()}.log"
        asked = (what, *arguments, "--page", self.port)
        self._process = Command(*asked, cwd=cwd, stdout=self.log, stderr=self.log, more=more, prepare=eager)
        self.url = f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Running:
        wait_for(self._answers, "the page")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        try:
            return bool(get(self.port, "/healthz")[0])
        except OSError:
            return False

    def state(self) -> dict[str, Any]:
        """The state of the run; empty before its first batch."""
        status, content, _ = get(self.port, "/state.json")
        return dict(json.loads(content)) if status == 200 else {}

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Stop the process as Ctrl-C does. Return its exit code."""
        os.kill(self._process.pid, signal.SIGINT)
        return self._process.wait(60)
