"""The command line: ``streamsvm run [SOURCE] …``.

Exit codes: 0 where the run came to its end, 2 where the settings do not fit (no data was touched), 1 where something
failed on the way, 3 where it came to its end but more than half of all events were set aside, 75 where brokers could
not be reached for as long as they were to be waited for (the same run may be started again, and goes on from its
checkpoint), 130 and 143 where SIGINT or SIGTERM ended it after the batch in hand, with checkpoint and report.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import io
import itertools
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

# Whatever takes long to import is imported where it is used: `--help` and refusals come at once.
if TYPE_CHECKING:
    from connectors.events import Sink, Source
    from streamsvm.run.checkpoint import Checkpoint
    from streamsvm.run.runner import Observer, Report, Runner

DEFAULT_SOURCE = "synthetic:demo"
DEFAULT_MODEL = "blend"
_REJECTED = "rejected.jsonl"
_STREAM_OPTIONS = (
    *("label", "types", "missing", "ignore", "key", "time", "format", "delimiter", "follow", "until_end", "patience"),
)
_FLAGS = ("follow", "until-end", "learn", "proba", "fresh", "quiet")
_FLAG = argparse.BooleanOptionalAction
_TEMPORARY = 75  # as `os.EX_TEMPFAIL`, which not all systems have
_CREDENTIALS = ("password", "secret", "token", "sasl", "ssl")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    started = time.perf_counter() - _age()
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        _check_connectors()
        return _guarded(arguments, started)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _guarded(arguments: list[str], started: float) -> int:
    from connectors.events import ConnectorError, UnreachableError
    from streamsvm.run.errors import RunError, SetupError

    try:
        args = _parse(arguments)
        with _logging(args.quiet):
            return _run(args, started)
    except SetupError as error:
        return _complain(error, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails again when it flushes at exit
        return _complain("standard output was closed by its reader", 1)
    except UnreachableError as error:
        return _complain(error, _TEMPORARY)
    except (RunError, ConnectorError, OSError) as error:
        return _complain(error, 1)
    except MemoryError as error:
        return _complain(f"out of memory: {error}".removesuffix(": "), 1)


def _prepare_streams() -> None:
    """Make standard streams fit to be written.

    Where one is closed the null device takes its place, or a file opened later would be taken for that stream.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal need not know all letters of a label


