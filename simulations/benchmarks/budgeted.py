"""Accuracy and cost of the budgeted kernel machine.

    python -m simulations.benchmarks.budgeted a9a        one epoch of the paper's training: time and accuracy
    python -m simulations.benchmarks.budgeted grid       the best of a small grid on streams, metric fixed and learned
    python -m simulations.benchmarks.budgeted defaults   default settings on every stream, and variations of them
    python -m simulations.benchmarks.budgeted            all

Results are stored in `simulations/results`. Times are of `test_then_train` on encoded rows, or of `learn_many` for a9a,
on one core.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data
from simulations.keeping import keep
from streamsvm import BSGDClassifier

# The paper's training ---------------------------------------------------------------------------------------------


def a9a(n_seeds: int = 10) -> None:
    """Train one epoch of Pegasos steps in random orders.

    C is 32, gamma 0.008, and M 3.
    """
    X, y = data.load_libsvm("a9a.train.libsvm.gz", 123)
    X_test, y_test = data.load_libsvm("a9a.test.libsvm.gz", 123)
    n = len(y)
    plain = {
        "gamma": 0.008,
        "learning_rate": None,
        "l2": 2.0 / (32.0 * n),
        "horizon": 10**12,
        "metric": "fixed",
        "absorb": 1.0,
        "merges": 3,
        "scaling": "none",
    }
    ways = {
        "last": {},
        "averaged": {"average": 4_000},
        "averaged, bias": {"average": 4_000, "experimental": {"bias": True}},
    }
    result = []
    print("     B  way               s (minimum)         accuracy in %: mean (std), minimum")
    for budget, (way, settings) in itertools.product((120, 600, 1_200, 1_800, 2_500), ways.items()):
        seconds, accuracies = [], []
        for seed in range(n_seeds):
            order = np.random.default_rng(seed).permutation(n)
            model = BSGDClassifier(budget=budget, **plain, **settings)
            rows, labels = model._space.encode(X[order], np.ones(n, bool)), y[order].tolist()
            start = time.perf_counter()
            model.learn_many(rows, labels)
            seconds.append(time.perf_counter() - start)
            accuracies.append(100.0 * float(np.mean(model.predict_many(X_test) == y_test)))
        mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
        print(f"  {budget:4d}  {way:16s}  {min(seconds):6.3f}  {mean:14.2f} ({spread:.2f}), {min(accuracies):.2f}")
        result.append({"budget": budget, "way": way, "seconds": seconds, "accuracy": accuracies})
    keep("budgeted-a9a", result)


# Streams ----------------------------------------------------------------------------------------------------------


def generate(name: str, n: int = 20_000) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Generate a stream of River's generators as a table."""
    from river.datasets import synth

    if name == "RBF drift":
        stream = synth.RandomRBFDrift(
            seed_model=42,
            seed_sample=42,
            n_classes=4,
            n_features=20,
            n_centroids=50,
            change_speed=0.001,
            n_drift_centroids=10,
        )
    else:
        stream = synth.ConceptDriftStream(
            synth.Agrawal(classification_function=0, seed=42),
            synth.Agrawal(classification_function=6, seed=42),
            position=n // 2,
            width=500,
            seed=42,
        )
    events = list(stream.take(n))
    return {name: np.array([x[name] for x, _ in events], float) for name in events[0][0]}, [y for _, y in events]


def load(name: str) -> tuple[Any, list[Any]]:
    """Load a stream of the data, or generate it."""
    return generate(name) if name in ("RBF drift", "Agrawal drift") else data.load_stream(name)


def prequential(X: Any, y: list[Any], **settings: Any) -> tuple[float, float]:
    """Measure the prequential accuracy in percent, and the microseconds per event."""
    model = BSGDClassifier(**settings)
    rows = model._space.encode(X, np.ones(len(y), bool))
    start = time.perf_counter()
    predicted = model.test_then_train(rows, y)
    seconds = time.perf_counter() - start
    right = sum(p == label for p, label in zip(predicted.tolist(), y, strict=True))
    return 100.0 * right / len(y), seconds / len(y) * 1e6


GRID_STREAMS = {
    "electricity": 91.0,
    "insects 2013": 92.5,
    "insects abrupt": 86.5,
    "SEA 50k": 88.0,
    "RBF drift": 98.0,
    "Agrawal drift": 98.0,
}


