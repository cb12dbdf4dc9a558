"""What every learner does under every kind of drift.

    python -m simulations.drift                          all scenarios, all learners that are there, then the report
    python -m simulations.drift --quick                  some of each, short: within two minutes
    python -m simulations.drift --list                   scenarios, learners, and what is missing
    python -m simulations.drift --report                 the report alone, of what is kept
    python -m simulations.drift --scenarios mine.toml 'kafka://host:9092/topic?label=y' --out mine
    python -m simulations.drift --learners StreamSVM 'river.forest.ARFClassifier?n_models=3' --out mine

Every event is predicted, then learned when its label comes, by River's protocol. Each cell (a scenario of a seed met by
a learner) is kept as it is done; the same command after a kill goes on with the rest. Times are those of the
processor. Scenarios are those of `connectors/synthetic/scenarios`, files that describe others (see
`connectors.synthetic.scenario`), and URLs of any stream with labels; learners those of `simulations/learners.toml`,
and dotted paths of classes with parameters.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import connectors
from connectors.synthetic import FAMILIES, Scenario, find, names
from simulations import learners as known_learners
from simulations.drift import report
from simulations.drift.cells import Cell
from simulations.drift.running import run
from simulations.drift.store import Store
from simulations.keeping import RESULTS
from simulations.learners import Learner

QUICK = {
    "scenarios": (
        *("sea-sudden", "agrawal-gradual", "hyperplane-incremental"),
        *("stagger-recurring", "rbf-labels", "hyperplane-scale"),
    ),
    "learners": ("StreamSVM", "StreamSVM low", "LR", "HAT", "ARF"),
    "events": 1_500,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    options = _options(arguments)
    table = known_learners.table()
    for path in options.learner_file:
        table |= known_learners.table(path)
    learners = _available([known_learners.named(text, table) for text in options.learners or table])
    scenarios = [_scenario(text, options.events) for text in options.scenarios or shown_scenarios()]
    cells = _cells(scenarios, learners, options)
    store = Store(options.out)
    if options.list:
        _list(cells, store)
        return
    if not options.report:
        run(cells, store, options.jobs, options.backend)
        store.finish()
    print(f"report: {report.write(store, scenarios, table, options.out)}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m simulations.drift", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenarios", nargs="+", metavar="NAME", help="names, files.toml or URLs; all that come along")
    add("--learners", nargs="+", metavar="NAME", help="names or dotted paths; all that are there")
    add("--learner-file", nargs="+", type=Path, default=[], metavar="FILE", help="more, as simulations/learners.toml")
    add("--seeds", type=int, default=10, help="how many, of scenarios that have seeds (10)")
    add("--events", type=int, help="stretch scenarios to so many, read so many of other streams")
    add("--jobs", type=int, default=-1, help="cells at once (-1: as many as there are cores)")
    add("--backend", default="loky", help="of joblib (loky)")
    add("--limit", type=float, default=math.inf, metavar="S", help="seconds a cell may take; what it reached counts")
    add("--out", type=Path, help=f"the folder of results ({RESULTS.name}/ of this package, quick/ in it for --quick)")
    add("--quick", action="store_true", help="some scenarios and learners, 1,500 events, one seed")
    add("--list", action="store_true", help="what there is and what is missing; nothing is run")
    add("--report", action="store_true", help="write the report of what is kept; nothing is run")
    options = parser.parse_args(arguments)
    if options.quick:
        options.scenarios = options.scenarios or QUICK["scenarios"]
        options.learners = options.learners or QUICK["learners"]
        options.events = options.events or QUICK["events"]
        options.seeds = 1
    options.out = options.out or (RESULTS / "quick" if options.quick else RESULTS)
    return options


def shown_scenarios() -> list[str]:
    """The names that make up the table."""
    return [name for name in names() if name != "demo"]


def _scenario(text: str, events: int | None) -> Scenario:
    """A scenario by name or file, or the stream of a URL as one."""
    try:
        if text.endswith(".toml") or text in FAMILIES or text in names():
            scenario = find(text)
            return scenario.stretched(events) if events and scenario.generator else scenario
        connectors.open_source(text).close()  # what is wrong with it is said at once
        return Scenario(text.partition("?")[0], text, "streams", events or 1_000_000, source=text)
    except connectors.ConnectorError as error:
        raise SystemExit(str(error)) from error


def _available(learners: list[Learner]) -> list[Learner]:
    there = []
    for learner in learners:
        reason = learner.missing()
        if reason:
            print(f"left out: {reason}")
        else:
            there.append(learner)
    return there


def _cells(scenarios: list[Scenario], learners: list[Learner], options: argparse.Namespace) -> list[Cell]:
    """Seed by seed, so that what is there at any time is of as many scenarios and learners as can be."""
    return [
        Cell(scenario, learner, seed, options.limit)
        for seed in range(options.seeds)
        for scenario in scenarios
        for learner in learners
        if scenario.generator or not seed
    ]


def _list(cells: list[Cell], store: Store) -> None:
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        drifts = ", ".join(f"{drift.at:,}" for drift in scenario.drifts) or ("all the time" if scenario.moving else "")
        print(f"{scenario.name:24} {scenario.kind:12} {scenario.title:64} {drifts}")
    print()
    for learner in dict.fromkeys(cell.learner.name for cell in cells):
        own = [cell for cell in cells if cell.learner.name == learner]
        print(f"{learner:28} {sum(cell.key in store for cell in own):5} of {len(own):5} cells done")
    missing = sum(cell.seconds for cell in cells if cell.key not in store)
    print(f"what is missing takes about {missing / 60:,.0f} minutes of one core")


if __name__ == "__main__":
    main()