def _age() -> float:
    """Seconds since this process began, where the system tells; imports count for the time to the first prediction."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


def _complain(error: object, code: int) -> int:
    with contextlib.suppress(OSError):  # such as a full disk that standard error goes to
        print(f"streamsvm: error: {error}", file=sys.stderr)
    return code


def _check_connectors() -> None:
    """Say so where a foreign package stands in the place of ours: the name is a common one."""
    try:
        found = importlib.util.find_spec("connectors.events")
    except ImportError:
        found = None
    if found is not None:
        return
    spec = importlib.util.find_spec("connectors")
    if spec is None:
        sys.exit(_complain("the package `connectors`, a part of streamsvm, is missing: install streamsvm again", 2))
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    message = f"{place} stands in the way of the package `connectors` that is a part of streamsvm"
    sys.exit(_complain(f"{message}: rename it, or run from another directory", 2))


# Settings --------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"streamsvm: error: {message} (see {self.prog} --help)\n")


def _parser() -> _Parser:
    parser = _Parser(prog="streamsvm", description="Online classification of drifting streams.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="predict every event of a stream, then learn from it",
        description="Predict every event of a stream before learning from its label; write the predictions, measure "
        "how good they were, keep the model. With no arguments: a generated stream whose concept changes twice.",
        epilog="Exit codes: 0 done; 2 the settings do not fit, nothing was touched; 1 failed on the way; 3 done, but "
        "more than half of all events were set aside (while it runs, a warning comes where more than half of the last "
        "100 or more are); 75 brokers could not be reached for long, and the same run may be started again; 130 or 143 "
        "ended by SIGINT or SIGTERM, after the batch in hand and with checkpoint and report (a second signal kills).",
        allow_abbrev=False,
    )
    _add_stream(run)
    _add_model(run)
    _add_results(run)
    _add_checkpoint(run)
    _add_reports(run)
    return parser


def _add_stream(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("stream")
    group.add_argument(
        "source",
        nargs="?",
        type=_text,
        metavar="SOURCE",
        help="a file (.csv .tsv .jsonl .libsvm .arff .parquet, also .gz), - for standard input, synthetic:NAME, or "
        "kafka://HOST:PORT/TOPIC (where partitions that are ahead in time wait for the others in about "
        "?max_held_bytes=67108864 of memory); "
        f"more options may follow as a query, as in a.csv?delimiter=; (default {DEFAULT_SOURCE})",
    )
    group.add_argument(
        "--label", type=_text, metavar="NAME", help="the column to predict; events without are not learned"
    )
    group.add_argument(
        "--types",
        metavar="NAME:TYPE,...",
        help="declare columns as number, category, time (ISO 8601 or milliseconds since 1970: becomes hour and weekday "
        "in UTC, each as sine and cosine) or ignore. Texts not declared a category are left out with a warning where "
        "nearly each is new, as of identifiers and times; numbers never are: --ignore those that only count up",
    )
    group.add_argument(
        "--missing",
        metavar="TEXT,...",
        help="the texts that are no label, category, number or time but stand for a missing one, as the empty one "
        "always does (default ?,NA,NaN,null,None in any case)",
    )
    group.add_argument("--ignore", metavar="NAME,...", help="columns to leave out")
    group.add_argument(
        "--key", type=_text, metavar="NAME", help="the column that names an event; written beside its prediction"
    )
    group.add_argument(
        "--time",
        type=_text,
        metavar="NAME",
        help="the column with the time of an event, in milliseconds since 1970 or as ISO 8601: it is no feature, and "
        "an event in which it cannot be read is set aside; events are taken in the order of the stream all the same",
    )
    group.add_argument(
        "--format", type=_text, metavar="FORMAT", help="csv, tsv, jsonl, libsvm, arff or parquet, instead of the suffix"
    )
    group.add_argument(
        "--delimiter", type=_text, metavar="CHAR", help="what separates the fields of CSV (default , or of TSV a tab)"
    )
    group.add_argument("--follow", action=_FLAG, help="wait for more at the end of a growing file")
    group.add_argument("--until-end", action=_FLAG, help="of a Kafka topic, stop at the end it has at the start")
    group.add_argument(
        "--patience",
        type=_seconds,
        metavar="S",
        help="wait so many seconds for Kafka brokers that are away or pass their work on (default: at the start 10 for "
        "one to answer at all and 30 for what is asked, then for ever)",
    )
    group.add_argument(
        "--max-events",
        type=_count,
        metavar="N",
        help="stop after N events that could be read, resumed ones included; a checkpoint is left there",
    )


def _add_model(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("model")
    group.add_argument(
        "--model",
        type=_text,
        metavar="NAME",
        help="blend, bsgd, cpm (the most accurate first, the fastest last), or the path of any River classifier, as "
        f"river.linear_model.LogisticRegression (default {DEFAULT_MODEL})",
    )
    group.add_argument(
        "--effort",
        choices=("low", "normal", "high"),
        help="of blend: which members it has, and so its accuracy and time (default normal)",
    )
    group.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the model, as a TOML or Python literal; may be repeated. The path of a class makes a "
        "nested model: --param model=river.tree.HoeffdingTreeClassifier --param model.max_depth=5",
    )
    group.add_argument("--load", type=_text, metavar="FILE", help="go on from a saved model")
    group.add_argument("--save", type=_text, metavar="FILE", help="save the model at the end, also of a run that fails")
    group.add_argument("--learn", action=_FLAG, default=True, help="--no-learn only predicts (needs --load)")


def _add_results(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("results")
    group.add_argument(
        "--out",
        type=_text,
        metavar="SINK",
        help="where predictions go: a .csv, .tsv or .jsonl file, - (then CSV), or kafka://HOST:PORT/TOPIC; what "
        "was predicted before any label was known is null there, and an empty cell in CSV",
    )
    group.add_argument(
        "--proba",
        action=_FLAG,
        help="write the probabilities of all classes known by then, too, in a field `proba`: an object, as in "
        '{"up": 0.9, "down": 0.1}; in CSV and Parquet its JSON as a text',
    )
    group.add_argument(
        "--rejected",
        type=_text,
        metavar="SINK",
        help="where events go that could not be read or learned, with the reason; null: only counts them (default: "
        "OUT.rejected.jsonl beside --out, else rejected.jsonl in this directory, or rejected-2.jsonl while another run "
        "writes that; made when the first one comes, and that of an earlier run to the same --out removed)",
    )


def _add_checkpoint(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group(
        "checkpoint",
        "A run that is killed at any moment and started again with the same settings ends with the same model, "
        "predictions and measures as if nothing had happened. (A packed or Parquet --out has the same content; where "
        "its members or parts begin follows the checkpoints.)",
    )
    group.add_argument(
        "--checkpoint", type=_text, metavar="DIR", help="keep all that is needed to go on in this directory"
    )
    group.add_argument("--checkpoint-every", type=_count, metavar="N", help="at least every N events")
    group.add_argument(
        "--checkpoint-seconds",
        type=_seconds,
        metavar="S",
        help="at least every S seconds (default 5, unless N is given)",
    )
    group.add_argument("--fresh", action=_FLAG, help="start over, discarding what is there")


def _add_reports(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group("reports")
    group.add_argument("--summary", type=_text, metavar="FILE", help="write the figures of the end as JSON too")
    group.add_argument(
        "--plot",
        type=_text,
        metavar="FILE",
        help="draw accuracy over time beside the baselines, and which features mattered when (.png, .svg, .pdf)",
    )
    group.add_argument(
        "--window",
        type=_count,
        default=1000,
        metavar="N",
        help="events the recent accuracy looks back on (default 1000)",
    )
    group.add_argument(
        "--log-every",
        type=_seconds,
        default=5.0,
        metavar="S",
        help="seconds between progress lines where standard error is no terminal (default 5)",
    )
    group.add_argument(
        "--metrics-port", type=_count, metavar="PORT", help="serve events, accuracy, lag and more to Prometheus there"
    )
    group.add_argument("--quiet", action=_FLAG, help="no progress and no summary (warnings stay)")
    group.add_argument(
        "--config",
        type=_text,
        metavar="FILE",
        help="settings from TOML: keys are the long options and `source`; a table [model] has `name` and the "
        "parameters; the command line wins",
    )


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty (is a variable of the shell not set?)")
    return text


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return value


_count.__name__, _seconds.__name__ = "whole number", "number of seconds"  # argparse names them in its messages


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The settings, those of a configuration file first, so that the command line wins."""
    parser = _parser()
    # Standard input with options, as in '-?delimiter=;', looks like an option itself.
    arguments = [f"file://{text}" if text.startswith("-?") else text for text in arguments]
    args = parser.parse_args(arguments)
    if args.version:
        from streamsvm import __version__

        print(f"streamsvm {__version__}")
        parser.exit(0)
    if args.command is None:
        parser.print_help()
        parser.exit(2)
    config = _read_config(args.config) if args.config else {}
    model = _config_model(config.pop("model", {}), args.config)
    source = _config_source(config.pop("source", None), args.config)
    if config:
        given = _config_arguments(config, args.config, set(vars(args)) - {"command", "version", "config", "param"})
        args = parser.parse_args(["run", *given, *arguments[1:]])
    args.has_source = bool(args.source or source)
    args.source = args.source or source or DEFAULT_SOURCE
    args.model_table = model
    return args


