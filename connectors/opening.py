"""Open sources and sinks by URL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.errors import ConnectorError
from connectors.options import Options, split_url
from connectors.registry import Setting, connector_of, file_formats, opener
from connectors.streams import Sink, Source


def open_source(url: str, **options: Any) -> Source:
    """Open a stream of events.

    Parameters
    ----------
    url
        One of the following, optionally with options as a query, such as ``a.csv?label=y&types=x:category``:

        - A path. The suffix gives the format: CSV, TSV, JSON (lines or an array), libsvm or ARFF, each also with
        ``.gz``; Parquet, also a directory.
        - ``-`` for standard input. Gzip data are decompressed.
        - ``kafka://HOST:PORT,HOST:PORT/TOPIC``.
        - ``synthetic:NAME`` for a scenario such as sea-sudden, a generator such as sea, or a scenario file (see
        `connectors.synthetic`).
    options
        Options of the format:

        - All formats: `format` overrides the suffix; `batch_size` is the number of events per batch (at most 4096 by
        default).
        - Text: `encoding` (default utf-8, or utf-16 if the file starts with its byte order mark); `at_end` is stop
        (default) or wait, which follows a growing file.
        - Named columns: the column names `label`, `key`, `time` and `ignore`; `types` maps names to number, category,
        time or ignore.
        - Times: `time_unit` is the unit of numeric times (s, ms, us or ns; default: inferred from the first one);
        `time_format` is the format of all times, as for `datetime.strptime`.
        - Missing values: `missing` lists texts that are missing labels or features, in addition to the empty text. The
        default is ``?``, NA, NaN, null and None, in any case.
        - CSV: `delimiter`, `quote`, `escape`, `comment`, `skip_rows` (see `connectors.dialect.Dialect`), `header`
        (default yes), `names` (with ``header=no``).
        - JSON: `late_label` (default no) allows the label to be absent from the first 1,000 events. Otherwise the name
        is treated as misspelt.
        - Synthetic: `n` (number of events, default 100,000 for generators; scenarios are stretched to it) and `seed`
        (default 0). Generators also accept `drift` (event numbers of concept changes), `width` (default 0) and their
        own options.
        - Kafka: see `connectors.kafka.KafkaSource`.

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
    path, query = split_url(url)
    asked = Options(path, query | {key: value for key, value in options.items() if value is not None})
    connector = connector_of(path, asked)
    if connector.source is None:
        raise ConnectorError(f"{path}: no events can be read from there", "no source")
    source: Source = opener(connector.source)(path, asked)
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
        A path (CSV, TSV or JSON lines by suffix, also with ``.gz``; Parquet, as a directory of parts), ``-`` for
        standard output, a pipe or a device, ``kafka://HOST:PORT,HOST:PORT/TOPIC``, or ``null:``.
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
    asked = Options(path, query | {key: value for key, value in options.items() if value is not None})
    connector = connector_of(path, asked)
    if connector.sink is None or (path == "-" and not connector.piped):
        lines = ", ".join(each.name for each in file_formats() if each.piped)
        what = f"results cannot be written as {connector.name}; use one of {lines}"
        raise ConnectorError(f"{path}: {what}", "no sink")
    setting = Setting(resume, fresh, source, beside, distinct, overwrite)
    sink: Sink = opener(connector.sink)(path, asked, setting)
    return sink
