"""Figures 2, 4, 6 and 7 of Yen, Chang, Lin, Lin and Lin (2013) on available data.

`time` is test error against time (figures 2 and 4), and `penalty` the same for several values of C on Covertype (6).
`support` is test error and support vectors for several values of s (7). Covertype is class 2 against the rest, with two
thirds for training. MNIST is digit 1 against the rest, with the first 20,000 rows for training. Both are scaled to [0,
1] and in memory, where scans replace searches. All runs use one core and one seed. On MNIST with the L2 loss,
LIBLINEAR's primal rounds have the lowest error because they stop far from their optimum.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC

from simulations import data
from simulations.harness import SOLVER_PACKAGES, Benchmark, Case, key_of, on_one_core
from simulations.plots import WIDTH, plain, pyplot, save
from simulations.storage import SEPARATOR, Rows
from simulations.tables import Column, Table, pick
from streamsvm import IndexedBCD

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


SETS: dict[str, Callable[[], Data]] = {
    "MNIST, 1 vs rest": mnist,
    "Covertype, 2 vs rest": lru_cache(data.load_covertype),
}


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


def draw_curves(name: str, panels: dict[str, dict[str, Curve]], heading: str) -> None:
    """Plot test error against time, a panel per title."""
    n_rows = math.ceil(len(panels) / 2)
    size = (WIDTH, 2.9 * n_rows + 0.8)
    figure, grid = pyplot().subplots(n_rows, 2, figsize=size, squeeze=False, layout="constrained")
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
        axis.set_title(title)
        axis.set(xlabel="training time (CPU seconds)", ylabel="test error (%)")
        plain(axis.xaxis)
        axis.grid(alpha=0.3)
    for axis in grid.flat[len(panels) :]:
        axis.remove()
    figure.suptitle(heading)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=2)
    save(figure, name)


def over_time(title: str, loss: str) -> Rows:
    """Measure test error against time for all algorithms."""
    sets, how = SETS[title](), {"loss": loss, "dual": loss == "hinge"}
    Traced(loss=loss, max_iter=2).curve(sets)  # compiles
    curves = {OURS: Traced(loss=loss, max_iter=100).curve(sets), PLAIN: liblinear(sets, **how)}
    return curved(curves | {INSIDE: rounds(sets, 1.0, **how), ONLINE: online(sets, loss)})


def over_penalty(C: float) -> Rows:
    """Measure test error against time on Covertype for a value of C."""
    sets = data.load_covertype()
    # LIBLINEAR needs many sweeps for a large C.
    inside = rounds(sets, 1.0, C, 2 if C > 1.0 else 5, loss="hinge", max_iter=200)
    return curved({OURS: Traced(C).curve(sets), INSIDE: inside})


def curved(curves: dict[str, Curve]) -> Rows:
    """Return the results of curves: their points of CPU seconds and test error."""
    return {label: {"curve": curve, "least error": min(error for _, error in curve)} for label, curve in curves.items()}


def over_support(title: str, s: float) -> dict[str, float]:
    """Measure support vectors and test error for a value of s."""
    X, y, X_test, y_test = SETS[title]()
    model = IndexedBCD(s=s).fit(X, y)
    return {"support": float(model.n_support_[0]), "error": wrong(model.decision_function(X_test), y_test)}


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List the measurements of all figures."""
    for title in SETS:
        for number, loss in ((2, "hinge"), (4, "squared_hinge")):
            key = key_of("time", f"{number}. {'L1' if loss == 'hinge' else 'L2'} loss: {title}")
            yield Case(key, partial(on_one_core, over_time, title, loss), several=True)
    for C in (0.01, 0.1, 10.0, 100.0):
        yield Case(key_of("penalty", f"6. C = {C:g}"), partial(on_one_core, over_penalty, C), several=True)
    for title in SETS:
        for s in (0.0, 0.25, 0.5, 1.0, 2.0, 3.0, math.inf):
            yield Case(key_of("support", title, s), partial(on_one_core, over_support, title, s))


def panels(rows: Rows, figure: str, measure: str | None) -> dict[str, dict[str, Any]]:
    """Return a measure of a figure's results, or all measures, by panel and label."""
    found: dict[str, dict[str, Any]] = {}
    for key, row in pick(rows, figure).items():
        _, panel, label = key.split(SEPARATOR)
        found.setdefault(panel, {})[label] = row[measure] if measure else row
    return dict(sorted(found.items()))


def draw(rows: Rows) -> None:
    """Plot the figures."""
    heading = "Figures 2 and 4: s = 1, C = 1, one core;\ncurves far above the others are cut off"
    draw_curves("indexed-figures-time", panels(rows, "time", "curve"), heading)
    heading = "Figure 6: Covertype, L1 loss, s = 1, one core"
    draw_curves("indexed-figures-penalty", panels(rows, "penalty", "curve"), heading)
    draw_support(panels(rows, "support", None))


def draw_support(found: dict[str, dict[str, Any]]) -> None:
    """Plot support vectors and test error against s."""
    figure, axes = pyplot().subplots(1, len(found), figsize=(WIDTH, 3.6), squeeze=False, layout="constrained")
    for axis, (title, by_s) in zip(axes.flat, found.items(), strict=True):
        positions = np.arange(len(by_s))
        support = [row["support"] / 1000.0 for row in by_s.values()]
        axis.bar(positions, support, color="0.8", label="support vectors (left)")
        axis.set_ylabel("support vectors (thousands)")
        other = axis.twinx()
        errors = [100.0 * row["error"] for row in by_s.values()]
        other.plot(positions, errors, "C3o-", label="test error (right)")
        other.set_ylabel("test error (%)")
        axis.set_xticks(positions, ["∞" if s == "inf" else f"{float(s):g}" for s in by_s])
        axis.set_xlabel("s")
        axis.set_title(title)
    handles = [*axis.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    figure.suptitle("Figure 7: support vectors and test error for values of s,\nL1 loss, C = 1")
    save(figure, "indexed-figures-support")


def least(label: str, rows: Rows) -> float | None:
    """Return the lowest error of a curve in percent."""
    return next((100.0 * row["least error"] for row in pick(rows, label).values()), None)


BENCHMARK = Benchmark(
    "indexed-figures",
    "Test error, time and support vectors of truncated losses, after Yen, Chang, Lin, Lin and Lin (2013).",
    cases,
    {
        "indexed_figures": Table(
            "lowest test error on the curve, %",
            lambda parts: parts[1] if parts[0] != "support" else None,
            [Column(label, partial(least, label), "{:.2f}") for label in (OURS, PLAIN, INSIDE, ONLINE)],
        )
    },
    draw,
    subject="solvers",
    others=(PLAIN, INSIDE, ONLINE),
    packages=SOLVER_PACKAGES,
)
