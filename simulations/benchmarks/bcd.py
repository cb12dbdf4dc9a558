"""What truncated losses cost and reach beside LIBLINEAR, in the same run and on one core.

    python -m simulations.benchmarks.bcd truncated    beside the same convex-concave rounds with LIBLINEAR inside
    python -m simulations.benchmarks.bcd convex       s = inf beside LIBLINEAR
    python -m simulations.benchmarks.bcd robustness   training labels flipped at random and on purpose
    python -m simulations.benchmarks.bcd border       rows an index touches, and whether that pays in memory
    python -m simulations.benchmarks.bcd memory       4 GB of rows on disk with 400 MB of memory (takes 9 GB of disk);
                                                      followed by a number of rows for fewer, with less memory, and by
                                                      a folder and parts of it (index, plain, forest, scan, ...)

The first three on Covertype, class 2 against the rest, in [0, 1], two thirds for training, C = 1. Times begin at `fit`
with data in memory. Results are kept in `simulations/benchmarks/results`.
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
from simulations.benchmarks import RESULTS, keep
from streamsvm import IndexedBCD
from streamsvm.batch.indexed_bcd import Newton
from streamsvm.batch.metric_forest import MetricForest

PACKAGES = ("scikit-learn", "numpy", "numba", "scipy")
ROUNDS = 12


def objective(model: Any, X: Any, y: Any, s: float) -> float:
    """With a penalised bias and losses truncated at 1 + s, C = 1."""
    w, b = model.coef_[0], model.intercept_[0]
    losses = np.maximum(0.0, 1.0 - y * (X @ w + b))
    return float(0.5 * (w @ w + b * b) + np.minimum(losses, 1.0 + s).sum())


def error(model: Any, X: Any, y: Any) -> float:
    return float(np.mean(model.predict(X) != y))


def liblinear_rounds(X: Any, y: Any, s: float, seed: int) -> list[dict[str, Any]]:
    """Convex-concave rounds with LIBLINEAR inside, from a solution for 10,000 rows; where each stood, and when."""
    start = time.perf_counter()
    rows = np.random.default_rng(seed).choice(len(y), 10_000, replace=False)
    model = LinearSVC(loss="hinge", tol=0.01, random_state=seed).fit(X[rows], y[rows])
    stands = []
    for _ in range(ROUNDS):
        inside = 1.0 - y * model.decision_function(X) <= 1.0 + s
        model = LinearSVC(loss="hinge", tol=0.01, random_state=seed).fit(X[inside], y[inside])
        stands.append({"seconds": time.perf_counter() - start, "objective": objective(model, X, y, s), "model": model})
    return stands


def seconds_to(stands: list[tuple[float, float]], value: float) -> float:
    """When an objective as low as `value` was first reached."""
    return next((seconds for seconds, reached in stands if reached <= value), math.nan)


def truncated(seeds: int = 5) -> None:
    X, y, X_test, y_test = data.load_covertype()
    IndexedBCD().fit(X, y)  # have all compiled
    IndexedBCD(solver="dual", max_iter=2).fit(X, y)
    result: dict[str, Any] = {}
    for s in (1.0, 0.25):
        runs: dict[str, list[dict[str, float]]] = {"LIBLINEAR inside": [], "newton": [], "dual": []}
        for seed in range(seeds):
            theirs = liblinear_rounds(X, y, s, seed)
            last = theirs[-1]["objective"]
            found = [(stand["seconds"], stand["objective"]) for stand in theirs]
            runs["LIBLINEAR inside"].append(
                {
                    "seconds": seconds_to(found, 1.005 * last),
                    "to the end": found[-1][0],
                    "objective": last,
                    "test error": error(theirs[-1]["model"], X_test, y_test),
                }
            )
            for solver in ("newton", "dual"):
                model = IndexedBCD(s=s, solver=solver, random_state=seed, max_iter=300 if solver == "newton" else 12)
                model.fit(X, y)
                found = [(step.seconds, step.objective) for step in model.history_]
                target = 1.005 * last
                at_target = IndexedBCD(
                    s=s,
                    solver=solver,
                    random_state=seed,
                    callback=lambda _, step, target=target: step.objective <= target,
                    max_iter=model.n_iter_,
                ).fit(X, y)
                runs[solver].append(
                    {
                        "seconds": seconds_to(found, target),
                        "to the end": found[-1][0],
                        "objective": model.objective_,
                        "test error": error(model, X_test, y_test),
                        "test error at 0.5 %": error(at_target, X_test, y_test),
                        "certificate": model.certificate_ / model.objective_,
                        "support": float(model.n_support_[0]),
                        "rounds": float(model.n_iter_),
                    }
                )
            print({name: found[-1] for name, found in runs.items()}, flush=True)
        median = {
            name: {key: statistics.median(run[key] for run in found) for key in found[0]}
            for name, found in runs.items()
        }
        base = median["LIBLINEAR inside"]
        for solver in ("newton", "dual"):
            median[solver]["ratio"] = median[solver]["seconds"] / base["seconds"]
            median[solver]["ratio of whole runs"] = median[solver]["to the end"] / base["to the end"]
        result[f"s = {s}"] = {"medians": median, "objectives": [[run["objective"] for run in runs[n]] for n in runs]}
        for name, row in median.items():
            print(f"s = {s}, {name}:", {key: round(value, 5) for key, value in row.items()}, flush=True)
        keep("bcd-truncated", result, PACKAGES)


def convex(repeats: int = 3) -> None:
    X, y, X_test, y_test = data.load_covertype()
    IndexedBCD(s=math.inf).fit(X, y)
    rows: list[dict[str, float]] = []
    for seed in range(repeats):
        start = time.perf_counter()
        other = LinearSVC(loss="hinge", tol=0.01, random_state=seed).fit(X, y)
        seconds = time.perf_counter() - start
        theirs = objective(other, X, y, math.inf)
        model = IndexedBCD(s=math.inf, tol=1e-4, random_state=seed).fit(X, y)
        found = [(step.seconds, step.objective) for step in model.history_]
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
    """Labels flipped at random everywhere; and only those of the rows that a good model is surest of, of one class."""
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
                else:  # half of the rows beyond a quantile, so that both labels occur there
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
    """Rows in clusters near a subspace of 10 dimensions; a hyperplane labels them, then a tenth are flipped."""

    d = 200

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.embedding = rng.normal(size=(10, self.d)) / math.sqrt(10.0)
        self.centers = 2.0 * rng.normal(size=(500, 10))
        self.w = rng.normal(size=self.d) / math.sqrt(self.d)

    def batch(self, n: int, seed: int) -> tuple[Any, Any, Any]:
        """Rows in single precision, their labels, and what these were before some were flipped."""
        rng = np.random.default_rng([1, seed])
        latent = self.centers[rng.integers(0, 500, n)] + 0.3 * rng.normal(size=(n, 10))
        X = (latent @ self.embedding).astype(np.float32)
        X += np.float32(0.05) * rng.standard_normal(size=X.shape, dtype=np.float32)
        truth = np.where(X @ self.w > 0.0, 1, -1)
        return X, np.where(rng.random(n) < 0.1, -truth, truth), truth


def border() -> None:
    """What share of rows a search touches for nine in ten of the 1,000 nearest, and the fits in memory either way."""
    X, y, _, _ = data.load_covertype()
    digits, digit = data.load_digits("mnist.train")
    generated = Generated().batch(200_000, 0)
    result = {}
    for name, (rows, labels) in {
        "Covertype": (X, y),
        "MNIST 2 vs rest": (digits.astype(np.float32), np.where(digit == 2, 1, -1)),
        "generated": generated[:2],
    }.items():
        start = time.perf_counter()
        forest = MetricForest.build(rows, labels)
        row: dict[str, Any] = {"build": time.perf_counter() - start, "rows": rows.shape[0], "columns": rows.shape[1]}
        for index in ("scan", "forest"):
            start = time.perf_counter()
            model = IndexedBCD(index=index).fit(forest)
            row[f"fit by {index}"] = time.perf_counter() - start
            row[f"objective by {index}"] = model.objective_
        w, b = model.coef_[0], model.intercept_[0]
        away = np.abs(rows @ w + b)
        row["share in range"] = float(np.mean(away <= 1.0))
        nearest = set(np.argsort(away)[:1000].tolist())
        for order in ("centroid", "boundary"):
            for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
                found = forest.nearest_to_hyperplane(w, b, 1000, budget=int(share * rows.shape[0]), order=order)
                recall = len(nearest & set(forest.ids[found.positions].tolist())) / 1000.0
                row.setdefault(f"recall by {order}", {})[str(share)] = recall
        start = time.perf_counter()
        for _ in range(5):
            rows @ w
        row["one scan"] = (time.perf_counter() - start) / 5.0
        start = time.perf_counter()
        found = forest.nearest_to_hyperplane(w, b, 1000)
        row["an exact search"], row["its share of rows"] = time.perf_counter() - start, found.n_rows / rows.shape[0]
        result[name] = row
        print(name, json.dumps(row), flush=True)
        keep("bcd-border", result, PACKAGES)


# More rows than memory -------------------------------------------------------------------------------------------

BATCH, N_TEST = 5_000, 50_000
CONTESTANTS = ("forest", "scan", "pilot and passes", "SGD")


def build_index(name: str, folder: str, n: int, bound: int) -> dict[str, float]:
    """An index, or rows in random order, in a process of its own; how long it took, and its memory."""
    source = Generated()
    generating = 0.0

    def batches() -> Iterator[tuple[Any, Any]]:
        nonlocal generating
        for k in range(n // BATCH):
            start = time.perf_counter()
            batch = source.batch(BATCH, k)[:2]
            generating += time.perf_counter() - start
            yield batch

    source.batch(BATCH, 0)
    before = memory_now()
    start = time.perf_counter()
    how = {} if name == "index" else {"width": 1, "n_sample": bound // (4 * Generated.d)}
    MetricForest.from_batches(Path(folder) / name, batches(), memory=bound, **how)
    return {
        "seconds": time.perf_counter() - start - generating,
        "MB": (memory_of("VmHWM") - before) / 2**20,
        "MB on disk": sum(file.stat().st_size for file in (Path(folder) / name).iterdir()) / 2**20,
    }


def contest(which: str, folder: str, bound: int) -> dict[str, Any]:
    """One way to fit, in a process of its own: hyperplanes with when and after how many bytes, and its memory."""
    path = Path(folder) / ("index" if which == "forest" else "plain")
    small = Generated().batch(3000, 10**6)
    with tempfile.TemporaryDirectory() as other:  # have all compiled
        MetricForest.from_batches(Path(other) / "index", [small[:2]])
        for index, s in (("forest", 1.0), ("scan", 1.0), ("scan", math.inf)):
            with MetricForest.open(Path(other) / "index") as forest:
                IndexedBCD(s=s, n_pilot=500, index=index).fit(forest)
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
        how: dict[str, dict[str, Any]] = {
            "forest": {"index": "forest"},
            "scan": {"index": "scan"},
            # As large a sample as fits, then three passes.
            "pilot and passes": {"index": "scan", "n_pilot": forest.shape[0], "max_iter": 3},
        }
        fit = IndexedBCD(**how[which]).fit(forest)
        mark(np.append(fit.coef_[0], fit.intercept_[0]))
        objective = fit.objective_
    peak = memory_of("VmHWM") - before
    return {"MB": peak / 2**20, "objective": objective, "points": points}


def drop_pages(path: Path) -> None:
    """Have the operating system forget the files."""
    for file in path.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory_of(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(field))) * 1024.0


def memory_now() -> float:
    """What is held; the most that ever was is forgotten."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory_of("VmRSS")


def memory(n: str = "5000000", folder: str = "", *parts: str) -> None:
    """All parts, in a folder that goes; or some in one that stays, where the build has to come first."""
    if not folder:
        with tempfile.TemporaryDirectory() as folder:
            return memory(n, folder, "index", "plain", *CONTESTANTS)
    bound = int(n) * 4 * Generated.d // 10
    path = RESULTS / "bcd-memory.json"
    before = json.loads(path.read_text())["result"] if path.exists() else {}
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
        "border": border,
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
