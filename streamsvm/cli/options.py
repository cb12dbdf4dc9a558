"""Parser of the command line, built from the fields and docstrings of `RunConfig`."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
from collections.abc import Container, Iterable
from dataclasses import Field, fields
from typing import Any, NoReturn

from streamsvm.cli.keys import TAKEN, KeyOptions
from streamsvm.cli.terminal import without_secrets
from streamsvm.run.config import RunConfig
from streamsvm.run.options import FLAGS, GROUPS, option_of

_FLAG = argparse.BooleanOptionalAction
_PARAMETER = re.compile(r"^(\w+)(?: : (.*))?\n((?: {4}.*\n?)+)", re.MULTILINE)
_SHORT = {"out": "-o", "quiet": "-q", "config": "-c"}
_REPEATED = ("Names", "Kinds", "Params")
_COMMON = "common options"
COMMON = ("source", "label", "model", "params", "out", "save", "checkpoint", "page", "plot", "config", "quiet")
"""Options in the short help."""
PREDICT = RunConfig.takes - {"params", "save", "refit", "relearn_corrections", "timeout_label"}
"""Fields of `streamsvm predict`: those of a run that does not learn."""
EXAMPLES = {
    "run": (
        "streamsvm run events.csv --label outcome -o predictions.csv --save model.svm",
        "streamsvm run 'events.csv?delimiter=;&decimal=,' --label outcome --types zip:category --checkpoint state/",
        "streamsvm run kafka://localhost:9092/events --label outcome -o kafka://localhost:9092/predictions --page 8080",
    ),
    "predict": (
        "streamsvm predict events.csv --model model.svm -o predictions.csv",
        "streamsvm predict events.csv --model model.svm --label outcome -o scores.jsonl --set proba=true",
        "streamsvm predict kafka://localhost:9092/events --model model.svm -o kafka://localhost:9092/predictions",
    ),
}
_EXIT_CODES = (
    "Exit codes: 0 done; 2 invalid settings, no data were read; 1 failed; 3 done, but more than half of the events "
    "were rejected; 75 brokers are unreachable, start the same run again; 130 or 143 ended by SIGINT or SIGTERM, with "
    "checkpoint and report (a second signal kills)."
)


class Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest option for an unknown one, and by default shows common options only.

    Parameters
    ----------
    examples
        Command lines to show first in the help.
    more
        Other arguments of `argparse.ArgumentParser`.
    """

    def __init__(self, *, examples: Iterable[str] = (), **more: Any) -> None:
        super().__init__(**more)
        self.examples = list(examples)
        self.settings = argparse.ArgumentParser(add_help=False)  # arguments of `--set`

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and exit."""
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        if unknown != message and unknown.startswith("--"):
            from streamsvm.run.settings import new_name, setting_of

            new = new_name(unknown[2:]) or setting_of(unknown[2:], RunConfig.takes)
            if new is not None:
                self.exit(2, f"streamsvm: error: {unknown} is now {new} (see {self.prog} --help)\n")
            near = difflib.get_close_matches(unknown, self._all_options(), 1, cutoff=0.75)
            message += f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"streamsvm: error: {without_secrets(message)} (see {self.prog} --help)\n")

    def _all_options(self) -> list[str]:
        """Return the options of this command and its subcommands."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [option for parser in action.choices.values() for option in parser._option_string_actions]
        return found

    def format_help(self) -> str:
        """Format the help of common options, or of all options if none is common."""
        return self.format_groups(common=any(group.title == _COMMON for group in self._action_groups))

    def format_groups(self, *, common: bool) -> str:
        """Format the help of common options only, or of all options and settings.

        Parameters
        ----------
        common
            Whether to show only common options.
        """
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        text = formatter.format_help()
        if self.examples:
            text += "\nexamples:\n" + "".join(f"  {example}\n" for example in self.examples)
        formatter = self._get_formatter()
        for group in (*self._action_groups, *(() if common else self.settings._action_groups)):
            if common and group.title not in (_COMMON, "options"):
                continue
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return f"{text}\n{formatter.format_help().rstrip()}\n"


class _HelpAll(argparse.Action):
    """Print all options and exit."""

    def __call__(self, parser: Any, *_: Any) -> None:
        print(parser.format_groups(common=False), end="")
        parser.exit(0)


def build_parser() -> Parser:
    """Build the parser of all commands, which also generates the documentation of the command line.

    The namespace contains only options that were given.
    """
    parser = Parser(prog="streamsvm", description="Online classification of drifting streams.", **_SHARED)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_run(
        commands,
        "run",
        "predict every event of a stream, then learn from it",
        "Predict every event of a stream before learning from its label; write predictions, measure accuracy, keep the "
        "model. Without arguments: a generated stream whose concept changes twice.",
        RunConfig.takes,
    )
    _add_run(
        commands,
        "predict",
        "predict the events of a stream with a saved model",
        "Predict the events of a stream with a saved model, which does not change. No label is needed; where there is "
        "one, accuracy is measured.",
        PREDICT,
    )
    _add_per_key(commands)
    _add_watch(commands)
    _add_warmup(commands)
    return parser


_SHARED: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}


def _add_run(commands: Any, name: str, title: str, description: str, names: frozenset[str]) -> None:
    """Add a command with some or all options of a run."""
    parser = commands.add_parser(
        name,
        help=title,
        description=description,
        usage=f"streamsvm {name} [SOURCE] [OPTION ...]",
        examples=EXAMPLES[name],
        epilog=_EXIT_CODES,
        **_SHARED,
    )
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options and settings, and exit")
    common = parser.add_argument_group(_COMMON)
    for group in GROUPS:
        _add_group(parser, group, names, common)
    common.add_argument(
        "-s",
        "--set",
        action="append",
        metavar="NAME=VALUE",
        help="any setting that --help-all lists; may be repeated",
    )


