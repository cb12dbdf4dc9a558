"""``python -m simulations.figures``: writes docs/figures.md, all figures that are kept, as they are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from simulations.__main__ import kept_of, programs
from simulations.keeping import DOCS, ROOT, replace

PAGE = DOCS / "figures.md"
# What a table shows at most; all of it is in the file.
ROWS, COLUMNS, ENTRIES = 20, 12, 6

HEAD = f"""# All figures

Made from the kept results by `python -m simulations.figures`; a test says when it is behind. Every program that
measures has its part here: what it found, and with which versions; the machine is named where the result has noted it.
Tables show {ROWS} rows and {COLUMNS} columns at most. Numbers mean what the program's own help says (`--help`); most
names end in their unit.
"""

Row = tuple[tuple[str, ...], dict[str, Any]]


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for program, title in programs().items():
        results = [path for path in kept_of(program) if path.suffix == ".json"]
        if results:
            parts += [f"## {program}\n", f"{title} `python -m {program}`\n", *map(section, results)]
    return "\n".join(parts)


def section(path: Path) -> str:
    """One file of results."""
    found = json.loads(path.read_text())
    made_with = ", ".join(f"{name} {version}" for name, version in found.pop("versions", {}).items())
    machine = found.pop("machine", None)
    noted = f"; {machine['processor']}, {machine['cores']} cores, Python {machine['python']}" if machine else ""
    (result,) = found.values()
    return f"### {path.stem}\n\n{path.relative_to(ROOT)}, with {made_with}{noted}\n\n{table(list(flat(result)))}"


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[Row]:
    """A nested result as rows: where each stands, and what stands there by name."""
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
    """Rows as tables, one for those that have the same names; one place alone is a row for each name."""
    if len(rows) == 1:
        rows = [((name,), {"value": value}) for name, value in rows[0][1].items()]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[1]), []).append(row)
    return "\n".join(one_table(list(names[:COLUMNS]), group) for names, group in groups.items())


def one_table(names: list[str], rows: list[Row]) -> str:
    """Rows that have the same names."""
    lines = ["| | " + " | ".join(map(cell, names)) + " |", "|---|" + "---|" * len(names)]
    for path, cells in rows[:ROWS]:
        lines.append(f"| {cell(' / '.join(path))} | " + " | ".join(cell(cells[name]) for name in names) + " |")
    left = f"\n{len(rows) - ROWS} more rows are in the file.\n" if len(rows) > ROWS else ""
    return "\n".join(lines) + "\n" + left


def cell(value: Any) -> str:
    """One value."""
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
