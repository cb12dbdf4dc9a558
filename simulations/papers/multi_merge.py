"""Replication of the study of multi-merge budget maintenance.

It measures accuracy, time, and the share of time spent merging. Data sets, C and gamma follow section 4 of Qaadan and
Glasmachers, "Multi-merge budget maintenance for stochastic gradient descent SVM training" (2018). A run is one epoch of
Pegasos steps with M = 2 ... 11. Budgets are shares of the support vectors of the exact machine (scikit-learn's SVC),
which takes minutes to fit.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulations import data
from simulations.harness import Benchmark, Case, key_of
from simulations.storage import Rows, rounded
from simulations.tables import Column, Table, of
from streamsvm import BSGDClassifier
from streamsvm.budgeted import expansion
from streamsvm.budgeted import kernels as budgeted
from streamsvm.core.jit import address_of, call_pointer, kernel
from streamsvm.features.scaler import row_at
from streamsvm.features.statistics import observe
from streamsvm.features.transform import load_row

# C and gamma.
SETS = {"phishing": (8.0, 8.0), "a9a": (32.0, 0.008), "ijcnn1": (32.0, 2.0)}
SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
MERGES, SHOWN = tuple(range(2, 12)), (2, 3, 4, 5, 8, 11)
SEEDS = tuple(range(5))
EXACT = "exact"

Split = tuple[scipy.sparse.csr_matrix, NDArray[np.int64], scipy.sparse.csr_matrix, NDArray[np.int64]]


@intrinsic  # type: ignore[untyped-decorator]
def _cycles(_):
    """Read the processor's cycle counter."""

    def codegen(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(64), ())
        return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", fnty=kind), ())

    return types.int64(), codegen


@kernel
def run_timed(state, values, columns, indptr, labels):
    """Learn all rows; returns the cycles in total and in budget maintenance."""
    start, merging = _cycles(), 0
    for i in range(indptr.size - 1):
        m = load_row(state.rows, *row_at(values, columns, indptr, False, i))
        expansion.evaluate(state, m, False)
        budgeted.step(state, m, labels[i], 1.0)
        if state.n_vectors > state.budget:
            before = _cycles()
            call_pointer(state.maintain, (address_of(state),))
            merging += _cycles() - before
        observe(state.rows, *row_at(values, columns, indptr, False, i))
    return _cycles() - start, merging


def load(name: str) -> Split:
    """Load training rows, training labels, test rows and test labels."""
    if name == "a9a":
        X, y = data.load_libsvm("a9a.train.libsvm.gz", 123)
        return X, y, *data.load_libsvm("a9a.test.libsvm.gz", 123)
    if name == "ijcnn1":
        X, y = data.load_libsvm("ijcnn1.train.libsvm.gz", 22)
        return X[:35_000], y[:35_000], X[35_000:], y[35_000:]
    X, y = data.load_libsvm("phishing.libsvm.gz", 68)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:8_315], order[8_315:]
    return X[train], y[train], X[test], y[test]


def exact(split: Split, C: float, gamma: float) -> dict[str, Any]:
    """Fit the machine without a budget."""
    from sklearn.svm import SVC

    X, y, X_test, y_test = split
    start = time.perf_counter()
    machine = SVC(C=C, gamma=gamma, cache_size=1000).fit(X, y)
    seconds = time.perf_counter() - start
    accuracy = 100.0 * float(machine.score(X_test, y_test))
    return {"vectors": int(machine.n_support_.sum()), "accuracy": accuracy, "seconds": seconds}


def run(split: Split, C: float, gamma: float, budget: int, merges: int, seed: int) -> list[float]:
    """Train one epoch in random order.

    Returns test accuracy, seconds, and the share of time spent on budget maintenance.
    """
    X, y, X_test, y_test = split
    n = len(y)
    published = type("Published", (BSGDClassifier,), {"horizon": 10**12})
    model = published(
        budget=budget,
        gamma=gamma,
        learning_rate=None,
        # C corresponds to l2 = 1 / (C n) with one signed coefficient, and to twice that with one per class.
        l2=2.0 / (C * n),
        metric="fixed",
        absorb=1.0,
        merges=merges,
        scaling="none",
    )
    order = np.random.default_rng(seed).permutation(n)
    encoded = model._space.encode(X[order], np.ones(n, bool))
    codes = np.array([model._code(label) for label in y[order].tolist()])
    model._grow()
    arguments = (model._state, encoded.values, encoded.columns, encoded.indptr, codes)
    start = time.perf_counter()
    total, merging = run_timed(*arguments)
    seconds = time.perf_counter() - start
    accuracy = 100.0 * float(np.mean(model.predict_many(X_test) == y_test))
    return [accuracy, seconds, merging / total]


def measure(name: str) -> Rows:
    """Run all measurements of a data set."""
    C, gamma = SETS[name]
    split = load(name)
    reference = exact(split, C, gamma)
    run(split, C, gamma, 10, 2, 0)  # compiles
    budgets = {share: max(round(share * reference["vectors"]), 2) for share in SHARES}
    cells = list(itertools.product(SHARES, MERGES))
    # Orders are the outer loop, so that temporary load on the machine affects all cells alike.
    passes = [[run(split, C, gamma, budgets[share], merges, seed) for share, merges in cells] for seed in SEEDS]
    found = {EXACT: reference}
    for (share, merges), *values in zip(cells, *passes, strict=True):
        accuracies = [accuracy for accuracy, _, _ in values]
        _, seconds, merging = min(values, key=lambda value: value[1])
        measures = {"accuracy": statistics.mean(accuracies), "spread": statistics.stdev(accuracies)}
        measures |= {"budget": budgets[share], "seconds": seconds, "merging": merging}
        found[key_of(share, f"M = {merges}")] = rounded(measures)
    return found


def cases(_: argparse.Namespace) -> Iterator[Case]:
    """List the data sets."""
    for name in SETS:
        yield Case(name, partial(measure, name), several=True)


# Tables ---------------------------------------------------------------------------------------------------------------


def _table(title: str, measure: str, form: str) -> Table:
    def row(parts: Sequence[str]) -> str | None:
        return f"{parts[0]}, {float(parts[1]):.0%} of the vectors" if parts[1] != EXACT else None

    return Table(title, row, [Column(f"M = {m}", of(measure, f"M = {m}"), form) for m in SHOWN])


BENCHMARK = Benchmark(
    "multi-merge",
    "Accuracy and time of budget maintenance that merges M vectors, after Qaadan and Glasmachers (2018).",
    cases,
    {
        "multi_merge": _table("accuracy, %", "accuracy", "{:.2f}"),
        "multi_merge_exact": Table(
            "without a budget",
            lambda parts: parts[0] if parts[1] == EXACT else None,
            [Column("vectors", of("vectors"), "{:,.0f}"), Column("accuracy, %", of("accuracy"), "{:.2f}")],
        ),
        "multi_merge_seconds": _table("training time, s", "seconds", "{:.3f}"),
        "multi_merge_merging": _table("share of the time spent merging", "merging", "{:.2f}"),
    },
    others=(EXACT,),
    packages=("numpy", "numba", "scikit-learn"),
)
