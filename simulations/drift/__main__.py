"""Accuracy and time of every learner under every kind of drift.

    python -m simulations.drift                          all scenarios and available learners, then the report
    python -m simulations.drift --quick                  a short selection, within two minutes
    python -m simulations.drift --list                   scenarios, learners, and missing runs
    python -m simulations.drift --report                 the report of stored results
    python -m simulations.drift --scenarios mine.toml 'kafka://host:9092/topic?label=y' --out mine
    python -m simulations.drift --learners StreamSVM 'river.forest.ARFClassifier?n_models=3' --out mine

Every event is predicted, then learned when its label arrives, through River's interface. Each cell (a run of a learner
on a scenario with a seed) is stored when it is complete, so an interrupted command continues. Times are CPU times.

Scenarios are those of `connectors/synthetic/scenarios`, files that describe others (see
`connectors.synthetic.scenario`), and URLs of any stream with labels. Learners are those of `simulations/learners.toml`,
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
from simulations.drift.store import Store
from simulations.harness import run
from simulations.learners import Learner
from simulations.storage import RESULTS, provenance

PACKAGES = ("streamsvm", "river", "numpy", "numba", "scikit-learn", "capymoa")
QUICK = {
    "scenarios": (
        *("sea-sudden", "agrawal-gradual", "hyperplane-incremental"),
        *("stagger-recurring", "rbf-labels", "hyperplane-scale"),
    ),
    "learners": ("StreamSVM", "StreamSVM low", "LR", "HAT", "ARF"),
    "events": 1_500,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
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
        todo = [cell.case for cell in cells if options.again or cell.key not in store]
        run(todo, store, provenance(PACKAGES), options.jobs, options.backend)
        store.finish()
    print(f"report: {report.write(store, scenarios, table, options.out)}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m simulations.drift", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--scenarios", nargs="+", metavar="NAME", help="names, files.toml or URLs (all included ones)")
    add("--learners", nargs="+", metavar="NAME", help="names or dotted paths (all available ones)")
    add("--learner-file", nargs="+", type=Path, default=[], metavar="FILE", help="more, like simulations/learners.toml")
    add("--seeds", type=int, default=10, help="number of seeds, for scenarios that have seeds (10)")
    add("--events", type=int, help="length of scenarios, and maximum number of events of other streams")
    add("--again", action="store_true", help="measure again instead of using stored results")
    add("--jobs", type=int, default=-1, help="parallel runs (-1: one per core)")
    add("--backend", default="loky", help="backend of joblib (loky)")
    add("--limit", type=float, default=math.inf, metavar="S", help="maximum seconds of a run; partial results count")
    add("--out", type=Path, help=f"folder of results ({RESULTS.name}/ of this package, quick/ in it for --quick)")
    add("--quick", action="store_true", help="some scenarios and learners, 1,500 events, one seed")
    add("--list", action="store_true", help="list scenarios, learners and missing runs, and exit")
    add("--report", action="store_true", help="write the report of stored results, and exit")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds = 1
        options.scenarios = options.scenarios or QUICK["scenarios"]
        options.learners = options.learners or QUICK["learners"]
        options.events = options.events or QUICK["events"]
    options.out = options.out or (RESULTS / "quick" if options.quick else RESULTS)
    return options


def shown_scenarios() -> list[str]:
    """Return the names of the scenarios in the report."""
    return [name for name in names() if name != "demo"]


def _scenario(text: str, events: int | None) -> Scenario:
    """Return a scenario by name or file, or the stream of a URL as a scenario."""
    try:
        if text.endswith(".toml") or text in FAMILIES or text in names():
            scenario = find(text)
            return scenario.stretched(events) if events and scenario.generator else scenario
        if not {":", "/", "."} & set(text):
            raise SystemExit(f"unknown scenario {text!r}: --list shows all; a stream is given by its URL or file")
        connectors.open_source(text).close()  # report errors before the first run
        return Scenario(text.partition("?")[0], text, "streams", events or 1_000_000, source=text)
    except connectors.ConnectorError as error:
        raise SystemExit(str(error)) from error


def _available(learners: list[Learner]) -> list[Learner]:
    there = []
    for learner in learners:
        reason = learner.missing()
        if reason:
            print(f"not available: {reason}")
        else:
            there.append(learner)
    return there


def _cells(scenarios: list[Scenario], learners: list[Learner], options: argparse.Namespace) -> list[Cell]:
    """List the cells seed by seed, so that partial results cover all combinations."""
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
    print(f"the missing runs take about {missing / 60:,.0f} minutes on one core")


if __name__ == "__main__":
    main()