def grid() -> None:
    """Evaluate a grid of gamma * d, learning rate and budget.

    gamma * d is in {0.5, 1, 3, 10, 30}, the learning rate in {0.05, 0.2, 1}, and the budget in {100, 500}.
    """
    result = []
    # Compiles before the measurement.
    prequential(np.eye(3), [0, 1, 0])
    print("stream          metric   goal  best                                          B = 100, us per event")
    for name, goal in GRID_STREAMS.items():
        X, y = load(name)
        for metric in ("fixed", "learned"):
            runs = []
            for factor, rate, budget in itertools.product((0.5, 1.0, 3.0, 10.0, 30.0), (0.05, 0.2, 1.0), (100, 500)):
                accuracy, cost = prequential(
                    X,
                    y,
                    gamma=factor / len(X),
                    learning_rate=rate,
                    budget=budget,
                    metric=metric,
                    absorb=1.0,
                    l2=1e-4,
                )
                runs.append({"gamma d": factor, "step": rate, "budget": budget, "accuracy": accuracy, "us": cost})
            best = max(runs, key=lambda run: run["accuracy"])
            small = [run for run in runs if run["budget"] == 100]
            best_small = max(small, key=lambda run: run["accuracy"])
            print(
                f"{name:15s} {metric:8s} {goal:4.1f}  {best['accuracy']:5.2f} ({best['us']:.1f} us; gamma d = "
                f"{best['gamma d']}, step {best['step']}, B = {best['budget']})"
                f"  {best_small['accuracy']:5.2f}, {best_small['us']:.1f} us",
                flush=True,
            )
            result.append({"stream": name, "metric": metric, "goal": goal, "best": best, "runs": runs})
    keep("budgeted-grid", result)


# Variations of the defaults with one changed setting, which justify the defaults.
FIVE_HEADS = (("hinge", 0.1), ("hinge", 0.3), ("hinge", 1.0), ("log", 0.05), ("log", 0.2))
BESIDE: dict[str, dict[str, Any]] = {
    "defaults": {},
    "metric fixed": {"metric": "fixed"},
    "never absorb": {"absorb": 1.0},
    "absorb at 0.95": {"absorb": 0.95},
    "M = 3": {"merges": 3},
    "M = 5": {"merges": 5},
    "step 0.1": {"learning_rate": 0.1},
    "step 1": {"learning_rate": 1.0},
    "log loss": {"loss": "log"},
    "l2 1e-5": {"l2": 1e-5},
    "l2 1e-2": {"l2": 1e-2},
    "bias": {"experimental": {"bias": True}},
    "average 20": {"average": 20},
    "budget 100": {"budget": 100},
    "budget 500": {"budget": 500},
    "gamma x 1/2": {"experimental": {"gamma_factor": 0.5}},
    "gamma x 2": {"experimental": {"gamma_factor": 2.0}},
    "ranks": {"scaling": "rank"},
    "five heads": {"heads": FIVE_HEADS},
}


def defaults() -> None:
    """Evaluate the defaults and each variation on every stream, up to 50,000 rows."""
    streams = {name: load(name) for name in [*data.STREAMS, "RBF drift", "Agrawal drift"]}
    prequential(np.eye(3), [0, 1, 0])
    result: dict[str, Any] = {}
    print(f"{'':15s}" + "".join(f"{name[:11]:>12s}" for name in streams) + "    mean   us (median)")
    for title, settings in BESIDE.items():
        runs = {name: prequential(X, y, **settings) for name, (X, y) in streams.items()}
        result[title] = {"settings": settings, "runs": runs}
        accuracies = [accuracy for accuracy, _ in runs.values()]
        print(
            f"{title:15s}"
            + "".join(f"{accuracy:12.2f}" for accuracy in accuracies)
            + f"  {statistics.mean(accuracies):6.2f}  {statistics.median(cost for _, cost in runs.values()):6.2f}",
            flush=True,
        )
    costs = [cost for _, cost in result["defaults"]["runs"].values()]
    print(f"{'defaults, us':15s}" + "".join(f"{cost:12.2f}" for cost in costs))
    keep("budgeted-defaults", result)


def main() -> None:
    """Run the selected measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"a9a": a9a, "grid": grid, "defaults": defaults}
    parser.add_argument("part", nargs="*", choices=parts, default=list(parts))
    for name in parser.parse_args().part:
        parts[name]()


if __name__ == "__main__":
    main()
