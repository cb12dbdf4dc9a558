"""Cost and accuracy of truncated losses, compared with LIBLINEAR on one core.

    python -m simulations.benchmarks.bcd truncated    convex-concave rounds, and such rounds with LIBLINEAR; optionally
                                                      followed by s and seeds, which are added to stored results
    python -m simulations.benchmarks.bcd convex       s = inf, and LIBLINEAR
    python -m simulations.benchmarks.bcd robustness   training labels flipped at random and adversarially
    python -m simulations.benchmarks.bcd memory       4 GB of rows on disk with 400 MB of memory (needs 9 GB of disk);
                                                      optionally followed by a number of rows (memory scales with it),
                                                      a folder, and parts (index, plain, forest, scan, ...)

The first three use Covertype, class 2 against the rest, scaled to [0, 1], with two thirds for training and C = 1. Times
are CPU seconds of `fit` with data in memory. Results are stored in `simulations/results`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from simulations import data
from simulations.keeping import keep, kept
from streamsvm import IndexedBCD
from streamsvm.batch.indexed_bcd.newton import Newton
from streamsvm.batch.metric_forest import MetricForest, building

PACKAGES = ("scikit-learn", "numpy", "numba", "scipy")
ROUNDS = 12


def losses_of(model: Any, X: Any, y: Any, loss: str) -> Any:
    over = np.maximum(0.0, 1.0 - y * (X @ model.coef_[0] + model.intercept_[0]))
    return over**2 if loss == "squared_hinge" else over


def objective(model: Any, X: Any, y: Any, s: float, loss: str = "hinge") -> float:
    """Compute the objective with a penalised bias, truncated at 1 + s, for C = 1."""
    w, b = model.coef_[0], model.intercept_[0]
    losses = losses_of(model, X, y, loss)
    return float(0.5 * (w @ w + b * b) + np.minimum(losses, 1.0 + s).sum())


def error(model: Any, X: Any, y: Any) -> float:
    return float(np.mean(model.predict(X) != y))


def liblinear_rounds(
    X: Any, y: Any, s: float, seed: int, loss: str = "hinge", tol: float = 0.01, dual: bool = True
) -> list[dict[str, Any]]:
    """Run convex-concave rounds that use LIBLINEAR, from a solution for 10,000 rows.

    Returns time, objective and model after each round.
    """
    how = {"loss": loss, "tol": tol, "dual": dual, "random_state": seed}
    start = time.process_time()
    rows = np.random.default_rng(seed).choice(len(y), 10_000, replace=False)
    model = LinearSVC(**how).fit(X[rows], y[rows])
    stands = []
    for _ in range(ROUNDS):
        inside = losses_of(model, X, y, loss) <= 1.0 + s
        model = LinearSVC(**how).fit(X[inside], y[inside])
        value = objective(model, X, y, s, loss)
        stands.append({"seconds": time.process_time() - start, "objective": value, "model": model})
    return stands


def traced(rows: Any, y: Any, **how: Any) -> tuple[IndexedBCD, list[tuple[float, float]]]:
    """Fit a model; returns it with the time and objective after each round."""
    stands: list[tuple[float, float]] = []

    def stand(_: Any, step: Any) -> None:
        stands.append((time.process_time() - start, step.objective))

    start = time.process_time()
    return IndexedBCD(callback=stand, **how).fit(rows, y), stands


def seconds_to(stands: list[tuple[float, float]], value: float) -> float:
    """Return the time when the objective first reaches `value`."""
    return next((seconds for seconds, reached in stands if reached <= value), math.inf)


def truncated(s: str = "", *seeds: str) -> None:
    """Run one s with some seeds, which are added to stored results; or all."""
    if not s:
        for each in ("1.0", "0.25"):
            truncated(each, *(seeds or "01234"))
        return
    X, y, X_test, y_test = data.load_covertype()
    IndexedBCD(max_iter=2).fit(X, y)  # compiles
    kept_runs = kept("bcd-truncated").get(f"s = {s}", {}).get("runs", {})
    for seed in map(int, seeds):
        theirs = liblinear_rounds(X, y, float(s), seed)
        last = theirs[-1]["objective"]
        target = 1.005 * last
        runs: dict[str, dict[str, float]] = {
            "LIBLINEAR inside": {
                "seconds": seconds_to([(stand["seconds"], stand["objective"]) for stand in theirs], target),
                "to the end": theirs[-1]["seconds"],
                "objective": last,
                "test error": error(theirs[-1]["model"], X_test, y_test),
            }
        }
        model, found = traced(X, y, s=float(s), random_state=seed)
        early = {"callback": lambda _, step, target=target: step.objective <= target, "max_iter": model.n_iter_}
        at_target = IndexedBCD(s=float(s), random_state=seed, **early).fit(X, y)
        runs["newton"] = {
            "seconds": seconds_to(found, target),
            "to the end": found[-1][0],
            "objective": model.objective_,
            "test error": error(model, X_test, y_test),
            "test error at 0.5 %": error(at_target, X_test, y_test),
            "certificate": float(model.certificate_ / model.objective_),
            "support": float(model.n_support_[0]),
            "rounds": float(model.n_iter_),
        }
        kept_runs[str(seed)] = runs
        print(seed, runs, flush=True)
    median = {
        name: {key: statistics.median(run[name][key] for run in kept_runs.values()) for key in runs[name]}
        for name in runs
    }
    ours, theirs = median["newton"], median["LIBLINEAR inside"]
    ours["ratio"] = ours["seconds"] / theirs["seconds"]
    ours["median of ratios"] = statistics.median(
        run["newton"]["seconds"] / run["LIBLINEAR inside"]["seconds"] for run in kept_runs.values()
    )
    ours["ratio of whole runs"] = ours["to the end"] / theirs["to the end"]
    result = {"medians": median, "runs": kept_runs}
    keep("bcd-truncated", kept("bcd-truncated") | {f"s = {s}": result}, PACKAGES)
    for name, row in median.items():
        print(f"s = {s}, {name}:", {key: round(value, 5) for key, value in row.items()}, flush=True)


def convex(repeats: int = 3) -> None:
    X, y, X_test, y_test = data.load_covertype()
    IndexedBCD(s=math.inf).fit(X, y)
    rows: list[dict[str, float]] = []
    for seed in range(repeats):
        start = time.process_time()
        other = LinearSVC(loss="hinge", tol=0.01, random_state=seed).fit(X, y)
        seconds = time.process_time() - start
        theirs = objective(other, X, y, math.inf)
        model, found = traced(X, y, s=math.inf, tol=1e-4, random_state=seed)
        rows.append(
            {
                "LIBLINEAR's seconds": seconds,
                "LIBLINEAR's objective": theirs,
                "LIBLINEAR's test error": error(other, X_test, y_test),
                "objective over LIBLINEAR's": model.objective_ / theirs - 1.0,
                "seconds to LIBLINEAR's + 1e-3": seconds_to(found, 1.001 * theirs),
                "seconds to LIBLINEAR's": seconds_to(found, theirs),
                "seconds to the certificate of 1e-4": found[-1][0],
                "test error": error(model, X_test, y_test),
            }
        )
    median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    median["ratio"] = median["seconds to LIBLINEAR's + 1e-3"] / median["LIBLINEAR's seconds"]
    print(median, flush=True)
    keep("bcd-convex", median, PACKAGES)


def robustness(seeds: int = 3) -> None:
    """Flip labels at random, or those with the highest scores of one class."""
    X, y, X_test, y_test = data.load_covertype()
    sure = IndexedBCD().fit(X, y).decision_function(X)
    result: dict[str, Any] = {}
    for kind in ("at random", "far out"):
        for share in (0.0, 0.05, 0.1, 0.2, 0.3):
            errors: dict[str, list[float]] = {"LIBLINEAR": [], "s = inf": [], "s = 1": [], "s = 0.25": [], "s = 0": []}
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                if kind == "at random":
                    flip = rng.random(len(y)) < share
                else:  # half of the rows beyond a quantile, so that both labels occur
                    flip = (sure > np.quantile(sure, 1.0 - 2.0 * share)) & (rng.random(len(y)) < 0.5)
                noisy = np.where(flip, -y, y)
                other = LinearSVC(loss="hinge", tol=0.01, random_state=seed).fit(X, noisy)
                errors["LIBLINEAR"].append(error(other, X_test, y_test))
                for name, s in (("s = inf", math.inf), ("s = 1", 1.0), ("s = 0.25", 0.25), ("s = 0", 0.0)):
                    errors[name].append(error(IndexedBCD(s=s, random_state=seed).fit(X, noisy), X_test, y_test))
            result.setdefault(kind, {})[str(share)] = {name: statistics.median(e) for name, e in errors.items()}
            print(kind, share, result[kind][str(share)], flush=True)
            keep("bcd-robustness", result, PACKAGES)


# An index --------------------------------------------------------------------------------------------------------


class Generated:
    """Rows in clusters near a subspace of 10 dimensions, with noisy linear labels.

    10 % of the labels are flipped.
    """

    d = 200

    def __init__(self, seed: int = 0, d: int = d, spread: float = 0.3) -> None:
        rng = np.random.default_rng(seed)
        self.d, self.spread = d, spread
        self.embedding = rng.normal(size=(10, self.d)) / math.sqrt(10.0)
        self.centers = 2.0 * rng.normal(size=(500, 10))
        self.w = rng.normal(size=self.d) / math.sqrt(self.d)

    def batch(self, n: int, seed: int) -> tuple[Any, Any, Any]:
        """Return rows in single precision, their labels, and the labels before flipping."""
        rng = np.random.default_rng([1, seed])
        latent = self.centers[rng.integers(0, 500, n)] + self.spread * rng.normal(size=(n, 10))
        X = (latent @ self.embedding).astype(np.float32)
        X += np.float32(0.05) * rng.standard_normal(size=X.shape, dtype=np.float32)
        truth = np.where(X @ self.w > 0.0, 1, -1)
        return X, np.where(rng.random(n) < 0.1, -truth, truth), truth


# More rows than memory -------------------------------------------------------------------------------------------

BATCH, N_TEST = 5_000, 50_000
CONTESTANTS = ("forest", "scan", "pilot and passes", "SGD")


def build_index(name: str, folder: str, n: int, bound: int) -> dict[str, float]:
    """Build an index, or rows in random order, in a separate process.

    Returns time and memory.
    """
    source = Generated()
    generating = 0.0

    def batches() -> Iterator[tuple[Any, Any]]:
        nonlocal generating
        for k in range(n // BATCH):
            start = time.process_time()
            batch = source.batch(BATCH, k)[:2]
            generating += time.process_time() - start
            yield batch

    source.batch(BATCH, 0)
    before = memory_now()
    start = time.process_time()
    how = {}
    if name != "index":  # leaves of consecutive rows
        building.grow = lambda X, leaf, _: np.array_split(np.arange(X.shape[0]), max(1, X.shape[0] // leaf))
        how["n_sample"] = bound // (4 * Generated.d)
    MetricForest.from_batches(Path(folder) / name, batches(), memory=bound, **how)
    return {
        "CPU seconds": time.process_time() - start - generating,
        "MB": (memory_of("VmHWM") - before) / 2**20,
        "MB on disk": sum(file.stat().st_size for file in (Path(folder) / name).iterdir()) / 2**20,
    }


def contest(which: str, folder: str, bound: int) -> dict[str, Any]:
    """Fit in one way in a separate process.

    Returns hyperplanes with their times and bytes read, and the memory.
    """
    path = Path(folder) / ("index" if which == "forest" else "plain")
    small = Generated().batch(3000, 10**6)
    with tempfile.TemporaryDirectory() as other:  # compiles
        MetricForest.from_batches(Path(other) / "index", [small[:2]])
        for s in (1.0, math.inf):
            with MetricForest.open(Path(other) / "index") as forest:
                IndexedBCD(s=s, n_pilot=500).fit(forest)
    drop_pages(path)
    before = memory_now()
    points: list[tuple[float, int, list[float]]] = []
    start = time.perf_counter()
    forest = MetricForest.open(path, memory=bound, page_cache=False)

    def mark(w: Any) -> None:
        points.append((time.perf_counter() - start, forest.bytes_read, np.asarray(w, float).tolist()))

    objective = math.nan
    if which == "SGD":
        labels = forest.labels
        model = SGDClassifier(loss="hinge", alpha=1.0 / forest.shape[0], average=True, random_state=0)
        for _ in range(3):
            for k, (part, matrix) in enumerate(forest.scan()):
                model.partial_fit(matrix.X, labels[part], classes=[-1, 1])
                if k % 50 == 0:
                    mark(np.append(model.coef_[0], model.intercept_[0]))
        mark(np.append(model.coef_[0], model.intercept_[0]))
    else:
        look = Newton.look

        def marked(self: Newton, task: Any, w: Any, *rest: Any) -> Any:
            mark(w)
            return look(self, task, w, *rest)

        Newton.look = marked  # type: ignore[method-assign]
        # The largest sample that fits, then three passes.
        how = {"n_pilot": forest.shape[0], "max_iter": 3} if which == "pilot and passes" else {}
        fit = IndexedBCD(**how).fit(forest)
        mark(np.append(fit.coef_[0], fit.intercept_[0]))
        objective = fit.objective_
    peak = memory_of("VmHWM") - before
    return {"MB": peak / 2**20, "objective": objective, "points": points}


def drop_pages(path: Path) -> None:
    """Remove the files from the page cache."""
    for file in path.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory_of(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(field))) * 1024.0


def memory_now() -> float:
    """Return the resident memory, and reset the peak."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_of("VmRSS")


