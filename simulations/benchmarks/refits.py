"""Accuracy and cost of learners with refits, compared with learners without.

Every event is predicted, then learned. Streams without drift also have a ceiling, each solver fitted once to the first
four fifths, and River's forests within an hour each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data, generators
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import SEPARATOR, Rows
from simulations.tables import Column, Table, pick

SOLVERS, FORESTS, WITHOUT = ("trees", "cuts", "newton", "bcd"), ("ARF", "SRP"), "without"
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


def stay() -> Iterator[Case]:
    """List the measurements on streams without drift."""
    for stream, load in STAY.items():
        yield Case(key_of(stream, WITHOUT), lambda load=load: measured(patient(None), *load()))
        for solver in SOLVERS:
            if (stream, solver) == ("mnist", "trees"):  # a refit takes a quarter of an hour
                continue
            yield Case(key_of(stream, solver), lambda load=load, solver=solver: measured(patient(solver), *load()))
            yield Case(key_of(stream, f"{solver} ceiling"), lambda load=load, solver=solver: ceiling(solver, *load()))
        if stream == "mnist":  # with a factor of 2 the last refit is halfway
            yield Case(key_of(stream, "cuts, factor 1.5"), lambda load=load: measured(patient("cuts", 1.5), *load()))
        for kind in FORESTS:
            yield Case(key_of(stream, kind), lambda load=load, kind=kind: forest(kind, *load()), seconds=HOUR / 10)


def ceiling(solver: str, X: Any, y: list[Any]) -> dict[str, Any]:
    """Fit a solver to the first four fifths, and measure its accuracy on the last."""
    from streamsvm import CPMClassifier
    from streamsvm.refit.refitted_model import RefittedModel
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
    RefittedModel(solution, 1).evaluate(last, np.ones(len(last), np.int64), proba)
    accuracy = float((proba.argmax(axis=1) == codes[n:]).mean())
    return {"accuracy": accuracy, "seconds": round(seconds, 2), "settings": solution.settings}


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


def drift() -> Iterator[Case]:
    """List the measurements on streams with drift."""
    for stream, load in DRIFT.items():
        for solver in (None, *SOLVERS):
            yield Case(
                key_of(stream, solver or WITHOUT),
                lambda load=load, solver=solver: measured(make("StreamSVMClassifier", solver), *load()),
            )


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List all measurements."""
    yield from stay()
    yield from drift()


# Tables ---------------------------------------------------------------------------------------------------------------


def last(way: str, rows: Rows) -> float | None:
    """Return the accuracy in percent over the last fifth of a stream."""
    return next((100.0 * row["fifths"][-1] for row in pick(rows, way).values()), None)


def best_ceiling(rows: Rows) -> str | None:
    """Return the best solver fitted to all rows, with its accuracy in percent."""
    found = {s: row["accuracy"] for s in SOLVERS for row in pick(rows, f"{s} ceiling").values()}
    best = max(found, key=lambda solver: round(found[solver], 3), default=None)
    return f"{100.0 * found[best]:.1f} {best}" if best else None


def gains(solver: str, rows: Rows) -> str | None:
    """Format a solver's gain in points: mean, minimum and maximum over streams."""
    without = {key.split(SEPARATOR)[0]: row["accuracy"] for key, row in pick(rows, WITHOUT).items()}
    found = [
        100.0 * (row["accuracy"] - without[stream])
        for key, row in pick(rows, solver).items()
        if (stream := key.split(SEPARATOR)[0]) in without
    ]
    spread = f" ({min(found):+.2f} to {max(found):+.2f})" if len(found) > 1 else ""
    return f"{np.mean(found):+.2f}{spread}" if found else None


def group(parts: Sequence[str]) -> str | None:
    """Return the group of a stream with drift."""
    if parts[0] not in DRIFT:
        return None
    if parts[0].startswith("centres"):
        return f"centres that come back ({sum(name.startswith('centres') for name in DRIFT)})"
    n_others = sum(name != "posture" and not name.startswith("centres") for name in DRIFT)
    return "posture" if parts[0] == "posture" else f"all others ({n_others})"


BENCHMARK = Benchmark(
    "refits",
    "Accuracy and cost of the default classifier with refits, with and without drift.",
    cases,
    {
        "refits_stay": Table(
            "stream",
            lambda parts: parts[0] if parts[0] in STAY else None,
            [
                *(Column(way, partial(last, way)) for way in (WITHOUT, *SOLVERS)),
                Column("best solver of all rows", best_ceiling),
                *(Column(kind, partial(last, kind)) for kind in FORESTS),
            ],
        ),
        "refits_drift": Table("gain", group, [Column(solver, partial(gains, solver)) for solver in SOLVERS]),
    },
    others=FORESTS,
    packages=("river", "numpy", "numba", "scikit-learn"),
)
