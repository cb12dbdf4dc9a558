"""Figures 2 to 7 of Yen, Chang, Lin, Lin and Lin (2013) as far as the data here allow.

    python -m simulations.indexed_figures            all
    python -m simulations.indexed_figures time       2 to 4: test error against time, on Covertype and MNIST
    python -m simulations.indexed_figures memory     5: with less memory than rows, from `benchmarks.bcd memory`
    python -m simulations.indexed_figures penalty    6: for values of C, on Covertype
    python -m simulations.indexed_figures support    7: test error against support vectors for values of s

Covertype is class 2 against the rest, MNIST the digit 1 against the rest; both in [0, 1]. One core, one seed. Pictures
are written to `simulations/pictures`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from simulations import data
from simulations.benchmarks import RESULTS
from streamsvm import IndexedBCD

matplotlib.use("Agg")
from matplotlib import pyplot as plt

PICTURES = Path(__file__).parent / "pictures"
Curve = list[tuple[float, float]]
Data = tuple[Any, Any, Any, Any]


class Traced(IndexedBCD):
    """Keeps the hyperplane of every round, with when it was found."""

    def _solve_one(self, rows: Any, task: Any, w: Any, report: Any) -> Any:
        start = self.started_

        def traced(point: Any) -> bool:
            self.trace_.append((time.perf_counter() - start, point.w))
            return bool(report(point))

        return super()._solve_one(rows, task, w, traced)

    def curve(self, sets: Data) -> Curve:
        X, y, X_test, y_test = sets
        self.started_, self.trace_ = time.perf_counter(), []
        self.fit(X, y)
        return [(seconds, wrong(X_test @ w[:-1] + w[-1], y_test)) for seconds, w in self.trace_]


def wrong(scores: Any, y: Any) -> float:
    return float(np.mean(np.where(scores > 0.0, 1, -1) != y))


def covertype() -> Data:
    return data.load_covertype()


def mnist() -> Data:
    X, digit = data.load_digits("mnist.train")
    X_test, digit_test = data.load_digits("mnist.test")
    return (
        scipy.sparse.csr_matrix(X),
        np.where(digit == 1, 1, -1),
        scipy.sparse.csr_matrix(X_test),
        np.where(digit_test == 1, 1, -1),
    )


def liblinear(sets: Data, C: float = 1.0, **how: Any) -> Curve:
    """A point for each tolerance, as LIBLINEAR tells nothing on its way."""
    X, y, X_test, y_test = sets
    found = []
    for tol in (1.0, 0.1, 0.01):
        start = time.perf_counter()
        model = LinearSVC(C=C, tol=tol, **how).fit(X, y)
        found.append((time.perf_counter() - start, wrong(model.decision_function(X_test), y_test)))
    return found


def rounds(sets: Data, s: float, C: float = 1.0, n_rounds: int = 6, **how: Any) -> Curve:
    """Convex-concave rounds with LIBLINEAR inside, from 10,000 rows."""
    X, y, X_test, y_test = sets
    start, testing = time.perf_counter(), 0.0
    rows = np.random.default_rng(0).choice(len(y), 10_000, replace=False)
    model = LinearSVC(C=C, tol=0.01, **how).fit(X[rows], y[rows])
    found = []
    for _ in range(n_rounds):
        before = time.perf_counter()
        found.append((before - start - testing, wrong(model.decision_function(X_test), y_test)))
        testing += time.perf_counter() - before
        over = np.maximum(0.0, 1.0 - y * model.decision_function(X))
        inside = (over**2 if how["loss"] == "squared_hinge" else over) <= 1.0 + s
        model = LinearSVC(C=C, tol=0.01, **how).fit(X[inside], y[inside])
    return found


def online(sets: Data, loss: str) -> Curve:
    """Stochastic gradients, as Pegasos, over blocks of rows."""
    X, y, X_test, y_test = sets
    model = SGDClassifier(loss=loss, alpha=1.0 / len(y), random_state=0)
    found, spent = [], 0.0
    for _ in range(5):
        for part in np.array_split(np.arange(len(y)), 4):
            start = time.perf_counter()
            model.partial_fit(X[part[0] : part[-1] + 1], y[part], classes=[-1, 1])
            spent += time.perf_counter() - start
            found.append((spent, wrong(model.decision_function(X_test), y_test)))
    return found


def draw(name: str, panels: dict[str, dict[str, Curve]], x: str, log_errors: bool = False, width: int = 3) -> None:
    n_rows = math.ceil(len(panels) / width)
    figure, axes = plt.subplots(n_rows, min(width, len(panels)), figsize=(4.6 * min(width, len(panels)), 3.5 * n_rows))
    for axis, (title, curves) in zip(np.ravel(axes), panels.items(), strict=False):
        for label, curve in curves.items():
            axis.plot(*zip(*curve, strict=True), marker="o", markersize=3, linewidth=1, label=label)
        if log_errors:
            axis.set_yscale("log")
        else:
            best = min(value for curve in curves.values() for _, value in curve)
            axis.set_ylim(0.97 * best, 1.35 * best if best > 0.01 else 4.0 * best)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(x)
        axis.set_ylabel("test error")
        axis.set_xscale("log")
        axis.legend(fontsize=7)
    figure.tight_layout()
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png", dpi=110)
    plt.close(figure)


def over_time() -> None:
    panels = {}
    for title, load in (("MNIST, 1 vs rest", mnist), ("Covertype", covertype)):
        sets = load()
        for number, loss, dual, solver in (
            (2, "hinge", True, "dual"),
            (3, "squared_hinge", True, "dual"),
            (4, "squared_hinge", False, "newton"),
        ):
            how = {"loss": loss, "dual": dual}
            Traced(loss=loss, solver=solver, max_iter=2).curve(sets)  # have all compiled
            panels[f"{number}. {title}, {loss}, {'dual' if dual else 'primal'}"] = {
                "IndexedBCD": Traced(loss=loss, solver=solver, max_iter=30).curve(sets),
                "LIBLINEAR": liblinear(sets, **how),
                "truncated, LIBLINEAR inside": rounds(sets, 1.0, **how),
                "online": online(sets, loss),
            }
            print(list(panels)[-1], flush=True)
            draw("indexed-time", panels, "seconds")


def over_memory() -> None:
    path = RESULTS / "bcd-memory.json"
    if not path.exists():
        raise SystemExit("run `python -m simulations.benchmarks.bcd memory` first")
    result = json.loads(path.read_text())["result"]
    runs = {name: run for name, run in result.items() if isinstance(run, dict) and "curve" in run}
    panels = {
        f"5. {result['gigabytes']:.1f} GB of rows, {result['bound in MB']:.0f} MB of memory: {label}": {
            name: [(max(point[key], 1e-3), max(point["error"], 1e-4)) for point in run["curve"]]
            for name, run in runs.items()
        }
        for key, label in (("seconds", "time"), ("GB", "reading"))
    }
    draw("indexed-memory", panels, "seconds, or GB read", log_errors=True)


def over_penalty() -> None:
    sets = covertype()
    panels = {}
    for C in (0.01, 0.1, 10.0, 100.0):
        panels[f"6. Covertype, C = {C:g}"] = {
            "IndexedBCD": Traced(C, solver="dual", max_iter=12).curve(sets),
            "IndexedBCD, newton": Traced(C).curve(sets),
            "truncated, LIBLINEAR inside": rounds(sets, 1.0, C, 3 if C > 1.0 else 6, loss="hinge"),
        }
        print(list(panels)[-1], flush=True)
    draw("indexed-penalty", panels, "seconds", width=2)


def over_support() -> None:
    panels = {}
    for title, load in (("Covertype", covertype), ("MNIST, 1 vs rest", mnist)):
        X, y, X_test, y_test = load()
        found = []
        for s in (0.0, 0.25, 0.5, 1.0, 2.0, 3.0):
            model = IndexedBCD(s=s).fit(X, y)
            found.append((float(model.n_support_[0]), wrong(model.decision_function(X_test), y_test)))
        convex = IndexedBCD(s=math.inf).fit(X, y)
        panels[f"7. {title}, s = 0 ... 3"] = {
            "IndexedBCD": found,
            "s = inf": [(float(convex.n_support_[0]), wrong(convex.decision_function(X_test), y_test))],
        }
        print(panels, flush=True)
        draw("indexed-support", panels, "support vectors")


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "time": over_time,
        "memory": over_memory,
        "penalty": over_penalty,
        "support": over_support,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(parts), help=", ".join(parts))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in parser.parse_args().parts:
            parts[part]()


if __name__ == "__main__":
    main()
