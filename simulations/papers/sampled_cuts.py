"""Figures 1 to 5 and Table 1 of Yu and Joachims (2008) on available data.

`growth` fits Covertype with several numbers of rows, and LIBSVM; `samples` uses several r (rows of a cut), C and
epsilon; `quality` compares Covertype, ijcnn1 and an MNIST digit with LIBSVM and Nystroem. The kernel is Gaussian,
errors are in percent, and seconds are CPU time on one core. LIBSVM is fitted to subsets.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

from simulations import data
from simulations.harness import SOLVER_PACKAGES, Benchmark, Case, key_of, on_one_core
from simulations.papers.linear_time import LinearTime
from simulations.plots import WIDTH, plain, pyplot, save
from simulations.storage import SEPARATOR, Rows, rounded
from simulations.tables import Column, Table, of, pick
from streamsvm import SampledCuts

TEST = 5_000
# Maximum number of rounds in the comparison of r and epsilon.
CAP = 150
UNITS = {"seconds": "seconds of one core", "test error": "test error, %"}


@lru_cache(maxsize=1)
def covertype() -> tuple[Any, ...]:
    """Load Covertype, class 2 against the rest, with columns in [0, 1]."""
    X, y, X_test, y_test = data.load_covertype()
    X, X_test = X.toarray().astype(np.float32), X_test[:TEST].toarray().astype(np.float32)
    return X, y > 0, X_test, y_test[:TEST] > 0, 10.0


def ijcnn1() -> tuple[Any, ...]:
    """Load ijcnn1; a random tenth of the training rows is the test set."""
    X, y = data.load_libsvm("ijcnn1.train.libsvm.gz", 22)
    order = np.random.default_rng(0).permutation(len(y))
    X, y, cut = X[order].toarray(), y[order] > 0, len(y) // 10
    return X[:-cut], y[:-cut], X[-cut:], y[-cut:], 2.0


def digit() -> tuple[Any, ...]:
    """Load MNIST, digit 8 against the rest."""
    (X, y), (X_test, y_test) = data.load_digits("mnist.train"), data.load_digits("mnist.test")
    return X.astype(np.float32), y == 8, X_test.astype(np.float32), y_test == 8, 0.02


SETS = {"Covertype": covertype, "ijcnn1": ijcnn1, "MNIST 8": digit}


def fit(model: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> dict[str, float]:
    """Fit a model and return its time, errors and size."""
    start = time.process_time()
    model.fit(X, y)
    row = {"seconds": time.process_time() - start}
    row["test error"] = 100.0 * (1.0 - model.score(X_test, y_test))
    row["training error"] = 100.0 * (1.0 - model.score(X[:TEST], y[:TEST]))
    if isinstance(model, SampledCuts):
        row |= {"rounds": model.n_iter_, "vectors": len(model.vectors_)}
    elif isinstance(model, SVC):
        row |= {"vectors": int(model.n_support_.sum()), "rows": len(y)}
    return rounded(row)


def growth(which: str, n: int) -> dict[str, float]:
    """Fit an algorithm to n rows, with C = min(n, 100,000).

    The sample size is 300 for linear time and 500 for constant time.
    """
    X, y, X_test, y_test, gamma = covertype()
    C = min(n, 100_000)
    models = {
        "constant time": SampledCuts(C, gamma=gamma),
        "linear time": LinearTime(C, gamma=gamma, sample_size=300, max_iter=60, tol=0.02),
        "LIBSVM": SVC(C=1.0, gamma=gamma, cache_size=1000),
    }
    return fit(models[which], X[:n], y[:n], X_test, y_test)


def samples(C: float, tol: float, r: int) -> dict[str, float]:
    """Fit the constant-time algorithm on Covertype."""
    X, y, X_test, y_test, gamma = covertype()
    return fit(SampledCuts(C, gamma=gamma, sample_size=r, tol=tol, max_iter=CAP), X, y, X_test, y_test)


def quality(name: str) -> Rows:
    """Compare both algorithms with LIBSVM on a subset and a linear SVM on Nystroem.

    The subset takes LIBSVM about as long as the constant-time algorithm.
    """
    X, y, X_test, y_test, gamma = SETS[name]()
    rows: Rows = {}
    C = min(len(y), 100_000)
    r, rounds = (200, 300) if X.shape[1] > 100 else (500, 150)
    rows["constant time"] = fit(SampledCuts(C, gamma=gamma, sample_size=r, max_iter=rounds), X, y, X_test, y_test)
    few = slice(0, 30_000)
    rows["linear time, 30,000 rows"] = fit(
        LinearTime(C, gamma=gamma, sample_size=r // 2, max_iter=rounds, tol=0.01),
        X[few],
        y[few],
        X_test,
        y_test,
    )
    size = 2000
    while True:
        svc = fit(SVC(C=1.0, gamma=gamma, cache_size=1000), X[:size], y[:size], X_test, y_test)
        rows["LIBSVM on a subset"] = svc
        if svc["seconds"] > 0.7 * rows["constant time"]["seconds"] or size >= 20_000:
            break
        size = int(min(20_000, size * 1.5))
    rows["LIBSVM on a subset, C = 10"] = fit(
        SVC(C=10.0, gamma=gamma, cache_size=1000), X[:size], y[:size], X_test, y_test
    )
    nystroem = Nystroem(gamma=gamma, n_components=300, random_state=0)
    model = make_pipeline(nystroem, LinearSVC(C=1.0, tol=1e-2, max_iter=30))
    part = slice(0, 100_000)
    rows["Nystroem 300 + linear"] = fit(model, X[part], y[part], X_test, y_test)
    return rows


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List the measurements of all figures."""
    for n in (3000, 10_000, 30_000, 100_000, 300_000):
        for which, most in (("constant time", 300_000), ("linear time", 30_000), ("LIBSVM", 10_000)):
            if n <= most:
                yield Case(key_of("growth", which, n), partial(on_one_core, growth, which, n))
    for C in (1e3, 1e5):
        for tol in (1e-2, 1e-3):
            for r in (30, 100, 300, 1000):
                yield Case(
                    key_of("samples", f"C = {C:g}, epsilon = {tol:g}", r), partial(on_one_core, samples, C, tol, r)
                )
    for name in SETS:
        yield Case(key_of("quality", name), partial(on_one_core, quality, name), several=True)


