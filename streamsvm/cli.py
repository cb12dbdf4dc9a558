"""The command line: ``streamsvm run [SOURCE] …``.

Exit codes: 0 where the run came to its end, 2 where the settings do not fit (no data was touched), 1 where something
failed on the way, 3 where it came to its end but more than half of all events were set aside, 75 where brokers could
not be reached for as long as they were to be waited for, or when SIGINT or SIGTERM came (the same run may be started
again, and goes on from its checkpoint), 130 and 143 where SIGINT or SIGTERM ended it after the batch in hand, with
checkpoint and report; within 10 seconds in any case, after which what is not done stays undone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import io
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Whatever takes long to import is imported where it is used: `--help` and refusals come at once.
if TYPE_CHECKING:
    from streamsvm.run.runner import Observer, Report, Runner

_FLAG = argparse.BooleanOptionalAction
_TEMPORARY = 75  # as `os.EX_TEMPFAIL`, which not all systems have
# As the shell reports a program that SIGPIPE ended: the reader, such as `head`, has had enough.
_READER_GONE = 128 + 13
_GONE_S = 86_400.0  # `warmup` removes compiled code of other versions that nobody has used for so long


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    started = time.perf_counter() - _age()
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        _check_connectors()
        if argv is None:
            return _guarded(arguments, started)
        from streamsvm.run.stopping import forgetting_deadlines

        with forgetting_deadlines():
            return _guarded(arguments, started)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _guarded(arguments: list[str], started: float) -> int:
    try:
        return _told(arguments, started)
    except ImportError as error:
        message = f"a package that streamsvm needs is missing, or another was installed over it: {error}"
        return _complain(f"{message}: install streamsvm again, in an environment of its own", 2)


def _told(arguments: list[str], started: float) -> int:
    """Do what is asked for; what goes wrong is one line on standard error."""
    from connectors import ConnectorError, UnreachableError
    from streamsvm.run.errors import RunError, SetupError

    try:
        args = _parse(arguments)
        with _logging(args.quiet):
            if args.command == "run":
                return _run(args, started)
            if args.command == "watch":
                _watch(args)
            return _warmup(args)
    except SetupError as error:
        return _complain(error, 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter fails again when it flushes at exit
        return _READER_GONE
    except UnreachableError as error:
        return _complain(error, _TEMPORARY)
    except (RunError, ConnectorError, OSError) as error:
        return _complain(error, 1)
    except MemoryError as error:
        return _complain(f"out of memory: {error}".removesuffix(": "), 1)


def _warmup(args: argparse.Namespace) -> int:
    import logging

    from streamsvm.core.cache import is_kept, n_bytes, remove_unused
    from streamsvm.loading import warmup

    began = time.perf_counter()
    folder = warmup(args.jobs, args.all)
    if importlib.util.find_spec("sklearn") is not None:
        from streamsvm.batch import warmup as warm_solver

        warm_solver()
    removed = remove_unused(folder, _GONE_S)
    logging.getLogger("streamsvm").info(
        "compiled code of %.1f MB is ready after %.1f s%s",
        n_bytes(folder) / 1e6,
        time.perf_counter() - began,
        f"; removed that of {len(removed)} other versions, unused for a day" if removed else "",
    )
    print(folder)
    return 0 if is_kept() else 1


def _watch(args: argparse.Namespace) -> NoReturn:
    from streamsvm.run.page.watch import watch

    def leave(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)
    watch(args.place, args.page, _page_token(args))


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
        print(f"streamsvm: error: {_without_secrets(error)}", file=sys.stderr)
    return code


def _without_secrets(text: object) -> str:
    from connectors.errors import without_secrets

    return without_secrets(text)


def _check_connectors() -> None:
    """Say so where a foreign package stands in the place of ours: the name is a common one."""
    spec = importlib.util.find_spec("connectors")
    if spec is not None and PathFinder.find_spec("connectors.events", spec.submodule_search_locations or []):
        return  # ours, whatever it lacks itself; what was installed over it is seen when it is imported
    if spec is None:
        sys.exit(_complain("the package `connectors`, a part of streamsvm, is missing: install streamsvm again", 2))
    place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    message = f"{place} stands in the way of the package `connectors` that is a part of streamsvm"
    sys.exit(_complain(f"{message}: rename it, or run from another directory", 2))


# Settings --------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        if unknown != message and unknown.startswith("--"):
            near = difflib.get_close_matches(unknown, self._all_options(), 1, cutoff=0.75)
            message += f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"streamsvm: error: {_without_secrets(message)} (see {self.prog} --help)\n")

    def _all_options(self) -> list[str]:
        """The options of this command and of those below it."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [option for parser in action.choices.values() for option in parser._option_string_actions]
        return found


