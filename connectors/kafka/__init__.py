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
    from connectors.options import Options
    from connectors.registry import Setting
    from connectors.streams import Sink, Source

__all__ = ["KafkaSink", "KafkaSource"]

_HOMES = {"KafkaSink": "connectors.kafka.sink", "KafkaSource": "connectors.kafka.source"}


def __getattr__(name: str) -> Any:
    """Import a public class on first access, because most runs do not use Kafka."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_source(path: str, options: Options) -> Source:
    """Open a topic as a source."""
    from connectors.kafka.clients import split_address
    from connectors.kafka.source import KafkaSource

    servers, topic = split_address(path)
    return KafkaSource(servers=servers, topic=topic, **options.rest())


def open_sink(path: str, options: Options, setting: Setting) -> Sink:
    """Open a topic as a sink."""
    from connectors.kafka.clients import split_address
    from connectors.kafka.sink import KafkaSink

    servers, topic = split_address(path)
    return KafkaSink(servers=servers, topic=topic, setting=setting, **options.rest())