def memory(n: str = "5000000", folder: str = "", *parts: str) -> None:
    """Run all parts in a temporary folder, or some parts in a given one.

    In a given folder the index must be built first.
    """
    if not folder:
        with tempfile.TemporaryDirectory() as folder:
            return memory(n, folder, "index", "plain", *CONTESTANTS)
    bound = int(n) * 4 * Generated.d // 10
    before = kept("bcd-memory")
    result = before if before.get("rows") == int(n) else {}
    result |= {"rows": int(n), "bound in MB": bound / 2**20, "gigabytes": int(n) * 4 * Generated.d / 1e9}
    X, _, truth = Generated().batch(N_TEST, 10**6 + 1)
    for which in parts:
        kind = "build" if which in ("index", "plain") else "contest"
        command = [sys.executable, "-m", "simulations.benchmarks.bcd", kind, which, folder, n, str(bound)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        curve = []
        for seconds, read, w in found.pop("points", []):
            wrong = float(np.mean(np.where(X @ np.array(w[:-1]) + w[-1] > 0.0, 1, -1) != truth))
            curve.append({"seconds": seconds, "GB": read / 1e9, "error": wrong})
        print(which, found, curve[-1:], "best", min((point["error"] for point in curve), default=None), flush=True)
        if curve:
            found["curve"] = curve[:: max(1, len(curve) // 200)] + curve[-1:]
        result[which] = found
        keep("bcd-memory", result, PACKAGES)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[..., None]] = {
        "truncated": truncated,
        "convex": convex,
        "robustness": robustness,
        "memory": memory,
    }
    parser.add_argument("part", choices=[*parts, "contest", "build"])
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if arguments.part in ("contest", "build"):
            which, folder, n, bound = arguments.rest
            if arguments.part == "build":
                print(json.dumps(build_index(which, folder, int(n), int(bound))))
            else:
                print(json.dumps(contest(which, folder, int(bound))))
        else:
            parts[arguments.part](*arguments.rest)


if __name__ == "__main__":
    main()