def build_parser() -> _Parser:
    """The parser of all commands, from which help and the page of the command line are made."""
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
        "100 or more are); 75 brokers could not be reached for long, or when the run was asked to stop, and the same "
        "run may be started again; 130 or 143 ended by SIGINT or SIGTERM, after the batch in hand and with checkpoint "
        "and report (what takes longer than 9 s then, such as a solver, is left as by a kill; a second signal kills).",
        allow_abbrev=False,
    )
    _add_stream(run)
    _add_late(run)
    _add_per_key(run)
    _add_model(run)
    _add_refits(run)
    _add_results(run)
    _add_checkpoint(run)
    _add_reports(run)
    watch = commands.add_parser(
        "watch",
        help="serve a page that shows a run that is elsewhere",
        description="Serve a page that shows a run that is elsewhere, until interrupted: as its checkpoints are "
        "renewed, which it neither locks nor changes, or as its own page (`run --page`) shows it.",
        allow_abbrev=False,
    )
    watch.add_argument("place", type=_text, metavar="DIR|URL", help="its --checkpoint directory, or where its page is")
    _add_page(watch, "where to serve the page, as `run --page` has it (default 8080)", default="8080")
    watch.add_argument("--quiet", action=_FLAG, help="do not say where the page is")
    warmup = commands.add_parser(
        "warmup",
        help="compile now what a first use would compile, as for a container image",
        description="Compile the learners' kernels (and those of the batch solver that has many, where scikit-learn is "
        "there), and say where compiled code is kept: under XDG_CACHE_HOME or NUMBA_CACHE_DIR, where these are set. "
        "Compiled code of other versions that was not used for a day is removed.",
        allow_abbrev=False,
    )
    warmup.add_argument("--jobs", type=_count, metavar="N", help="in so many processes (default: as there are cores)")
    warmup.add_argument(
        "--all",
        action=_FLAG,
        help="also what is compiled where it is asked for: --coverage, --cost and the like, --explain, --label-source",
    )
    warmup.add_argument("--quiet", action=_FLAG, help="no progress")
    return parser


