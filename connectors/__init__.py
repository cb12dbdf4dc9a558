"""Streams in and results out: files, standard input and output, and generated streams, each reached by a URL."""

from __future__ import annotations

import importlib

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

# Each registers what it knows, in the order in which messages and help name it.
for _module in ("format_csv", "format_json", "format_libsvm", "format_arff", "parquet", "synthetic", "kafka", "sinks"):
    importlib.import_module(f"connectors.{_module}")
