"""Accuracy and cost of River's classifiers on every stream.

    python -m simulations.benchmarks.peers              all missing runs, the most informative first
    python -m simulations.benchmarks.peers --jobs 4     in four processes
    python -m simulations.benchmarks.peers --list       list missing runs

Each peer runs once on each stream: every event is predicted, then learned. All runs take hours. Results are stored in
`simulations/results/peers.json` at once, so an interrupted command continues. Peers have their default settings. They
receive the rows as dicts without missing values, and without zeros for sparse rows. Logistic regression and nearest
neighbours receive standardised numbers and one-hot encoded strings. Times are CPU times, so that other load on the
machine has little effect.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import math
import multiprocessing
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulations import data, generators
from simulations.keeping import RESULTS, by_line, machine, replace, rounded
from simulations.learners import standardised

PATH = RESULTS / "peers.json"
PACKAGES = ("river", "numpy")
# Lower bound of probabilities in the log loss.
LEAST = 1e-3


# Streams ----------------------------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """A stream by name; generated streams also have a seed."""

    name: str
    seed: int | None = None

    @property
    def key(self) -> str:
        """Name of the stream in the results."""
        return self.name if self.seed is None else f"{self.name} #{self.seed}"

    @property
    def generated(self) -> bool:
        """Whether the stream is generated."""
        return self.seed is not None

    def load(self) -> tuple[Any, list[Any]]:
        """Load rows and labels."""
        return data.load_stream(self.name) if self.seed is None else generators.load(self.name, self.seed)


REAL = [Stream(name) for name in data.STREAMS]
GENERATED = [Stream(name, seed) for seed in generators.SEEDS for name in generators.GENERATORS]


def digest(table: Any, labels: list[Any]) -> str:
    """Return a hash of rows and labels."""
    seen = hashlib.sha256(repr(labels).encode())
    columns = (
        table.items() if isinstance(table, dict) else [(n, getattr(table, n)) for n in ("data", "indices", "indptr")]
    )
    for name, column in columns:
        seen.update(str(name).encode())
        seen.update(repr(column.tolist()).encode() if column.dtype == object else column.astype("<f8").tobytes())
    return seen.hexdigest()[:12]


# Peers ------------------------------------------------------------------------------------------------------------


def _logistic_regression(n_classes: int, seed: int) -> Any:
    from river import linear_model, multiclass

    model = linear_model.LogisticRegression()
    return standardised(model if n_classes == 2 else multiclass.OneVsRestClassifier(model))


def _neighbours(n_classes: int, seed: int) -> Any:
    from river import neighbors

    return standardised(neighbors.KNNClassifier(engine=neighbors.SWINN(seed=seed)))


def _adaptive_tree(n_classes: int, seed: int) -> Any:
    from river import tree

    return tree.HoeffdingAdaptiveTreeClassifier(seed=seed)


def _adaptive_forest(n_classes: int, seed: int) -> Any:
    from river import forest

    return forest.ARFClassifier(n_models=10, seed=seed)


def _random_patches(n_classes: int, seed: int) -> Any:
    from river import ensemble

    return ensemble.SRPClassifier(n_models=10, seed=seed)


def _leveraging_bagging(n_classes: int, seed: int) -> Any:
    from river import ensemble, tree

    return ensemble.LeveragingBaggingClassifier(tree.HoeffdingTreeClassifier(), n_models=10, seed=seed)


PEERS: dict[str, Callable[[int, int], Any]] = {
    "LR": _logistic_regression,
    "HAT": _adaptive_tree,
    "KNN": _neighbours,
    "ARF": _adaptive_forest,
    "LB": _leveraging_bagging,
    "SRP": _random_patches,
}
# Peers that need boolean labels if there are two classes.
TRUTHS = {"LR"}


# Measures ---------------------------------------------------------------------------------------------------------


def measures(right: NDArray[Any], of_label: NDArray[Any], confidence: NDArray[Any]) -> dict[str, float]:
    """Compute accuracy in percent, log loss, and calibration error in percent."""
    return {
        "accuracy": 100.0 * float(right.mean()),
        "log loss": -float(np.log(np.maximum(of_label, LEAST)).mean()),
        "ECE": 100.0 * calibration_error(confidence, right),
    }


def calibration_error(confidence: NDArray[Any], right: NDArray[Any], n_bins: int = 15) -> float:
    """Compute the expected calibration error, over bins of confidence."""
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, right - confidence, n_bins)
    return float(np.abs(gaps).sum() / len(right))


def judged(probas: Iterable[dict[Hashable, float]], labels: list[Any]) -> dict[str, float]:
    """Compute the measures of River's probabilities.

    The prediction is the most probable label.
    """
    rows = []
    for proba, label in zip(probas, labels, strict=True):
        total = sum(p for p in proba.values() if math.isfinite(p)) or 1.0
        best = max(proba, key=proba.__getitem__, default=None)
        confidence = proba[best] / total if best is not None else 0.0
        rows.append((best == label and best is not None, proba.get(label, 0.0) / total, confidence))
    right, of_label, confidence = np.nan_to_num(np.array(rows, float)).T
    return measures(right, of_label, confidence)


def prequential(model: Any, rows: list[dict[Any, Any]], labels: list[Any]) -> dict[str, float]:
    """Compute the measures and the microseconds per event of a River classifier."""
    predict, learn, probas = model.predict_proba_one, model.learn_one, []
    start = time.process_time()
    for x, label in zip(rows, labels, strict=True):
        probas.append(predict(x))
        learn(x, label)
    seconds = time.process_time() - start
    return judged(probas, labels) | {"us": 1e6 * seconds / len(labels)}


# Cells ------------------------------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A run of a peer on a stream."""

    stream: Stream
    peer: str


