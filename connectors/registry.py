"""Registry of connectors: how to recognize and open each kind of stream."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from connectors.addresses import check_address, is_remote, printable, split_url, split_urls
from connectors.errors import ConnectorError
from connectors.files.listing import is_several
from connectors.options import Options
from connectors.streams import Sink, Source
from connectors.text.compression import ZIP_SUFFIX, uncompressed_name
from connectors.text.opening import FOREIGN_SUFFIXES


@dataclass(frozen=True, slots=True)
class SinkSettings:
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
OpenSink: TypeAlias = "Callable[[str, Options, SinkSettings], Sink]"


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
        For files: further values of `format`. For URLs: further prefixes.
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
    *("isolation_level", "id_bytes", "envelope", "flatten", "lists"),
)

_SQL_MEANING = ("table", "query", "cursor", *_MEANING)

# In the order of messages and help.
_table = [
    Connector("csv", "text.csv:open_csv", "text.csv:write_csv", (".csv",), piped=True),
    Connector("tsv", "text.csv:open_tsv", "text.csv:write_tsv", (".tsv",), piped=True),
    Connector(
        "jsonl", "text.json:open_json", "text.json:write_json", (".jsonl", ".ndjson", ".json"), ("json",), piped=True
    ),
    Connector(
        "libsvm", "text.libsvm:open_libsvm", None, (".libsvm", ".svmlight", ".svm"), ("svmlight",), labelled=True
    ),
    Connector("arff", "text.arff:open_arff", suffixes=(".arff",), labelled=True),
    Connector("parquet", "arrow.source:ParquetSource", "arrow.parquet_sink:open_parquet", (".parquet", ".pq")),
    Connector("arrow", "arrow.source:ArrowFileSource", None, (".arrow", ".feather", ".ipc"), ("feather", "ipc")),
    Connector("synthetic", "synthetic.source:open_synthetic", scheme="synthetic:", labelled=True),
    Connector(
        *("kafka", "kafka.source:open_source", "kafka.sink:open_sink"),
        scheme="kafka://",
        meaning=_MEANING,
        sink_options=("broker_timeout",),
    ),
    Connector("sqlite", "sql.sqlite:SqliteSource", "sql.sink:SqliteSink", scheme="sqlite:", meaning=_SQL_MEANING),
    Connector(
        *("postgresql", "sql.postgres:PostgresSource", "sql.sink:PostgresSink"),
        scheme="postgresql://",
        aliases=("postgres://",),
        meaning=_SQL_MEANING,
    ),
    Connector("null:", sink="outputs.files:open_null", scheme="null:"),
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


def by_scheme(path: str) -> Connector | None:
    """Return the connector of a URL scheme, or None for files."""
    return next((each for each in _table if each.scheme and path.startswith((each.scheme, *each.aliases))), None)


def connector_of(path: str, options: Options, *, writes: bool = False) -> Connector:
    """Return the connector of a stream by scheme, option `format` or suffix.

    Errors name the formats that can be read, or those that can be written.
    """
    found = by_scheme(path)
    if found is not None:
        return found
    scheme, colons, _ = path.partition("://")
    if colons and not is_remote(path):
        raise ConnectorError(f"unknown kind of stream {scheme}://", "scheme")
    return _format_of(path, options, writes)


def _format_of(path: str, options: Options, writes: bool) -> Connector:
    check_address(path)
    formats = {name: each for each in file_formats() for name in (each.name, *each.aliases)}
    suffixes = {suffix: each.name for each in file_formats() for suffix in each.suffixes}
    name = uncompressed_name(printable(path))
    if path.lower().endswith(ZIP_SUFFIX) and os.path.isfile(path) and not options.has("format"):
        name = name if os.path.splitext(name)[1].lower() in suffixes else _member_of(path)
    suffix = os.path.splitext(name)[1].lower()
    default = "csv" if path == "-" else suffixes.get(suffix, "")
    known = sorted(name for name, each in formats.items() if (each.sink if writes else each.source))
    if not (default or writes or options.has("format")) and suffix in FOREIGN_SUFFIXES:
        what = f"is {FOREIGN_SUFFIXES[suffix]}; a text file with this suffix needs format=csv"
        raise ConnectorError(f"{printable(path)}: {what}", "foreign", option="format")
    if not default and not options.has("format"):
        if not (writes or is_remote(path) or os.path.exists(path)):
            raise ConnectorError(f"{printable(path)}: no such file", "missing")
        named = f"the suffix {suffix!r} is not a known format" if suffix else "the name has no suffix of a format"
        what = f"{named}; set format= to one of {', '.join(known)}"
        raise ConnectorError(f"{printable(path)}: {what}", "suffix", option="format")
    return formats[options.one_of("format", known) or default]


def _member_of(path: str) -> str:
    """Return the name of the only file in a ZIP archive; raises if there are several."""
    from connectors.text.zip_stream import ZipStream

    with open(path, "rb", buffering=0) as file:
        return ZipStream(file, path).member


def is_pipe(path: str) -> bool:
    """Return whether a path is standard output, a pipe or a device."""
    return path == "-" or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def is_place(path: str) -> bool:
    """Return whether a path is local, so that other files can be written beside it."""
    return not (is_pipe(path) or by_scheme(path) or "://" in path)


def type_name(data: Any) -> str:
    """Return the name of a data frame or Arrow data in messages: its type."""
    return f"arrow:{type(data).__name__}"


def are_paths(stream: Any) -> bool:
    """Return whether a stream is a list of paths."""
    return isinstance(stream, list | tuple) and all(isinstance(one, str | os.PathLike) for one in stream)


def open_source(url: Any, *, exclude: Sequence[str] = (), **options: Any) -> Source:
    """Open a stream of events.

    The page "Connectors" of the documentation lists URLs and options.

    Parameters
    ----------
    url
        A path or a URL, ``-`` for standard input, several files, globs or directories as a list, a data frame, a lazy
        frame or Arrow data (see `connectors.arrow.source.ArrowSource`). Options may follow as a query, such as
        ``a.csv?label=y&types=x:category``; those of web addresses follow a ``#``.
    exclude
        Results of the run, which directories and globs do not contain.
    options
        Options of the format, such as `label`, `key`, `time`, `ignore`, `types`, `missing` and `batch_size`.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "a.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("x,colour,y\\n1.5,red,0\\n,blue,1\\noops,red,1\\n")
    >>> for batch in open_source(path, label="y", types={"x": "number"}):
    ...     print(batch.rows(), batch.labels, batch.rejected[0].reason)
    [{'x': 1.5, 'colour': 'red'}, {'colour': 'blue'}] [0, 1] 'x' is not a number: 'oops'
    """
    if not (isinstance(url, str) or are_paths(url)):
        table: Source = opener("arrow.source:ArrowSource")(url, Options(type_name(url), options))
        return table
    paths, query = split_urls([url] if isinstance(url, str) else list(map(os.fspath, url)))
    path = ", ".join(paths) if len(paths) < 3 else f"{paths[0]}, ..., {paths[-1]}"
    given = Options(printable(path), query | {key: value for key, value in options.items() if value is not None})
    if len(paths) > 1 or is_several(path):
        from connectors.files.multiple_files import MultipleFilesSource

        return MultipleFilesSource(paths, given, exclude)
    connector = connector_of(path, given)
    if connector.source is None:
        raise ConnectorError(f"{path}: events cannot be read from this URL", "no source")
    source: Source = opener(connector.source)(path, given)
    source.is_labelled = connector.labelled
    return source


def open_sink(
    url: str,
    *,
    resume: bool = False,
    fresh: bool = False,
    source: Source | None = None,
    beside: Sink | None = None,
    distinct: Sequence[str] = (),
    overwrite: bool = False,
    **options: Any,
) -> Sink:
    """Open a sink for results.

    Parameters
    ----------
    url
        A path (CSV, TSV or JSON lines by suffix, also compressed; Parquet, as a directory of parts), also in a
        store such as ``s3://``; ``-`` for standard output, a pipe or a device; ``kafka://HOST:PORT,HOST:PORT/TOPIC``;
        or ``null:``.
    resume
        Whether to keep the content of an existing file, for `Sink.rewind`. Otherwise the first write or flush replaces
        it.
    overwrite
        Whether a run may replace a file that does not look like results. Otherwise such a run is refused.
    fresh, source, beside, distinct
        For Kafka, see `connectors.kafka.KafkaSink`: whether to ignore the progress of an earlier run, the source of the
        events if the run keeps checkpoints, another sink whose transactions this sink may join, and the columns that
        identify a row if rows arrive out of order.
    options
        `format` overrides the suffix. For Kafka, the options of `connectors.kafka.KafkaSink`.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "out.csv")
    >>> sink = open_sink(path)
    >>> sink.write({"line": [2, 3], "label": ["UP", "DOWN"]})
    >>> sink.close()
    >>> print(open(path).read())
    line,label
    2,UP
    3,DOWN
    <BLANKLINE>
    """
    path, query = split_url(url)
    given = Options(path, query | {key: value for key, value in options.items() if value is not None})
    connector = connector_of(path, given, writes=True)
    if connector.sink is None or (path == "-" and not connector.piped):
        lines = ", ".join(each.name for each in file_formats() if each.piped or (each.sink and path != "-"))
        what = f"results cannot be written as {connector.name}; use one of {lines}"
        raise ConnectorError(f"{path}: {what}", "no sink")
    settings = SinkSettings(resume, fresh, source, beside, distinct, overwrite)
    sink: Sink = opener(connector.sink)(path, given, settings)
    return sink
