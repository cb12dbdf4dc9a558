from __future__ import annotations

from tests.kafka.conftest import broker, command_fixture, listeners, secured, started, topic
from tests.keyed.fleet import brief

__all__ = ["broker", "listeners", "secured", "started", "topic"]

run = command_fixture("per-key", prepare=brief)
