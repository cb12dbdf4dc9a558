"""Settings of a run from the command line, TOML or Python."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from connectors.addresses import split_urls
from connectors.registry import Connector, are_paths, by_scheme, is_place, type_name
from streamsvm.run import DEFAULT_MODEL, DEFAULT_SOURCE, SHORT_NAMES
from streamsvm.run.converters import converted, params_of, parse_label, read_token
from streamsvm.run.errors import SetupError, check_repeated, refusing
from streamsvm.run.options import LATE_OPTIONS, REPEATED, STREAM_OPTIONS, RunOptions, option_of

_BY_LABEL = {"cost", "class_weight", "alarms"}  # tables whose keys are labels
_APART = ("config", "params", "learn")
_CREDENTIALS = ("password", "secret", "token", "sasl", "ssl")
_URLS = ("source", "label_source", "out", "dead_letter", "label_output", "query_output", "alerts")
SOURCES = _URLS[:2]
"""The fields that name sources."""
DEFAULT_REFERENCE = 10_000
"""Number of events of the reference of a monitor."""
SINKS = _URLS[2:]
"""The fields that name sinks."""
_COMPARED = (
    *(name for name in LATE_OPTIONS if name not in (*SINKS, "pending_dir")),
    *("proba", "coverage", "coverage_by_class", "cost", "class_weight", "abstain", "alarms", "explain", "window"),
    *("false_alarms", "reset_reference"),
)
"""Options that a checkpoint must match, besides those of streams and sinks."""


class Url(str):
    """Parsed URL of a stream.

    Attributes
    ----------
    path, query
        URL without its query, and the options in the query. For several files, the path lists all.
    paths
        Paths; several files have several.
    kind
        Connector named by the scheme; None for files and standard input.
    table
        Data frame or Arrow data instead of a URL, None if there is a URL.
    """

    path: str
    paths: list[str]
    query: dict[str, Any]
    kind: Connector | None
    table: Any = None

    def __new__(cls, given: str | list[str]) -> Url:
        """Parse a string, or the strings of several files."""
        texts = [given] if isinstance(given, str) else given
        url = super().__new__(cls, ", ".join(texts))
        url.paths, url.query = split_urls(texts)
        url.path = ", ".join(url.paths)
        url.kind = by_scheme(url) if len(texts) == 1 else None
        if url.has_columns and url.kind is not None and "table" in url.query:  # a database has many streams
            url.path = f"{url.path}?table={url.query['table']}"
            url.paths = [url.path]
        return url

    @classmethod
    def of(cls, stream: Any) -> Url:
        """Return the URL of a stream: a text, a path, a data frame or Arrow data."""
        if are_paths(stream):
            return cls(list(map(os.fspath, stream)))
        if isinstance(stream, str | os.PathLike):
            return stream if isinstance(stream, cls) else cls(os.fspath(stream))
        url = cls(type_name(stream))
        url.table = stream
        return url

    @property
    def has_columns(self) -> bool:
        """Whether label, key and time are columns, as in files and databases."""
        return self.kind is None or "table" in (self.kind.meaning or ())

    @property
    def is_file(self) -> bool:
        """Whether it consists of files, which may be read twice, unlike pipes and topics."""
        regular = [os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path) for path in self.paths]
        return self.kind is self.table is None and self.path != "-" and all(regular)


@dataclass(kw_only=True, eq=False)
class RunConfig(RunOptions):
    """Settings of a run.

    Fields are the options and settings of the command line, as strings or Python values:
    ``label_timeout="30d"`` is ``label_timeout=2592000.0``, and ``types="a:category"`` is ``types={"a": "category"}``.
    ``model`` may also be a classifier. ``source`` and ``label_source`` may be data frames, lazy frames, Arrow data, or
    iterables of them.

    Parameters
    ----------
    learn
        Whether the model learns; False only predicts, as `streamsvm predict` does.

    Attributes
    ----------
    urls
        URLs of the given streams, by option name.

    Examples
    --------
    >>> config = RunConfig(source="a.csv?delimiter=;", label="y", label_timeout="90s")
    >>> config.urls["source"].query, config.label_timeout
    ({'delimiter': ';'}, 90.0)
    >>> RunConfig(window=0)
    Traceback (most recent call last):
    streamsvm.run.errors.SetupError: argument --set window: must be at least 1, got 0
    """

    learn: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in SOURCES:
            stream = getattr(self, name)
            if not (stream is None or isinstance(stream, str) or are_paths(stream)):
                setattr(self, name, Url.of(stream))
        with refusing():
            self.urls = {name: Url.of(getattr(self, name)) for name in _URLS if getattr(self, name)}
        self.urls.setdefault("source", Url(DEFAULT_SOURCE))
        given = {name: value for name in STREAM_OPTIONS if (value := getattr(self, name)) is not None}
        check_given_once(type(self), "the URL of SOURCE", self.urls["source"].query, given)
        if "out" in self.urls and is_place(self.urls["out"].path):
            self.urls.setdefault("dead_letter", Url(f"{self.urls['out'].path.rstrip('/')}.rejected.jsonl"))

    @classmethod
    def from_toml(cls, path: str, **more: Any) -> Self:
        """Read a TOML file with long options as keys, `source`, and a table `model`.

        Parameters
        ----------
        path
            Path of the file.
        more
            Options that override those of the file. Parameters of the model are merged.
        """
        given = read_toml(path, cls)
        table = given.pop("model", {})
        table = {"name": table} if isinstance(table, str) else table
        if not (isinstance(table, dict) and isinstance(table.get("name", ""), str)):
            raise SetupError(f"--config {path}: `model` must be a text, or a table whose `name` is a text, got {table}")
        if table:
            given["model"] = table.pop("name", DEFAULT_MODEL)
        base = table if more.get("model", given.get("model")) == given.get("model") else {}
        params = params_of(more.pop("params", {}), base)
        return cls(**given | more, params=params, config=path)

    def validate(self) -> None:
        """Refuse inconsistent options, before any stream is opened.

        Raises
        ------
        SetupError
            The message names the option, its value and the remedy.
        """
        from streamsvm.run.checks import check

        check(self)

    @property
    def saved_model(self) -> str | None:
        """File of a saved model, if `model` names one."""
        given = self.model
        if not isinstance(given, str) or given in SHORT_NAMES:
            return None
        return given if not self.learn or os.path.isfile(given) or os.path.dirname(given) else None

    @property
    def token(self) -> str | None:
        """Token of the page, from its file or the environment."""
        return read_token(self.page_token_file, option_of("page_token_file"))

    @property
    def timeout_class(self) -> Any:
        """Class of `timeout_label`, parsed as a label; None without one."""
        given = self.timeout_label
        return None if given in (None, "drop") else parse_label(given) if isinstance(given, str) else given

    @property
    def decides(self) -> bool:
        """Whether decisions by cost are requested."""
        return not (self.cost is None and self.class_weight is None and self.abstain is None)

    @property
    def needs_probabilities(self) -> bool:
        """Whether an output needs the probabilities of all classes."""
        return self.decides or self.coverage is not None or self.alarms is not None

    @property
    def monitors(self) -> bool:
        """Whether features are monitored."""
        return self.alerts is not None or self.reference is not None

    @property
    def results(self) -> dict[str, str]:
        """Paths of results, by option."""
        given = {f"--{name}": getattr(self, name) for name in ("save", "summary", "plot") if getattr(self, name)}
        return given | {option_of(name): self.urls[name].path for name in SINKS if name in self.urls}

    @property
    def identity(self) -> dict[str, Any]:
        """Options that a checkpoint must match.

        Credentials are not stored, because they may change.
        """
        source = self.urls["source"]
        options = {name: getattr(self, name) for name in STREAM_OPTIONS if getattr(self, name) is not None}
        options |= source.query
        if source.kind is not None and source.kind.meaning is not None:
            options = {name: options[name] for name in source.kind.meaning if name in options}
        found = {name: value for name, value in options.items() if not any(word in name for word in _CREDENTIALS)}
        found |= {name: value for name in _COMPARED if (value := getattr(self, name)) not in (None, False)}
        found |= {"model": self.saved_model} if self.saved_model else {}
        found |= {"reference": self._reference} if self.monitors else {}
        return {option_of(name): value for name, value in found.items()} | {"learning": self.learn}

    @property
    def _reference(self) -> str:
        """Reference of the monitor: a number of events, or the name and hash of a file."""
        given = DEFAULT_REFERENCE if self.reference is None else self.reference
        if not isinstance(given, str):
            return f"{given} events"
        import hashlib  # takes a millisecond

        with open(given, "rb") as file:
            return f"{given}, SHA-256 {hashlib.sha256(file.read()).hexdigest()[:16]}"


def check_given_once(config: type[RunConfig], where: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Refuse an option whose values in two places differ.

    Parameters
    ----------
    config
        Class with the fields.
    where
        The first place, for the message.
    one, other
        Values by field.
    """
    kinds = config.field_types()
    for name in one.keys() & other.keys():
        option = option_of(name)
        values = [converted(option, kinds[name], value) for value in (one[name], other[name])]
        if values[0] != values[1]:
            what = f"{where}: `{name}` is {one[name]!r}, but {option} is {other[name]!r}: give it once"
            raise SetupError(what, "twice", option=option)


