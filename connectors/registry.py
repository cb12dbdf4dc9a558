"""Registry of connectors: how to recognize and open each kind of stream."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from connectors.bytestreams import is_packed, refuse_unknown_packing
from connectors.errors import ConnectorError
from connectors.options import Options

if TYPE_CHECKING:
    from connectors.streams import Sink, Source


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of the run that a sink may need.

    Parameters
    ----------
    resume
        Keep what an earlier process wrote, for `Sink.rewind`.
    fresh
        Ignore the progress of an earlier run.
    source
        Source of the events, if the run keeps checkpoints.
    beside
        Another sink with which this one may share resources.
    distinct
        Columns that identify rows whose order differs from that of the source. Empty if the order is equal.
    overwrite
        Whether to replace a file that does not look like results.
    """

    resume: bool = False
    fresh: bool = False
    source: Source | None = None
    beside: Sink | None = None
    distinct: Sequence[str] = ()
    overwrite: bool = False


OpenSource: TypeAlias = "Callable[[str, Options], Source]"
OpenSink: TypeAlias = "Callable[[str, Options, Setting], Sink]"


@dataclass(frozen=True, slots=True)
class Connector:
    """A kind of stream.

    Parameters
    ----------
    name
        Name of the connector. For files, the value of `format`.
    source, sink
        Functions that open a stream, given its URL without the query, and its options. None if not supported. A string
        `"module:function"` is imported on first use.
    suffixes
        For files: name suffixes, the default first.
    aliases
        For files: further values of `format`.
    scheme
        Prefix of URLs; empty for files.
    meaning
        Options that determine the content of the stream. The hosts in the URL and other options only determine how to
        connect. None if all determine the content.
    sink_options
        Settings of the run that sinks accept as options.
    labelled
        Whether events have labels without a label option.
    piped
        Whether results can be written to standard output, a pipe or a device.
    """

    name: str
    source: OpenSource | str | None = None
    sink: OpenSink | str | None = None
    suffixes: Sequence[str] = ()
    aliases: Sequence[str] = ()
    scheme: str = ""
    meaning: Sequence[str] | None = None
    sink_options: Sequence[str] = ()
    labelled: bool = False
    piped: bool = False


def opener(found: Any) -> Any:
    """Return the function that opens streams, importing it if it is given by name.

    Parameters
    ----------
    found
        `Connector.source` or `Connector.sink`.
    """
    if not isinstance(found, str):
        return found
    module, _, name = found.partition(":")
    return getattr(importlib.import_module(f"connectors.{module}"), name)


_MEANING = (
    *("label", "key", "time", "ignore", "types", "missing", "format", "late_label", "names", "delimiter", "schema"),
    *("time_unit", "time_format", "decimal", "thousands", "quote", "escape", "framed", "order", "max_value_bytes"),
    "isolation_level",
)

# In the order of messages and help.
_table = [
    Connector("csv", "format_csv:open_csv", "format_csv:write_csv", suffixes=(".csv",), piped=True),
    Connector("tsv", "format_csv:open_tsv", "format_csv:write_tsv", suffixes=(".tsv",), piped=True),
    Connector(
        "jsonl",
        "format_json:open_json",
        "format_json:write_json",
        suffixes=(".jsonl", ".ndjson", ".json"),
        aliases=("json",),
        piped=True,
    ),
    Connector(
        "libsvm",
        "format_libsvm:open_libsvm",
        suffixes=(".libsvm", ".svmlight", ".svm"),
        aliases=("svmlight",),
        labelled=True,
    ),
    Connector("arff", "format_arff:open_arff", suffixes=(".arff",), labelled=True),
    Connector("parquet", "parquet:ParquetSource", "parquet_sink:ParquetSink", suffixes=(".parquet", ".pq")),
    Connector(
        "synthetic",
        "synthetic.source:open_synthetic",
        scheme="synthetic:",
        labelled=True,
    ),
    Connector(
        "kafka",
        "kafka:open_source",
        "kafka:open_sink",
        scheme="kafka://",
        meaning=_MEANING,
        sink_options=("broker_timeout",),
    ),
    Connector("null:", sink="sinks:open_null", scheme="null:"),
]


def register(connector: Connector) -> None:
    """Add a connector to the registry.

    Parameters
    ----------
    connector
        The connector.
    """
    _table.append(connector)


def file_formats() -> list[Connector]:
    """Return the file formats, in the order of messages."""
    return [each for each in _table if not each.scheme]


def schemes() -> list[Connector]:
    """Return the connectors that have a URL scheme, in order."""
    return [each for each in _table if each.scheme]


def by_scheme(path: str) -> Connector | None:
    """Return the connector of a URL scheme, or None for files."""
    return next((each for each in schemes() if path.startswith(each.scheme)), None)


def connector_of(path: str, options: Options) -> Connector:
    """Return the connector of a stream by scheme, option `format` or suffix."""
    found = by_scheme(path)
    if found is not None:
        return found
    scheme, colons, _ = path.partition("://")
    if colons:
        raise ConnectorError(f"unknown kind of stream {scheme}://", "scheme")
    return _format_of(path, options)


def _format_of(path: str, options: Options) -> Connector:
    formats = {name: each for each in file_formats() for name in (each.name, *each.aliases)}
    suffixes = {suffix: each.name for each in file_formats() for suffix in each.suffixes}
    suffix = os.path.splitext(path[:-3] if is_packed(path) else path)[1].lower()
    default = "csv" if path == "-" else suffixes.get(suffix, "")
    if not default and not options.has("format"):
        refuse_unknown_packing(path)
        raise ConnectorError(
            f"{path}: the suffix names no known format; say format= one of {', '.join(sorted(formats))}",
            "suffix",
            option="format",
        )
    return formats[options.choice("format", formats, default)]


def is_pipe(path: str) -> bool:
    """Return whether a path is standard output, a pipe or a device."""
    return path == "-" or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def is_place(path: str) -> bool:
    """Return whether a path is a file or directory, so that other files can be written next to it."""
    return not (is_pipe(path) or by_scheme(path) or "://" in path)
