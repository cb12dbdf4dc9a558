"""Accuracy and cost of learners with refits, compared with learners without.

    python -m simulations.benchmarks.refits stay      streams without drift, and the ceiling: each solver on all rows
    python -m simulations.benchmarks.refits forests   River's forests on these streams, within an hour each
    python -m simulations.benchmarks.refits drift     real streams, and generators with drift
    python -m simulations.benchmarks.refits show      tables of stored results

Every event is predicted, then learned. Results are stored in `simulations/results/refits.json` at once, so an
interrupted command continues. `--only TEXT...` selects the cells whose names contain all texts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data, generators
from simulations.keeping import keep, kept

NAME = "refits"
PACKAGES = ("river", "numpy", "numba", "scikit-learn")
SOLVERS = ("trees", "cuts", "newton", "bcd")
# Window for streams without drift, longer than the default.
LONG = 100_000
# Maximum CPU seconds of a forest.
HOUR = 3_600.0

Stream = tuple[Any, list[Any]]


# Streams --------------------------------------------------------------------------------------------------------------


def shuffled(X: NDArray[np.float64], y: NDArray[Any], n: int) -> Stream:
    """Return the first n rows in random order."""
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return np.ascontiguousarray(X[order]), y[order].tolist()


def _covertype(n: int = 200_000) -> Stream:
    return shuffled(*data.load_covertype_classes(), n)


def _mnist() -> Stream:
    X, y = data.load_digits("mnist.train")
    return shuffled(X, y, 60_000)


def _libsvm(file: str, d: int) -> Callable[[], Stream]:
    def load() -> Stream:
        X, y = data.load_libsvm(file, d)
        return shuffled(np.asarray(X.todense()), y, len(y))

    return load


def _rbf() -> Stream:
    from river.datasets import synth

    stream = synth.RandomRBF(seed_model=7, seed_sample=7, n_classes=5, n_features=15, n_centroids=200)
    rows = [(list(x.values()), y) for x, y in stream.take(50_000)]
    return np.array([x for x, _ in rows]), [y for _, y in rows]


STAY: dict[str, Callable[[], Stream]] = {
    "covertype": _covertype,
    "mnist": _mnist,
    "ijcnn1": _libsvm("ijcnn1.train.libsvm.gz", 22),
    "a9a": _libsvm("a9a.train.libsvm.gz", 123),
    "RBF": _rbf,
}


def centres(seed: int) -> Stream:
    """Generate two concepts that alternate four times each.

    A concept is a label for each of 12 centres in 8 dimensions.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24_000, 8))
    where = [rng.normal(size=(12, 8)) for _ in range(2)]
    labels = [rng.integers(0, 3, 12) for _ in range(2)]
    nearest = [((X[:, None] - own) ** 2).sum(axis=2).argmin(axis=1) for own in where]
    concept = np.arange(len(X)) // 3_000 % 2
    return X, np.where(concept == 0, labels[0][nearest[0]], labels[1][nearest[1]]).tolist()


DRIFT: dict[str, Callable[[], Stream]] = {
    **{name: (lambda name=name: data.load_stream(name)) for name in data.STREAMS},
    **{name: (lambda name=name: generators.load(name, 0)) for name in generators.GENERATORS},
    **{
        f"{name} #{seed}": (lambda name=name, seed=seed: generators.load(name, seed))
        for name in ("RBF recurring", "STAGGER recurring", "sine recurring")
        for seed in (1, 2)
    },
    **{f"centres recurring #{seed}": (lambda seed=seed: centres(seed)) for seed in range(3)},
}


# Running --------------------------------------------------------------------------------------------------------------


def make(learner: str, solver: str | None, **settings: Any) -> Any:
    """Create a learner by name, with refits unless `solver` is None."""
    import streamsvm
    from streamsvm import RefitClassifier

    model = getattr(streamsvm, learner)()
    return model if solver is None else RefitClassifier(model, solver, **settings)


def part(X: Any, a: int, b: int) -> Any:
    """Select rows a to b of an array, a sparse matrix or a table."""
    return {name: column[a:b] for name, column in X.items()} if isinstance(X, dict) else X[a:b]


def run(model: Any, X: Any, y: list[Any]) -> tuple[NDArray[np.bool_], float]:
    """Run a model; returns whether each prediction is correct, and the seconds."""
    start, hits = time.perf_counter(), []
    for a in range(0, len(y), 1_000):
        predicted = model.test_then_train(part(X, a, a + 1_000), y[a : a + 1_000])
        hits += [p == label for p, label in zip(predicted.tolist(), y[a : a + 1_000], strict=True)]
    return np.array(hits), time.perf_counter() - start


