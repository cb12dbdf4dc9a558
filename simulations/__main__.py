"""``python -m simulations``: list all simulations and their stored results."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from simulations.keeping import PICTURES, RESULTS, ROOT

_FOLDER = ROOT / "simulations"


@cache
def programs() -> dict[str, str]:
    """Return each runnable module or package, with the first line of its docstring."""
    found = {}
    for path in sorted(_FOLDER.rglob("*.py")):
        if path != Path(__file__) and "def main(" in path.read_text(encoding="utf-8"):
            place = path.parent if path.name == "__main__.py" else path.with_suffix("")
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[".".join(place.relative_to(ROOT).parts)] = text.partition("\n")[0]
    return found


def stem(program: str) -> str:
    """Return the prefix of the file names of a simulation's results and plots."""
    return program.rpartition(".")[2].replace("_", "-")


def kept_of(program: str) -> list[Path]:
    """Return the results and plots of a simulation."""
    longer = [stem(other) for other in programs() if stem(other).startswith(stem(program) + "-")]
    own = [path for path in all_kept() if (path.stem + "-").startswith(stem(program) + "-")]
    return sorted(path for path in own if not any((path.stem + "-").startswith(other + "-") for other in longer))


def all_kept() -> list[Path]:
    """Return all results and plots."""
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
