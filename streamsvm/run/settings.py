"""What the settings of the command line ask for, and the refusal of what does not fit together."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from connectors.columns import label_of
from connectors.errors import ConnectorError
from connectors.events import Source
from connectors.options import Options, split_url
from connectors.registry import by_scheme, connector_of, is_place
from connectors.sinks import NullSink
from streamsvm.decide.alarms import check_alarms
from streamsvm.decide.costs import check_costs
from streamsvm.names import shown
from streamsvm.run import DEFAULT_MODEL, DEFAULT_SOURCE
from streamsvm.run.abilities import Categorical
from streamsvm.run.classifiers import build_classifier, parse_params, with_refits
from streamsvm.run.errors import SetupError
from streamsvm.run.locks import held
from streamsvm.run.overwriting import check_overwriting
from streamsvm.run.plot import check_plot
from streamsvm.run.wanted import LateSettings, Wanted

REJECTED = "rejected.jsonl"
"""Where events set aside go, beside no --out that is a file."""

STREAM_OPTIONS = (
    *("label", "types", "missing", "ignore", "key", "time", "time_unit", "time_format", "format", "delimiter"),
    *("decimal", "thousands", "encoding", "quote", "escape", "comment", "skip_rows", "follow", "until_end", "patience"),
)
_LATE_OPTIONS = (
    *("join", "wait", "on_timeout", "joined", "relearn_corrections", "max_pending", "max_pending_bytes"),
    *("label_budget", "requests", "pending_dir"),
)
_CREDENTIALS = ("password", "secret", "token", "sasl", "ssl")


def check(args: argparse.Namespace) -> None:
    """Refuse what does not fit together before anything is opened."""
    if args.load and (args.model or args.param or args.effort or args.model_table):
        raise SetupError("--load brings the model and its parameters: leave out --model and --param (and --effort)")
    if args.load and args.refit:
        raise SetupError("--load brings the model, and its refits where it has some: leave out --refit")
    for name in ("refit_every", "refit_window"):
        if getattr(args, name) and not args.refit:
            raise SetupError(f"--{name.replace('_', '-')} needs --refit SOLVER")
    if args.proba and not args.out:
        raise SetupError("--proba needs --out: say where predictions go")
    _check_wanted(args)
    if not args.learn and not args.load:
        raise SetupError("--no-learn only predicts: say with --load what")
    if args.follow and args.until_end:
        raise SetupError("--follow waits for more of a file, --until-end stops at the end of a Kafka topic: not both")
    needing = ("checkpoint_every", "checkpoint_seconds", "fresh")
    for name in needing:
        if getattr(args, name) and not args.checkpoint:
            raise SetupError(f"--{name.replace('_', '-')} needs --checkpoint DIR")
    _check_late(args)
    if args.page_token and not args.page:
        raise SetupError("--page-token needs --page PORT")
    if args.plot:
        check_plot(args.plot)
    for name in ("save", "summary", "plot"):
        if getattr(args, name):
            check_writable(f"--{name}", getattr(args, name), replaced=True)
    if args.save and os.path.exists(args.save) and not os.path.isfile(args.save):
        raise SetupError(f"--save {args.save}: is not a regular file")
    _check_distinct(args)
    check_overwriting(args)


def check_plain(args: argparse.Namespace) -> None:
    """Refuse settings that are for runs with a model for each key, where there is to be one model."""
    for name in ("group", "repartition"):
        if getattr(args, name):
            raise SetupError(f"--{name} needs --per-key FIELD: say by which field events go together")


def _check_late(args: argparse.Namespace) -> None:
    """Refuse what does not fit together of labels that come later."""
    if not args.label_source:
        for name in _LATE_OPTIONS:
            if getattr(args, name) not in (None, False):
                raise SetupError(f"--{name.replace('_', '-')} needs --label-source: say where labels come from")
        return
    if not args.label:
        raise SetupError("--label-source needs --label NAME: the column of the labels that holds them")
    if args.key and args.key != args.join:
        raise SetupError(f"--key {args.key}: events go by the key of --join, which is written beside predictions")
    for url, option in ((args.source, "SOURCE"), (args.label_source, "--label-source")):
        kind, query = by_scheme(url), split_url(url)[1]
        if kind is not None and kind.labelled:
            raise SetupError(f"{option} {url}: has labels of its own, and no keys: leave out --label-source")
        if kind is None and not (args.join or "key" in query):
            raise SetupError(f"{option} {url}: has no keys: name their column with --join NAME")
        if kind is None and not (args.time or "time" in query):
            raise SetupError(
                f"{option} {url}: has no times, by which events and labels are put in order: name their column with "
                "--time NAME, or where it has another name in one of them with ?time=NAME after that"
            )
    if _is_same(args.source, args.label_source):
        raise SetupError(f"SOURCE and --label-source are the same stream {args.source}: leave out --label-source")
    if args.timeout_class is not None and args.wait is None:
        raise SetupError("--on-timeout CLASS needs --wait TIME: say how long an event waits for its label")
    if args.pending_dir and not (os.path.isdir(args.pending_dir) and os.access(args.pending_dir, os.W_OK)):
        raise SetupError(f"--pending-dir {args.pending_dir}: is no directory that can be written to")
    if bool(args.label_budget) != bool(args.requests):
        raise SetupError(
            "--label-budget SHARE and --requests SINK go together: of how many labels, and where they are asked for"
        )
    if args.label_budget and args.timeout_class is not None:
        raise SetupError(
            f"--on-timeout {args.timeout_class}: most events get no label with --label-budget, and would be learned as "
            "of this class: leave one of them out"
        )


def _is_same(one: str, other: str) -> bool:
    """Whether two URLs name one stream."""
    paths = [split_url(url)[0] for url in (one, other)]
    if by_scheme(one) is not None or by_scheme(other) is not None:
        topics = [path.rpartition("/")[2] for path in paths]
        return by_scheme(one) is by_scheme(other) and topics[0] == topics[1]
    return paths[0] == paths[1] or bool(_places(paths[0], 0) & _places(paths[1], 0))


def late_settings(args: argparse.Namespace) -> LateSettings | None:
    """How labels that come later are joined; None where they stand with their events."""
    if not args.label_source:
        return None
    most = {"most": args.max_pending, "most_bytes": args.max_pending_bytes}
    return LateSettings(
        wait_ms=None if args.wait is None else round(args.wait * 1000),
        on_timeout=args.timeout_class,
        relearn=bool(args.relearn_corrections),
        budget=args.label_budget,
        folder=Path(args.pending_dir) if args.pending_dir else None,
        **{name: value for name, value in most.items() if value is not None},
    )


def wanted_of(args: argparse.Namespace) -> Wanted:
    """What is wanted beside predictions."""
    alarms = None
    if args.alarms:
        kind, _, wanted = args.alarms.rpartition(":")
        alarms = (kind or "share", _number(f"--alarms {args.alarms}", wanted))
    return Wanted(
        coverage=args.coverage,
        by_class=bool(args.coverage_by_class),
        cost=_costs_of(args.cost) if args.cost else None,
        class_weight=_weights_of(args.class_weight) if args.class_weight else None,
        abstain=args.abstain,
        alarms=alarms,
        alarm_class=None if args.alarm_class is None else label_of(args.alarm_class),
        reasons=args.explain or 0,
    )


def _check_wanted(args: argparse.Namespace) -> None:
    """Refuse what does not fit together of what is wanted beside predictions."""
    if args.coverage_by_class and args.coverage is None:
        raise SetupError("--coverage-by-class needs --coverage SHARE")
    if args.explain and not args.out:
        raise SetupError("--explain needs --out: say where predictions go")
    if bool(args.alarms) != bool(args.alarm_class):
        raise SetupError("--alarms SHARE and --alarm-class LABEL need each other: say how many, and for which class")
    wanted = wanted_of(args)
    if not args.learn and (wanted.class_weight == "balanced" or (wanted.alarms or ("share",))[0] != "share"):
        raise SetupError(
            "--no-learn takes no labels, which balanced weights and alarms for a recall or a precision follow: leave "
            "one of them out"
        )
    try:
        check_costs(wanted.cost, wanted.class_weight, wanted.abstain)
    except (TypeError, ValueError) as error:
        raise SetupError(f"--cost, --class-weight or --abstain: {error}") from error
    try:
        check_alarms(*(wanted.alarms or ("share", 0.5)))
    except ValueError as error:
        raise SetupError(
            f"--alarms {args.alarms}: say SHARE, recall:SHARE or precision:SHARE, with a share above 0 and below 1"
        ) from error


def _costs_of(text: str) -> dict[Any, dict[Any, float]]:
    """A table of costs by label."""
    if text.startswith("{"):
        return {label_of(true): _by_label(costs) for true, costs in _object("--cost", text).items()}
    table: dict[Any, dict[Any, float]] = {}
    for pair, cost in _pairs("--cost", text, "TRUE:DECIDED=COST").items():
        true, colon, decided = pair.partition(":")
        if not colon:
            raise SetupError(f"--cost {text}: {pair} does not say for which decision: TRUE:DECIDED=COST")
        table.setdefault(label_of(true), {})[label_of(decided)] = cost
    return table


def _weights_of(text: str) -> dict[Any, float] | str:
    if text == "balanced":
        return text
    if text.startswith("{"):
        return dict(_by_label(_object("--class-weight", text)))
    return {label_of(name): weight for name, weight in _pairs("--class-weight", text, "LABEL=WEIGHT").items()}


def _object(option: str, text: str) -> dict[str, Any]:
    """What a JSON object says."""
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{option} {shown(text)}: is no JSON object: {error}") from error
    return found


def _by_label(found: Any) -> Any:
    return {label_of(name): value for name, value in found.items()} if isinstance(found, dict) else found


def _pairs(option: str, text: str, form: str) -> dict[str, float]:
    """Names with numbers, separated by commas."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.rpartition("=")
        if not sign:
            raise SetupError(f"{option} {text}: {part} is not of the form {form}")
        if name.strip() in found:
            raise SetupError(f"{option} {text}: {name.strip()} is there twice")
        found[name.strip()] = _number(option, value)
    return found


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SetupError(f"{option}: {text} is no number") from None


