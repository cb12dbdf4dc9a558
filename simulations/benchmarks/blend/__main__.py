"""Accuracy and cost of the blend with one setting for all streams.

    python -m simulations.benchmarks.blend streams    every learner on every stream, and the peers
    python -m simulations.benchmarks.blend show       stored results with the current results of the peers
    python -m simulations.benchmarks.blend beside     compared with another version (`--checkout`), rows and events

`--only` takes names of streams and `real`, `generators`, `choosing`, `confirming`; such partial results are not stored.
Results are in `simulations/results`, plots in `simulations/pictures`. `python -m simulations.benchmarks.peers` measures
the peers. Times are CPU times on one core.
"""

from __future__ import annotations

import argparse

from simulations.benchmarks.blend import LEARNERS, beside, chosen, streams


def main() -> None:
    """Run the selected part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("streams", "show", "beside"))
    parser.add_argument("--only", nargs="+", metavar="STREAM", help="streams or groups of streams")
    parser.add_argument("--seeds", nargs="+", type=int, help="seeds of generated streams")
    parser.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS), help="for `streams`")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes, for `streams`")
    parser.add_argument("--checkout", help="folder of the other version, for `beside`")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds, for `beside`")
    options = parser.parse_args()
    if options.part == "beside" and options.checkout is None:
        parser.error("`beside` needs `--checkout`")
    if options.part == "streams":
        streams.run(chosen(options.only, options.seeds), options.learners, options.jobs)
    elif options.part == "show":
        streams.show()
    else:
        chosen_ones = chosen(options.only, options.seeds or [0])
        beside.run(chosen_ones, options.checkout, options.rounds, keeping=options.only is None)


if __name__ == "__main__":
    main()
