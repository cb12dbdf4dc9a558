"""Update the tables in the documentation from stored results.

    python -m simulations.tables           update the tables
    python -m simulations.tables --check   list pages that are out of date; exit with status 1 if there are any

A table is delimited by ``<!-- NAME: made by python -m simulations.tables -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

from simulations.keeping import ROOT, replace

PAGES = tuple(ROOT / "docs" / page for page in ("benchmarks.md", "how-to/simulate.md"))


# The function that generates each table.
TABLES = {
    "streams": "simulations.benchmarks.blend.streams:table",
    "arena": "simulations.benchmarks.arena:table",
    "coverage": "simulations.benchmarks.decisions:coverage_table",
    "rare": "simulations.benchmarks.decisions:rare_table",
    "ends": "simulations.benchmarks.ends:markdown",
    "refits_stay": "simulations.benchmarks.refits:stay_table",
    "refits_drift": "simulations.benchmarks.refits:drift_table",
    "delays": "simulations.benchmarks.delays:table",
    "label_budget": "simulations.benchmarks.label_budget:table",
    "keyed": "simulations.benchmarks.keyed:accuracy_table",
    "keyed_events": "simulations.benchmarks.keyed:events_table",
    "drift": "simulations.drift.report:front_table",
}


def table(name: str) -> str:
    """Generate a table."""
    module, _, function = TABLES[name].partition(":")
    made: str = getattr(importlib.import_module(module), function)()
    return made


def renewed(text: str) -> str:
    """Return a page with its tables generated from the stored results."""
    for name in re.findall(r"<!-- (\w+): made by", text):
        begin = f"<!-- {name}: made by python -m simulations.tables -->"
        head, _, rest = text.partition(begin)
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        if not end:
            raise SystemExit(f"table {name} has no end marker")
        text = f"{head}{begin}\n\n{table(name)}\n\n{end}{tail}"
    return text


def main() -> None:
    """Update or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check only")
    check = parser.parse_args().check
    made = {page: renewed(page.read_text()) for page in PAGES}
    behind = [page for page, text in made.items() if text != page.read_text()]
    for page in behind:
        if not check:
            replace(page, made[page])
        print(f"{_shown(page)} {'is out of date' if check else 'written'}")
    sys.exit(1 if check and behind else 0)


def _shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
