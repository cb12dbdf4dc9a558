from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import completed
from tests.kafka.conftest import broker, secured, started, topic
from tests.keyed.fleet import brief

__all__ = ["broker", "secured", "started", "topic"]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a worker to its end."""

    def call(
        *arguments: Any, cwd: Path = tmp_path, timeout: float = 60, **how: Any
    ) -> subprocess.CompletedProcess[str]:
        return completed("per-key", *arguments, cwd=cwd, timeout=timeout, **{"prepare": brief} | how)

    return call
