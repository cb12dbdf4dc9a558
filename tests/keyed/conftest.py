from __future__ import annotations

import pytest

from tests.commands import preload
from tests.kafka.conftest import broker, command_fixture, listeners, secured, started, topic
from tests.keyed.fleet import brief

__all__ = ["broker", "listeners", "secured", "started", "topic"]

run = command_fixture("per-key", prepare=brief)


@pytest.fixture(scope="session", autouse=True)
def preloaded() -> None:
    preload("streamsvm.keyed.worker")
