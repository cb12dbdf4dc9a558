"""Kafka source and sink with exactly-once processing.

Source positions are stored with the model, and predictions are written in transactions. The client is `kafka-python`
(extra ``kafka``), imported when a stream is opened.
"""

from __future__ import annotations

from connectors.kafka.sink import KafkaSink
from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]