def _read_config(path: str) -> dict[str, Any]:
    import tomllib

    from streamsvm.run.errors import SetupError

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"--config {path}: {error}") from error


def _config_source(source: Any, path: str) -> str | None:
    from streamsvm.run.errors import SetupError

    if source is not None and (not isinstance(source, str) or not source):
        raise SetupError(f"--config {path}: `source` must be a text, got {source!r}")
    return source


def _config_model(model: Any, path: str) -> dict[str, Any]:
    """A model's name and parameters; its name alone may be given as a text."""
    from streamsvm.run.errors import SetupError

    table = {"name": model} if isinstance(model, str) else model
    if not isinstance(table, dict):
        raise SetupError(f"--config {path}: `model` must be a text or one table, got {model!r}")
    if not isinstance(table.get("name", ""), str):
        raise SetupError(f"--config {path}: the `name` of the model must be a text, got {table['name']!r}")
    return table


def _config_arguments(config: dict[str, Any], path: str, known: set[str]) -> list[str]:
    """The entries of a configuration file as arguments, to be checked like those."""
    from streamsvm.run.errors import SetupError

    arguments = []
    allowed = {name.replace("_", "-") for name in known}
    for key, value in config.items():
        name = key.removeprefix("no-")
        if name in _FLAGS:
            if not isinstance(value, bool):
                raise SetupError(f"--config {path}: `{key}` must be true or false, got {value!r}")
            arguments.append(f"--{name}" if value == (key == name) else f"--no-{name}")
        elif key not in allowed:
            raise SetupError(f"--config {path}: unknown key `{key}`; allowed are {', '.join(sorted(allowed))}")
        elif isinstance(value, bool):
            raise SetupError(f"--config {path}: `{key}` must be a text or a number, got {str(value).lower()}")
        else:
            arguments.append(f"--{key}={_config_text(value)}")
    return arguments