@lru_cache(maxsize=1)
def _loaded(stream: Stream) -> tuple[list[dict[Any, Any]], list[Any], dict[str, Any]]:
    """Return rows and labels for River, and properties that identify the stream."""
    table, labels = stream.load()
    facts = {"rows": len(labels), "classes": len(set(labels)), "digest": digest(table, labels)}
    return data.rows_of(table), labels, facts


def measure(cell: Cell) -> tuple[dict[str, Any], dict[str, float]]:
    """Run a cell; returns properties of the stream, and the measures."""
    rows, labels, facts = _loaded(cell.stream)
    if cell.peer in TRUTHS and facts["classes"] == 2:
        labels = [label == labels[0] for label in labels]
    model = PEERS[cell.peer](facts["classes"], cell.stream.seed or 0)
    return facts, rounded(prequential(model, rows, labels))


# Approximate microseconds per event of a peer: a constant, and a term per feature.
COSTS = {"LR": (10, 1.5), "HAT": (40, 8), "KNN": (1_000, 40), "ARF": (450, 15), "LB": (500, 100), "SRP": (600, 80)}
# Rows and present features of streams that differ from the default.
SIZES = {
    "electricity": (45_312, 7),
    "insects 2013": (5_325, 49),
    "insects abrupt": (5_325, 49),
    "keystroke": (1_600, 10),
    "luxembourg": (1_901, 31),
    "ozone": (2_534, 72),
    "power supply": (29_928, 2),
    "usenet1": (1_500, 99),
    "SEA 50k": (50_000, 3),
    "posture": (50_000, 3),
    "spam": (9_324, 500),
    "airlines": (26_969, 7),
    "RBF incremental": (20_000, 20),
    "LED gradual": (20_000, 24),
}


def seconds(cell: Cell) -> float:
    """Estimate the run time of a cell."""
    n, n_features = SIZES.get(cell.stream.name, (generators.LENGTH, 10))
    fixed, each = COSTS[cell.peer]
    return 1e-6 * n * (fixed + each * n_features)


