"""Write docs/reference/command-line.md from the parser of the command line."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from streamsvm.cli.parser import Parser, build_parser

PAGE = Path(__file__).parent / "reference" / "command-line.md"

HEAD = """# Command line

`streamsvm COMMAND --help-all` prints the same text. `python docs/command_line_page.py` generates this page.
"""


def page() -> str:
    """The page as Markdown."""
    actions = build_parser(everything=True)._actions
    (commands,) = (action for action in actions if isinstance(action, argparse._SubParsersAction))
    return "\n".join([HEAD, *(section(name, parser) for name, parser in commands.choices.items())])


def section(name: str, parser: Parser) -> str:
    """One command."""
    lines = [f"## streamsvm {name}", "", _cell(parser.description or ""), ""]
    examples = (parser.usage or "").partition("\nexamples:\n")[2].replace("%%", "%")
    lines += ["```sh", textwrap.dedent(examples), "```", ""] if examples else []
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if not isinstance(action, argparse._HelpAction)]
        if actions:
            lines += [f"### {(group.title or '').capitalize()}", ""]
            lines += [_cell(group.description), ""] if group.description else []
            lines += ["| option | meaning |", "|---|---|", *map(row, actions), ""]
    return "\n".join([*lines, _cell(parser.epilog), ""] if parser.epilog else lines)


def row(action: argparse.Action) -> str:
    """One option."""
    names = [f"{name} {action.metavar or ''}".rstrip() for name in action.option_strings] or [str(action.metavar)]
    return f"| {', '.join(map(_code, names))} | {_cell(action.help or '')} |"


def _code(text: str) -> str:
    """Code in a cell."""  # In backticks, GitHub needs a backslash before each |, which the site would show.
    return f"`{text}`" if "|" not in text else f"<code>{text.replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
