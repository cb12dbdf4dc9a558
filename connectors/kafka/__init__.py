"""Kafka source and sink with exactly-once processing.

Source positions are stored with the model, and predictions are written in transactions. The client is `kafka-python`
(extra ``kafka``), imported when a stream is opened.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]

_HOMES = {"KafkaSink": "connectors.kafka.sink", "KafkaSource": "connectors.kafka.source"}


def __getattr__(name: str) -> Any:
    """Import a public class on first access, because most runs do not use Kafka."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