def _add_per_key(commands: Any) -> None:
    parser = commands.add_parser(
        "per-key",
        help="a model for each customer, machine or sensor, on many machines",
        description="Predict the events of a Kafka topic of JSON objects and learn from them, with a model for each "
        "key. The state of the keys belongs to the consumer group: a worker that is started again resumes exactly "
        "once.",
        **_SHARED,
    )
    for group in (KeyOptions, *GROUPS):
        _add_group(parser, group, TAKEN, None)
    parser.add_argument(
        "-s", "--set", action="append", metavar="NAME=VALUE", help="time-unit, time-format or metrics-port"
    )


def _add_watch(commands: Any) -> None:
    watch = commands.add_parser(
        "watch",
        help="serve a page of a run from its checkpoints, or of the page of another machine",
        description="Serve a page that shows a run, until interrupted: from its checkpoint directory, which is neither "
        "locked nor changed, or from its own page (`run --page`).",
        **_SHARED,
    )
    watch.add_argument("place", metavar="DIR|URL", help="the --checkpoint directory of the run, or the URL of its page")
    watch.add_argument("--page", metavar="PORT", help="where to serve the page, as `run --page` (default 8080)")
    watch.add_argument(
        "--page-token-file",
        metavar="FILE",
        help="a file with the token of both pages (default: the environment variable STREAMSVM_PAGE_TOKEN)",
    )
    watch.add_argument("-q", "--quiet", action=_FLAG, help="do not print the URL of the page")


def _add_warmup(commands: Any) -> None:
    warmup = commands.add_parser(
        "warmup",
        help="compile now what the first use would compile, as for a container image",
        description="Compile the learners' kernels (and those of the batch solver that has many, where scikit-learn is "
        "installed), and print the folder of compiled code: under XDG_CACHE_HOME or NUMBA_CACHE_DIR, where these are "
        "set. Compiled code of other versions that was not used for a day is removed.",
        **_SHARED,
    )
    warmup.add_argument("--jobs", metavar="N", help="number of processes (default: number of cores)")
    warmup.add_argument(
        "--all",
        action=_FLAG,
        help="also compile what only some settings use: coverage, --label-source",
    )
    warmup.add_argument("-q", "--quiet", action=_FLAG, help="no progress")


def _add_group(parser: Any, options: Any, names: Container[str], common: Any) -> None:
    """Add the fields of a class of options to a parser or its settings. `RunConfig` checks their types."""
    asked = [each for each in fields(options) if each.name in names]
    text = inspect.getdoc(options) or ""
    head, found, parameters = text.partition("\nParameters\n----------\n")  # not found without docstrings, as with -OO
    title, _, description = (head if found else options.__name__.removesuffix("Options")).partition(".\n")
    title = title[:1].lower() + title[1:]
    helps = {name: (kind, _joined(text)) for name, kind, text in _PARAMETER.findall(parameters)}
    flags = [each for each in asked if each.name in FLAGS or each.name == "source"]
    rest = [each for each in flags if common is None or each.name not in COMMON]
    group: Any = parser.add_argument_group(title, _joined(description) or None) if rest else None
    for each in flags:
        place = group if each in rest else common
        how = _described(each, *helps.get(each.name, ("", "")))
        if each.name == "source":
            how["help"] = how["help"] if common is not None else "the topic of the events, as kafka://HOST:PORT/TOPIC"
            place.add_argument("source", nargs="?", **how)
        else:
            if _kind(each) == "bool":
                del how["metavar"]
            written = filter(None, (_SHORT.get(each.name), option_of(each.name)))
            place.add_argument(*written, dest=each.name, **how | _action(each))
    settings = [each for each in asked if each not in flags]
    group = parser.settings.add_argument_group(f"{title}: --set NAME=VALUE") if settings else None
    for each in settings:
        how = _described(each, *helps.get(each.name, ("", "")))
        value = "true|false" if _kind(each) == "bool" else how["metavar"] or "VALUE"
        group.add_argument(each.name, **how | {"metavar": f"{each.name.replace('_', '-')}={value}"})


def _kind(field: Field[Any]) -> str:
    return str(field.type).removesuffix(" | None")


def _action(field: Field[Any]) -> dict[str, Any]:
    """Return the keyword arguments of an option's action."""
    if _kind(field) == "bool":
        return {"action": "store_true"}
    return {"action": "append"} if _kind(field) in _REPEATED else {}


def _described(field: Field[Any], metavar: str, text: str) -> dict[str, Any]:
    """Return help and metavar of a field."""
    text = text[:1].lower() + text[1:].removesuffix(".") + _listed(field.name)
    return {"help": text.replace("%", "%%"), "metavar": metavar.strip("{}").replace(", ", "|") or None}


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _listed(name: str) -> str:
    """List the supported streams, for options that name one."""
    if name not in ("source", "out", "format"):
        return ""
    from connectors.registry import file_formats, schemes

    if name == "format":
        return f": {_either(each.name for each in file_formats())}"
    if name == "out":
        files = _either(each.suffixes[0] for each in file_formats() if each.sink)
        return f". Files: {files}; URLs: {', '.join(each.shown for each in schemes() if each.shown and each.sink)}"
    others = [each.shown + (f" ({each.note})" if each.note else "") for each in schemes() if each.shown]
    files = " ".join(each.suffixes[0] for each in file_formats())
    return f". Files: {files}, also .gz; URLs: {_either(others)}"


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
