"""Sources and sinks of event streams: files, pipes, Kafka and generators."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from connectors.errors import ConnectorError, UnreachableError
    from connectors.events import Batch, Features, Origins, Position, Rejected, SparseRows, Table
    from connectors.registry import open_sink, open_source
    from connectors.streams import Sink, Source

__all__ = [
    "Batch",
    "ConnectorError",
    "Features",
    "Origins",
    "Position",
    "Rejected",
    "Sink",
    "Source",
    "SparseRows",
    "Table",
    "UnreachableError",
    "open_sink",
    "open_source",
]

_HOMES = {
    "Sink": "streams",
    "Source": "streams",
    "ConnectorError": "errors",
    "UnreachableError": "errors",
    "open_sink": "registry",
    "open_source": "registry",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first access, so that ``--help`` does not load numpy."""
    if name in __all__:
        return getattr(importlib.import_module(f"connectors.{_HOMES.get(name, 'events')}"), name)
    raise AttributeError(f"module 'connectors' has no attribute {name!r}")
