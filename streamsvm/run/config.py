"""What a run is asked to do: dataclasses that are filled from the command line, from TOML, or in Python.

The docstrings are the help of the command line. An option ``--max-events`` is the field ``max_events``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from connectors.errors import ConnectorError
from connectors.options import TIME_UNITS, split_kinds, split_names, split_url
from connectors.registry import Connector, by_scheme, is_place
from streamsvm.run import DEFAULT_MODEL, DEFAULT_SOURCE, SHORT_NAMES
from streamsvm.run.errors import SetupError
from streamsvm.run.wanted import LateSettings, Wanted, alarms_of, costs_of, label_of, weights_of

REJECTED = "rejected.jsonl"
"""Where rejected events go when ``out`` is no file."""

_CREDENTIALS = ("password", "secret", "token", "sasl", "ssl")
_URLS = ("source", "label_source", "out", "dead_letter", "label_output", "query_output")
SINKS = ("out", "dead_letter", "label_output", "query_output")
"""The fields that name sinks."""
DEFAULT_BUDGET = 0.1
"""The share of events whose labels are asked for by default."""

Seconds: TypeAlias = float
Share: TypeAlias = float
Part: TypeAlias = float
Cost: TypeAlias = float
Span: TypeAlias = float
Names: TypeAlias = list[str]
Kinds: TypeAlias = dict[str, str]
TimeUnit: TypeAlias = str
AtEnd: TypeAlias = str
Pace: TypeAlias = tuple[int | None, float | None]
Params: TypeAlias = dict[str, Any]


class Refit(NamedTuple):
    """How a model is refitted: the solver, when (`every`), and on which events (`window`)."""

    solver: str
    every: str | None = None
    window: str | None = None


class Url(str):
    """The URL of a stream, parsed once.

    Attributes
    ----------
    path, query
        The URL without its query, and the options in the query.
    kind
        The connector that the scheme names; None for files and standard input.
    """

    path: str
    query: dict[str, Any]
    kind: Connector | None

    def __new__(cls, text: str) -> Url:
        """Parse a text."""
        url = super().__new__(cls, text)
        url.path, url.query = split_url(text)
        url.kind = by_scheme(text)
        return url

    @property
    def is_file(self) -> bool:
        """Whether it is a file, or would be one: it may be opened twice, as pipes and brokers may not."""
        return self.kind is None and self.path != "-" and (os.path.isfile(self.path) or not os.path.exists(self.path))


@dataclass(kw_only=True, eq=False, repr=False)
class StreamOptions:
    r"""Stream.

    Parameters
    ----------
    source : SOURCE
        A file, - for standard input, or a URL. Settings may follow as a query, as in 'a.csv?delimiter=;' (default
        synthetic:demo).
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
        The format of a file, instead of its suffix.
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
class LateOptions:
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
    max_pending: int | None = None
    max_pending_bytes: int | None = None
    pending_dir: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ModelOptions:
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
        (default growing:500:1.5:25000). WHAT: the latest N, as 20000; since:TIME, as since:7d; reservoir:N; adaptive:N,
        which drift shortens; +balanced keeps rare classes (default adaptive:50000). Needs the extra `batch`.
    """

    model: Any = None
    params: Params = field(default_factory=dict)
    save: str | None = None
    refit: Refit | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ResultOptions:
    r"""Results.

    Parameters
    ----------
    out : SINK
        Where predictions go: a file, - for standard output (CSV), or a URL. A prediction before the first label is null
        (empty in CSV).
    dead_letter : SINK
        Where rejected events go, with the reason; 'null:' only counts them (default: OUT.rejected.jsonl beside --out,
        else rejected.jsonl in this directory; created at the first rejected event).
    proba
        Also write the probabilities of all known classes in a field `proba`: an object, or its JSON text in CSV and
        Parquet.
    coverage : SHARE
        Also write, in a field `set`, a list of labels that contains the true one for this share of events under any
        drift, as 0.9.
    coverage_by_class
        Keep the coverage for the events of each class, however rare.
    cost : TRUE:DECIDED=COST,...
        Also write, in a field `decision`, the label with the smallest expected cost, as fraud:fine=10,fine:fraud=1 or a
        JSON object {"fraud": {"fine": 10}}. Other errors cost 1. Learning does not change.
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
    cost: Any = None
    class_weight: Any = None
    abstain: Cost | None = None
    alarms: Any = None
    explain: int | None = None
    overwrite: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class CheckpointOptions:
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
class ReportOptions:
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


