"""Smoothed Newton and LIBLINEAR, as in Table 3 of Hajewski et al. (2018).

The paper is by Hajewski, Oliveira and Stewart.

    python -m simulations.newton_table            all sets
    python -m simulations.newton_table sonar heart

Accuracy is the mean over ten folds; for Covertype over the first fold. Seconds are the median CPU time of a fit on one
core. Each set is fitted with l2 = 1 / n (C = 1), with l1 = 0.03 times the smallest penalty that makes all coefficients
zero, and with both.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import LinearSVC, l1_min_c
from threadpoolctl import threadpool_limits

from simulations import data
from simulations.keeping import keep, kept
from streamsvm import SmoothedNewton

NAME = "newton-table"
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
    """Return the smallest l1 with all coefficients zero, for slopes that are equal within a class."""
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


def row(name: str) -> dict[str, Any]:
    X, y = load(name)
    folds = list(StratifiedKFold(10, shuffle=True, random_state=0).split(np.zeros(len(y)), y))
    folds = folds[:1] if name == "covtype" else folds
    makers = solvers(X, y)
    hits: dict[str, list[float]] = {key: [] for key in makers}
    seconds: dict[str, list[float]] = {key: [] for key in makers}
    gaps: list[float] = []
    for key, make in makers.items():
        if not key.startswith("LIB"):
            make().fit(X[: len(y) // 2] if name == "covtype" else X, y[: len(y) // 2] if name == "covtype" else y)
    for train, test in folds:
        X_train, y_train, X_test, y_test = X[train], y[train], X[test], y[test]
        for key, make in makers.items():
            start = time.process_time()
            model = make().fit(X_train, y_train)
            seconds[key].append(time.process_time() - start)
            hits[key].append(float(np.mean(model.predict(X_test) == y_test)))
            if isinstance(model, SmoothedNewton):
                gaps.append(model.certificate_ / model.objective_)
    cells = {
        key: {"accuracy": 100 * statistics.mean(hits[key]), "s": statistics.median(seconds[key])} for key in makers
    }
    return {"n": X.shape[0], "d": X.shape[1], "worst certificate": max(gaps), **cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=SETS)
    names = parser.parse_args().sets
    result = kept(NAME)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in names:
            result[name] = row(name)
            keep(NAME, result, ("numpy", "scikit-learn"))
            print(line(name, result[name]), flush=True)


def line(name: str, found: dict[str, Any]) -> str:
    """Format a row of the table, in percent and milliseconds.

    Published figures are for l2, l1 with l2, and LIBLINEAR's hinge.
    """
    cells = [name, f"{found['n']:,} x {found['d']:,}"]
    for key, cell in found.items():
        if isinstance(cell, dict):
            cells.append(f"{key} {cell['accuracy']:.1f} % {1e3 * cell['s']:,.1f} ms")
    published = PUBLISHED.get(name)
    cells.append(", ".join(f"{a} % {1e3 * s:,.0f} ms" for a, s in published) if published else "")
    cells.append(f"certified to {found['worst certificate']:.0e}" if math.isfinite(found["worst certificate"]) else "")
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
