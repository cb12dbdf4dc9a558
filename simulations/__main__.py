"""``python -m simulations``: what there is, how it is run, and what is kept of it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from simulations.keeping import PICTURES, RESULTS, ROOT

_FOLDER = ROOT / "simulations"


@cache
def programs() -> dict[str, str]:
    """Each module or package that can be run, and the first line of what it says of itself."""
    found = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        if path != Path(__file__) and "def main(" in path.read_text(encoding="utf-8"):
            place = path.parent if path.name == "__main__.py" else path.with_suffix("")
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[".".join(place.relative_to(ROOT).parts)] = text.partition("\n")[0]
    return found


def stem(program: str) -> str:
    """What the names of its results and pictures begin with."""
    return program.rpartition(".")[2].replace("_", "-")


def kept_of(program: str) -> list[Path]:
    """Its results and pictures."""
    longer = [stem(other) for other in programs() if stem(other).startswith(stem(program) + "-")]
    own = [path for path in all_kept() if (path.stem + "-").startswith(stem(program) + "-")]
    return sorted(path for path in own if not any((path.stem + "-").startswith(other + "-") for other in longer))


def all_kept() -> list[Path]:
    """Every result and picture."""
    return [*RESULTS.glob("*.json"), *RESULTS.glob("*.parquet"), *PICTURES.glob("*.png")]


def main() -> None:
    """Print the list."""
    for program, title in programs().items():
        print(f"python -m {program}\n    {title}")
        for path in kept_of(program):
            print(f"    {path.relative_to(ROOT)}")
        print()


if __name__ == "__main__":
    main()