GROUPS = (StreamOptions, LateOptions, ModelOptions, ResultOptions, CheckpointOptions, ReportOptions)
"""The options of a run, in the order of the help."""
FLAGS = frozenset(
    (
        *("label", "types", "ignore", "time", "at_end", "max_events", "broker_timeout"),
        *("label_source", "join", "label_timeout", "timeout_label", "label_output", "query_output"),
        *("model", "params", "save", "refit", "out", "dead_letter", "checkpoint", "checkpoint_every", "reset"),
        *("quiet", "summary", "plot", "page", "config"),
        *("field", "consumer_group", "repartition", "prior_model", "key_ttl"),
    )
)
"""The fields that are options of the command line; the others are settings of ``--set`` and TOML."""
STREAM_OPTIONS = tuple(each.name for each in fields(StreamOptions) if each.name not in ("source", "max_events"))
"""The options of a stream that its URL may give as well."""
LATE_OPTIONS = tuple(each.name for each in fields(LateOptions) if each.name != "label_source")


@dataclass(kw_only=True, eq=False)
class RunConfig(
    ReportOptions,
    CheckpointOptions,
    ResultOptions,
    ModelOptions,
    LateOptions,
    StreamOptions,
):
    """The settings of a run.

    The fields are the options and settings of the command line, as texts or as Python values:
    ``label_timeout="30d"`` is ``label_timeout=2592000.0``, and ``types="a:category"`` is ``types={"a": "category"}``.
    ``model`` may also be a classifier.

    Parameters
    ----------
    learn
        Whether the model learns; False only predicts, as `streamsvm predict` does.

    Attributes
    ----------
    urls
        The URLs of the streams that are given, by the names of their options.

    Examples
    --------
    >>> config = RunConfig(source="a.csv?delimiter=;", label="y", label_timeout="90s")
    >>> config.urls["source"].query, config.label_timeout
    ({'delimiter': ';'}, 90.0)
    >>> RunConfig(window=0)
    Traceback (most recent call last):
    streamsvm.run.errors.SetupError: argument --set window: must be at least 1, got 0
    """

    takes: ClassVar[frozenset[str]] = frozenset(each.name for group in GROUPS for each in fields(group))
    """The fields that the command line and TOML may set."""
    learn: bool = True

    def __post_init__(self) -> None:
        for each in fields(self):
            kind, value = str(each.type).removesuffix(" | None"), getattr(self, each.name)
            if value is not None:
                setattr(self, each.name, converted(option_of(each.name), kind, value))
        self.urls = {name: Url(getattr(self, name)) for name in _URLS if getattr(self, name)}
        self.urls.setdefault("source", Url(DEFAULT_SOURCE))

    @classmethod
    def from_toml(cls, path: str, **more: Any) -> Self:
        """Read a file whose keys are the long options of the command line, with `source` and a table `model`.

        Parameters
        ----------
        path
            The file.
        more
            Options that win over those of the file. Parameters of the model that the file names are laid over its own.
        """
        from streamsvm.run.settings import read_toml

        given = read_toml(path, cls)
        table = given.pop("model")
        if table:
            given["model"] = table.pop("name", DEFAULT_MODEL)
        base = table if more.get("model", given.get("model")) == given.get("model") else {}
        params = params_of(more.pop("params", {}), base)
        return cls(**given | more, params=params, config=path)

    @classmethod
    def kinds(cls) -> dict[str, str]:
        """The types of the fields that the command line and TOML may set."""
        return {each.name: str(each.type).removesuffix(" | None") for each in fields(cls) if each.name in cls.takes}

    def validate(self) -> None:
        """Refuse options that do not fit together; no stream is opened.

        Raises
        ------
        SetupError
            Its message names the option, its value, and what to do.
        """
        from streamsvm.run.checks import check

        check(self)

    @property
    def saved_model(self) -> str | None:
        """The file of a saved model, where `model` names one."""
        given = self.model
        if not isinstance(given, str) or given in SHORT_NAMES:
            return None
        return given if not self.learn or os.path.isfile(given) or os.path.dirname(given) else None

    @property
    def token(self) -> str | None:
        """The token of the page, from its file or the environment."""
        if self.page_token_file is None:
            return os.environ.get("STREAMSVM_PAGE_TOKEN") or None
        return read_token(self.page_token_file, option_of("page_token_file"))

    @property
    def timeout_class(self) -> Any:
        """The class of `timeout_label`, read as labels are; None for none."""
        given = self.timeout_label
        return None if given in (None, "drop") else label_of(given) if isinstance(given, str) else given

    @property
    def late(self) -> LateSettings | None:
        """How labels that come later are joined; None where they come with their events."""
        if not self.label_source:
            return None
        most = {"most": self.max_pending, "most_bytes": self.max_pending_bytes}
        return LateSettings(
            wait_ms=None if self.label_timeout is None else round(self.label_timeout * 1000),
            on_timeout=self.timeout_class,
            relearn=self.relearn_corrections,
            budget=(self.label_budget or DEFAULT_BUDGET) if self.query_output else None,
            folder=None if self.pending_dir is None else Path(self.pending_dir),
            **{name: value for name, value in most.items() if value is not None},
        )

    @property
    def wanted(self) -> Wanted:
        """What is written beside predictions."""
        alarms, label = (None, None) if self.alarms is None else alarms_of(self.alarms)
        return Wanted(
            coverage=self.coverage,
            by_class=self.coverage_by_class,
            cost=costs_of(self.cost) if isinstance(self.cost, str) else self.cost,
            class_weight=weights_of(self.class_weight) if isinstance(self.class_weight, str) else self.class_weight,
            abstain=self.abstain,
            alarms=alarms,
            alarm_class=label,
            reasons=self.explain or 0,
        )

    @property
    def rejected_path(self) -> str:
        """Where rejected events go by default: beside the predictions if these go to a file, else in this directory."""
        path = self.urls["out"].path if "out" in self.urls else "-"
        return f"{path}.rejected.jsonl" if is_place(path) else REJECTED

    @property
    def results(self) -> dict[str, str]:
        """The paths of results, by the option that gives them."""
        given = {f"--{name}": getattr(self, name) for name in ("save", "summary", "plot") if getattr(self, name)}
        given |= {option_of(name): self.urls[name].path for name in SINKS if name in self.urls}
        return given if self.dead_letter else given | {"the file for rejected events": self.rejected_path}

    @property
    def identity(self) -> dict[str, Any]:
        """How the stream is read: what a checkpoint must agree in. Credentials may change, and are not written down."""
        source = self.urls["source"]
        options = {name: getattr(self, name) for name in STREAM_OPTIONS if getattr(self, name) is not None}
        options |= source.query
        if source.kind is not None and source.kind.meaning is not None:
            options = {name: options[name] for name in source.kind.meaning if name in options}
        shown = {name: value for name, value in options.items() if not any(word in name for word in _CREDENTIALS)}
        shown |= {"join": self.join} if self.join else {}
        shown |= {"model": self.saved_model} if self.saved_model else {}
        kind = self.urls["dead_letter"].kind if "dead_letter" in self.urls else None
        says_itself = kind is not None and kind.meaning is not None  # which it is, whatever its options
        sinks = {} if says_itself else {"--dead-letter": self.dead_letter or "by default"}
        return {option_of(name): value for name, value in shown.items()} | sinks