def _worth(cell: Cell) -> int:
    """Return the priority of a cell: real streams and efficient peers come first."""
    if cell.stream.name == "spam" and cell.peer not in ("LR", "HAT", "ARF"):
        return 9
    if cell.stream.seed:
        return {"LR": 5, "HAT": 5, "ARF": 5, "KNN": 6, "LB": 7, "SRP": 8}[cell.peer]
    if cell.stream.generated:
        return {"LR": 2, "HAT": 2, "ARF": 2, "KNN": 4, "LB": 4, "SRP": 4}[cell.peer]
    return {"LR": 0, "HAT": 0, "ARF": 1, "KNN": 3, "LB": 3, "SRP": 3}[cell.peer]


def cells() -> list[Cell]:
    """Return all cells by priority, the fastest first among equals."""
    every = [Cell(stream, peer) for stream in REAL + GENERATED for peer in PEERS]
    return sorted(every, key=lambda cell: (_worth(cell), seconds(cell)))


# Results ----------------------------------------------------------------------------------------------------------


class Results:
    """The completed cells, in a file that is written atomically."""

    def __init__(self, path: Path = PATH) -> None:
        self.path = path
        versions = {package: importlib.metadata.version(package) for package in PACKAGES}
        kept = json.loads(path.read_text()) if path.exists() else {"versions": versions, "machine": machine()}
        if kept["versions"]["river"] != versions["river"]:
            raise SystemExit(
                f"{path} holds results of river {kept['versions']['river']}, this is {versions['river']}: "
                "put it aside, or install that version"
            )
        self.head = {name: kept[name] for name in ("versions", "machine")}
        self.streams: dict[str, dict[str, Any]] = kept.get("streams", {})

    def __contains__(self, cell: Cell) -> bool:
        return cell.peer in self.streams.get(cell.stream.key, {}).get("peers", {})

    def add(self, cell: Cell, facts: dict[str, Any], measured: dict[str, float]) -> None:
        """Store a cell; if the rows have changed, the results of other peers are dropped."""
        known = self.streams.get(cell.stream.key, {})
        peers = known["peers"] if known.get("digest") == facts["digest"] else {}
        self.streams[cell.stream.key] = facts | {"peers": peers | {cell.peer: measured}}
        head, lines = json.dumps(self.head)[1:-1], by_line(dict(sorted(self.streams.items())))
        replace(self.path, f'{{{head},\n"streams": {{\n{lines}\n}}}}\n')


def run(todo: list[Cell], results: Results, jobs: int) -> None:
    """Run cells in separate processes, and store each result at once."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(measure, cell): cell for cell in todo}
        for i, future in enumerate(as_completed(futures), start=1):
            cell = futures[future]
            try:
                facts, measured = future.result()
            except Exception as error:  # a failing peer must not stop the other runs
                print(f"{i}/{len(todo)}  {cell.stream.key}, {cell.peer}: {type(error).__name__}: {error}", flush=True)
                continue
            results.add(cell, facts, measured)
            print(
                f"{i}/{len(todo)}  {cell.stream.key:26s} {cell.peer:4s} {measured['accuracy']:6.2f} %"
                f"  log loss {measured['log loss']:.3f}  ECE {measured['ECE']:4.1f} %  {measured['us']:7.0f} us",
                flush=True,
            )


def main() -> None:
    """Run the missing cells."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="names of peers")
    parser.add_argument("--streams", nargs="*", metavar="NAME", help="names of streams, with all seeds")
    parser.add_argument("--list", action="store_true", help="list missing runs and estimated times")
    options = parser.parse_args()
    names = {stream.name for stream in REAL + GENERATED}
    wanted = set(options.streams or names)
    if wanted - names:
        parser.error(f"unknown streams: {', '.join(sorted(wanted - names))}")
    results = Results()
    todo = [
        cell for cell in cells() if cell not in results and cell.peer in options.peers and cell.stream.name in wanted
    ]
    if options.list:
        for cell in todo:
            print(f"{cell.stream.key:26s} {cell.peer:4s} {seconds(cell):7.0f} s")
        print(f"{len(todo)} of {len(cells())} runs are missing, about {sum(map(seconds, todo)) / 3600:.1f} core hours")
        return
    run(todo, results, options.jobs)


if __name__ == "__main__":
    main()
