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
from typing import Any, ClassVar, Self, TypeAlias

from connectors.errors import ConnectorError
from connectors.options import TIME_UNITS, split_kinds, split_names, split_url
from connectors.registry import Connector, by_scheme, is_place
from streamsvm.run import DEFAULT_MODEL, DEFAULT_SOURCE
from streamsvm.run.errors import SetupError
from streamsvm.run.wanted import LateSettings, Wanted, costs_of, label_of, number_of, weights_of

REJECTED = "rejected.jsonl"
"""Where rejected events go when ``out`` is no file."""

_EFFORTS = ("low", "normal", "high")
_CREDENTIALS = ("password", "secret", "token", "sasl", "ssl")
_URLS = ("source", "label_source", "out", "rejected", "joined", "requests")

Seconds: TypeAlias = float
Share: TypeAlias = float
Part: TypeAlias = float
Cost: TypeAlias = float
Span: TypeAlias = float
Names: TypeAlias = list[str]
Kinds: TypeAlias = dict[str, str]
TimeUnit: TypeAlias = str
Effort: TypeAlias = str
Params: TypeAlias = dict[str, Any]


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
        A file, - for standard input, or a URL; more options may follow as a query, as in a.csv?delimiter=; (default
        synthetic:demo).
    label : NAME
        The column to predict; events without are not learned.
    types : NAME:TYPE,...
        Declare columns as number, category, time (as of --time: becomes hour and weekday in UTC, each as sine and
        cosine) or ignore. Texts not declared a category are left out with a warning where nearly each is new, as of
        identifiers and times; numbers that only count up are learned, with a warning.
    missing : TEXT,...
        The texts that are no label, category, number or time but stand for a missing one, as the empty one always
        does (default: NA, NaN, null, None, nil, NaT, N/A, ?, \N, #DIV/0! and other markers of pandas and Excel, in
        any case; of numbers and times also -, -- and .).
    ignore : NAME,...
        Columns to leave out, '' those without a name. As --types and --missing it may be repeated; a name with
        commas goes in double quotes within the text, as in --ignore '"income, yearly",age'.
    key : NAME
        The column that names an event; written beside its prediction.
    time : NAME
        The column with the time of an event, a number since 1970, ISO 8601 or RFC 2822 (UTC where it names no
        zone): it is no feature, and an event in which it cannot be read is rejected; events are taken in the order
        of the stream all the same.
    time_unit : {s, ms, us, ns}
        The unit of times that are numbers: s, ms, us or ns. Default: the first number of a column decides, by the
        unit in which it is a time between 1973 and 2038; numbers that are in none, such as 1500, are milliseconds;
        a number of another unit is rejected.
    time_format : FORMAT
        The format of all times, as strptime of Python has it, such as '%d.%m.%Y %H:%M'.
    format : FORMAT
        The format of a file, instead of its suffix.
    delimiter : CHAR
        What separates the fields of CSV (default , or of TSV a tab).
    decimal : CHAR
        The decimal separator of all numbers in texts, . or , (default: a column whose first cells are numbers in
        one other spelling is read so, with a warning).
    thousands : CHAR
        What separates thousands in numbers: , . ' or space.
    quote : CHAR
        What quotes fields of CSV; none for no quoting (default ").
    escape : CHAR
        What takes the meaning of the next character in CSV, such as \.
    comment : CHAR
        Leave out the rest of a line of CSV from this character on, and lines that begin with it.
    skip_rows : N
        Leave out the first N lines of CSV.
    encoding : NAME
        The encoding of a text file, such as latin-1, cp1252 or utf-16-le (default utf-8, or utf-16 where the file
        begins with its byte order mark).
    follow
        Wait for more at the end of a growing file.
    until_end
        Of a Kafka topic, stop at the end it has at the start.
    patience : S
        Wait so many seconds for Kafka brokers that are away or pass their work on (default: at the start 10 for one
        to answer at all and 30 for what is asked, then for ever).
    max_events : N
        Stop after N events that could be read, resumed ones included; a checkpoint is left there.
    """

    source: str | None = None
    label: str | None = None
    types: Kinds | None = None
    missing: Names | None = None
    ignore: Names | None = None
    key: str | None = None
    time: str | None = None
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
    follow: bool | None = None
    until_end: bool | None = None
    patience: Seconds | None = None
    max_events: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class LateOptions:
    r"""Labels that come later.

    Events are predicted when they come and wait, by key, for their labels, which come from a stream of their own:
    what is learned then is what was predicted on. Events and labels are taken in the order of their times, of equal
    ones the events first.

    Parameters
    ----------
    label_source : SOURCE
        Where labels come from: any source, with the columns of --join, --label and --time (Kafka has keys and times
        of its own); options may follow, as in labels.csv?time=reported.
    join : NAME
        The column of events and labels that holds the key.
    wait : TIME
        How long an event waits for its label, in event time, as 90s, 30m, 12h or 30d; a label after that is scored,
        not learned (default: as long as there is room).
    on_timeout : CLASS
        Learn an event that waited in vain as of this class, such as a customer who did not complain; drop learns
        nothing (default drop).
    joined : SINK
        Where joined results go: place and key of the event, prediction, score, label, lag in seconds, and whether
        it came in time, late, or is that of --on-timeout.
    label_budget : SHARE
        Ask for the labels of about this share of the events, as 0.1: of those that teach most, and of some at
        random; others that come are learned too.
    requests : SINK
        Where labels are asked for: place and key of the event, prediction and score.
    relearn_corrections
        Learn the second label of an event too, where it is another one.
    max_pending : N
        So many events may wait, then the oldest go (default 1000000).
    max_pending_bytes : N
        So much memory they and what is remembered may take, then the oldest go (default 1073741824).
    pending_dir : DIR
        Let events wait on disk, in files of this directory that have no name and end with the run; some 100 bytes
        of each stay in memory.
    """

    label_source: str | None = None
    join: str | None = None
    wait: Span | None = None
    on_timeout: Any = None
    joined: str | None = None
    label_budget: Share | None = None
    requests: str | None = None
    relearn_corrections: bool = False
    max_pending: int | None = None
    max_pending_bytes: int | None = None
    pending_dir: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ModelOptions:
    r"""Model.

    Parameters
    ----------
    model : NAME
        Blend, bsgd, cpm (the most accurate first, the fastest last), or the path of any River classifier, as
        river.linear_model.LogisticRegression (default blend).
    effort : {low, normal, high}
        Of blend: which members it has, and so its accuracy and time (default normal).
    params : NAME=VALUE
        A parameter of the model, as a TOML or Python literal; may be repeated. The path of a class makes a nested
        model: --param model=river.tree.HoeffdingTreeClassifier --param model.max_depth=5.
    load : FILE
        Go on from a saved model.
    save : FILE
        Save the model at the end, also of a run that fails.
    learn
        --no-learn only predicts (needs --load).
    """

    model: Any = None
    effort: Effort | None = None
    params: Params = field(default_factory=dict)
    load: str | None = None
    save: str | None = None
    learn: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class RefitOptions:
    r"""Refits.

    Now and then a window of the stream is solved by a batch solver, beside the running model, and what it finds is
    heard as far as it is right. Needs the extra `batch`.

    Parameters
    ----------
    refit : SOLVER
        Trees (boosted trees, the most accurate as a rule), cuts (a kernel machine), newton or bcd (linear), or the
        path of any classifier of scikit-learn; for blend, bsgd and cpm.
    refit_every : WHEN
        Events with a label, as 5000; growing[:FIRST[:FACTOR[:MOST]]]; event time, as 30m or 1d (needs --time, or
        Kafka); drift[:DETECTOR[:GATHER]] of River's detectors; or several joined by + (default
        growing:500:1.5:25000).
    refit_window : WHAT
        The events solved: the latest N, as 20000; since:TIME, as since:7d; reservoir:N; adaptive:N, which drift
        cuts; with +balanced rare classes stay (default adaptive:50000).
    """

    refit: str | None = None
    refit_every: str | None = None
    refit_window: str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class ResultOptions:
    r"""Results.

    Parameters
    ----------
    out : SINK
        Where predictions go: a file, - for standard output (then CSV), or a URL;
        what was predicted before any label was known is null there, and an empty cell in CSV.
    proba
        Write the probabilities of all classes known by then, too, in a field `proba`: an object, as in {"up": 0.9,
        "down": 0.1}; in CSV and Parquet its JSON as a text.
    coverage : SHARE
        Also write, in a field `set`, a list of labels of which the true one is one in this share of events, however
        the stream drifts, as 0.9 (in CSV and Parquet its JSON as a text); measured in any case.
    coverage_by_class
        For the events of each class by themselves, however rare it is.
    cost : TRUE:DECIDED=COST,...
        Also write, in a field `decision`, the label that costs the least by what is to be expected, as with
        fraud:fine=10,fine:fraud=1 (what is not said costs 1, and what is right 0), or a JSON object {"fraud":
        {"fine": 10}}; learning is not touched.
    class_weight : LABEL=WEIGHT,...
        Multiply the costs of a class's events; balanced: by the inverse of how often the class came so far.
    abstain : COST
        Decide for none (null) where each decision would cost more.
    alarms : SHARE
        Also write, in a field `alarm`, whether an event is one of this share that are the most probable to be of
        --alarm-class, as 0.01; recall:0.9 finds that share of them, precision:0.8 is right in that share of alarms;
        the threshold follows the stream.
    alarm_class : LABEL
        The class that alarms are for.
    explain : N
        Also write, in a field `reasons`, the N features that speak most for or against each prediction, with what
        they add to the log-odds of the predicted label against the next; takes about a millisecond per event.
    rejected : SINK
        Where events go that could not be read or learned, with the reason; 'null:' counts them only (default:
        OUT.rejected.jsonl beside --out, else rejected.jsonl in this directory, or rejected-2.jsonl while another
        run writes that; made when the first one comes, and that of an earlier run to the same --out removed).
    overwrite
        Replace files of other things, too: --out, --rejected, --joined, --requests, --save, --summary and --plot
        replace what an earlier run has written, and refuse a file that they do not recognise.
    """

    out: str | None = None
    proba: bool = False
    coverage: Part | None = None
    coverage_by_class: bool = False
    cost: Any = None
    class_weight: Any = None
    abstain: Cost | None = None
    alarms: Any = None
    alarm_class: Any = None
    explain: int | None = None
    rejected: str | None = None
    overwrite: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class CheckpointOptions:
    r"""Checkpoint.

    A run that is killed at any moment and started again with the same settings ends with the same model,
    predictions and measures as if nothing had happened. (A packed or Parquet --out has the same content; where its
    members or parts begin follows the checkpoints.)

    Parameters
    ----------
    checkpoint : DIR
        Keep all that is needed to go on in this directory.
    checkpoint_every : N
        At least every N events.
    checkpoint_seconds : S
        At least every S seconds (default 5, unless N is given).
    fresh
        Start over, discarding what is there.
    """

    checkpoint: str | None = None
    checkpoint_every: int | None = None
    checkpoint_seconds: Seconds | None = None
    fresh: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class ReportOptions:
    r"""Reports.

    Parameters
    ----------
    summary : FILE
        Write the figures of the end as JSON too.
    plot : FILE
        Draw accuracy over time beside the baselines, and which features mattered when (.png, .svg, .pdf).
    window : N
        Events the recent accuracy looks back on (default 1000).
    log_every : S
        Seconds between progress lines where standard error is no terminal (default 5).
    metrics_port : PORT
        Serve events, accuracy, lag and more to Prometheus there; ADDRESS:PORT listens elsewhere than on 127.0.0.1,
        for whoever can reach it.
    page : PORT
        Serve a page there that shows the run, while it runs; ADDRESS:PORT listens elsewhere than on 127.0.0.1.
    page_token : TOKEN
        What viewers must know, needed beyond this machine; better in the environment, as STREAMSVM_PAGE_TOKEN,
        where no list of processes shows it (then open the page as http://…/#token=TOKEN).
    quiet
        No progress and no summary (warnings stay).
    config : FILE
        Settings from TOML: keys are the long options and `source`; a table [model] has `name` and the parameters;
        the command line wins.
    """

    summary: str | None = None
    plot: str | None = None
    window: int = 1000
    log_every: Seconds = 5.0
    metrics_port: str | None = None
    page: str | None = None
    page_token: str | None = field(default=None, repr=False)
    quiet: bool = False
    config: str | None = None


GROUPS = (
    *(StreamOptions, LateOptions, ModelOptions, RefitOptions, ResultOptions),
    *(CheckpointOptions, ReportOptions),
)
"""The options of a run, in the order of the help."""
STREAM_OPTIONS = tuple(each.name for each in fields(StreamOptions) if each.name not in ("source", "max_events"))
"""The options of a stream that its URL may give as well."""
LATE_OPTIONS = tuple(each.name for each in fields(LateOptions) if each.name != "label_source")


@dataclass(kw_only=True, eq=False)
class RunConfig(
    ReportOptions,
    CheckpointOptions,
    ResultOptions,
    RefitOptions,
    ModelOptions,
    LateOptions,
    StreamOptions,
):
    """The settings of a run.

    The options are those of the command line, with texts as there or with values of Python: ``wait="30d"`` is
    ``wait=2592000.0``, ``types="a:category"`` is ``types={"a": "category"}``. ``model`` may also be a classifier.

    Attributes
    ----------
    urls
        The URLs of the streams that are given, by the names of their options.

    Examples
    --------
    >>> config = RunConfig(source="a.csv?delimiter=;", label="y", wait="90s")
    >>> config.urls["source"].query, config.wait
    ({'delimiter': ';'}, 90.0)
    >>> RunConfig(window=0)
    Traceback (most recent call last):
    streamsvm.run.errors.SetupError: argument --window: must be at least 1, got 0
    """

    takes: ClassVar[frozenset[str] | None] = None
    """The fields that may be set; None for all."""

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
        from streamsvm.run.toml import read_toml

        options = {each.name: str(each.type) for each in fields(cls) if each.name not in ("config", "params")}
        if cls.takes is not None:
            options = {name: kind for name, kind in options.items() if name in cls.takes}
        given = read_toml(path, set(options), {name for name, kind in options.items() if kind.startswith("bool")})
        table = given.pop("model")
        if table:
            given["model"] = table.pop("name", DEFAULT_MODEL)
        base = table if more.get("model", given.get("model")) == given.get("model") else {}
        params = params_of(more.pop("params", {}), base)
        return cls(**given | more, params=params, config=path)

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
    def timeout_class(self) -> Any:
        """The class of `on_timeout`, read as labels are; None for none."""
        given = self.on_timeout
        return None if given in (None, "drop") else label_of(given) if isinstance(given, str) else given

    @property
    def late(self) -> LateSettings | None:
        """How labels that come later are joined; None where they come with their events."""
        if not self.label_source:
            return None
        most = {"most": self.max_pending, "most_bytes": self.max_pending_bytes}
        return LateSettings(
            wait_ms=None if self.wait is None else round(self.wait * 1000),
            on_timeout=self.timeout_class,
            relearn=self.relearn_corrections,
            budget=self.label_budget,
            folder=None if self.pending_dir is None else Path(self.pending_dir),
            **{name: value for name, value in most.items() if value is not None},
        )

    @property
    def wanted(self) -> Wanted:
        """What is written beside predictions."""
        alarms, label = self.alarms, self.alarm_class
        if isinstance(alarms, str):
            kind, _, share = alarms.rpartition(":")
            alarms = (kind or "share", number_of(f"--alarms {alarms}", share))
        return Wanted(
            coverage=self.coverage,
            by_class=self.coverage_by_class,
            cost=costs_of(self.cost) if isinstance(self.cost, str) else self.cost,
            class_weight=weights_of(self.class_weight) if isinstance(self.class_weight, str) else self.class_weight,
            abstain=self.abstain,
            alarms=("share", alarms) if isinstance(alarms, float) else alarms,
            alarm_class=label_of(label) if isinstance(label, str) else label,
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
        sinks = ("out", "rejected", "joined", "requests")
        given |= {f"--{name}": self.urls[name].path for name in sinks if name in self.urls}
        return given if self.rejected else given | {"the file for rejected events": self.rejected_path}

    @property
    def identity(self) -> dict[str, Any]:
        """How the stream is read: what a checkpoint must agree in. Credentials may change, and are not written down."""
        source = self.urls["source"]
        options = {name: getattr(self, name) for name in STREAM_OPTIONS if getattr(self, name) is not None}
        options |= source.query
        if source.kind is not None and source.kind.meaning is not None:
            options = {name: options[name] for name in source.kind.meaning if name in options}
        shown = {name: value for name, value in options.items() if not any(word in name for word in _CREDENTIALS)}
        shown |= {name: getattr(self, name) for name in ("load", "join") if getattr(self, name)}
        kind = self.urls["rejected"].kind if "rejected" in self.urls else None
        says_itself = kind is not None and kind.meaning is not None  # which it is, whatever its options
        sinks = {} if says_itself else {"--rejected": self.rejected or "by default"}
        return {f"--{name}": value for name, value in shown.items()} | sinks


def option_of(name: str) -> str:
    """The option of the command line that sets a field."""
    return (
        "SOURCE" if name == "source" else f"--{name.removesuffix('s') if name == 'params' else name}".replace("_", "-")
    )


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
    "Effort": _choice(*_EFFORTS),
}
"""What makes a value of each type of a field."""