def check_source(args: argparse.Namespace) -> None:
    """Refuse settings of a stream that nobody named."""
    if not args.has_source and (args.config or any(getattr(args, name) is not None for name in STREAM_OPTIONS)):
        where = f"nor `source` in {args.config}" if args.config else "which these settings are for"
        raise SetupError(
            f"no SOURCE is given, {where}: name a file, a topic, - for standard input, or {DEFAULT_SOURCE} to try it"
        )


def check_label(args: argparse.Namespace, source: Source) -> None:
    """Refuse a stream that nothing can be learned from."""
    path, query = split_url(args.source)
    if args.label_source:
        return
    if args.learn and not (args.label or "label" in query) and not _labels_itself(path, args.format, query):
        raise SetupError(
            f"{source.name}: nothing can be learned, as it is not said what to predict: name the column with "
            "--label NAME (or only predict, with --load FILE --no-learn)"
        )


def _labels_itself(path: str, given: str | None, query: dict[str, Any]) -> bool:
    """Whether a stream says by itself what its labels are."""
    return connector_of(path, Options(path, {"format": given} | query)).labelled


def check_writable(option: str, path: str, *, replaced: bool = False) -> None:
    """Refuse a file that could not be written, or replaced by another in its directory."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise SetupError(f"{option} {path}: there is no directory {folder}")
    if replaced and os.path.isfile(path):
        folder = os.path.dirname(os.path.realpath(path))
        if not os.access(folder, os.W_OK):
            raise SetupError(f"{option} {path}: cannot be replaced, since nothing can be written to {folder}")
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise SetupError(f"{option} {path}: cannot be written")


def _check_distinct(args: argparse.Namespace) -> None:
    """Refuse to write over what is read, or twice to one file, whatever names it goes by."""
    source, results = split_url(args.source)[0], _results(args)
    snapshot = os.path.join(args.checkpoint, "checkpoint.npz") if args.checkpoint else None
    labels = split_url(args.label_source)[0] if args.label_source else None
    used = {
        "SOURCE": source,
        "--label-source": labels,
        "--load": args.load,
        "--config": args.config,
        "--checkpoint": snapshot,
    }
    seen = {place: option for option, path in used.items() if path for place in _places(path, 0)}
    for option, path in results.items():
        places = _places(path, 1)
        for place in places:
            if place in seen and (seen[place], option) != ("--load", "--save"):  # a model is replaced whole
                raise SetupError(f"{seen[place]} and {option} are the same file {path}")
        seen |= dict.fromkeys(places, option)
    folder = os.path.dirname(os.path.realpath(source))
    if held := next((option for option, path in results.items() if os.path.realpath(path) == folder), None):
        raise SetupError(f"SOURCE lies in the directory {folder}, whose parts {held} replaces")


def _results(args: argparse.Namespace) -> dict[str, str]:
    """Where results go, by the option that says so."""
    given = {f"--{name}": getattr(args, name) for name in ("save", "summary", "plot") if getattr(args, name)}
    sinks = {"--out": args.out, "--rejected": args.rejected, "--joined": args.joined, "--requests": args.requests}
    given |= {option: split_url(url)[0] for option, url in sinks.items() if url}
    return given if args.rejected else given | {"the file for rejected events": rejected_path(args)}


def _places(path: str, descriptor: int) -> set[Any]:
    """What tells a file from others: its name in full, and where it is there what the system knows it by."""
    if path == "-":
        found = os.fstat(descriptor)  # a terminal may well be both read and written
        return {(found.st_dev, found.st_ino)} if stat.S_ISREG(found.st_mode) else set()
    real = os.path.realpath(path)
    if path == NullSink.name or real == os.path.realpath(os.devnull):
        return set()
    try:
        found = os.stat(real)
    except OSError:
        return {real}
    return {real, (found.st_dev, found.st_ino)}


@contextlib.contextmanager
def locked(args: argparse.Namespace) -> Iterator[None]:
    """Keep other runs from the files of results; the default for rejected events is taken when it is needed."""
    with contextlib.ExitStack() as stack:
        for option, path in _results(args).items():
            if path != REJECTED and is_place(path):
                stack.enter_context(held(option, path))
        yield


def model_of(args: argparse.Namespace) -> Any:
    """The model, new or loaded, that is asked for."""
    model = _loaded(args.load) if args.load else _new_model(args)
    if isinstance(model, Categorical):
        model.keep_categories(_declared_categories(args))
    return model


def _declared_categories(args: argparse.Namespace) -> list[str]:
    path, query = split_url(args.source)
    try:
        types = Options(path, query if args.types is None else {"types": args.types}).kinds("types")
    except ConnectorError as error:
        raise SetupError(str(error)) from error
    return [name for name, kind in types.items() if kind == "category"]


def _new_model(args: argparse.Namespace) -> Any:
    table = dict(args.model_table)
    configured = table.pop("name", DEFAULT_MODEL)
    name = args.model or configured
    base = table if name == configured else {}  # the file's parameters are those of the file's model
    params = parse_params(args.param, base) | ({"effort": args.effort} if args.effort else {})
    model = build_classifier(name, params)
    if args.refit:
        model = with_refits(model, args.refit, args.refit_every, args.refit_window)
        _check_times(args, model)
    return model


def _check_times(args: argparse.Namespace, model: Any) -> None:
    """Refuse refits that go by the times of events where these have none."""
    if by_scheme(args.source) is not None or args.time or "time" in split_url(args.source)[1]:
        return
    for option, settings in (("every", model.trigger), ("window", model.window)):
        if settings is not None and settings.needs_times:
            given = getattr(args, f"refit_{option}")
            raise SetupError(
                f"--refit-{option} {given}: goes by the times of events: name their column with --time NAME"
            )


def _loaded(path: str) -> Any:
    import streamsvm  # the model's module comes with it

    try:
        return streamsvm.load(path)
    except (OSError, ValueError) as error:
        raise SetupError(f"--load {path}: {getattr(error, 'strerror', None) or error}") from error


def rejected_path(args: argparse.Namespace) -> str:
    """Beside the predictions, where these go to a file; else in this directory."""
    path = split_url(args.out or "-")[0]
    return f"{path}.rejected.jsonl" if is_place(path) else REJECTED


def identity_of(args: argparse.Namespace) -> dict[str, Any]:
    """How the stream is read: what a checkpoint must agree in. Credentials may change, and are not written down."""
    options = {name: getattr(args, name) for name in STREAM_OPTIONS if getattr(args, name) is not None}
    options |= split_url(args.source)[1]
    kind = by_scheme(args.source)
    if kind is not None and kind.meaning is not None:
        options = {name: options[name] for name in kind.meaning if name in options}
    shown = {name: value for name, value in options.items() if not any(word in name for word in _CREDENTIALS)}
    shown |= {"load": args.load} if args.load else {}
    shown |= {"join": args.join} if args.join else {}
    kind = by_scheme(args.rejected or "")
    says_itself = kind is not None and kind.meaning is not None  # which it is, whatever its options
    sinks = {} if says_itself else {"--rejected": args.rejected or "by default"}
    return {f"--{name}": value for name, value in shown.items()} | sinks
