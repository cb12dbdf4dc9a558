"""The options of a run, by group. The docstrings are the help of the command line.

An option ``--max-events`` is the field ``max_events``. The type of a field names its converter in `values.KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from streamsvm.run.values import (
    Alarm,
    AtEnd,
    Cost,
    Costs,
    Kinds,
    Names,
    Pace,
    Params,
    Part,
    Refit,
    Seconds,
    Share,
    Span,
    TimeUnit,
    Weights,
    converted,
)


class Settings:
    """Options of a command. Values are converted to the types of the fields."""

    takes: ClassVar[frozenset[str]]
    """The fields that the command line and TOML may set."""

    def __post_init__(self) -> None:
        for name, kind in self.kinds().items():
            if (value := getattr(self, name)) is not None:
                setattr(self, name, converted(option_of(name), kind, value))

    @classmethod
    def kinds(cls) -> dict[str, str]:
        """Return the type of each field, as a name in `values.KINDS`."""
        return {each.name: str(each.type).removesuffix(" | None") for each in fields(cls)}  # type: ignore[arg-type]


@dataclass(kw_only=True, eq=False, repr=False)
class StreamOptions(Settings):
    r"""Stream.

    Parameters
    ----------
    source : SOURCE
        A file, - for standard input, or a URL. Settings may follow as a query, as in 'a.csv?delimiter=;' (default
        synthetic:demo). Files: .csv .tsv .jsonl .libsvm .arff .parquet, also .gz; URLs: synthetic:NAME or
        kafka://HOST:PORT/TOPIC (where partitions that are ahead in time wait for the others in about
        ?max_held_bytes=67108864 of memory).
    label : NAME
        The column to predict. Events without a label are predicted and not learned.
    types : NAME:TYPE,...
        Declare columns as number, category, time or ignore. A time column gives the features hour and weekday (UTC),
        each as sine and cosine. By default a text column is a category unless nearly every value is new.
    ignore : NAME,...
        Columns to leave out; '' is a column without a name. May be repeated; quote a name with commas, as in --ignore
        '"income, yearly",age'.
    time : NAME
        The column with the time of an event: a number since 1970, ISO 8601 or RFC 2822 (UTC without a zone). It is not
        a feature. Events with an unreadable time are rejected; the order of the stream stays.
    at_end : {stop, wait}
        What happens at the end of the stream: stop, or wait for more events. Default: stop for files, wait for Kafka.
    max_events : N
        Stop after N events, including those before a resumption, and leave a checkpoint there.
    broker_timeout : S
        Seconds to wait for Kafka brokers that do not answer (default: 10 for the first answer and 30 for the first
        request, then no limit).
    key : NAME
        The column that identifies an event. It is written beside the prediction.
    missing : TEXT,...
        Texts that mean a missing value, as the empty text always does (default: NA, NaN, null, None, nil, NaT, N/A, ?,
        \N, #DIV/0! and other markers of pandas and Excel in any case; also -, -- and . for numbers and times).
    time_unit : {s, ms, us, ns}
        The unit of numeric times. Default: the unit in which the first number is a time between 1973 and 2038, else
        milliseconds; later numbers of another unit are rejected.
    time_format : FORMAT
        The strptime format of all times, such as '%d.%m.%Y %H:%M'.
    format : FORMAT
        The format of a file, instead of its suffix: csv, tsv, jsonl, libsvm, arff or parquet.
    delimiter : CHAR
        The field separator of CSV (default: a comma, or a tab for TSV).
    decimal : CHAR
        The decimal separator of numbers in texts, . or , (default: detected from the first cells of a column, with a
        warning where it is a comma).
    thousands : CHAR
        The thousands separator of numbers: , . ' or space.
    quote : CHAR
        The quote character of CSV; none for no quoting (default ").
    escape : CHAR
        The escape character of CSV, such as \.
    comment : CHAR
        Ignore the rest of a CSV line from this character on.
    skip_rows : N
        Skip the first N lines of CSV.
    encoding : NAME
        The encoding of a text file, such as latin-1, cp1252 or utf-16-le (default utf-8, or utf-16 with a byte order
        mark).
    """

    source: str | None = None
    label: str | None = None
    types: Kinds | None = None
    ignore: Names | None = None
    time: str | None = None
    at_end: AtEnd | None = None
    max_events: int | None = None
    broker_timeout: Seconds | None = None
    key: str | None = None
    missing: Names | None = None
    time_unit: TimeUnit | None = None
    time_format: str | None = None
    format: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    quote: str | None = None
    escape: str | None = None
    comment: str | None = None
    skip_rows: int | None = None
    encoding: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LateOptions(Settings):
    r"""Delayed labels.

    Events are predicted when they arrive and wait, by key, for labels from a second stream. Training uses the features
    stored at prediction time. Events and labels are merged in the order of their times.

    Parameters
    ----------
    label_source : SOURCE
        The stream of labels: any source with the columns of --join, --label and --time (Kafka records have a key and a
        time). Settings may follow, as in 'labels.csv?time=reported'.
    join : NAME
        The key column that events and labels share.
    label_timeout : TIME
        How long an event waits for its label in event time, as 90s, 30m, 12h or 30d. A later label is scored, not
        learned (default: as long as there is room).
    timeout_label : CLASS
        Learn an event without a label after --label-timeout as this class; drop learns nothing (default drop).
    label_output : SINK
        Where joined events go: origin, key, prediction, score, label, lag in seconds, and how the label came.
    query_output : SINK
        Where label queries go: origin, key, prediction and score of the events whose labels are worth asking for.
    label_budget : SHARE
        The share of events whose labels are asked for in --query-output (default 0.1): the most informative ones, and
        some at random. Other labels that arrive are learned too.
    relearn_corrections
        Also learn a second, different label of an event.
    max_pending : N
        Most events that wait; then the oldest are dropped (default 1000000).
    max_pending_bytes : N
        Most memory of waiting events; then the oldest are dropped (default 1073741824).
    pending_dir : DIR
        Keep waiting events in temporary files of this directory; about 100 bytes of each stay in memory.
    """

    label_source: str | None = None
    join: str | None = None
    label_timeout: Span | None = None
    timeout_label: Any = None
    label_output: str | None = None
    query_output: str | None = None
    label_budget: Share | None = None
    relearn_corrections: bool = False
    max_pending: int = 1_000_000
    max_pending_bytes: int = 1 << 30
    pending_dir: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ModelOptions(Settings):
    r"""Model.

    Parameters
    ----------
    model : NAME|FILE
        Blend (the most accurate), bsgd, cpm (the fastest), the file of a saved model, or the path of a River
        classifier, as river.linear_model.LogisticRegression (default blend).
    params : NAME=VALUE
        A parameter of the model as a TOML or Python literal, as effort=low; may be repeated. A class path makes a
        nested model: --param model=river.tree.HoeffdingTreeClassifier --param model.max_depth=5.
    save : FILE
        Save the model at the end, also after an error.
    refit : SOLVER[,every=WHEN][,window=WHAT]
        Refit a batch model on a window of the stream in the background; it joins the vote, weighted by its recent
        accuracy. SOLVER: trees (boosted trees, usually the most accurate), cuts (kernel machine), newton or bcd
        (linear), or the path of a scikit-learn classifier. WHEN: a number of labelled events, as 5000;
        growing[:FIRST[:FACTOR[:MOST]]]; event time, as 30m or 1d; drift[:DETECTOR[:GATHER]]; several joined by +
        (default growing:500:1.5:25000). WHAT: the latest N, as 20000; since:TIME, as since:7d; adaptive:N, which
        drift shortens (default adaptive:50000). Needs the extra `batch`.
    """

    model: Any = None
    params: Params = field(default_factory=dict)
    save: str | None = None
    refit: Refit | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ResultOptions(Settings):
    r"""Results.

    Parameters
    ----------
    out : SINK
        Where predictions go: a file, - for standard output (CSV), or a URL. A prediction before the first label is null
        (empty in CSV). Files: .csv, .tsv, .jsonl or .parquet; URLs: kafka://HOST:PORT/TOPIC.
    dead_letter : SINK
        Where rejected events go, with the reason; 'null:' only counts them (default: OUT.rejected.jsonl if --out is a
        file, else they are only counted).
    proba
        Also write the probabilities of all known classes in a field `proba`: an object, or its JSON text in CSV and
        Parquet.
    coverage : SHARE
        Also write, in a field `set`, a list of labels that contains the true one for this share of events under any
        drift, as 0.9.
    coverage_by_class
        Keep the coverage for the events of each class, however rare.
    cost : TRUE:DECIDED=COST,...
        Also write, in a field `decision`, the label with the smallest expected cost, as fraud:fine=10,fine:fraud=1, or
        a table in TOML. Other errors cost 1. Learning does not change.
    class_weight : LABEL=WEIGHT,...
        Multiply the costs of a class; balanced uses the inverse of the class's frequency.
    abstain : COST
        Decide null where every decision is expected to cost more.
    alarms : LABEL=SHARE
        Also write, in a field `alarm`, whether an event is among this share of the most probable events of the class,
        as fraud=0.01. fraud=recall:0.9 finds this share of the class, fraud=precision:0.8 is right for this share of
        alarms. The threshold follows the stream.
    explain : N
        Also write, in a field `reasons`, the N features that contribute most to each prediction, in log-odds. Takes
        about a millisecond per event.
    overwrite
        Replace existing files that are not the results of an earlier run.
    """

    out: str | None = None
    dead_letter: str | None = None
    proba: bool = False
    coverage: Part | None = None
    coverage_by_class: bool = False
    cost: Costs | None = None
    class_weight: Weights | None = None
    abstain: Cost | None = None
    alarms: Alarm | None = None
    explain: int | None = None
    overwrite: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class CheckpointOptions(Settings):
    r"""Checkpoint.

    A run that is killed at any moment and started again with the same settings ends with the same model, predictions
    and measures.

    Parameters
    ----------
    checkpoint : DIR
        The directory of the checkpoint.
    checkpoint_every : N|TIME
        Write a checkpoint every N events, as 10000, or every time span, as 30s; or both, as 10000,30s (default 5s).
    reset
        Start over and discard the checkpoint.
    """

    checkpoint: str | None = None
    checkpoint_every: Pace | None = None
    reset: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class ReportOptions(Settings):
    r"""Reports.

    Parameters
    ----------
    quiet
        Show no progress and no summary; warnings stay.
    summary : FILE
        Write the final figures as JSON.
    plot : FILE
        Plot accuracy over time with baselines and feature relevance (.png, .svg, .pdf).
    page : PORT
        Serve a live page of the run on 127.0.0.1:PORT, or on ADDRESS:PORT. Beyond this machine it needs a token: the
        environment variable STREAMSVM_PAGE_TOKEN or the setting page-token-file. Viewers open
        http://ADDRESS:PORT/#token=TOKEN.
    page_token_file : FILE
        A file with the token of --page.
    metrics_port : PORT
        Serve metrics for Prometheus on 127.0.0.1:PORT, or on ADDRESS:PORT.
    window : N
        Events of the recent accuracy (default 1000).
    log_every : S
        Seconds between progress lines where standard error is not a terminal (default 5).
    config : FILE
        Read settings from a TOML file: the long options and settings are its keys, the table [model] has `name` and the
        parameters. The command line wins.
    """

    quiet: bool = False
    summary: str | None = None
    plot: str | None = None
    page: str | None = None
    page_token_file: str | None = None
    metrics_port: str | None = None
    window: int = 1000
    log_every: Seconds = 5.0
    config: str | None = None


FLAGS = frozenset(
    (
        *("source", "label", "types", "ignore", "time", "at_end", "max_events", "broker_timeout"),
        *("label_source", "join", "label_timeout", "timeout_label", "label_output", "query_output"),
        *("model", "params", "save", "refit", "out", "dead_letter", "checkpoint", "checkpoint_every", "reset"),
        *("quiet", "summary", "plot", "page", "config"),
        *("field", "consumer_group", "repartition", "prior_model", "key_ttl", "jobs", "all", "place"),
    )
)
"""Fields that are command-line options; the others are settings of ``--set`` and TOML."""
COMMON = frozenset(
    (
        *("source", "label", "model", "params", "out", "save", "checkpoint", "page", "plot", "config", "quiet"),
        *("field", "consumer_group"),
    )
)
"""Options in the short help."""
REPEATED = ("Names", "Kinds", "Params")
"""Types of options that may be repeated."""
STREAM_OPTIONS = tuple(each.name for each in fields(StreamOptions) if each.name not in ("source", "max_events"))
"""Options of a stream that its URL may also contain."""
LATE_OPTIONS = tuple(each.name for each in fields(LateOptions) if each.name != "label_source")


def option_of(name: str) -> str:
    """Return the option or setting of a field on the command line."""
    special = {"source": "SOURCE", "place": "DIR|URL", "params": "--param"}
    return special.get(name) or f"{'--' if name in FLAGS else '--set '}{name.replace('_', '-')}"
