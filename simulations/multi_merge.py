"""Replication of the study of multi-merge budget maintenance.

    python -m simulations.multi_merge            everything: exact machines, runs, tables and plots
    python -m simulations.multi_merge pictures   tables and plots of stored results

It measures accuracy, time, and the share of time spent merging. Data sets, C and gamma follow section 4 of Qaadan and
Glasmachers, "Multi-merge budget maintenance for stochastic gradient descent SVM training" (2018). A run is one epoch of
Pegasos steps with M = 2 ... 11. Budgets are shares of the support vectors of the exact machine (scikit-learn's SVC).
Exact machines take minutes to fit and are stored. Results are in `simulations/results`, plots in
`simulations/pictures`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

import numpy as np
import scipy.sparse
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from simulations import data
from simulations.keeping import PICTURES, keep, kept
from streamsvm import BSGDClassifier
from streamsvm.budgeted import expansion
from streamsvm.budgeted import kernels as budgeted
from streamsvm.core.access import address_of
from streamsvm.core.jit import call_pointer, kernel
from streamsvm.features.scaler import row_at
from streamsvm.features.statistics import observe
from streamsvm.features.transform import load as load_row

NAME = "multi-merge"

# C and gamma.
SETS = {"phishing": (8.0, 8.0), "a9a": (32.0, 0.008), "ijcnn1": (32.0, 2.0)}
SHARES = (0.01, 0.05, 0.10, 0.25, 0.50)
MERGES = tuple(range(2, 12))
SEEDS = tuple(range(5))

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
    return {
        "vectors": int(machine.n_support_.sum()),
        "accuracy": 100.0 * float(machine.score(X_test, y_test)),
        "seconds": seconds,
    }


def run(split: Split, C: float, gamma: float, budget: int, merges: int, seed: int) -> list[float]:
    """Train one epoch in random order.

    Returns test accuracy, seconds, and the share of time spent on budget maintenance.
    """
    X, y, X_test, y_test = split
    n = len(y)
    model = BSGDClassifier(
        budget=budget,
        gamma=gamma,
        learning_rate=None,
        # C corresponds to l2 = 1 / (C n) with one signed coefficient, and to twice that with one per class.
        l2=2.0 / (C * n),
        horizon=10**12,
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


def measure() -> dict[str, Any]:
    """Run all measurements."""
    known = kept(NAME)
    result: dict[str, Any] = {}
    for name, (C, gamma) in SETS.items():
        split = load(name)
        reference = known.get(name, {}).get("exact") or exact(split, C, gamma)
        print(f"{name}: exact {reference}", flush=True)
        run(split, C, gamma, 10, 2, 0)  # compiles
        budgets = {share: max(round(share * reference["vectors"]), 2) for share in SHARES}
        cells = list(itertools.product(SHARES, MERGES))
        # Orders are the outer loop, so that temporary load on the machine affects all cells alike.
        passes = [[run(split, C, gamma, budgets[share], merges, seed) for share, merges in cells] for seed in SEEDS]
        runs = []
        for (share, merges), *values in zip(cells, *passes, strict=True):
            accuracies = [accuracy for accuracy, _, _ in values]
            _, seconds, merging = min(values, key=lambda value: value[1])
            runs.append(
                {
                    "share": share,
                    "budget": budgets[share],
                    "merges": merges,
                    "accuracy": [statistics.mean(accuracies), statistics.stdev(accuracies)],
                    "seconds": seconds,
                    "merging": merging,
                }
            )
        result[name] = {"exact": reference, "runs": runs}
        keep(NAME, result, ("numpy", "numba", "scikit-learn"))
    return result


# Tables and pictures ----------------------------------------------------------------------------------------------


def pick(result: dict[str, Any], name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Select the runs of a data set with given settings."""
    return [r for r in result[name]["runs"] if all(r[key] == value for key, value in wanted.items())]


def print_tables(result: dict[str, Any]) -> None:
    """Print accuracy, time and share of merging: a row per budget, a column per M."""
    for name, part in result.items():
        reference = part["exact"]
        print(
            f"\n{name}: exact {reference['accuracy']:.2f} % with {reference['vectors']} support vectors, "
            f"{reference['seconds']:.1f} s"
        )
        print(f"  accuracy in %, mean (spread) over {len(SEEDS)} orders")
        print("      B " + "".join(f"       M={m:<5}" for m in MERGES))
        for share in SHARES:
            row = pick(result, name, share=share)
            cells = "".join(f"  {r['accuracy'][0]:6.2f} ({r['accuracy'][1]:4.2f})" for r in row)
            print(f"  {row[0]['budget']:5d} {cells}")
        for key, title in (("seconds", "training time in s"), ("merging", "share of the time spent merging")):
            print(f"  {title}")
            print("      B " + "".join(f"   M={m:<4}" for m in MERGES))
            for share in SHARES:
                row = pick(result, name, share=share)
                cells = "".join(f"  {r[key]:6.3f} " for r in row)
                print(f"  {row[0]['budget']:5d} {cells}")


