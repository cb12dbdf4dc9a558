"""From a URL to its source or sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.errors import ConnectorError
from connectors.events import Sink, Source
from connectors.options import Options, split_url
from connectors.registry import Setting, connector_of, file_formats, opener


def open_source(url: str, **options: Any) -> Source:
    """Open a stream of events.

    Parameters
    ----------
    url
        A path (CSV, TSV, JSON lines or an array, libsvm, ARFF by suffix, also with ``.gz``; Parquet, also a directory),
        ``-`` for standard input (unpacked if it is gzip), ``kafka://HOST:PORT,HOST:PORT/TOPIC``, or ``synthetic:NAME``:
        a scenario such as sea-sudden, a generator such as sea, or a file of your own that describes a scenario (see
        `connectors.synthetic`). Options may follow as a query: ``a.csv?label=y&types=x:category``.
    options
        All formats: `format` (instead of the suffix), `batch_size` (events at once, at most 4096). Text: `encoding`
        (utf-8, or utf-16 where the file begins with its byte order mark), `at_end` (stop; wait reads a growing file).
        Named columns: `label`, `key`, `time`, `ignore` (names), `types` (number, category, time or ignore by name),
        `time_unit` (of times that are numbers: s, ms, us or ns; told by the first one) or `time_format` (of all times,
        as `datetime.strptime` has it). Of labels and features, `missing`: the texts that stand for no value beside the
        empty one (``?``, NA, NaN, null and None, in any case). CSV: `delimiter`, `quote`, `escape`, `comment`,
        `skip_rows` (see `connectors.dialect.Dialect`), `header` (yes), `names` (with ``header=no``). JSON: `late_label`
        (no; the label may be absent from the first 1,000 events, which otherwise is taken for a misspelt name).
        Synthetic: `n` (events, to which a scenario is stretched; of generators 100,000), `seed` (0), and of generators
        `drift` (numbers of the events at which the concept changes), `width` (0) and their own.
        Kafka: see `connectors.kafka.KafkaSource`.

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
        raise ConnectorError(f"{path}: no events can be read from there")
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
    """Open a place for results.

    Parameters
    ----------
    url
        A path (CSV, TSV or JSON lines by suffix, also with ``.gz``; Parquet, as a directory of parts), ``-`` for
        standard output, a pipe or a device, ``kafka://HOST:PORT,HOST:PORT/TOPIC``, or ``null:``.
    resume
        Keep what an existing file holds, for `Sink.rewind`; otherwise it is replaced at the first write or flush.
    overwrite
        Whether a run may replace a file that does not look like results; without it the run is refused.
    fresh, source, beside, distinct
        For Kafka: whether to forget how far an earlier run came, the source of the events if the run keeps checkpoints,
        another sink whose transactions this one may join, and columns that tell rows apart which come in an order of
        their own. See `connectors.kafka.KafkaSink`.
    options
        `format`, instead of the suffix; those of `connectors.kafka.KafkaSink` for Kafka.

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
        raise ConnectorError(f"{path}: results cannot be written as {connector.name}; use one of {lines}")
    setting = Setting(resume, fresh, source, beside, distinct, overwrite)
    sink: Sink = opener(connector.sink)(path, asked, setting)
    return sink
