"""Simulations: benchmarks of learners and solvers.

    python -m simulations                       list the benchmarks and their results
    python -m simulations NAME                  measure what has no result yet, store it, and print the tables
    python -m simulations NAME --only ozone LR  measure results whose names contain all of these texts
    python -m simulations tables                update the tables of the documentation; --check lists outdated pages
    python -m simulations.drift                 every learner under every kind of drift

Each result is stored when it is measured, with commit, command, machine and versions, so an interrupted command
continues. `python -m simulations NAME --help` shows further options.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from simulations import tables
from simulations.harness import Benchmark, measure, unmeasured
from simulations.storage import RESULTS, ROOT, Results, replace

BENCHMARKS = {
    "streams": "simulations.benchmarks.streams:BENCHMARK",
    "heldout": "simulations.benchmarks.heldout:BENCHMARK",
    "arena": "simulations.benchmarks.heldout:ARENA",
    "beside": "simulations.benchmarks.beside:BENCHMARK",
    "ends": "simulations.benchmarks.ends:BENCHMARK",
    "kafka-throughput": "simulations.benchmarks.kafka:THROUGHPUT",
    "kafka-latency": "simulations.benchmarks.kafka:LATENCY",
    "decisions-coverage": "simulations.benchmarks.decisions:COVERAGE",
    "decisions-rare": "simulations.benchmarks.decisions:RARE",
    "feature-drift": "simulations.benchmarks.feature_drift:BENCHMARK",
    "refits": "simulations.benchmarks.refits:BENCHMARK",
    "delays": "simulations.benchmarks.delays:BENCHMARK",
    "pending": "simulations.benchmarks.pending:BENCHMARK",
    "label-budget": "simulations.benchmarks.label_budget:BENCHMARK",
    "keyed-accuracy": "simulations.benchmarks.keyed:BENCHMARK",
    "multi-merge": "simulations.papers.multi_merge:BENCHMARK",
    "newton-table": "simulations.papers.newton_table:BENCHMARK",
    "sampled-cuts": "simulations.papers.sampled_cuts:BENCHMARK",
    "indexed-figures": "simulations.papers.indexed_figures:BENCHMARK",
}
"""Benchmarks by name: the module and its attribute."""


def benchmark(name: str) -> Benchmark:
    """Import a benchmark."""
    module, _, attribute = BENCHMARKS[name].partition(":")
    found: Benchmark = getattr(importlib.import_module(module), attribute)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        print(__doc__, listing(), sep="\n")
        return 0
    if given[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if given[0] == "tables" and set(given[1:]) <= {"--check"}:
        return update_pages("--check" in given)
    if given[0] not in BENCHMARKS:
        known = (
            "`tables` accepts --check only" if given[0] == "tables" else f"there are {', '.join(BENCHMARKS)}, tables"
        )
        print(f"invalid arguments {' '.join(given)!r}: {known}", file=sys.stderr)
        return 2
    chosen = benchmark(given[0])
    options = _options(chosen, given[1:])
    results = Results(options.out)
    failed = 0 if options.show else measure(chosen, options, results)
    if not options.list:
        print("\n\n".join(shown(chosen, results)))
        if chosen.draw is not None and options.draw:
            if missing := unmeasured(chosen.cases(options), results):
                what = f"missing results ({len(missing)}), such as {missing[0]!r}"
                print(f"--draw: measure the {what}, first", file=sys.stderr)
                return 2
            chosen.draw(results.rows)
    return min(failed, 1)


def _options(chosen: Benchmark, given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(f"python -m simulations {chosen.name}", description=chosen.about)
    chosen.arguments(parser)
    add, name = parser.add_argument, f"{chosen.name}.json"
    add("--only", nargs="+", default=[], metavar="TEXT", help="results whose names contain all of these texts")
    add("--again", action="store_true", help="measure again instead of using stored results")
    add("--jobs", type=int, default=1, help="parallel processes (1; more affect the times)")
    add("--list", action="store_true", help="list the results and which are measured, and exit")
    add("--show", action="store_true", help="print the tables of stored results, and exit")
    if chosen.draw is not None:
        add("--draw", action="store_true", help="also plot the results; all of them must be stored")
    default = Path(name) if chosen.is_of_the_user else RESULTS / name
    add("--out", type=Path, default=default, help=f"file of results ({name if chosen.is_of_the_user else default})")
    options = parser.parse_args(given, argparse.Namespace(draw=False))
    if options.draw and options.out != default:
        parser.error(f"--draw plots {default}, and no results of --out: give one of the two")
    return options


def shown(chosen: Benchmark, results: Results) -> list[str]:
    """Return the tables of a benchmark, and how its results were measured."""
    older = results.older(chosen.subject, chosen.others)
    made = [table.markdown(results.rows, older) for table in chosen.tables.values()]
    return [*filter(None, made), tables.sources(results, chosen.subject if older else "")]


def listing() -> str:
    """List the benchmarks, with their numbers of results and of older ones."""
    lines = []
    for name in BENCHMARKS:
        chosen, results = benchmark(name), tables.stored(name)
        n_older = len(results.older(chosen.subject, chosen.others))
        state = f"{len(results.rows)} results, {n_older} of them older than the last change of results"
        lines.append(f"{name}\n    {chosen.about}\n    {state if results.rows else 'no results are stored'}")
    return "\n".join(lines)


# Tables of the documentation ------------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return the documentation pages with tables generated from stored results."""
    from simulations.drift.report import documented

    of = {table: name for name in BENCHMARKS for table in benchmark(name).tables}
    found = {tables.PAGES / "drift.md": documented()}
    for page in sorted(set(tables.PAGES.glob("*.md")) - set(found)):
        text = page.read_text(encoding="utf-8")
        last = {of.get(table): table for table in tables.named(text)}
        found[page] = tables.renewed(text, {table: partial(_table, of[table], table, last) for table in of})
    return found


def _table(name: str, table: str, last: Mapping[str | None, str]) -> str:
    """Generate a table; the last one of a benchmark on a page has the sources."""
    chosen, results = benchmark(name), tables.stored(name)
    older = results.older(chosen.subject, chosen.others)
    text = chosen.tables[table].markdown(results.rows, older)
    is_last = table == last.get(name)
    return f"{text}\n\n{tables.sources(results, chosen.subject if older else '')}" if is_last else text


def update_pages(check: bool) -> int:
    """Update the tables of the documentation, or check them; returns the exit status."""
    behind = {page: text for page, text in pages().items() if text != page.read_text(encoding="utf-8")}
    for page, text in behind.items():
        if not check:
            replace(page, text)
        print(f"{page.relative_to(ROOT)} {'is out of date' if check else 'written'}")
    return 1 if check and behind else 0


if __name__ == "__main__":
    sys.exit(main())