def draw(result: dict[str, Any]) -> None:
    """Plot the paper's figures.

    They show accuracy and time against budgets, the share of merging, and the trade-off on a9a.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    PICTURES.mkdir(exist_ok=True)
    shown = (2, 3, 4, 5, 8, 11)
    colors = dict(zip(shown, pyplot.get_cmap("viridis")(np.linspace(0.0, 0.9, len(shown))), strict=True))

    figure, axes = pyplot.subplots(len(result), 2, figsize=(10, 4 * len(result)), squeeze=False)
    for (name, part), row in zip(result.items(), axes, strict=True):
        for merges in shown:
            runs = pick(result, name, merges=merges)
            row[0].errorbar(
                [r["budget"] for r in runs],
                [r["accuracy"][0] for r in runs],
                yerr=[r["accuracy"][1] for r in runs],
                color=colors[merges],
                label=f"M = {merges}",
                capsize=2,
                marker="o",
                markersize=3,
            )
        row[0].axhline(part["exact"]["accuracy"], color="black", linestyle=":", label="exact")
        row[0].set(xscale="log", xlabel="budget", ylabel="test accuracy (%)", title=name)
        for merges in shown:
            runs = pick(result, name, merges=merges)
            row[1].plot(
                [r["budget"] for r in runs],
                [1e3 * r["seconds"] for r in runs],
                color=colors[merges],
                marker="o",
                markersize=3,
            )
        row[1].set(xscale="log", yscale="log", xlabel="budget", ylabel="training time (ms)", title=name)
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURES / "multi-merge-accuracy-time.png", dpi=110)
    pyplot.close(figure)

    figure, axes = pyplot.subplots(1, len(result), figsize=(5 * len(result), 4), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], result, strict=True):
        for merges in shown:
            runs = pick(result, name, merges=merges)
            axis.plot(
                [r["budget"] for r in runs],
                [100.0 * r["merging"] for r in runs],
                color=colors[merges],
                marker="o",
                markersize=3,
                label=f"M = {merges}",
            )
        axis.set(xscale="log", ylim=(0, 100), xlabel="budget", title=name)
    axes[0, 0].set_ylabel("share of the time spent merging (%)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(PICTURES / "multi-merge-share.png", dpi=110)
    pyplot.close(figure)

    figure, axis = pyplot.subplots(figsize=(7, 5))
    markers = dict(zip(SHARES, "os^Dv", strict=True))
    palette = pyplot.get_cmap("viridis")(np.linspace(0.0, 0.95, len(MERGES)))
    points = []
    for share in SHARES:
        runs = pick(result, "a9a", share=share)
        x, y = [1e3 * r["seconds"] for r in runs], [r["accuracy"][0] for r in runs]
        axis.plot(x, y, color="gray", linestyle=":", linewidth=0.8)
        axis.scatter(x, y, c=palette, marker=markers[share], label=f"B = {runs[0]['budget']}")
        points += list(zip(x, y, strict=True))
    front = [p for p in sorted(points) if all(q[1] < p[1] or q == p for q in points if q[0] <= p[0])]
    axis.plot(*zip(*front, strict=True), color="black", linewidth=1.0, label="best trade-offs")
    axis.axhline(result["a9a"]["exact"]["accuracy"], color="black", linestyle=":", linewidth=0.8)
    axis.set(xscale="log", xlabel="training time (ms)", ylabel="test accuracy (%)", title="a9a")
    axis.set_xticks([10, 20, 50, 100, 200], ["10", "20", "50", "100", "200"])
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    axis.legend(fontsize=8, loc="lower right")
    scale = pyplot.cm.ScalarMappable(pyplot.Normalize(2, 11), "viridis")
    figure.colorbar(scale, ax=axis, label="M")
    figure.savefig(PICTURES / "multi-merge-trade-off.png", dpi=110, bbox_inches="tight")
    pyplot.close(figure)


def main() -> None:
    """Measure unless only plots are requested, then print and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["pictures"], help="all by default")
    result = kept(NAME) if parser.parse_args().what == "pictures" else measure()
    print_tables(result)
    draw(result)


if __name__ == "__main__":
    main()
