"""Options of a run, by group; the docstrings are the command-line help.

An option ``--max-events`` is the field ``max_events``. The type of a field names its converter in `converters.KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from streamsvm.run import converters as kind


def option(*, common: bool = False, **default: Any) -> Any:
    """Declare an option of the command line; other fields are settings.

    Parameters
    ----------
    common
        Whether the short help shows it.
    default
        `default` or `default_factory` of the field; None without one.
    """
    return field(**(default or {"default": None}), metadata={"common": common})


class Settings:
    """Options of a command. Values are converted to the types of the fields."""

    takes: ClassVar[frozenset[str]]
    """The fields that the command line and TOML may set."""

    def __post_init__(self) -> None:
        for name, type_name in self.field_types().items():
            if (value := getattr(self, name)) is not None:
                setattr(self, name, kind.converted(option_of(name), type_name, value))

    @classmethod
    def field_types(cls) -> dict[str, str]:
        """Return the type of each field, as a name in `converters.KINDS`."""
        return {each.name: str(each.type).removeprefix("kind.").removesuffix(" | None") for each in fields(cls)}  # type: ignore[arg-type]


@dataclass(kw_only=True, eq=False, repr=False)
class StreamOptions(Settings):
    r"""Stream.

    Parameters
    ----------
    source : SOURCE
        A file, several files, a directory, a quoted glob such as 'data/*.csv', - for standard input, or a URL. Settings
        may follow as a query: 'a.csv?delimiter=;'. Files: .csv .tsv .jsonl .libsvm .arff, also compressed, .parquet and
        .arrow; URLs: https:// s3:// gs:// az:// sftp:// of files, synthetic:NAME, kafka://HOST:PORT/TOPIC,
        sqlite:///FILE?table=NAME or postgresql://HOST/DATABASE?table=NAME.
    label : NAME
        The column to predict. Events without a label are predicted and not learned.
    types : NAME:TYPE,...
        Declare columns as number, category, time or ignore. A time column gives the features hour and weekday (UTC),
        each as sine and cosine. By default a text column is a category, unless nearly every value is new.
    ignore : NAME,...
        Columns to ignore; '' is a column without a name. May be repeated; quote a name with commas: --ignore
        '"income, yearly",age'.
    time : NAME
        The column with the time of an event: a number since 1970, ISO 8601 or RFC 2822 (UTC without a zone). It is not
        a feature. Events with an unreadable time are rejected. The order of the stream does not change.
    at_end : {stop, wait}
        What happens at the end of the stream: stop, or wait for more events. Default: stop for files, wait for Kafka.
    max_events : N
        Stop after N events, including those before a resumption, and write a checkpoint.
    broker_timeout : S
        Seconds to wait for Kafka brokers that do not respond (default: 10 for the first response, 30 for the first
        request, then no limit).
    key : NAME
        The column that identifies an event. It is written with each prediction.
    missing : TEXT,...
        Texts that mean a missing value, in addition to the empty text (default: NA, NaN, null, None, nil, NaT, N/A, ?,
        \N, #DIV/0! and other markers of pandas and Excel in any case; also -, -- and . for numbers and times).
    time_unit : {s, ms, us, ns}
        The unit of numeric times. Default: the unit in which the first number is a time between 1973 and 2038, or
        milliseconds. Later numbers in another unit are rejected.
    time_format : {FORMAT, NAME:FORMAT,...}
        The strptime format of all times, such as '%d.%m.%Y %H:%M', or formats of some columns.
    format : FORMAT
        The format of a file, instead of its suffix: csv, tsv, jsonl, libsvm, arff, parquet or arrow.
    delimiter : CHAR
        The field separator of CSV: a character, tab, or space for any number of spaces (default: a comma, or a tab
        for TSV).
    decimal : CHAR
        The decimal separator of numbers in texts, . or , (default: detected from the first cells of a column; a comma
        causes a warning).
    thousands : CHAR
        The thousands separator of numbers: , . ' or space.
    quote : CHAR
        The quote character of CSV; none turns quoting off (default ").
    escape : CHAR
        The escape character of CSV, such as \.
    comment : CHAR
        The character after which the rest of a CSV line is ignored.
    skip_rows : N
        Skip the first N lines of CSV.
    encoding : NAME
        The encoding of a text file, such as latin-1, cp1252 or utf-16-le (default utf-8, or utf-16 or utf-32
        with a byte order mark).
    envelope : {debezium, connect}
        Take the record out of each change event of Debezium (`after`; deletes are skipped and counted; ts_ms is a
        time), or out of `payload` of Kafka Connect's JSON with schemas.
    flatten : N
        How many levels of nested fields of JSON, Avro and Parquet become columns, such as a.b for {"a": {"b": 1}}
        (default: all). Events with more levels are rejected.
    lists : NAME,...
        The features of a list in JSON, Avro or Parquet: length, mean, min, max, first, last (default length).
    """

    source: kind.Sources | None = option(common=True)
    label: str | None = option(common=True)
    types: kind.Kinds | None = option()
    ignore: kind.Names | None = option()
    time: str | None = option()
    at_end: kind.AtEnd | None = option()
    max_events: int | None = option()
    broker_timeout: kind.Seconds | None = None
    key: str | None = None
    missing: kind.Names | None = None
    time_unit: kind.TimeUnit | None = None
    time_format: kind.Formats | None = None
    format: str | None = None
    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    quote: str | None = None
    escape: str | None = None
    comment: str | None = None
    skip_rows: kind.Count | None = None
    encoding: str | None = None
    envelope: str | None = None
    flatten: kind.Count | None = None
    lists: kind.Names | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LateOptions(Settings):
    r"""Delayed labels.

    Events are predicted when they arrive. They then wait for their labels from a second stream, joined by key. Training
    uses the features stored at prediction time.

    Parameters
    ----------
    label_source : SOURCE
        The stream of labels: any source with the columns of --join, --label and --time. Kafka records have a key and a
        time. Settings may follow: 'labels.csv?time=reported'. May be repeated for several files. Events and labels are
        merged in the order of their times.
    join : NAME
        The key column that events and labels share.
    label_timeout : TIME
        How long an event waits for its label in event time, such as 90s, 30m, 12h or 30d. A later label is scored, not
        learned. Default: until --set max-pending is reached.
    timeout_label : CLASS
        Learn an event without a label after --label-timeout with this class; drop learns nothing (default drop).
    label_output : SINK
        Where joined events are written: origin, key, prediction, score, label, lag in seconds, and status of the label.
    query_output : SINK
        Where label queries are written: origin, key, prediction and score of the events whose labels are requested.
    label_budget : SHARE
        The share of events whose labels are requested in --query-output (default 0.1): the most informative events, and
        some at random. Other labels are learned too.
    relearn_corrections
        Also learn a second, different label of an event.
    max_pending : N
        Maximum number of events that wait; beyond it, the oldest are dropped (default 1000000).
    max_pending_bytes : N
        Maximum memory of waiting events in bytes; beyond it, the oldest are dropped (default 1073741824).
    pending_dir : DIR
        Store waiting events in temporary files in this directory; about 125 bytes per event stay in memory.
    """

    label_source: kind.Sources | None = option()
    join: str | None = option()
    label_timeout: kind.Span | None = option()
    timeout_label: Any = None
    label_output: str | None = option()
    query_output: str | None = option()
    label_budget: kind.Share | None = None
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
        classifier, such as river.linear_model.LogisticRegression (default blend).
    params : NAME=VALUE
        A parameter of the model as a TOML or Python literal, such as effort=low; may be repeated. A class path creates
        a nested model: --param model=river.tree.HoeffdingTreeClassifier --param model.max_depth=5.
    save : FILE
        Save the model at the end, also after an error.
    refit : SOLVER[,every=WHEN][,window=WHAT]
        Refit a batch model on a window of the stream in the background. The model joins the vote, weighted by its
        recent accuracy. Needs the extra `batch`. SOLVER: trees (boosted trees, usually the most accurate), cuts (kernel
        machine), newton or bcd (linear), or the path of a scikit-learn classifier. WHEN: a number of labelled events,
        such as 5000; growing[:FIRST[:FACTOR[:MOST]]]; event time, such as 30m or 1d; drift[:DETECTOR[:GATHER]];
        alarm[:GATHER], an alarm about a feature (see Monitoring) and GATHER labelled events (500); or several of these
        joined by + (default growing:500:1.5:25000). WHAT: the latest N events, such as 20000; since:TIME, such as
        since:7d; or adaptive:N, which drift shortens (default adaptive:50000).
    """

    model: Any = option(common=True)
    params: kind.Params = option(default_factory=dict, common=True)
    save: str | None = option(common=True)
    refit: kind.RefitOption | None = option()


@dataclass(kw_only=True, eq=False, repr=False)
class ResultOptions(Settings):
    r"""Results.

    Parameters
    ----------
    out : SINK
        Where predictions are written: a file, - for standard output (CSV), or a URL. A prediction before the first
        label is null (empty in CSV). Files: .csv, .tsv, .jsonl or .parquet; URLs: kafka://HOST:PORT/TOPIC,
        sqlite:///FILE?table=NAME, postgresql://HOST/DATABASE?table=NAME. Settings may follow:
        'out/?format=csv&partition_by=date&rotate_bytes=100000000' writes parts.
    dead_letter : SINK
        Where rejected events are written, with the reason; 'null:' only counts them. Default: OUT.rejected.jsonl if
        --out is a file; otherwise they are only counted.
    proba
        Also write the probabilities of all known classes in a field `proba`: an object, or its JSON text in CSV and
        Parquet.
    coverage : SHARE
        Also write, in a field `set`, a list of labels that contains the true one for this share of events under any
        drift, such as 0.9.
    coverage_by_class
        Guarantee the coverage for the events of each class, even for rare classes.
    cost : TRUE:DECIDED=COST,...
        Also write, in a field `decision`, the label with the smallest expected cost: fraud:fine=10,fine:fraud=1, or a
        table in TOML. Other errors cost 1. Learning does not change.
    class_weight : LABEL=WEIGHT,...
        Multiply the costs of a class; balanced uses the inverse of the class's frequency.
    abstain : COST
        Write null as the decision if every decision has a higher expected cost.
    alarms : LABEL=SHARE
        Also write, in a field `alarm`, whether an event is among this share of the most probable events of the class,
        such as fraud=0.01. fraud=recall:0.9 detects this share of the class. With fraud=precision:0.8, this share of
        the alarms is correct. The threshold adapts to the stream.
    explain : N
        Also write, in a field `reasons`, the N features that contribute most to each prediction, in log-odds. Takes
        about a millisecond per event.
    overwrite
        Replace existing files that are not the results of an earlier run.
    """

    out: str | None = option(common=True)
    dead_letter: str | None = option()
    proba: bool = False
    coverage: kind.Part | None = None
    coverage_by_class: bool = False
    cost: kind.Costs | None = None
    class_weight: kind.Weights | None = None
    abstain: kind.Cost | None = None
    alarms: kind.Alarm | None = None
    explain: int | None = None
    overwrite: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class MonitorOptions(Settings):
    r"""Monitoring.

    Features are compared with a reference before labels arrive, if --alerts or --reference is given.

    Parameters
    ----------
    alerts : SINK
        Where alarms are written: one record for each feature that changed and for each accuracy drop, with kind,
        column, values before and after, evidence and relevance. Sinks are those of --out.
    reference : FILE|N
        What features are compared with: a profile of `streamsvm profile`, or the first N events (default 10000).
    false_alarms : RATE
        Expected number of false alarms about features per million events (default 0.1).
    reset_reference : {never, after-alarm, sliding}
        When a column learns a new reference: never (default), so that a column that agrees with it again is no
        longer changed; from the events after an alarm; or sliding, also after each N events without an alarm, so that
        slow changes are accepted. With a profile, N is its number of events.
    """

    alerts: str | None = option()
    reference: kind.Reference | None = option()
    false_alarms: kind.Rate | None = None
    reset_reference: kind.ResetReference | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class CheckpointOptions(Settings):
    r"""Checkpoint.

    A run that is killed and started again with the same settings resumes. Its model, predictions and metrics equal
    those of an uninterrupted run.

    Parameters
    ----------
    checkpoint : DIR
        The directory of the checkpoint. The same command resumes a run that ended or was killed.
    checkpoint_every : N|TIME
        Write a checkpoint every N events (10000), every time span (30s), or both (10000,30s; default 5s).
    reset
        Start over and discard the checkpoint.
    """

    checkpoint: str | None = option(common=True)
    checkpoint_every: kind.Pace | None = option()
    reset: bool = option(default=False)


@dataclass(kw_only=True, eq=False, repr=False)
class ReportOptions(Settings):
    r"""Reports.

    Parameters
    ----------
    quiet
        Show neither progress nor report; warnings are still shown.
    summary : FILE
        Write the final metrics as JSON.
    plot : FILE
        Plot accuracy over time with baselines and feature relevance (.png, .svg, .pdf).
    page : PORT
        Serve a dashboard of the run on 127.0.0.1:PORT, or on ADDRESS:PORT. Other machines need a token: the environment
        variable STREAMSVM_PAGE_TOKEN or the setting page-token-file. Viewers open http://ADDRESS:PORT/#token=TOKEN.
    page_token_file : FILE
        A file with the token of --page.
    metrics_port : PORT
        Serve metrics for Prometheus on 127.0.0.1:PORT, or on ADDRESS:PORT.
    window : N
        Number of events over which recent metrics are computed (default 1000).
    log_every : S
        Seconds between progress lines if standard error is not a terminal (default 5).
    config : FILE
        Read settings from a TOML file. Its keys are the long options and settings; the table [model] has `name` and the
        parameters. The command line takes precedence.
    """

    quiet: bool = option(default=False, common=True)
    summary: str | None = option()
    plot: str | None = option(common=True)
    page: str | None = option(common=True)
    page_token_file: str | None = None
    metrics_port: str | None = None
    window: int = 1000
    log_every: kind.Seconds = 5.0
    config: str | None = option(common=True)


@dataclass(kw_only=True, eq=False, repr=False)
class RunOptions(
    ReportOptions,
    CheckpointOptions,
    MonitorOptions,
    ResultOptions,
    ModelOptions,
    LateOptions,
    StreamOptions,
):
    """All options of a run."""


REPEATED = ("Names", "Kinds", "Params")
"""Types of options that may be repeated."""
STREAM_OPTIONS = tuple(each.name for each in fields(StreamOptions) if each.name not in ("source", "max_events"))
"""Options of a stream that its URL may also contain."""
SETTINGS = frozenset(each.name for each in fields(RunOptions) if not each.metadata)
"""Fields that are settings (``--set``, TOML) and no options of the command line."""
LATE_OPTIONS = tuple(each.name for each in fields(LateOptions) if each.name != "label_source")


def option_of(name: str) -> str:
    """Return the option or setting of a field on the command line."""
    special = {"source": "SOURCE", "place": "DIR|URL", "params": "--param"}
    return special.get(name) or f"{'--set ' if name in SETTINGS else '--'}{name.replace('_', '-')}"