def curves(rows: Rows, figure: str) -> dict[str, Rows]:
    """Group results of a figure by the second part of their keys, then the third."""
    found: dict[str, Rows] = {}
    for key, row in pick(rows, figure).items():
        _, which, x = key.split(SEPARATOR)
        found.setdefault(which, {})[x] = row
    return found


def draw(rows: Rows) -> None:
    """Plot time and test error against the number of rows, and of rows of a cut."""
    for name, label in (("growth", "training rows"), ("samples", "rows of a cut, r")):
        figure, panels = pyplot().subplots(1, 2, figsize=(WIDTH, 3.4), layout="constrained")
        for measure, panel in zip(("seconds", "test error"), panels, strict=True):
            for k, (which, own) in enumerate(curves(rows, name).items()):
                # Different styles keep both of two coinciding lines visible.
                style = {"marker": "o", "ms": 4} if k % 2 == 0 else {"marker": "s", "ms": 8, "mfc": "none", "ls": "--"}
                panel.plot([int(x) for x in own], [row[measure] for row in own.values()], label=which, **style)
            panel.set(xscale="log", xlabel=label, title=UNITS[measure])
            plain(panel.xaxis)
            panel.grid(alpha=0.3)
        panels[0].set_yscale("log")
        plain(panels[0].yaxis)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save(figure, f"sampled-cuts-{name}")


BENCHMARK = Benchmark(
    "sampled-cuts",
    "Time and error of sampled cuts and LIBSVM, after Yu and Joachims (2008).",
    cases,
    {
        "sampled_cuts": Table(
            "data set, algorithm",
            lambda parts: ", ".join(parts[1:]) if parts[0] == "quality" else None,
            [
                Column("CPU seconds", of("seconds"), "{:.2f}"),
                Column("test error, %", of("test error"), "{:.2f}"),
                Column("rounds", of("rounds"), "{:.0f}"),
                Column("vectors", of("vectors"), "{:.0f}"),
            ],
        )
    },
    draw,
    subject="solvers",
    others=("LIBSVM", "LIBSVM on a subset", "LIBSVM on a subset, C = 10", "Nystroem 300 + linear"),
    packages=SOLVER_PACKAGES,
)
