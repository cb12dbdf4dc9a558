"""What a run with Kafka needs, imported and compiled."""

from __future__ import annotations

import kafka
import orjson

import connectors.kafka.sink
import streamsvm.cli
import streamsvm.run.runner
from streamsvm import CPMClassifier, RefitClassifier

__all__ = ["connectors", "kafka", "orjson", "streamsvm"]

RefitClassifier(CPMClassifier(n_faces=3)).run_batch([{"warm": 1.0}], [0])
