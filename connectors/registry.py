"""The table of all kinds of streams: how each is told, and opened as a source and as a sink."""

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
    from connectors.events import Sink, Source


@dataclass(frozen=True, slots=True)
class Setting:
    """What a sink may have to know of the run around it.

    Parameters
    ----------
    resume
        Keep what an earlier process wrote, for `Sink.rewind`.
    fresh
        Forget how far an earlier run came.
    source
        Where the events come from, if the run keeps checkpoints.
    beside
        Another sink, with which this one may share what it needs.
    distinct
        Columns that tell rows apart which come in another order than the events of the source; none where they come in
        that.
    overwrite
        Whether a file that does not look like results may be replaced.
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
        What it is called; of files, the value of `format`.
    source, sink
        Functions that open one, given its URL without the query and its options; None if there is none. A string
        `"module:function"` is imported when such a stream is opened.
    suffixes
        Of files: the ends of their names, the usual one first.
    aliases
        Of files: more values of `format`.
    scheme
        What URLs begin with, of all but files.
    shown
        How help writes such a URL; empty where it has no need to.
    note
        What help adds for a source.
    meaning
        The options that say what the events are, where the others, and the hosts in the URL, only say how to reach
        them; None where all say it.
    sink_options
        Settings of a run that its sinks take as options.
    labelled
        Whether events have labels that nobody needs to name.
    piped
        Whether results can be written so to standard output, a pipe or a device.
    """

    name: str
    source: OpenSource | str | None = None
    sink: OpenSink | str | None = None
    suffixes: Sequence[str] = ()
    aliases: Sequence[str] = ()
    scheme: str = ""
    shown: str = ""
    note: str = ""
    meaning: Sequence[str] | None = None
    sink_options: Sequence[str] = ()
    labelled: bool = False
    piped: bool = False


def opener(found: Any) -> Any:
    """Return the function that a connector opens streams with, and import it if it is given by name.

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

# In the order in which messages and help name them.
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
        shown="synthetic:NAME",
        labelled=True,
    ),
    Connector(
        "kafka",
        "kafka:open_source",
        "kafka:open_sink",
        scheme="kafka://",
        shown="kafka://HOST:PORT/TOPIC",
        note="where partitions that are ahead in time wait for the others in about ?max_held_bytes=67108864 of memory",
        meaning=_MEANING,
        sink_options=("broker_timeout",),
    ),
    Connector("null:", sink="sinks:open_null", scheme="null:"),
]


def register(connector: Connector) -> None:
    """Make a kind of stream known.

    Parameters
    ----------
    connector
        How it is told and opened.
    """
    _table.append(connector)


def file_formats() -> list[Connector]:
    """Those told by their suffixes, in the order in which messages name them."""
    return [each for each in _table if not each.scheme]


def schemes() -> list[Connector]:
    """The others, in order."""
    return [each for each in _table if each.scheme]


def by_scheme(path: str) -> Connector | None:
    """The kind of a stream that is told by its scheme; None for files."""
    return next((each for each in schemes() if path.startswith(each.scheme)), None)


def connector_of(path: str, options: Options) -> Connector:
    """The kind of a stream: by its scheme, the option `format`, or the suffix."""
    found = by_scheme(path)
    if found is not None:
        return found
    scheme, colons, _ = path.partition("://")
    if colons:
        raise ConnectorError(f"unknown kind of stream {scheme}://")
    return _format_of(path, options)


def _format_of(path: str, options: Options) -> Connector:
    formats = {name: each for each in file_formats() for name in (each.name, *each.aliases)}
    suffixes = {suffix: each.name for each in file_formats() for suffix in each.suffixes}
    suffix = os.path.splitext(path[:-3] if is_packed(path) else path)[1].lower()
    default = "csv" if path == "-" else suffixes.get(suffix, "")
    if not default and not options.has("format"):
        refuse_unknown_packing(path)
        raise ConnectorError(
            f"{path}: the suffix names no known format; say format= one of {', '.join(sorted(formats))}"
        )
    return formats[options.choice("format", formats, default)]


def is_pipe(path: str) -> bool:
    """Whether a path is standard output, a pipe or a device, to be written as it comes."""
    return path == "-" or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def is_place(path: str) -> bool:
    """Whether a sink of this path is a file or directory, beside which others may stand."""
    return not (is_pipe(path) or by_scheme(path) or "://" in path)