def _add_stream(run: argparse.ArgumentParser) -> None:
    from connectors.options import TIME_UNITS
    from connectors.registry import file_formats, schemes
    from streamsvm.run import DEFAULT_SOURCE

    files = " ".join(each.suffixes[0] for each in file_formats())
    *others, last = [each.shown + (f" ({each.note})" if each.note else "") for each in schemes() if each.shown]
    group = run.add_argument_group("stream")
    group.add_argument(
        "source",
        nargs="?",
        type=_text,
        metavar="SOURCE",
        help=f"a file ({files}, also .gz), - for standard input, {', '.join(others)}, or {last}; "
        f"more options may follow as a query, as in a.csv?delimiter=; (default {DEFAULT_SOURCE})",
    )
    group.add_argument(
        "--label", type=_text, metavar="NAME", help="the column to predict; events without are not learned"
    )
    group.add_argument(
        "--types",
        action="extend",
        type=_kinds,
        metavar="NAME:TYPE,...",
        help="declare columns as number, category, time (as of --time: becomes hour and weekday "
        "in UTC, each as sine and cosine) or ignore. Texts not declared a category are left out with a warning where "
        "nearly each is new, as of identifiers and times; numbers that only count up are learned, with a warning",
    )
    group.add_argument(
        "--missing",
        action="extend",
        type=_names,
        metavar="TEXT,...",
        help="the texts that are no label, category, number or time but stand for a missing one, as the empty one "
        "always does (default: NA, NaN, null, None, nil, NaT, N/A, ?, \\N, #DIV/0! and other "
        "markers of pandas and Excel, in any case; of numbers and times also -, -- and .)",
    )
    group.add_argument(
        "--ignore",
        action="extend",
        type=_names,
        metavar="NAME,...",
        help="columns to leave out, '' those without a name. As --types and --missing it may be repeated; a name with "
        "commas goes in double quotes within the text, as in --ignore '\"income, yearly\",age'",
    )
    group.add_argument(
        "--key", type=_text, metavar="NAME", help="the column that names an event; written beside its prediction"
    )
    group.add_argument(
        "--time",
        type=_text,
        metavar="NAME",
        help="the column with the time of an event, a number since 1970, ISO 8601 or RFC 2822 (UTC where it names no "
        "zone): it is no feature, and an event in which it cannot be read is rejected; events are taken in the order "
        "of the stream all the same",
    )
    group.add_argument(
        "--time-unit",
        choices=tuple(TIME_UNITS),
        metavar="UNIT",
        help="the unit of times that are numbers: s, ms, us or ns. Default: the first number of a column decides, by "
        "the unit in which it is a time between 1973 and 2038; numbers that are in none, such as 1500, are "
        "milliseconds; a number of another unit is rejected",
    )
    group.add_argument(
        "--time-format",
        type=_text,
        metavar="FORMAT",
        help="the format of all times, as strptime of Python has it, such as '%%d.%%m.%%Y %%H:%%M'",
    )
    group.add_argument(
        "--format",
        type=_text,
        metavar="FORMAT",
        help=f"{_either(each.name for each in file_formats())}, instead of the suffix",
    )
    group.add_argument(
        "--delimiter", type=_text, metavar="CHAR", help="what separates the fields of CSV (default , or of TSV a tab)"
    )
    group.add_argument(
        "--decimal",
        type=_text,
        metavar="CHAR",
        help="the decimal separator of all numbers in texts, . or , (default: a column whose first cells are numbers "
        "in one other spelling is read so, with a warning)",
    )
    group.add_argument(
        "--thousands", type=_text, metavar="CHAR", help="what separates thousands in numbers: , . ' or space"
    )
    group.add_argument(
        "--quote", type=_text, metavar="CHAR", help='what quotes fields of CSV; none for no quoting (default ")'
    )
    group.add_argument(
        "--escape", type=_text, metavar="CHAR", help="what takes the meaning of the next character in CSV, such as \\"
    )
    group.add_argument(
        "--comment",
        type=_text,
        metavar="CHAR",
        help="leave out the rest of a line of CSV from this character on, and lines that begin with it",
    )
    group.add_argument("--skip-rows", type=_count, metavar="N", help="leave out the first N lines of CSV")
    group.add_argument(
        "--encoding",
        type=_text,
        metavar="NAME",
        help="the encoding of a text file, such as latin-1, cp1252 or utf-16-le (default utf-8, or utf-16 where the "
        "file begins with its byte order mark)",
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


def _add_late(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group(
        "labels that come later",
        "Events are predicted when they come and wait, by key, for their labels, which come from a stream of their "
        "own: what is learned then is what was predicted on. Events and labels are taken in the order of their times, "
        "of equal ones the events first.",
    )
    group.add_argument(
        "--label-source",
        type=_text,
        metavar="SOURCE",
        help="where labels come from: any source, with the columns of --join, --label and --time (Kafka has keys and "
        "times of its own); options may follow, as in labels.csv?time=reported",
    )
    group.add_argument("--join", type=_text, metavar="NAME", help="the column of events and labels that holds the key")
    group.add_argument(
        "--wait",
        type=_span,
        metavar="TIME",
        help="how long an event waits for its label, in event time, as 90s, 30m, 12h or 30d; a label after that is "
        "scored, not learned (default: as long as there is room)",
    )
    group.add_argument(
        "--on-timeout",
        type=_text,
        metavar="CLASS",
        help="learn an event that waited in vain as of this class, such as a customer who did not complain; drop "
        "learns nothing (default drop)",
    )
    group.add_argument(
        "--joined",
        type=_text,
        metavar="SINK",
        help="where joined results go: place and key of the event, prediction, score, label, lag in seconds, and "
        "whether it came in time, late, or is that of --on-timeout",
    )
    group.add_argument(
        "--label-budget",
        type=_share,
        metavar="SHARE",
        help="ask for the labels of about this share of the events, as 0.1: of those that teach most, and of some at "
        "random; others that come are learned too",
    )
    group.add_argument(
        "--requests",
        type=_text,
        metavar="SINK",
        help="where labels are asked for: place and key of the event, prediction and score",
    )
    group.add_argument(
        "--relearn-corrections", action=_FLAG, help="learn the second label of an event too, where it is another one"
    )
    group.add_argument(
        "--max-pending", type=_count, metavar="N", help="so many events may wait, then the oldest go (default 1000000)"
    )
    group.add_argument(
        "--max-pending-bytes",
        type=_count,
        metavar="N",
        help="so much memory they and what is remembered may take, then the oldest go (default 1073741824)",
    )
    group.add_argument(
        "--pending-dir",
        type=_text,
        metavar="DIR",
        help="let events wait on disk, in files of this directory that have no name and end with the run; some 100 "
        "bytes of each stay in memory",
    )


def _add_per_key(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group(
        "a model for each key",
        "Each customer, machine or sensor has a model of its own, which predicts its events and learns from them. "
        "Started on as many machines as one likes: the workers of a group share the partitions of a Kafka topic, by "
        "Quix Streams (extra `quix`), and each event is predicted exactly once whoever of them dies or comes.",
    )
    group.add_argument(
        "--per-key", type=_text, metavar="FIELD", help="the field of an event with its key, which is that in Kafka too"
    )
    group.add_argument(
        "--group", type=_text, metavar="NAME", help="the group of workers, by which all goes that is kept of the keys"
    )
    group.add_argument(
        "--repartition",
        action=_FLAG,
        help="the topic has other keys in Kafka: send events through a topic in which they have theirs",
    )
    group.add_argument(
        "--parent",
        type=_text,
        metavar="FILE",
        help="what a key begins from, beside which its own model is heard: a model of all keys that a run saved, or "
        "learn for one that each worker learns beside the keys, from nothing",
    )
    group.add_argument(
        "--forget-after",
        type=_span,
        metavar="TIME",
        help="a key that had no event for so long, in event time, as 90d, begins anew; after twice that it is removed",
    )


def _add_model(run: argparse.ArgumentParser) -> None:
    from streamsvm.run import DEFAULT_MODEL

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


def _add_refits(run: argparse.ArgumentParser) -> None:
    group = run.add_argument_group(
        "refits",
        "Now and then a window of the stream is solved by a batch solver, beside the running model, and "
        "what it finds is heard as far as it is right. Needs the extra `batch`.",
    )
    group.add_argument(
        "--refit",
        type=_text,
        metavar="SOLVER",
        help="trees (boosted trees, the most accurate as a rule), cuts (a kernel machine), newton or bcd (linear), or "
        "the path of any classifier of scikit-learn; for blend, bsgd and cpm",
    )
    group.add_argument(
        "--refit-every",
        type=_text,
        metavar="WHEN",
        help="events with a label, as 5000; growing[:FIRST[:FACTOR[:MOST]]]; event time, as 30m or 1d (needs --time, "
        "or Kafka); drift[:DETECTOR[:GATHER]] of River's detectors; or several joined by + (default "
        "growing:500:1.5:25000)",
    )
    group.add_argument(
        "--refit-window",
        type=_text,
        metavar="WHAT",
        help="the events solved: the latest N, as 20000; since:TIME, as since:7d; reservoir:N; adaptive:N, which drift "
        "cuts; with +balanced rare classes stay (default adaptive:50000)",
    )


def _add_results(run: argparse.ArgumentParser) -> None:
    from connectors.registry import file_formats, schemes

    files = _either(each.suffixes[0] for each in file_formats() if each.sink)
    others = ", ".join(each.shown for each in schemes() if each.shown and each.sink)
    group = run.add_argument_group("results")
    group.add_argument(
        "--out",
        type=_text,
        metavar="SINK",
        help=f"where predictions go: a {files} file, - (then CSV), or {others}; what "
        "was predicted before any label was known is null there, and an empty cell in CSV",
    )
    group.add_argument(
        "--proba",
        action=_FLAG,
        help="write the probabilities of all classes known by then, too, in a field `proba`: an object, as in "
        '{"up": 0.9, "down": 0.1}; in CSV and Parquet its JSON as a text',
    )
    group.add_argument(
        "--coverage",
        type=_part,
        metavar="SHARE",
        help="also write, in a field `set`, a list of labels of which the true one is one in this share of events, "
        "however the stream drifts, as 0.9 (in CSV and Parquet its JSON as a text); measured in any case",
    )
    group.add_argument(
        "--coverage-by-class", action=_FLAG, help="for the events of each class by themselves, however rare it is"
    )
    group.add_argument(
        "--cost",
        type=_text,
        metavar="TRUE:DECIDED=COST,...",
        help="also write, in a field `decision`, the label that costs the least by what is to be expected, as with "
        "fraud:fine=10,fine:fraud=1 (what is not said costs 1, and what is right 0), or a JSON object "
        '{"fraud": {"fine": 10}}; learning is not touched',
    )
    group.add_argument(
        "--class-weight",
        type=_text,
        metavar="LABEL=WEIGHT,...",
        help="multiply the costs of a class's events; balanced: by the inverse of how often the class came so far",
    )
    group.add_argument(
        "--abstain", type=_cost, metavar="COST", help="decide for none (null) where each decision would cost more"
    )
    group.add_argument(
        "--alarms",
        type=_text,
        metavar="SHARE",
        help="also write, in a field `alarm`, whether an event is one of this share that are the most probable to be "
        "of --alarm-class, as 0.01; recall:0.9 finds that share of them, precision:0.8 is right in that share of "
        "alarms; the threshold follows the stream",
    )
    group.add_argument("--alarm-class", type=_text, metavar="LABEL", help="the class that alarms are for")
    group.add_argument(
        "--explain",
        type=_count,
        metavar="N",
        help="also write, in a field `reasons`, the N features that speak most for or against each prediction, with "
        "what they add to the log-odds of the predicted label against the next; takes about as long as two predictions "
        "for each feature (CPMClassifier: as one), and a millisecond or more with --label-source or --refit",
    )
    group.add_argument(
        "--rejected",
        type=_text,
        metavar="SINK",
        help="where events go that could not be read or learned, with the reason; 'null:' counts them only (default: "
        "OUT.rejected.jsonl beside --out, else rejected.jsonl in this directory, or rejected-2.jsonl while another run "
        "writes that; made when the first one comes, and that of an earlier run to the same --out removed)",
    )
    group.add_argument(
        "--overwrite",
        action=_FLAG,
        help="replace files of other things, too: --out, --rejected, --joined, --requests, --save, --summary and "
        "--plot replace what an earlier run has written, and refuse a file that they do not recognise",
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
        "--metrics-port",
        type=_text,
        metavar="PORT",
        help="serve events, accuracy, lag and more to Prometheus there; ADDRESS:PORT listens elsewhere than on "
        "127.0.0.1, for whoever can reach it",
    )
    _add_page(
        group, "serve a page there that shows the run, while it runs; ADDRESS:PORT listens elsewhere than on 127.0.0.1"
    )
    group.add_argument("--quiet", action=_FLAG, help="no progress and no summary (warnings stay)")
    group.add_argument(
        "--config",
        type=_text,
        metavar="FILE",
        help="settings from TOML: keys are the long options and `source`; a table [model] has `name` and the "
        "parameters; the command line wins",
    )


def _add_page(group: Any, shows: str, default: str | None = None) -> None:
    group.add_argument("--page", type=_text, default=default, metavar="PORT", help=shows)
    group.add_argument(
        "--page-token",
        type=_text,
        metavar="TOKEN",
        help="what viewers must know, needed beyond this machine; better in the environment, as STREAMSVM_PAGE_TOKEN, "
        "where no list of processes shows it (then open the page as http://…/#token=TOKEN)",
    )


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}"


def _text(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty (is a variable of the shell not set?)")
    return text


def _names(text: str) -> list[str]:
    from connectors.errors import ConnectorError
    from connectors.options import split_names

    try:
        return split_names(text)
    except ConnectorError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _kinds(text: str) -> list[tuple[str, str]]:
    from connectors.options import split_kinds

    _names(text)
    return list(split_kinds(text).items())


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def _span(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        value = float(text[:-1]) * units[text[-1:]]
    except (KeyError, ValueError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a time as 90s, 30m, 12h or 30d, got {text}")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be more than 0 and at most 1, got {text}")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {text}")
    return value


def _cost(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text}")
    return value


def _part(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a share between 0 and 1, as 0.9, got {text}")
    return value


_cost.__name__, _part.__name__ = "number", "share"
_count.__name__, _seconds.__name__, _share.__name__ = (
    "whole number",
    "number of seconds",
    "share",
)  # argparse names them in its messages


def _parse(arguments: list[str]) -> argparse.Namespace:
    """The settings, those of a configuration file first, so that the command line wins."""
    from streamsvm.run import DEFAULT_SOURCE

    parser = build_parser()
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
    if args.command != "run":
        return args
    options = set(vars(args)) - {"command", "version", "config", "param"}
    from streamsvm.run.configuration import Configuration, read_configuration

    configured = read_configuration(args.config, options) if args.config else Configuration(None, {}, [])
    if configured.arguments:
        repeated = {f"--{name}" for name in ("types", "missing", "ignore") if getattr(args, name) is not None}
        kept = [text for text in configured.arguments if text.partition("=")[0] not in repeated]
        args = parser.parse_args(["run", *kept, *arguments[1:]])
    args.types = None if args.types is None else dict(args.types)
    args.has_source = bool(args.source or configured.source)
    args.source = args.source or configured.source or DEFAULT_SOURCE
    args.model_table = configured.model
    args.timeout_class = _class_of(args.on_timeout)
    args.defaults = vars(parser.parse_args(["run"]))
    return args


def _class_of(text: str | None) -> Any:
    """The class of `--on-timeout`, as a label of that text is read; None where there is none."""
    from connectors.columns import label_of

    return None if text in (None, "drop") else label_of(text)


# The run ---------------------------------------------------------------------------------------------------------


def _run(args: argparse.Namespace, started: float) -> int:
    from streamsvm.run.settings import check, check_plain, check_source, locked, model_of

    if args.per_key:
        return _run_per_key(args)
    check_plain(args)
    check(args)
    from streamsvm.run.runner import check_persistence  # what takes a second comes after what is refused at once
    from streamsvm.run.streams import check_files, check_known

    check_files(args)
    model = model_of(args)
    check_source(args)
    check_known(args, model)
    check_persistence(model, checkpoint=bool(args.checkpoint), save=bool(args.save))
    with locked(args):
        return _run_model(args, model, started)


def _run_per_key(args: argparse.Namespace) -> int:
    from streamsvm.per_key import check, run

    check(args, args.defaults)
    return run(args)


def _run_model(args: argparse.Namespace, model: Any, started: float) -> int:
    from streamsvm.run.delivery import deliver
    from streamsvm.run.runner import Runner
    from streamsvm.run.settings import check_label, identity_of, late_settings, wanted_of
    from streamsvm.run.streams import opened_checkpoint, opened_sinks, opened_source

    failures: list[Exception] = []
    caught: list[int] = []
    report: Report | None = None
    try:
        with contextlib.ExitStack() as stack:
            observer = _observer(args, stack)  # a taken port is refused before brokers are asked
            checkpoint = opened_checkpoint(args, stack)
            source = stack.enter_context(contextlib.closing(opened_source(args, model)))
            check_label(args, source)
            out, rejected, joined, requests = opened_sinks(args, checkpoint, source, stack)
            runner = Runner(
                model,
                source,
                out=out,
                rejected=rejected,
                joined=joined,
                requests=requests,
                late=late_settings(args),
                checkpoint=checkpoint,
                save=args.save,
                overwrite=bool(args.overwrite),
                learn=args.learn,
                proba=bool(args.proba),
                wanted=wanted_of(args),
                max_events=args.max_events,
                window=args.window,
                identity=identity_of(args),
                observer=observer,
                started=started,
            )
            report = runner.report
            caught = stack.enter_context(_graceful(runner))
            runner.run()
    except Exception as error:
        if report is None or not report.ended or isinstance(error, BrokenPipeError):
            raise  # it never began, or nobody reads it
        failures.append(error)
    failures += deliver(args, report)
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


def _page_token(args: argparse.Namespace) -> str | None:
    return args.page_token or os.environ.get("STREAMSVM_PAGE_TOKEN") or None


def _observer(args: argparse.Namespace, stack: contextlib.ExitStack) -> Observer | None:
    """Whoever wants to know how the run goes on."""
    from streamsvm.run.runner import observe_all

    observers: list[Observer] = []
    if args.metrics_port is not None:
        from streamsvm.run.prometheus import Exporter

        observers.append(stack.enter_context(contextlib.closing(Exporter(args.metrics_port))))
    if args.page is not None:
        from streamsvm.run.page import Page

        observers.append(stack.enter_context(contextlib.closing(Page(args.page, _page_token(args)))))
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
    handler.addFilter(_mask_secrets)
    levels = {logger: logger.level for logger in map(logging.getLogger, ("streamsvm", "connectors"))}
    for logger in levels:
        logger.addHandler(handler)
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, before in levels.items():
            logger.removeHandler(handler)
            logger.setLevel(before)


def _mask_secrets(record: Any) -> bool:
    """Keep passwords of URLs out of the log."""
    record.msg, record.args = _without_secrets(record.getMessage()), ()
    return True


def _progress(every_s: float) -> Any:
    from streamsvm.run.progress import progress

    return contextlib.closing(progress(sys.stderr, every_s))


@contextlib.contextmanager
def _graceful(runner: Runner) -> Iterator[list[int]]:
    """The first SIGINT or SIGTERM ends the run after the batch in hand, or at a deadline; a second one at once."""
    from streamsvm.run.stopping import STOP_S, end_within

    caught: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: object) -> None:
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        caught.append(number)
        end_within(STOP_S, number, lambda: runner.waits_for)
        runner.stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