def scored(hits: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the accuracy, and that of each fifth of the events."""
    n = len(hits)
    fifths = [float(np.mean(hits[k * n // 5 : (k + 1) * n // 5])) for k in range(5)]
    return {"accuracy": float(hits.mean()), "fifths": [round(f, 5) for f in fifths]}


def measured(model: Any, X: Any, y: list[Any]) -> dict[str, Any]:
    """Measure the accuracy of a model on a stream, and describe its refits."""
    hits, seconds = run(model, X, y)
    found = scored(hits) | {"seconds": round(seconds, 2)}
    refits = getattr(model, "refits", [])
    if refits:
        found["refits"] = len(refits)
        found["solver_seconds"] = round(sum(refit["seconds"] for refit in refits), 2)
        found["settings"] = refits[-1]["settings"]
        found["failed"] = sum(refit["outcome"].startswith("failed") for refit in refits)
        found["said"] = round(sum(leader["weight"] for leader in model.leaders() if "refit" in leader["member"]), 3)
    return found


def patient(solver: str | None, factor: float = 2.0) -> Any:
    """Create a learner for streams without drift; refit intervals grow by a factor."""
    from streamsvm.refit import Growing, Latest

    settings = {"window": Latest(LONG, max_bytes=1 << 30), "trigger": Growing(1_000, factor)}
    return make("StreamSVMClassifier", solver, **(settings if solver else {}))


def stay() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the measurements on streams without drift."""
    for stream, load in STAY.items():
        yield f"{stream} / without", lambda load=load: measured(patient(None), *load())
        for solver in SOLVERS:
            if (stream, solver) == ("mnist", "trees"):  # a refit takes a quarter of an hour
                continue
            yield f"{stream} / {solver}", lambda load=load, solver=solver: measured(patient(solver), *load())
        if stream == "mnist":  # with a factor of 2 the last refit is halfway
            yield f"{stream} / cuts, factor 1.5", lambda load=load: measured(patient("cuts", 1.5), *load())
        for solver in SOLVERS:
            if (stream, solver) != ("mnist", "trees"):
                yield f"{stream} / {solver} ceiling", lambda load=load, solver=solver: ceiling(solver, *load())


def ceiling(solver: str, X: Any, y: list[Any]) -> dict[str, Any]:
    """Fit a solver to the first four fifths, and measure its accuracy on the last."""
    from streamsvm import CPMClassifier
    from streamsvm.refit.members import Member
    from streamsvm.refit.solvers import solver_of
    from streamsvm.refit.tasks import Task
    from streamsvm.refit.windows import Latest

    n = len(y) * 4 // 5
    learner = CPMClassifier()
    rows, codes, weights, _ = learner.encode_labelled(X, y)
    memory = Latest(n, max_bytes=4 << 30).begin()
    memory.add(rows.part(0, n), codes[:n], weights[:n])
    start = time.perf_counter()
    solution = solver_of(solver).solve(Task(memory.snapshot(), len(learner._space)))
    seconds, last = time.perf_counter() - start, rows.part(n, len(y))
    proba = np.zeros((len(last), len(learner.labels)))
    Member(solution, 1).evaluate(last, np.ones(len(last), np.int64), proba)
    accuracy = float((proba.argmax(axis=1) == codes[n:]).mean())
    return {"accuracy": accuracy, "seconds": round(seconds, 2), "settings": solution.settings}


def forests() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the measurements of River's forests on streams without drift.

    If a forest has not finished a stream, StreamSVM is also measured on the events that it completed.
    """
    for kind in ("ARF", "SRP"):
        for stream, load in STAY.items():
            yield f"{stream} / {kind}", lambda load=load, kind=kind: forest(kind, *load())
            n = kept(NAME).get(f"{stream} / {kind}", {}).get("of_events")
            for solver in (None, *SOLVERS[:2]) if n else ():
                if (stream, solver) == ("mnist", "trees"):
                    continue
                yield (
                    f"{stream} / first {n} / {solver or 'without'}",
                    lambda load=load, solver=solver, n=n: measured(patient(solver), *beginning(n, *load())),
                )


def beginning(n: int, X: Any, y: list[Any]) -> Stream:
    """Return the first n events."""
    return part(X, 0, n), y[:n]


def forest(kind: str, X: Any, y: list[Any], seconds: float = HOUR) -> dict[str, Any]:
    """Measure a forest of River with ten trees, up to a limit of CPU seconds."""
    from river import ensemble
    from river import forest as forests

    model = {"ARF": forests.ARFClassifier, "SRP": ensemble.SRPClassifier}[kind](n_models=10, seed=1)
    hits, start = list[bool](), time.process_time()
    for row, label in zip(X, y, strict=True):
        if time.process_time() - start > seconds:
            break
        x = dict(enumerate(row.tolist()))
        hits.append(model.predict_one(x) == label)
        model.learn_one(x, label)
    found = scored(np.array(hits)) | {"seconds": round(time.process_time() - start, 2)}
    return found | ({"of_events": len(hits)} if len(hits) < len(y) else {})


def drift() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the measurements on streams with drift."""
    for stream, load in DRIFT.items():
        for solver in (None, *SOLVERS):
            yield (
                f"{stream} / {solver or 'without'}",
                lambda load=load, solver=solver: measured(make("StreamSVMClassifier", solver), *load()),
            )


# What is kept ---------------------------------------------------------------------------------------------------------

PARTS = {"stay": stay, "forests": forests, "drift": drift}


def do(what: str, only: list[str]) -> None:
    """Run the missing measurements."""
    for key, measure in PARTS[what]():
        if key in kept(NAME) or not all(text in key for text in only):
            continue
        found = measure()
        keep(NAME, kept(NAME) | {key: found}, PACKAGES, lines=True)  # another process may have stored results
        print(key, found, flush=True)


def show() -> None:
    """Print tables of stored results."""
    results = kept(NAME)
    for what, cells in PARTS.items():
        print(f"\n{what}")
        for key, _ in cells():
            if key in results:
                print(f"  {key:45} {_line(key, results)}")


def stay_table() -> str:
    """Format the accuracy on the last fifth of streams without drift.

    Columns are StreamSVM with each solver, the best solver of all rows, and River's forests.
    """
    found = kept(NAME)

    def last(key: str) -> str:
        return f"{100 * found[key]['fifths'][-1]:.1f}" if key in found else ""

    lines = [
        f"| | without | {' | '.join(SOLVERS)} | best solver of all rows | ARF | SRP |",
        "|---" * (len(SOLVERS) + 5) + "|",
    ]
    for stream in STAY:
        ceilings = {
            f"{100 * found[key]['accuracy']:.1f}": s for s in SOLVERS if (key := f"{stream} / {s} ceiling") in found
        }
        top = max(ceilings, key=float, default="")
        cells = [last(f"{stream} / {way}") for way in ("without", *SOLVERS)]
        cells += [f"{top} {ceilings[top]}" if top else "", *(last(f"{stream} / {kind}") for kind in ("ARF", "SRP"))]
        lines.append(f"| {stream} | {' | '.join(cells)} |")
    return "\n".join(lines)


def drift_table() -> str:
    """Format the gain of each solver in percentage points, by group of streams."""
    found = kept(NAME)

    def gains(streams: list[str], solver: str) -> list[float]:
        return [100 * (found[f"{s} / {solver}"]["accuracy"] - found[f"{s} / without"]["accuracy"]) for s in streams]

    centres = [stream for stream in DRIFT if stream.startswith("centres")]
    groups = {
        f"centres that come back ({len(centres)})": centres,
        "posture": ["posture"],
        f"all others ({len(DRIFT) - len(centres) - 1})": [s for s in DRIFT if s != "posture" and s not in centres],
    }
    lines = [f"| | {' | '.join(SOLVERS)} |", "|---" * (len(SOLVERS) + 1) + "|"]
    for name, streams in groups.items():
        cells = []
        for solver in SOLVERS:
            of = gains(streams, solver)
            spread = f" ({min(of):+.2f} to {max(of):+.2f})" if len(of) > 1 else ""
            cells.append(f"{np.mean(of):+.2f}{spread}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _line(key: str, results: dict[str, Any]) -> str:
    entry = results[key]
    *stream, _ = key.split(" / ")
    base = results.get(" / ".join([*stream, "without"]), {})
    if "accuracy" not in entry:
        return " ".join(f"{name}={value:g}" for name, value in entry.items())
    gain = f"{100 * (entry['accuracy'] - base['accuracy']):+6.2f}" if "accuracy" in base else "      "
    last = f"last fifth {100 * entry['fifths'][-1]:6.2f}" if "fifths" in entry else ""
    more = f"{entry['refits']} refits of {entry['solver_seconds']:g} s" if "refits" in entry else ""
    return f"{100 * entry['accuracy']:6.2f} {gain} {last} in {entry.get('seconds', 0):g} s {more}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*PARTS, "show"])
    parser.add_argument("--only", nargs="*", default=[])
    given = parser.parse_args()
    if given.what == "show":
        show()
    else:
        do(given.what, given.only)


if __name__ == "__main__":
    main()
