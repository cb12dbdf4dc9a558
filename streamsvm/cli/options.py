"""The parser of the command line: the options of a run are the fields of `RunConfig`, their help its docstrings."""

from __future__ import annotations

import argparse
import difflib
import inspect
import re
from collections.abc import Container, Iterable
from dataclasses import fields
from typing import Any, NoReturn

from streamsvm.cli.keys import TAKEN, KeyOptions
from streamsvm.cli.terminal import without_secrets
from streamsvm.run.config import GROUPS, option_of

_FLAG = argparse.BooleanOptionalAction
_PARAMETER = re.compile(r"^(\w+)(?: : (.*))?\n((?: {4}.*\n?)+)", re.MULTILINE)
_MOVED = dict.fromkeys(("--group", "--repartition", "--parent", "--forget-after"), "streamsvm per-key")
_MOVED["--per-key"] = "streamsvm per-key SOURCE --field FIELD"


class Parser(argparse.ArgumentParser):
    """A parser that names the nearest option where it knows none of a name."""

    def error(self, message: str) -> NoReturn:
        """Say so in one line, and exit."""
        unknown = message.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
        if unknown != message and unknown.startswith("--"):
            if unknown in _MOVED and self.prog.endswith(("streamsvm", "run")):
                self.exit(2, f"streamsvm: error: {unknown}: is of a command of its own: {_MOVED[unknown]}\n")
            near = difflib.get_close_matches(unknown, self._all_options(), 1, cutoff=0.75)
            message += f": did you mean {near[0]}?" if near else ""
        self.exit(2, f"streamsvm: error: {without_secrets(message)} (see {self.prog} --help)\n")

    def _all_options(self) -> list[str]:
        """The options of this command and of those below it."""
        found = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found += [option for parser in action.choices.values() for option in parser._option_string_actions]
        return found


def build_parser() -> Parser:
    """The parser of all commands, from which help and the page of the command line are made.

    What was not given is not in the namespace.
    """
    shared: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}
    parser = Parser(prog="streamsvm", description="Online classification of drifting streams.", **shared)
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
        **shared,
    )
    groups: tuple[Any, ...] = GROUPS
    for group in groups:
        _add_group(run, group)
    keyed = commands.add_parser(
        "per-key",
        help="a model for each customer, machine or sensor, on many machines",
        description="Predict the events of a Kafka topic of JSON objects and learn from them, with a model for each "
        "key. What a worker keeps of its keys goes by its group: started again it goes on, exactly once.",
        **shared,
    )
    for group in (KeyOptions, *groups):
        _add_group(keyed, group, TAKEN)
    watch = commands.add_parser(
        "watch",
        help="serve a page that shows a run that is elsewhere",
        description="Serve a page that shows a run that is elsewhere, until interrupted: as its checkpoints are "
        "renewed, which it neither locks nor changes, or as its own page (`run --page`) shows it.",
        **shared,
    )
    watch.add_argument("place", metavar="DIR|URL", help="its --checkpoint directory, or where its page is")
    watch.add_argument("--page", metavar="PORT", help="where to serve the page, as `run --page` has it (default 8080)")
    (token,) = (action for action in run._actions if action.dest == "page_token")
    watch.add_argument("--page-token", metavar="TOKEN", help=token.help)
    watch.add_argument("--quiet", action=_FLAG, help="do not say where the page is")
    warmup = commands.add_parser(
        "warmup",
        help="compile now what a first use would compile, as for a container image",
        description="Compile the learners' kernels (and those of the batch solver that has many, where scikit-learn is "
        "there), and say where compiled code is kept: under XDG_CACHE_HOME or NUMBA_CACHE_DIR, where these are set. "
        "Compiled code of other versions that was not used for a day is removed.",
        **shared,
    )
    warmup.add_argument("--jobs", metavar="N", help="in so many processes (default: as there are cores)")
    warmup.add_argument(
        "--all",
        action=_FLAG,
        help="also what only some options need: --coverage, --label-source",
    )
    warmup.add_argument("--quiet", action=_FLAG, help="no progress")
    return parser


def _add_group(parser: argparse.ArgumentParser, options: Any, names: Container[str] | None = None) -> None:
    """Add the fields of a class of options, or some of them; types are looked at by `RunConfig`."""
    asked = [each for each in fields(options) if names is None or each.name in names]
    if not asked:
        return
    told = inspect.getdoc(options) or ""
    head, found, parameters = told.partition("\nParameters\n----------\n")  # without docstrings, as of -OO, not found
    title, _, description = (head if found else options.__name__.removesuffix("Options")).partition(".\n")
    helps = {name: (kind, _joined(text)) for name, kind, text in _PARAMETER.findall(parameters)}
    group = parser.add_argument_group(title[:1].lower() + title[1:], _joined(description) or None)
    for each in asked:
        metavar, text = helps.get(each.name, ("", ""))
        kind, option = str(each.type).removesuffix(" | None"), option_of(each.name)
        text = text[:1].lower() + text[1:].removesuffix(".") + _listed(each.name)
        how: dict[str, Any] = {"help": text.replace("%", "%%")}
        if kind == "bool":
            how["action"] = _FLAG
        else:
            how["metavar"] = metavar.strip("{}").replace(", ", "|") or None
            how |= {"action": "append"} if kind in ("Names", "Kinds", "Params") else {}
        if each.name == "source":
            how["help"] = how["help"] if names is None else "the topic of the events, as kafka://HOST:PORT/TOPIC"
            group.add_argument("source", nargs="?", **how)
        else:
            group.add_argument(option, dest=each.name, **how)


def _joined(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def _listed(name: str) -> str:
    """The kinds of streams that are known, for the options that name one."""
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