def option_of(name: str) -> str:
    """How the command line sets a field."""
    if name in ("source", "params"):
        return {"source": "SOURCE", "params": "--param"}[name]
    return f"{'--' if name in FLAGS else '--set '}{name.replace('_', '-')}"


# Values -----------------------------------------------------------------------------------------------------------


def converted(option: str, kind: str, value: Any) -> Any:
    """A value of the type of a field, from a text or a value of Python.

    Raises
    ------
    SetupError
        Where it is none.
    """
    try:
        return _KINDS[kind](value) if kind in _KINDS else value
    except (ValueError, ConnectorError) as error:
        raise SetupError(f"argument {option}: {error}") from error


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, os.PathLike, Real)):
        raise ValueError(f"must be a text, got {value!r}")
    return str(_value(os.fspath(value) if isinstance(value, os.PathLike) else value))


def _value(value: Any) -> Any:
    if isinstance(value, str) and not value:
        raise ValueError("must not be empty (is a variable of the shell not set?)")
    return value


def _numeric(kind: type, name: str, is_allowed: Callable[[Any], bool], wanted: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            number = kind(value)
        except (TypeError, ValueError):
            number = None
        if number is None or (not isinstance(value, str) and number != value):
            raise ValueError(f"invalid {name} value: {value!r}")
        if not is_allowed(number):
            raise ValueError(f"must be {wanted}, got {value}")
        return number

    return convert


def _span(value: Any) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        seconds = float(value[:-1]) * units[value[-1:]] if isinstance(value, str) else float(value)
    except (KeyError, ValueError, TypeError):
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ValueError(f"must be a time as 90s, 30m, 12h or 30d, got {value}")
    return seconds


def _pace(value: Any) -> Pace:
    """Events and seconds between checkpoints, from texts such as ``5000``, ``30s`` and ``5000,30s``."""
    parts = value if isinstance(value, tuple) else str(value).split(",")
    events: int | None = None
    seconds: float | None = None
    for part in parts:
        text = str(part).strip()
        if part is None:
            continue
        if isinstance(part, float) or not text[-1:].isdigit():
            seconds = _span(part)
        else:
            events = _KINDS["int"](text)
    if seconds is not None and seconds <= 0:
        raise ValueError(f"must be more than 0, got {value}")
    return events, seconds


def _refit(value: Any) -> Refit:
    """The parts of a text such as ``trees,every=5000,window=since:7d``."""
    if isinstance(value, tuple):
        return Refit(*value)
    solver, *others = str(_value(value)).split(",")
    pairs = [other.partition("=") for other in others]
    if wrong := [name for name, equals, text in pairs if name not in ("every", "window") or not (equals and text)]:
        raise ValueError(f"must be SOLVER[,every=WHEN][,window=WHAT], got `{wrong[0]}` in {value}")
    return Refit(solver, **{name: text for name, _, text in pairs})


def read_token(path: str, option: str) -> str:
    """The token in a file, without white space around it.

    Parameters
    ----------
    path, option
        The file, and how it was given.
    """
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"{option} {path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _choice(*allowed: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"invalid choice: {value!r} (choose from {', '.join(allowed)})")
        return value

    return convert


def _kinds(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return dict(value)
    return split_kinds(value) if isinstance(value, str) else dict(map(_pair, filter(None, value)))


def _pair(text: str) -> tuple[str, str]:
    name, colon, kind = text.rpartition(":")
    return (name, kind) if colon else (kind, "")


def params_of(value: Any, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parameters of a model, which texts like ``n_faces=10`` set as well, over others."""
    if isinstance(value, Mapping):
        return {**(base or {}), **value}
    from streamsvm.run.classifiers import parse_params

    return parse_params(value, base)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {value!r}")
    return value


_KINDS: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "Any": _value,
    "bool": _flag,
    "int": _numeric(int, "whole number", lambda n: n >= 1, "at least 1"),
    "Seconds": _numeric(float, "number of seconds", lambda s: 0 < s < math.inf, "a positive number of seconds"),
    "Share": _numeric(float, "share", lambda p: 0 < p <= 1, "more than 0 and at most 1"),
    "Part": _numeric(float, "share", lambda p: 0 < p < 1, "a share between 0 and 1, as 0.9"),
    "Cost": _numeric(float, "number", lambda c: 0 <= c < math.inf, "a number of at least 0"),
    "Params": params_of,
    "Span": _span,
    "Names": lambda value: split_names(value) if isinstance(value, str) else list(map(str, value)),
    "Kinds": _kinds,
    "TimeUnit": _choice(*TIME_UNITS),
    "AtEnd": _choice("stop", "wait"),
    "Pace": _pace,
    "Refit": _refit,
}
"""What makes a value of each type of a field."""
