"""Parser of the command line, built from the fields and docstrings of `COMMANDS`."""

from __future__ import annotations

import argparse
import difflib
import functools
import inspect
import re
import textwrap
from collections.abc import Container, Iterable
from dataclasses import fields
from typing import Any, NoReturn

from connectors.errors import without_secrets
from connectors.options import split_names
from streamsvm.cli.commands import COMMANDS, EXIT_CODES
from streamsvm.run.config import RunConfig, check_given_once, new_name, read_settings
from streamsvm.run.errors import check_repeated
from streamsvm.run.options import REPEATED, SETTINGS, option_of

_PARAMETER = re.compile(r"^(\w+)(?: : (.*))?\n((?: {4}.*\n?)+)", re.MULTILINE)
_SHORT = {"out": "-o", "quiet": "-q", "config": "-c"}
_MORE = "streamsvm COMMAND --help shows examples and options. Without options, run predicts a generated stream."
_SHARED: dict[str, Any] = {"allow_abbrev": False, "argument_default": argparse.SUPPRESS}


class Parser(argparse.ArgumentParser):
    """Parser that reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit."""
        self.exit(2, f"streamsvm: error: {without_secrets(message)} (see {self.prog} --help)\n")


class _HelpAll(argparse.Action):
    """Print all options and settings, and exit."""

    def __call__(self, parser: Any, *_: Any) -> None:
        build_parser(everything=True).parse_args([parser.prog.split()[-1], "--help"])


class _Once(argparse.Action):
    """Store a value; another value of the same option is an error."""

    def __call__(self, parser: Any, namespace: Any, value: Any, *_: Any) -> None:
        check_repeated(option_of(self.dest), getattr(namespace, self.dest, value), value)
        setattr(namespace, self.dest, value)


