"""The single learners with refits that enter them, on every stream: what they gain, and how often one is adopted.

    python -m simulations.benchmarks.refit_adoption                  all that is missing
    python -m simulations.benchmarks.refit_adoption --only posture   on some of the streams
    python -m simulations.benchmarks.refit_adoption --again          all anew

What is done is kept in `simulations/results/refit-adoption.json` at once, and the same command goes on with
the rest. Every event is predicted, then learned. Windows and triggers are the defaults. Covertype is shuffled, so that
nothing drifts there.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import cache
from typing import Any

import numpy as np

import connectors
from simulations import data
from simulations.keeping import keep, kept, rounded
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier
from streamsvm.refit.adoption import ADOPTED, GIVEN_UP

RESULT = "refit-adoption"
SHUFFLED = "covertype shuffled"
STREAMS = (
    *("electricity", "SEA 50k", "keystroke", "luxembourg", "insects 2013", "insects abrupt", "posture", "usenet1"),
    *("power supply", "ozone", SHUFFLED),
)
BATCH = 1_000
LEARNERS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...]]] = {
    "CPM": (CPMClassifier, {}, ("newton", "bcd")),
    "CPM, one face": (CPMClassifier, {"n_faces": 1}, ("newton", "bcd")),
    "BSGD": (BSGDClassifier, {}, ("cuts",)),
}


def load(name: str) -> tuple[Any, list[Any]]:
    """Rows and labels of a stream."""
    return covertype(60_000) if name == SHUFFLED else data.load_stream(name)


def covertype(n: int) -> tuple[Any, list[Any]]:
    """n rows of Covertype in random order, with all seven classes."""
    source = connectors.open_source(str(data.folder() / "covtype.csv.gz"), label="label", batch_size=65_536)
    tables, labels = [], []
    for batch in source:
        tables.append(batch.features)
        labels += batch.labels
    source.close()
    order = np.random.default_rng(0).permutation(len(labels))[:n]
    table = {name: np.concatenate([table[name] for table in tables])[order] for name in tables[0]}
    return table, [labels[i] for i in order]


def prequential(model: Any, X: Any, y: list[Any]) -> dict[str, float]:
    """The accuracy over all events and over the last fifth, and the time an event takes."""
    right, start = [], time.perf_counter()
    for at in range(0, len(y), BATCH):
        labels = y[at : at + BATCH]
        part = {name: column[at : at + BATCH] for name, column in X.items()}
        found = model.test_then_train(part, labels).tolist()
        right += [one == label for one, label in zip(found, labels, strict=True)]
    us = 1e6 * (time.perf_counter() - start) / len(y)
    last = right[-len(right) // 5 :]
    return {"accuracy": 100.0 * statistics.mean(right), "last fifth": 100.0 * statistics.mean(last), "us": us}


def measure(stream: tuple[Any, list[Any]], learner: str, solver: str | None) -> dict[str, float]:
    """What a learner reaches on a stream, with refits by a solver, or without."""
    make, settings, _ = LEARNERS[learner]
    if solver is None:
        return rounded(prequential(make(**settings), *stream))
    model = RefitClassifier(make(**settings), solver, hand_over="adopt")
    reached = prequential(model, *stream)
    outcomes = [note["outcome"] for note in model.refits]
    counts = {
        "refits": len(outcomes),
        "adopted": outcomes.count(ADOPTED),
        "given up": outcomes.count(GIVEN_UP),
        "failed": sum(outcome.startswith("failed") for outcome in outcomes),
        "seconds in refits": sum(note["seconds"] for note in model.refits),
    }
    return rounded(reached | counts)


def main() -> None:
    """Measure what is missing, and show all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=STREAMS, default=STREAMS, metavar="STREAM")
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    result = {} if given.again else kept(RESULT)
    for name in given.only:
        stream = cache(lambda name=name: load(name))
        for learner, (_, _, solvers) in LEARNERS.items():
            for solver in (None, *solvers):
                key = " / ".join((name, learner, solver or "alone"))
                if key not in result:
                    result[key] = measure(stream(), learner, solver)
                    keep(RESULT, result, packages=("numpy", "numba"), lines=True)
    show(result)


def show(result: dict[str, Any]) -> None:
    """A table of accuracies, and of how many of the refits were adopted."""
    columns = [(learner, solver) for learner, (_, _, solvers) in LEARNERS.items() for solver in (None, *solvers)]
    print(f"{'':20s}" + "".join(f"{learner if solver is None else solver:>18s}" for learner, solver in columns))
    for name in STREAMS:
        cells = [result.get(" / ".join((name, learner, solver or "alone"))) for learner, solver in columns]
        print(f"{name:20s}" + "".join(f"{'' if cell is None else _cell(cell):>18s}" for cell in cells))


def _cell(cell: dict[str, Any]) -> str:
    adopted = f" ({cell['adopted']:.0f}/{cell['refits']:.0f})" if "refits" in cell else ""
    return f"{cell['accuracy']:.2f}{adopted}"


if __name__ == "__main__":
    main()
