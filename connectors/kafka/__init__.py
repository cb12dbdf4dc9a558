"""Kafka as a source and a sink: exactly-once by positions kept with the model and transactions around the predictions.

The client is `kafka-python` (extra ``kafka``), imported when a stream is opened.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from connectors.events import Sink, Source
from connectors.options import Options
from connectors.registry import Connector, Setting, register

if TYPE_CHECKING:
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource"]

_HOMES = {"KafkaSink": "connectors.kafka.sink", "KafkaSource": "connectors.kafka.source"}
_MEANING = (
    *("label", "key", "time", "ignore", "types", "missing", "format", "late_label", "names", "delimiter", "schema"),
    *(
        "time_unit",
        "time_format",
        "decimal",
        "thousands",
        "quote",
        "escape",
        "framed",
        "order",
        "max_value_bytes",
        "isolation_level",
    ),
)


def __getattr__(name: str) -> Any:
    """The public names are found when they are asked for: most runs have nothing to do with Kafka."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _open_source(path: str, options: Options) -> Source:
    from connectors.kafka.clients import split_address
    from connectors.kafka.source import KafkaSource

    servers, topic = split_address(path)
    return KafkaSource(servers=servers, topic=topic, **options.rest())


def _open_sink(path: str, options: Options, setting: Setting) -> Sink:
    from connectors.kafka.clients import split_address
    from connectors.kafka.sink import KafkaSink
    from connectors.kafka.source import KafkaSource

    servers, topic = split_address(path)
    about = setting.source if isinstance(setting.source, KafkaSource) else None
    return KafkaSink(
        servers=servers,
        topic=topic,
        source=about,
        beside=setting.beside,
        distinct=setting.distinct,
        resume=setting.resume,
        fresh=setting.fresh,
        **options.rest(),
    )


register(
    Connector(
        "kafka",
        _open_source,
        _open_sink,
        scheme="kafka://",
        shown="kafka://HOST:PORT/TOPIC",
        note="where partitions that are ahead in time wait for the others in about ?max_held_bytes=67108864 of memory",
        meaning=_MEANING,
        sink_options=("patience",),
    )
)
