from __future__ import annotations

from tests.kafka.conftest import broker, started, topic
from tests.run.conftest import _compiled, refused, streamsvm

__all__ = ["_compiled", "broker", "refused", "started", "streamsvm", "topic"]