def build_parser(names: Container[str] = COMMANDS, *, everything: bool = False) -> Parser:
    """Build the parser of all commands; the documentation is generated from it.

    The namespace contains only options that were given.

    Parameters
    ----------
    names
        Commands to add options to; all by default. The other ones are only listed.
    everything
        Whether the help shows all options and settings, instead of common options. Such a parser only shows help.
    """
    texts: dict[str, Any] = {"description": "Online classification of drifting streams.", "epilog": _MORE}
    parser = Parser(prog="streamsvm", **texts, **_SHARED)
    parser.add_argument("-V", "--version", action="store_true", help="print the version and the kind of code, and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, options in COMMANDS.items():
        _add_command(commands, name, options, everything, name in names)
    return parser


def parse(arguments: list[str]) -> Any:
    """Parse arguments into command options, which override the configuration file."""
    parser = build_parser(arguments)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    # Standard input with options, such as '-?delimiter=;', looks like an option.
    arguments = [f"file://{text}" if text.startswith("-?") else text for text in arguments]
    namespace, unknown = parser.parse_known_args(arguments)
    given = vars(namespace)
    if "version" in given:
        from streamsvm import __version__
        from streamsvm.core.library import code_in_use

        print(f"streamsvm {__version__} ({code_in_use()})")
        parser.exit(0)
    if (command := given.pop("command")) is None:
        if unknown:
            parser.error(f"a command is missing before {unknown[0].partition('=')[0]}, such as run")
        parser.print_help()
        parser.exit(2)
    options: Any = COMMANDS[command]
    if unknown:
        if unknown[0] == arguments[0] and unknown[0].startswith("-"):
            parser.error(f"options follow the command: {parser.prog} {command} {unknown[0].partition('=')[0]} ...")
        parser.prog += f" {command}"
        parser.error(_unrecognized(unknown, options))
    kinds = options.field_types()
    given |= {name: ",".join(value) for name, value in given.items() if kinds.get(name) == "Kinds"}
    for name in (name for name in given if kinds.get(name) == "Names"):
        given[name] = [each for value in given[name] for each in split_names(value)]
    if issubclass(options, RunConfig):
        settings = read_settings(given.pop("set", ()), options)
        check_given_once(options, "--set", settings, given)
        given = settings | given
        if "config" in given:
            return options.from_toml(given.pop("config"), **given)
    return options(**given)


def _unrecognized(arguments: list[str], options: Any) -> str:
    """Return the error for unknown arguments, with the most similar option.

    It has no values, because they may be secrets.
    """
    name = arguments[0].partition("=")[0]
    settings = options.takes if issubclass(options, RunConfig) else ()
    if name.startswith("--") and (new := new_name(name[2:], settings)) is not None:
        return f"{name} is now {new}"
    near = difflib.get_close_matches(name, sorted(map(option_of, options.takes - SETTINGS)), 1, cutoff=0.75)
    names = [each.partition("=")[0] for each in arguments if each.startswith("-")] or arguments
    return f"unrecognized arguments: {' '.join(names)}{f': did you mean {near[0]}?' if near else ''}"


def _add_command(commands: Any, name: str, options: Any, everything: bool, is_used: bool) -> None:
    title, description, sections = _described(options)
    if not is_used:
        commands.add_parser(name, help=title)
        return
    is_run = issubclass(options, RunConfig)
    place = {"source": " [TOPIC]" if name == "per-key" else " [SOURCE ...]", "place": " DIR|URL"}
    usage = f"streamsvm {name}{''.join(place[each] for each in place if each in options.takes)} [OPTION ...]"
    if "Examples" in sections:
        usage += f"\n\nexamples:\n{textwrap.indent(sections['Examples'], '  ')}"
    codes = EXIT_CODES.get(options.module)
    texts = {"help": title, "description": description, "epilog": f"Exit codes: {codes}." if codes else ""}
    parser = commands.add_parser(name, usage=usage.replace("%", "%%"), **texts, **_SHARED)
    common = parser
    if is_run:
        parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options and settings, and exit")
        common = parser.add_argument_group("common options")
    else:
        parser.add_argument("--help-all", action="help", help=argparse.SUPPRESS)
    for base in reversed(options.__mro__):
        if names := [each for each in vars(base).get("__annotations__", {}) if each in options.takes]:
            _add_group(parser, base, options, names, common, everything)
    if is_run:
        text = "any setting that --help-all lists; may be repeated"
        common.add_argument("-s", "--set", action="append", metavar="NAME=VALUE", help=text)


def _add_group(parser: Any, base: Any, options: Any, names: Iterable[str], common: Any, everything: bool) -> None:
    """Add the options that a class declares, and its settings for the help."""
    title, description, sections = _described(base)
    helps = _parameters(sections) | _parameters(_described(options)[2])
    kinds, commons = options.field_types(), {each.name for each in fields(options) if each.metadata.get("common")}
    group = parser.add_argument_group(title, (description or None) if everything else None)
    settings = parser.add_argument_group(f"{title}: --set NAME=VALUE")
    for name in names:
        metavar, text = helps.get(name, (None, ""))
        given: dict[str, Any] = {"help": text, "metavar": metavar}
        place = common if base is options or name in commons else group
        if place is group and not everything:
            given["help"] = argparse.SUPPRESS
        if name in ("source", "place"):
            place.add_argument(name, nargs="*" if name == "source" else None, **given)
        elif name in SETTINGS and base is not options:
            value = "true|false" if kinds[name] == "bool" else metavar
            if everything:
                settings.add_argument(name, **given | {"metavar": f"{name.replace('_', '-')}={value}"})
        else:
            given["action"] = "append" if kinds[name] in (*REPEATED, "Sources") else _Once
            if kinds[name] == "bool":
                given = {"help": given["help"], "action": "store_true"}
            option = "--param" if name == "params" else f"--{name.replace('_', '-')}"
            place.add_argument(*filter(None, (_SHORT.get(name), option)), dest=name, **given)


@functools.cache
def _described(options: type) -> tuple[str, str, dict[str, str]]:
    """Return title, description and sections (by heading) of a class docstring."""
    text, name = inspect.getdoc(options) or "", options.__name__
    if not text or text.startswith(f"{name}("):  # no docstring, as with -OO
        text = name.removesuffix("Command").removesuffix("Options")
    head, *rest = re.split(r"\n\n?(\w+)\n-+\n", text)
    title, _, description = head.partition("\n\n")
    return _uncapitalized(title), _joined(description), dict(zip(rest[::2], rest[1::2], strict=True))


def _parameters(sections: dict[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return metavar and help of parameters."""
    return {
        name: (metavar.strip("{}").replace(", ", "|") or None, _uncapitalized(_joined(text)).replace("%", "%%"))
        for name, metavar, text in _PARAMETER.findall(sections.get("Parameters", ""))
    }


def _uncapitalized(text: str) -> str:
    return text[:1].lower() + text[1:].removesuffix(".")


def _joined(text: str) -> str:
    """Remove line breaks inside paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))
