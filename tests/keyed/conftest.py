from __future__ import annotations

from tests.kafka.conftest import broker, run, started, topic

__all__ = ["broker", "run", "started", "topic"]