RunConfig.takes = frozenset(RunConfig.field_types()) - {"learn"}


def read_toml(path: str, config: type[RunConfig]) -> dict[str, Any]:
    """Read the entries of a file by field.

    Parameters
    ----------
    path
        Path of the file.
    config
        Class with the fields.
    """
    try:
        with open(path, "rb") as file:
            entries = tomllib.load(file)
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also for too many digits or brackets
        raise SetupError(f"--config {path}: {error}") from error
    found = {_field(f"--config {path}", key, config): value for key, value in entries.items()}
    return found | {name: _by_label(found[name]) for name in _BY_LABEL & found.keys()}


def _by_label(value: Any) -> Any:
    """Parse the keys of a table as labels."""
    return {parse_label(key): _by_label(each) for key, each in value.items()} if isinstance(value, dict) else value


def read_settings(texts: Iterable[str], config: type[RunConfig]) -> dict[str, str]:
    """Parse settings such as ``window=500``; return strings by field.

    Parameters
    ----------
    texts
        Strings with one setting each. Repeated lists of names are concatenated.
    config
        Class with the fields.
    """
    kinds, found = config.field_types(), dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            name = re.split(r"[^\w-]", text.strip(), maxsplit=1)[0]
            raise SetupError(f"--set {name}: must read NAME=VALUE")  # without the rest, which may be a secret
        name = _field(f"--set {key}", key.strip(), config)
        if name in found and kinds[name] in REPEATED:
            value = f"{found[name]},{value}"
        else:
            check_repeated(option_of(name), found.get(name, value), value)
        found[name] = value
    return found


