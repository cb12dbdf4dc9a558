"""What a run with Kafka needs, imported and compiled."""

from __future__ import annotations

import kafka
import orjson

import connectors.kafka.sink
import streamsvm.cli
import streamsvm.run.runner
from streamsvm import CPMClassifier

__all__ = ["connectors", "kafka", "orjson", "streamsvm"]

CPMClassifier(n_faces=3).run_batch([{"warm": 1.0}], [0])
