"""Figures 2, 4, 6 and 7 of Yen, Chang, Lin, Lin and Lin (2013) on available data.

    python -m simulations.indexed_figures            all
    python -m simulations.indexed_figures time       2 and 4: test error against time; optionally `mnist` or `covertype`
    python -m simulations.indexed_figures penalty    6: several values of C, on Covertype
    python -m simulations.indexed_figures support    7: test error and support vectors for several values of s

Covertype is class 2 against the rest, with two thirds for training. MNIST is digit 1 against the rest, with the first
20,000 rows for training. Both are scaled to [0, 1] and in memory, where scans replace searches. All runs use one core
and one seed. Results are stored in `simulations/results`, plots in `simulations/pictures`. On MNIST with the L2 loss,
LIBLINEAR's primal rounds have the lowest error because they stop far from their optimum.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from simulations import data
from simulations.keeping import PICTURES, keep, kept
from streamsvm import IndexedBCD

matplotlib.use("Agg")
from matplotlib import pyplot as plt

N_MNIST = 20_000
OURS = "IndexedBCD"
PLAIN, INSIDE, ONLINE = "LIBLINEAR, convex", "LIBLINEAR, truncated rounds", "online (SGD)"
STYLES = {
    OURS: ("C2", "D"),
    PLAIN: ("C1", "s"),
    INSIDE: ("C3", "^"),
    ONLINE: ("0.55", "."),
}
Curve = list[tuple[float, float]]
Data = tuple[Any, Any, Any, Any]


class Traced(IndexedBCD):
    """An `IndexedBCD` that records the hyperplane and the CPU time of every round."""

    def _solve_one(self, rows: Any, task: Any, w: Any, report: Any, memory: float) -> Any:
        start = self.started_

        def traced(point: Any) -> bool:
            self.trace_.append((time.process_time() - start, point.w))
            return bool(report(point))

        return super()._solve_one(rows, task, w, traced, memory)

    def curve(self, sets: Data) -> Curve:
        X, y, X_test, y_test = sets
        self.started_, self.trace_ = time.process_time(), []
        self.fit(X, y)
        return [(seconds, wrong(X_test @ w[:-1] + w[-1], y_test)) for seconds, w in self.trace_]


def wrong(scores: Any, y: Any) -> float:
    return float(np.mean(np.where(scores > 0.0, 1, -1) != y))


def mnist() -> Data:
    return *data.one_against_rest("mnist.train", 1, N_MNIST), *data.one_against_rest("mnist.test", 1)


def liblinear(sets: Data, C: float = 1.0, **how: Any) -> Curve:
    """Fit LIBLINEAR for several tolerances, as it reports no progress."""
    X, y, X_test, y_test = sets
    found = []
    for tol in (1.0, 0.1, 0.01):
        start = time.process_time()
        model = LinearSVC(C=C, tol=tol, **how).fit(X, y)
        found.append((time.process_time() - start, wrong(model.decision_function(X_test), y_test)))
    return found


def rounds(sets: Data, s: float, C: float = 1.0, n_rounds: int = 6, **how: Any) -> Curve:
    """Run convex-concave rounds that use LIBLINEAR, starting from 10,000 rows."""
    X, y, X_test, y_test = sets
    start, testing = time.process_time(), 0.0
    rows = np.random.default_rng(0).choice(len(y), 10_000, replace=False)
    model = LinearSVC(C=C, tol=0.01, **how).fit(X[rows], y[rows])
    found = []
    for k in range(n_rounds + 1):
        before = time.process_time()
        found.append((before - start - testing, wrong(model.decision_function(X_test), y_test)))
        testing += time.process_time() - before
        if k < n_rounds:
            over = np.maximum(0.0, 1.0 - y * model.decision_function(X))
            inside = (over**2 if how["loss"] == "squared_hinge" else over) <= 1.0 + s
            model = LinearSVC(C=C, tol=0.01, **how).fit(X[inside], y[inside])
    return found


def online(sets: Data, loss: str) -> Curve:
    """Run stochastic gradient descent, as Pegasos, over blocks of rows."""
    X, y, X_test, y_test = sets
    model = SGDClassifier(loss=loss, alpha=1.0 / len(y), random_state=0)
    found, spent = [], 0.0
    for _ in range(5):
        for part in np.array_split(np.arange(len(y)), 4):
            start = time.process_time()
            model.partial_fit(X[part[0] : part[-1] + 1], y[part], classes=[-1, 1])
            spent += time.process_time() - start
            found.append((spent, wrong(model.decision_function(X_test), y_test)))
    return found


def stored(name: str, title: str = "", curves: Any = None) -> dict[str, Any]:
    """Return the stored curves by title, after adding new ones."""
    panels: dict[str, Any] = kept(name)
    if curves is not None:
        panels[title] = curves
        keep(name, panels, ("scikit-learn", "numpy", "numba", "scipy"))
        print(title, {label: min(point[1] for point in curve) for label, curve in curves.items()}, flush=True)
    return panels


def draw(name: str, panels: dict[str, dict[str, Curve]], x: str, heading: str, columns: int) -> None:
    n_rows = math.ceil(len(panels) / columns)
    size = (4.8 * columns, 3.4 * n_rows + 0.8)
    figure, grid = plt.subplots(n_rows, columns, figsize=size, squeeze=False, layout="constrained")
    shown: dict[str, Any] = {}
    for axis, (title, curves) in zip(grid.flat, panels.items(), strict=False):
        for label, curve in curves.items():
            color, marker = STYLES[label]
            times, errors = (np.array(values) for values in zip(*curve, strict=True))
            how = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.2}
            how["markevery"] = max(1, len(curve) // 20)
            shown[label] = axis.plot(times, 100.0 * errors, zorder=1 if label == ONLINE else 2, **how)[0]
        best = min(value for curve in curves.values() for _, value in curve)
        # Outliers do not determine the scale: stochastic gradients vary, and first rounds are far from the optimum.
        ends = [curve[-1][1] for label, curve in curves.items() if label != ONLINE]
        most = max(*ends, 1.06 * best, min(max(error for _, error in curves.get(PLAIN, [(0.0, 0.0)])), 2.0 * best))
        axis.set_ylim(100.0 * (best - 0.06 * (most - best)), 100.0 * (most + 0.25 * (most - best)))
        axis.set_xscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(x)
        axis.set_ylabel("test error (%)")
        axis.grid(alpha=0.3)
    for axis in grid.flat[len(panels) :]:
        axis.remove()
    figure.suptitle(heading, fontsize=11)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=min(5, len(shown)), fontsize=9)
    save(figure, name)


def save(figure: Any, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png", dpi=110)
    plt.close(figure)


def over_time(*titles: str) -> None:
    for title, load in (("MNIST, 1 vs rest", mnist), ("Covertype, 2 vs rest", data.load_covertype)):
        if titles and title.split(",")[0].lower() not in titles:
            continue
        sets = load()
        for number, loss in ((2, "hinge"), (4, "squared_hinge")):
            how = {"loss": loss, "dual": loss == "hinge"}
            Traced(loss=loss, max_iter=2).curve(sets)  # compiles
            curves = {OURS: Traced(loss=loss, max_iter=100).curve(sets), PLAIN: liblinear(sets, **how)}
            curves |= {INSIDE: rounds(sets, 1.0, **how), ONLINE: online(sets, loss)}
            stored("indexed-figures-time", f"{number}. {'L1' if loss == 'hinge' else 'L2'} loss: {title}", curves)
    panels = dict(sorted(stored("indexed-figures-time").items()))
    draw(
        "indexed-figures-time",
        panels,
        "training time (CPU seconds)",
        "Figures 2 and 4: s = 1, C = 1, one core; curves far above the others are cut off",
        2,
    )


def over_penalty(*values: str) -> None:
    sets = data.load_covertype()
    for C in [float(value) for value in values] or (0.01, 0.1, 10.0, 100.0):
        curves = {OURS: Traced(C).curve(sets)}
        # LIBLINEAR needs many sweeps for a large C.
        curves[INSIDE] = rounds(sets, 1.0, C, 2 if C > 1.0 else 5, loss="hinge", max_iter=200)
        stored("indexed-figures-penalty", f"6. C = {C:g}", curves)
    panels = dict(sorted(stored("indexed-figures-penalty").items(), key=lambda item: float(item[0].split()[-1])))
    draw(
        "indexed-figures-penalty",
        panels,
        "training time (CPU seconds)",
        "Figure 6: Covertype, L1 loss, s = 1, one core",
        2,
    )


def over_support() -> None:
    for title, load in (("Covertype, 2 vs rest", data.load_covertype), ("MNIST, 1 vs rest", mnist)):
        X, y, X_test, y_test = load()
        found = []
        for s in (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, math.inf):
            model = IndexedBCD(s=s).fit(X, y)
            found.append((s, float(model.n_support_[0]), wrong(model.decision_function(X_test), y_test)))
        stored("indexed-figures-support", title, {"by s": found})
    panels = stored("indexed-figures-support")
    figure, axes = plt.subplots(1, len(panels), figsize=(5.4 * len(panels), 4.0), squeeze=False, layout="constrained")
    for axis, (title, curves) in zip(axes.flat, panels.items(), strict=True):
        names, support, errors = zip(*curves["by s"], strict=True)
        positions = np.arange(len(names))
        axis.bar(positions, np.array(support) / 1000.0, color="0.8", label="support vectors (left)")
        axis.set_ylabel("support vectors (thousands)")
        other = axis.twinx()
        other.plot(positions, 100.0 * np.array(errors), "C3o-", label="test error (right)")
        other.set_ylabel("test error (%)")
        axis.set_xticks(positions, ["convex" if s == math.inf else f"{s:g}" for s in names])
        axis.set_xlabel("s")
        axis.set_title(title, fontsize=10)
    handles = [*axis.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
    figure.suptitle("Figure 7: support vectors and test error for values of s, L1 loss, C = 1", fontsize=11)
    save(figure, "indexed-figures-support")


def main() -> None:
    parts: dict[str, Callable[..., None]] = {
        "time": over_time,
        "penalty": over_penalty,
        "support": over_support,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=list(parts), help="all by default")
    parser.add_argument("rest", nargs="*", help="mnist or covertype, for `time`; values of C, for `penalty`")
    arguments = parser.parse_args()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for part in [arguments.part] if arguments.part else parts:
            parts[part](*arguments.rest)


if __name__ == "__main__":
    main()
