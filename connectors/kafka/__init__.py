"""Kafka as a source and a sink: exactly-once by positions kept with the model and transactions around the predictions.

The client is `kafka-python` (extra ``kafka``), imported when a stream is opened.
"""

from __future__ import annotations

from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
