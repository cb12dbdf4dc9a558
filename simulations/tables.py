"""Update the tables in the documentation from stored results.

    python -m simulations.tables           update the tables
    python -m simulations.tables --check   list pages that are out of date; exit with status 1 if there are any

A table is delimited by ``<!-- NAME: made by python -m simulations.tables -->`` and ``<!-- end of NAME -->``.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

from simulations.keeping import ROOT, replace

PAGES = tuple(
    ROOT / "docs" / page
    for page in (
        "benchmarks.md",
        "how-to/simulate.md",
        "how-to/late-labels.md",
        "how-to/per-key.md",
        "explanation/scale.md",
    )
)


def _streams() -> str:
    from simulations.benchmarks.blend import streams
    from simulations.benchmarks.peers import Results
    from simulations.keeping import kept

    return streams.markdown(streams.join(kept(streams.RESULT), Results().streams))


def _drift() -> str:
    from simulations.drift import report

    return report.front_table()


def _coverage() -> str:
    from simulations.benchmarks import decisions

    return decisions.coverage_table()


def _rare() -> str:
    from simulations.benchmarks import decisions

    return decisions.rare_table()


def _votes() -> str:
    from simulations.benchmarks import decisions

    return decisions.votes_table()


def _noise() -> str:
    from simulations.benchmarks import decisions

    return decisions.noise_table()


def _late() -> str:
    from simulations.benchmarks import decisions

    return decisions.late_table()


def _decision_costs() -> str:
    from simulations.benchmarks import decisions

    return decisions.cost_table()


def _ends() -> str:
    from simulations.benchmarks import ends

    return ends.markdown()


def _refits_stay() -> str:
    from simulations.benchmarks import refits

    return refits.stay_table()


def _refits_drift() -> str:
    from simulations.benchmarks import refits

    return refits.drift_table()


def _delays() -> str:
    from simulations.benchmarks import delays

    return delays.table()


def _joined() -> str:
    from simulations.benchmarks import pending

    return pending.table()


def _label_budget() -> str:
    from simulations.benchmarks import label_budget

    return label_budget.table()


def _keyed() -> str:
    from simulations.benchmarks import keyed

    return keyed.accuracy_table()


def _keyed_events() -> str:
    from simulations.benchmarks import keyed

    return keyed.events_table()


def _keyed_state() -> str:
    from simulations.benchmarks import keyed

    return keyed.state_table()


def _cluster_needs() -> str:
    from simulations import keyed_cluster

    return keyed_cluster.needs_table()


def _cluster_runs() -> str:
    from simulations import keyed_cluster

    return keyed_cluster.runs_table()


TABLES: dict[str, Callable[[], str]] = {
    "streams": _streams,
    "coverage": _coverage,
    "rare": _rare,
    "votes": _votes,
    "noise": _noise,
    "late": _late,
    "decision_costs": _decision_costs,
    "ends": _ends,
    "refits_stay": _refits_stay,
    "refits_drift": _refits_drift,
    "delays": _delays,
    "joined": _joined,
    "label_budget": _label_budget,
    "keyed": _keyed,
    "keyed_events": _keyed_events,
    "keyed_state": _keyed_state,
    "cluster_needs": _cluster_needs,
    "cluster_runs": _cluster_runs,
    "drift": _drift,
}


def renewed(text: str) -> str:
    """Return a page with its tables generated from the stored results."""
    for name in re.findall(r"<!-- (\w+): made by", text):
        begin = f"<!-- {name}: made by python -m simulations.tables -->"
        head, _, rest = text.partition(begin)
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        if not end:
            raise SystemExit(f"table {name} has no end marker")
        text = f"{head}{begin}\n\n{TABLES[name]()}\n\n{end}{tail}"
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
