from __future__ import annotations

from tests.kafka.conftest import broker, run, secured, started, topic

__all__ = ["broker", "run", "secured", "started", "topic"]