def _field(where: str, key: str, config: type[RunConfig]) -> str:
    name, names = key.replace("-", "_"), config.takes.difference(_APART)
    if "_" in key or name not in names:
        if (new := new_name(key)) is not None:
            raise SetupError(f"{where}: `{key}` is now {new}")
        allowed = sorted(each.replace("_", "-") for each in names)
        near = difflib.get_close_matches(key, allowed, 1, cutoff=0.75)
        hint = f"did you mean `{near[0]}`?" if near else "--help-all lists all"
        if not near and where.startswith("--set"):
            hint = f"options of one file or topic go in its URL, as in 'a.csv?{key}=...'; {hint}"
        raise SetupError(f"{where}: unknown key `{key}`; {hint}")
    return name


_NEW = {
    "alarm-class": "--set alarms=LABEL=SHARE",
    "checkpoint-seconds": "--checkpoint-every TIME, such as 30s",
    "effort": "--param effort=LEVEL",
    "follow": "--at-end wait",
    "no-follow": "--at-end stop",
    "forget-after": "--key-ttl",
    "fresh": "--reset",
    "no-fresh": "the default: remove it",
    "group": "--consumer-group",
    "joined": "--label-output",
    "learn": "the command `streamsvm run`",
    "no-learn": "the command `streamsvm predict`",
    "load": "--model FILE",
    "on-timeout": "--set timeout-label=CLASS",
    "page-token": "the environment variable STREAMSVM_PAGE_TOKEN or page-token-file, to keep it secret",
    "parent": "--prior-model",
    "patience": "--set broker-timeout=S",
    "per-key": "the command `streamsvm per-key SOURCE --field FIELD`",
    "refit-every": "--refit SOLVER,every=WHEN",
    "refit-window": "--refit SOLVER,window=WHAT",
    "rejected": "--dead-letter",
    "relearn-reference": "--set reset-reference=after-alarm",
    "requests": "--query-output",
    "until-end": "--at-end stop",
    "no-until-end": "--at-end wait",
    "wait": "--label-timeout",
}
"""Replacements of options of earlier versions, for error messages."""


def new_name(old: str, settings: Container[str] = ()) -> str | None:
    """Return the replacement of an old option; None if it is unknown.

    Parameters
    ----------
    old
        Name of the option without leading dashes.
    settings
        Fields that are settings, some of which were options.

    Examples
    --------
    >>> new_name("wait"), new_name("no-follow"), new_name("window", {"window"}), new_name("bogus")
    ('--label-timeout', '--at-end stop', '--set window=VALUE', None)
    """
    plain = old.removeprefix("no-")
    if old in _NEW or plain.replace("-", "_") not in settings:
        return _NEW.get(old)
    return f"--set {plain}={'VALUE' if plain == old else 'false'}"
