"""Streams in and results out: files, standard input and output, and generated streams, each reached by a URL."""

from __future__ import annotations

from connectors.events import (
    Batch,
    ConnectorError,
    Features,
    Origins,
    Position,
    Rejected,
    Sink,
    Source,
    SparseRows,
    Table,
    UnreachableError,
)
from connectors.opening import open_sink, open_source

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