def _config_text(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{item}" for name, item in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


# The run ---------------------------------------------------------------------------------------------------------


def _run(args: argparse.Namespace, started: float) -> int:
    from streamsvm.run.runner import check_persistence

    _check(args)
    model = _model(args)
    _check_source(args)
    check_persistence(model, checkpoint=bool(args.checkpoint), save=bool(args.save))
    with _locked(args):
        return _run_model(args, model, started)


def _run_model(args: argparse.Namespace, model: Any, started: float) -> int:
    from streamsvm.run.runner import Runner

    failures: list[Exception] = []
    caught: list[int] = []
    report: Report | None = None
    try:
        with contextlib.ExitStack() as stack:
            checkpoint = _checkpoint(args, stack)
            source = stack.enter_context(contextlib.closing(_open_source(args)))
            _check_label(args, source)
            out, rejected = _open_sinks(args, checkpoint, source, stack)
            runner = Runner(
                model,
                source,
                out=out,
                rejected=rejected,
                checkpoint=checkpoint,
                save=args.save,
                learn=args.learn,
                proba=bool(args.proba),
                max_events=args.max_events,
                window=args.window,
                identity=_identity(args),
                observer=_observer(args, stack),
                started=started,
            )
            report = runner.report
            caught = stack.enter_context(_graceful(runner))
            runner.run()
    except Exception as error:
        if report is None or not report.ended:
            raise  # it never began
        failures.append(error)
    failures += _report(args, report)
    for later in failures[1:]:
        _complain(later, 1)
    if failures:
        raise failures[0]
    if report.ended == "stopped":
        return 128 + caught[0]
    return _complain(_rejects(report), 3) if report.mostly_rejected else 0


def _rejects(report: Report) -> str:
    """That most events were set aside, with the first reason that is known."""
    rejected, events = report.metrics.rejected, report.metrics.events
    text = f"more than half of all events were set aside, {rejected:,} of {rejected + events:,}"
    if not report.examples:
        return text
    first = report.examples[0]
    return (
        f"{text}; the first one: {', '.join(f'{name} {value}' for name, value in first.origin.items())}: {first.reason}"
    )


def _check(args: argparse.Namespace) -> None:
    """Refuse what does not fit together before anything is opened."""
    from streamsvm.run.errors import SetupError
    from streamsvm.run.plot import check_plot

    if args.load and (args.model or args.param or args.effort or args.model_table):
        raise SetupError("--load brings the model and its parameters: leave out --model and --param (and --effort)")
    if args.proba and not args.out:
        raise SetupError("--proba needs --out: say where predictions go")
    if not args.learn and not args.load:
        raise SetupError("--no-learn only predicts: say with --load what")
    if args.follow and args.until_end:
        raise SetupError("--follow waits for more of a file, --until-end stops at the end of a Kafka topic: not both")
    needing = ("checkpoint_every", "checkpoint_seconds", "fresh")
    for name in needing:
        if getattr(args, name) and not args.checkpoint:
            raise SetupError(f"--{name.replace('_', '-')} needs --checkpoint DIR")
    if args.plot:
        check_plot(args.plot)
    for name in ("save", "summary", "plot"):
        if getattr(args, name):
            _check_writable(f"--{name}", getattr(args, name))
    if args.save and os.path.exists(args.save) and not os.path.isfile(args.save):
        raise SetupError(f"--save {args.save}: is not a regular file")
    _check_distinct(args)


def _check_source(args: argparse.Namespace) -> None:
    """Refuse settings of a stream that nobody named."""
    from streamsvm.run.errors import SetupError

    if not args.has_source and (args.config or any(getattr(args, name) is not None for name in _STREAM_OPTIONS)):
        where = f"nor `source` in {args.config}" if args.config else "which these settings are for"
        raise SetupError(
            f"no SOURCE is given, {where}: name a file, a topic, - for standard input, or {DEFAULT_SOURCE} to try it"
        )


def _check_label(args: argparse.Namespace, source: Source) -> None:
    """Refuse a stream that nothing can be learned from."""
    from connectors.options import split_url
    from streamsvm.run.errors import SetupError

    path, query = split_url(args.source)
    if args.learn and not (args.label or "label" in query) and not _labels_itself(path, args.format, query):
        raise SetupError(
            f"{source.name}: nothing can be learned, as it is not said what to predict: name the column with "
            "--label NAME (or only predict, with --load FILE --no-learn)"
        )


def _labels_itself(path: str, given: str | None, query: dict[str, Any]) -> bool:
    """Whether a stream says by itself what its labels are."""
    from connectors.files import file_format
    from connectors.options import Options

    if path.startswith(("kafka://", "synthetic:")):
        return path.startswith("synthetic:")
    return file_format(path, Options(path, {"format": given} | query)) in ("libsvm", "arff")


def _check_writable(option: str, path: str) -> None:
    from streamsvm.run.errors import SetupError

    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise SetupError(f"{option} {path}: there is no directory {folder}")
    if os.path.isdir(path) or not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise SetupError(f"{option} {path}: cannot be written")


def _check_distinct(args: argparse.Namespace) -> None:
    """Refuse to write over what is read, or twice to one file, whatever names it goes by."""
    from connectors.options import split_url
    from streamsvm.run.errors import SetupError

    source, results = split_url(args.source)[0], _results(args)
    snapshot = os.path.join(args.checkpoint, "checkpoint.npz") if args.checkpoint else None
    used = {"SOURCE": source, "--load": args.load, "--config": args.config, "--checkpoint": snapshot}
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
    from connectors.options import split_url

    given = {f"--{name}": getattr(args, name) for name in ("save", "summary", "plot") if getattr(args, name)}
    sinks = {"--out": args.out, "--rejected": args.rejected}
    given |= {option: split_url(url)[0] for option, url in sinks.items() if url}
    return given if args.rejected else given | {"the file for rejected events": _rejected_path(args)}


def _places(path: str, descriptor: int) -> set[Any]:
    """What tells a file from others: its name in full, and where it is there what the system knows it by."""
    if path == "-":
        found = os.fstat(descriptor)  # a terminal may well be both read and written
        return {(found.st_dev, found.st_ino)} if stat.S_ISREG(found.st_mode) else set()
    real = os.path.realpath(path)
    if path == "null:" or real == os.path.realpath(os.devnull):
        return set()
    try:
        found = os.stat(real)
    except OSError:
        return {real}
    return {real, (found.st_dev, found.st_ino)}


@contextlib.contextmanager
def _locked(args: argparse.Namespace) -> Iterator[None]:
    """Keep other runs from the files of results; the default for rejected events is taken when it is needed."""
    from connectors.sinks import is_pipe
    from streamsvm.run.locks import held

    with contextlib.ExitStack() as stack:
        for option, path in _results(args).items():
            if path != _REJECTED and not is_pipe(path) and "://" not in path and path != "null:":
                stack.enter_context(held(option, path))
        yield


def _model(args: argparse.Namespace) -> Any:
    model = _loaded(args.load) if args.load else _new_model(args)
    if hasattr(model, "keep_categories"):
        model.keep_categories(_declared_categories(args))
    return model


def _declared_categories(args: argparse.Namespace) -> list[str]:
    from connectors.events import ConnectorError
    from connectors.options import Options, split_url
    from streamsvm.run.errors import SetupError

    path, query = split_url(args.source)
    try:
        types = Options(path, query if args.types is None else {"types": args.types}).kinds("types")
    except ConnectorError as error:
        raise SetupError(str(error)) from error
    return [name for name, kind in types.items() if kind == "category"]


def _new_model(args: argparse.Namespace) -> Any:
    from streamsvm.run.classifiers import build_classifier, parse_params

    table = dict(args.model_table)
    configured = table.pop("name", DEFAULT_MODEL)
    name = args.model or configured
    base = table if name == configured else {}  # the file's parameters are those of the file's model
    params = parse_params(args.param, base) | ({"effort": args.effort} if args.effort else {})
    return build_classifier(name, params)


def _loaded(path: str) -> Any:
    import streamsvm
    from streamsvm.run.errors import SetupError

    try:
        return streamsvm.load(path)
    except (OSError, ValueError) as error:
        raise SetupError(f"--load {path}: {getattr(error, 'strerror', None) or error}") from error


def _checkpoint(args: argparse.Namespace, stack: contextlib.ExitStack) -> Checkpoint | None:
    from streamsvm.run.checkpoint import Checkpoint

    if not args.checkpoint:
        return None
    seconds = args.checkpoint_seconds or (None if args.checkpoint_every else 5.0)
    checkpoint = Checkpoint(
        args.checkpoint, every_events=args.checkpoint_every, every_s=seconds, fresh=bool(args.fresh)
    )
    return stack.enter_context(checkpoint)


def _open_source(args: argparse.Namespace) -> Any:
    from connectors import open_source

    options = {name: getattr(args, name) for name in _STREAM_OPTIONS}
    return _settled(open_source, args.source, **options)


def _open_sinks(
    args: argparse.Namespace, checkpoint: Checkpoint | None, source: Source, stack: contextlib.ExitStack
) -> list[Sink | None]:
    """For predictions, if wanted, and for events set aside: by default a file that is made when the first one comes."""
    from connectors import open_sink
    from streamsvm.run.deferred import DeferredSink

    kept: dict[str, Any] = {"resume": checkpoint is not None and checkpoint.exists}
    kept |= {} if checkpoint is None else {"source": source, "fresh": checkpoint.fresh}
    out = _settled(open_sink, args.out, **kept, **_patience(args, args.out)) if args.out else None
    if out is not None:
        stack.enter_context(_closing(out))
    path = args.rejected or _rejected_path(args)
    if args.rejected:
        rejected = _settled(open_sink, path, beside=out, **kept, **_patience(args, path))
    else:
        _check_writable("rejected events go to", path)
        opened = functools.partial(_open_unshared, stack) if path == _REJECTED else open_sink
        rejected = DeferredSink(path, opened, replace=path != _REJECTED)
    return [out, stack.enter_context(_closing(rejected))]


@contextlib.contextmanager
def _closing(sink: Sink) -> Iterator[Sink]:
    """Close a sink at the end; after an error that is the one to be told, and closing may well fail for the same."""
    from connectors.events import ConnectorError

    try:
        yield sink
    except BaseException:
        with contextlib.suppress(ConnectorError, OSError):
            sink.close()
        raise
    sink.close()


def _open_unshared(stack: contextlib.ExitStack, path: str, *, resume: bool) -> Sink:
    """Open the default file for rejected events; where another run of this directory writes it, one beside it."""
    from connectors import open_sink
    from streamsvm.run.errors import SetupError
    from streamsvm.run.locks import held

    stem, _, suffix = _REJECTED.partition(".")
    others = () if resume else (f"{stem}-{i}.{suffix}" for i in itertools.count(2))
    for name in itertools.chain((path,), others):
        try:
            stack.enter_context(held("rejected events to", name))
        except SetupError:
            if resume:
                raise
        else:
            break
    return open_sink(name, resume=resume)


def _patience(args: argparse.Namespace, url: str) -> dict[str, Any]:
    """That of the source, for a sink on brokers too."""
    return {"patience": args.patience} if args.patience is not None and url.startswith("kafka://") else {}


def _settled(open_stream: Callable[..., Any], url: str, **options: Any) -> Any:
    """Open a stream; what is wrong with it now is wrong with the settings."""
    from connectors.events import ConnectorError, UnreachableError
    from streamsvm.run.errors import SetupError

    try:
        return open_stream(url, **options)
    except UnreachableError:
        raise
    except ConnectorError as error:
        raise SetupError(str(error)) from error


def _rejected_path(args: argparse.Namespace) -> str:
    """Beside the predictions, where these go to a file; else in this directory."""
    from connectors.options import split_url
    from connectors.sinks import is_pipe

    path = split_url(args.out or "-")[0]
    return _REJECTED if is_pipe(path) or path == "null:" or path.startswith("kafka://") else f"{path}.rejected.jsonl"


def _identity(args: argparse.Namespace) -> dict[str, Any]:
    """How the stream is read: what a checkpoint must agree in. Credentials may change, and are not written down."""
    from connectors.options import split_url

    options = {name: getattr(args, name) for name in _STREAM_OPTIONS if getattr(args, name) is not None}
    options |= split_url(args.source)[1]
    if args.source.startswith("kafka://"):
        from connectors.kafka.source import MEANING

        options = {name: options[name] for name in MEANING if name in options}
    shown = {name: value for name, value in options.items() if not any(word in name for word in _CREDENTIALS)}
    shown |= {"load": args.load} if args.load else {}
    # A Kafka sink says itself which it is, whatever its options.
    of_kafka = (args.rejected or "").startswith("kafka://")
    sinks = {} if of_kafka else {"--rejected": args.rejected or "by default"}
    return {f"--{name}": value for name, value in shown.items()} | sinks


def _observer(args: argparse.Namespace, stack: contextlib.ExitStack) -> Observer | None:
    """Whoever wants to know how the run goes on."""
    from streamsvm.run.prometheus import Exporter
    from streamsvm.run.runner import observe_all

    observers: list[Observer] = []
    if args.metrics_port is not None:
        observers.append(stack.enter_context(contextlib.closing(Exporter(args.metrics_port))))
    if not args.quiet:
        observers.append(stack.enter_context(_progress(args.log_every)))
    return observe_all(observers)


@contextlib.contextmanager
def _logging(quiet: bool | None) -> Iterator[None]:
    """Show what the package has to say on standard error; warnings come in any case."""
    import logging

    level = logging.WARNING if quiet else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    loggers = [logging.getLogger(name) for name in ("streamsvm", "connectors")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _progress(every_s: float) -> Any:
    from streamsvm.run.progress import progress

    return contextlib.closing(progress(sys.stderr, every_s))


@contextlib.contextmanager
def _graceful(runner: Runner) -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM ends the run after the batch in hand, a second one at once."""
    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        caught.append(number)
        runner.stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(args: argparse.Namespace, report: Report) -> list[Exception]:
    """Print and write all that was asked for, as far as that can be done; what failed is returned."""
    from streamsvm.run.errors import RunError

    failures: list[Exception] = []
    for name, write in (("report", _print_text), ("summary", _write_summary), ("plot", _draw)):
        try:
            write(args, report)
        except BrokenPipeError as error:
            failures.append(error)
        except OSError as error:
            place = getattr(args, name, None) or "standard output"
            failures.append(RunError(f"{name}: {place}: cannot be written: {error.strerror or error}"))
    return failures


def _print_text(args: argparse.Namespace, report: Report) -> None:
    from connectors.options import split_url
    from streamsvm.run.report import text

    taken = any(split_url(url or "")[0] == "-" for url in (args.out, args.rejected))
    if not args.quiet:
        stream = sys.stderr if taken else sys.stdout
        if stream is not None:  # as where standard output is closed
            print(_encodable(text(report), stream), file=stream, flush=True)


def _encodable(text: str, stream: TextIO) -> str:
    """A text in letters that a terminal knows."""
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate({ord("µ"): "u", ord("…"): "..."})
    return text


def _write_summary(args: argparse.Namespace, report: Report) -> None:
    import json

    from streamsvm.run.report import summary

    if args.summary:
        text = json.dumps(summary(report), indent=2, ensure_ascii=False) + "\n"
        Path(args.summary).write_text(text, encoding="utf-8", errors="backslashreplace")


def _draw(args: argparse.Namespace, report: Report) -> None:
    from streamsvm.run.plot import plot

    if args.plot:
        plot(report, args.plot)
