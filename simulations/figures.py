"""``python -m simulations.figures``: generate docs/figures.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulations.__main__ import kept_of, programs
from simulations.keeping import DOCS, ROOT, replace

PAGE = DOCS / "figures.md"
# Maximum size of a table, and of a list in a cell; the file has all values.
ROWS, COLUMNS, ENTRIES = 20, 12, 6

HEAD = f"""# All figures

`python -m simulations.figures` generates this page from the stored results, and a test checks that it is up to date.
There is a section for each simulation, with its results, the versions of the packages and, if recorded, the machine.
Tables show at most {ROWS} rows and {COLUMNS} columns. `--help` of each simulation explains its figures; most names end
in the unit.
"""

Row = tuple[tuple[str, ...], dict[str, Any]]


def page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for program, title in programs().items():
        results = [path for path in kept_of(program) if path.suffix == ".json"]
        if results:
            parts += [f"## {program}\n", f"{title} `python -m {program}`\n", *map(section, results)]
    return "\n".join(parts)


def section(path: Path) -> str:
    """Return the section of a file of results."""
    found = json.loads(path.read_text())
    made_with = ", ".join(f"{name} {version}" for name, version in found.pop("versions", {}).items())
    machine = found.pop("machine", None)
    noted = f"; {machine['processor']}, {machine['cores']} cores, Python {machine['python']}" if machine else ""
    (result,) = found.values()
    return f"### {path.stem}\n\n{path.relative_to(ROOT)}, with {made_with}{noted}\n\n{table(list(flat(result)))}"


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[Row]:
    """Flatten a nested result to rows of a path and values by name."""
    named = dict(enumerate(value, 1)) if isinstance(value, list) else value
    plain = {str(key): inner for key, inner in named.items() if not _is_nested(inner)}
    if plain:
        yield path, plain
    for key, inner in named.items():
        if _is_nested(inner):
            yield from flat(inner, (*path, str(key)))


def _is_nested(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(inner, dict | list) for inner in value)
    return isinstance(value, dict) and bool(value)


def table(rows: list[Row]) -> str:
    """Format rows as Markdown, with one table for rows of equal names.

    A single row becomes a table with a row for each name.
    """
    if len(rows) == 1:
        rows = [((name,), {"value": value}) for name, value in rows[0][1].items()]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[1]), []).append(row)
    return "\n".join(one_table(list(names[:COLUMNS]), group) for names, group in groups.items())


def one_table(names: list[str], rows: list[Row]) -> str:
    """Format rows of equal names as a table."""
    lines = ["| | " + " | ".join(map(cell, names)) + " |", "|---|" + "---|" * len(names)]
    for path, cells in rows[:ROWS]:
        lines.append(f"| {cell(' / '.join(path))} | " + " | ".join(cell(cells[name]) for name in names) + " |")
    left = f"\n{len(rows) - ROWS} more rows are in the file.\n" if len(rows) > ROWS else ""
    return "\n".join(lines) + "\n" + left


def cell(value: Any) -> str:
    """Format a value."""
    if isinstance(value, list):
        more = ", …" if len(value) > ENTRIES else ""
        return ", ".join(map(cell, value[:ENTRIES])) + more
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None or value == {} else str(value)
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write the page."""
    replace(PAGE, page())


if __name__ == "__main__":
    main()
