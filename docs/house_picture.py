"""Draw docs/explanation/house.svg, which shows the imports between packages."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).parent / "explanation" / "house.svg"
WIDTH, HEIGHT, ACROSS, DOWN = 118, 36, 130, 76
ABOVE = "simulations"
BESIDE = "connectors"
# Where rooms stand from the left, so that few arrows cross; their layers say how high.
COLUMNS = {"simulations": 2, "run": 0.5, "keyed": 2, "delayed": 1.5, "sklearn": 3, "loading": 3, "ensemble": 1.5}
COLUMNS |= {"polytope": 1, "budgeted": 2, "online": 1.5, "decide": 1.5, "monitor": 3.5, "features": 4, "models": 1}
COLUMNS |= {"parameters": 0.6, "names": 3, "labels": 4, "locks": 5, "frames": 1.4, "connectors": 4}


def page() -> str:
    """Return the picture as SVG, with an arrow for each import that is not implied."""
    places = layout()
    right = max(x for x, _ in places.values()) + WIDTH + 20
    bottom = max(y for _, y in places.values()) + HEIGHT + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {bottom}" font-size="18">',
        "<style>text {font-family: sans-serif}</style>",
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5c6bc0"/></marker>',
        f'<rect width="{right}" height="{bottom}" fill="white"/>',
    ]
    lines += [arrow(places[room], places[other]) for room in places for other in sorted(needed(room))]
    for room, (x, y) in places.items():
        lines.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#e8eaf6" stroke="#3949ab"/>'
        )
        lines.append(f'<text x="{x + WIDTH // 2}" y="{y + 24}" text-anchor="middle" fill="#1a237e">{room}</text>')
    return "\n".join([*lines, "</svg>", ""])


@cache
def layout() -> dict[str, tuple[int, int]]:
    """Return the position of each package, with one row per layer of import-linter."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    rows = [[name.strip(" ()").removeprefix("streamsvm.") for name in layer.split("|")] for layer in layers]
    rows[-1].append(BESIDE)
    return {
        room: (20 + int(ACROSS * COLUMNS.get(room, 0)), 20 + DOWN * row)
        for row, rooms in enumerate(rows)
        for room in rooms
    }


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return an arrow from a package down to another, or sideways in one row."""
    x, y = start[0] + WIDTH // 2, start[1] + HEIGHT
    to_x, to_y = end[0] + WIDTH // 2, end[1]
    bend = (to_y - y) // 2
    path = f"M{x} {y}C{x} {y + bend} {to_x} {to_y - bend} {to_x} {to_y}"
    return f'<path d="{path}" fill="none" stroke="#5c6bc0" stroke-width="1.3" marker-end="url(#tip)"/>'


def needed(room: str) -> set[str]:
    """The rooms that a room imports, but for those that these lead to."""
    direct = imported(room)
    return {other for other in direct if not any(other in reached(between) for between in direct - {other})}


@cache
def reached(room: str) -> frozenset[str]:
    """All rooms that a room leads to."""
    direct = imported(room)
    return direct.union(*map(reached, direct))


@cache
def imported(room: str) -> frozenset[str]:
    """The rooms whose modules the modules of a room import, wherever in the file."""
    place = ROOT / room if room in (ABOVE, BESIDE) else ROOT / "streamsvm" / room
    found = set()
    for path in [*place.rglob("*.py")] or [place.with_suffix(".py")]:
        for node in walked(ast.parse(path.read_text(encoding="utf-8"))):
            for name in names(node):
                parts = name.split(".")
                if parts[0] == "streamsvm" and len(parts) > 1:
                    found.add(parts[1])
                elif parts[0] in (ABOVE, BESIDE):
                    found.add(parts[0])
    return frozenset(found & layout().keys() - {room})


def walked(node: ast.AST) -> Iterator[ast.AST]:
    """All statements of a module but those that type checkers alone look at."""
    yield node
    for child in ast.iter_child_nodes(node):
        is_for_types = isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"
        if not is_for_types and not isinstance(child, ast.expr):
            yield from walked(child)


def names(node: ast.AST) -> list[str]:
    """The modules that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
