"""Smoothed Newton and LIBLINEAR, as in Table 3 of Hajewski et al. (2018).

Accuracy is the mean over ten folds; for Covertype over the first fold. Seconds are the median CPU time of a fit on one
core. Each set is fitted with l2 = 1 / n (C = 1), with l1 = 0.03 times the smallest penalty that makes all coefficients
zero, and with both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC, l1_min_c

from simulations import data
from simulations.harness import SOLVER_PACKAGES, Benchmark, Case, on_one_core
from simulations.storage import Rows, rounded
from simulations.tables import Column, Table, part
from streamsvm import SmoothedNewton

SHARE = 0.03

SMALL = {
    "australian": ("australian_scale", 14),
    "german": ("german.numer_scale", 24),
    "diabetes": ("diabetes_scale", 8),
    "heart": ("heart_scale", 13),
    "sonar": ("sonar_scale", 60),
    "splice": ("splice_scale", 60),
    "fourclass": ("fourclass_scale", 2),
    "svmguide3": ("svmguide3", 21),
    "madelon": ("madelon_scale", 500),
    "colon-cancer": ("colon-cancer", 2000),
    "leukemia": ("leukemia.train", 7129),
    "ijcnn1": ("ijcnn1.train", 22),
}
DENSE = {"madelon", "colon-cancer", "leukemia", "sonar", "australian"}
SETS = [*SMALL, "covtype"]
SOLVERS = ("l2", "l1", "l1 and l2", "LIBLINEAR hinge", "LIBLINEAR l1")

# Accuracy in percent and seconds in the paper, for l2, for l1 with l2, and for LIBLINEAR's hinge. Its other sets are
# synthetic.
PUBLISHED = {
    "australian": [(85.9, 0.058), (86.1, 0.002), (85.2, 0.007)],
    "colon-cancer": [(66.3, 32.851), (84.0, 0.918), (66.9, 0.008)],
    "covtype": [(69.8, 148.7), (69.5, 1.1), (76.3, 182.9)],
}


def load(name: str) -> tuple[Any, Any]:
    if name == "covtype":
        X, y, X_rest, y_rest = data.load_covertype()
        return scipy.sparse.vstack([X, X_rest], "csr"), np.concatenate([y, y_rest])
    X, y = data.load_libsvm(f"{SMALL[name][0]}.libsvm.gz", SMALL[name][1])
    return (X.toarray() if name in DENSE else X), np.where(y > 0, 1, -1)


def largest_l1(X: Any, y: Any) -> float:
    """Return the smallest l1 at which all coefficients are zero.

    Slopes are equal within a class.
    """
    share = min(np.mean(y > 0), np.mean(y < 0))
    means = [np.asarray(X[y == label].mean(axis=0)).ravel() for label in (1, -1)]
    return float(share * np.abs(means[0] - means[1]).max())


def solvers(X: Any, y: Any) -> dict[str, Callable[[], Any]]:
    n = len(y)
    l1 = SHARE * largest_l1(X, y)
    C = float(l1_min_c(X, y)) / SHARE
    return {
        "l2": lambda: SmoothedNewton(l2=1.0 / n),
        "l1": lambda: SmoothedNewton(l2=0.0, l1=l1),
        "l1 and l2": lambda: SmoothedNewton(l2=1.0 / n, l1=l1),
        "LIBLINEAR hinge": lambda: LinearSVC(loss="hinge", C=1.0),
        "LIBLINEAR l1": lambda: LinearSVC(penalty="l1", dual=False, C=C),
    }


def measure(name: str) -> Rows:
    """Measure the accuracy and time of each solver on a data set."""
    X, y = load(name)
    folds = list(StratifiedKFold(10, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
    folds = folds[:1] if name == "covtype" else folds
    some = slice(len(y) // 2) if name == "covtype" else slice(None)
    found: Rows = {}
    for key, make in solvers(X, y).items():
        make().fit(X[some], y[some])  # compiles
        hits, seconds, gaps = list[float](), list[float](), list[float]()
        for train, test in folds:
            start = time.process_time()
            model = make().fit(X[train], y[train])
            seconds.append(time.process_time() - start)
            hits.append(float(np.mean(model.predict(X[test]) == y[test])))
            if isinstance(model, SmoothedNewton):
                gaps.append(model.certificate_ / model.objective_)
        found[key] = rounded({"accuracy": 100 * statistics.mean(hits), "s": statistics.median(seconds)})
        found[key] |= {"n": X.shape[0], "d": X.shape[1]} | ({"worst certificate": max(gaps)} if gaps else {})
    return found


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """List the data sets."""
    for name in SETS:
        yield Case(name, partial(on_one_core, measure, name), several=True)


def cell(solver: str, rows: Rows) -> str:
    """Format accuracy in percent and milliseconds of a solver."""
    return next((shown(row["accuracy"], row["s"]) for key, row in rows.items() if key.endswith(f"/ {solver}")), "")


def shown(accuracy: float, seconds: float) -> str:
    """Format accuracy in percent and milliseconds."""
    return f"{accuracy:.1f} % {1e3 * seconds:,.1f} ms"


def published(rows: Rows) -> str:
    """Format published figures of a data set: l2, l1 with l2, LIBLINEAR's hinge."""
    return ", ".join(shown(*each) for each in PUBLISHED.get(next(iter(rows)).partition(" /")[0], []))


BENCHMARK = Benchmark(
    "newton-table",
    "Accuracy and time of smoothed Newton and LIBLINEAR, after Hajewski, Oliveira and Stewart (2018).",
    cases,
    {
        "newton_table": Table(
            "data set",
            part(0),
            [
                *(Column(solver, partial(cell, solver)) for solver in SOLVERS),
                Column("published: l2, l1 and l2, LIBLINEAR hinge", published),
            ],
        )
    },
    subject="solvers",
    others=SOLVERS[3:],
    packages=SOLVER_PACKAGES,
)
