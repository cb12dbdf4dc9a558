"""Accuracy and cost of the budgeted kernel machine: one epoch of the paper's training on a9a.

The result is stored in `simulations/results`. Times are of `learn_many`, on one core.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from simulations import data
from simulations.keeping import keep
from streamsvm import BSGDClassifier


def main(n_seeds: int = 10) -> None:
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
    result = []
    print("     B  s (minimum)         accuracy in %: mean (std), minimum")
    for budget in (120, 600, 1_200, 1_800, 2_500):
        seconds, accuracies = [], []
        for seed in range(n_seeds):
            order = np.random.default_rng(seed).permutation(n)
            model = BSGDClassifier(budget=budget, **plain)
            rows, labels = model._space.encode(X[order], np.ones(n, bool)), y[order].tolist()
            start = time.perf_counter()
            model.learn_many(rows, labels)
            seconds.append(time.perf_counter() - start)
            accuracies.append(100.0 * float(np.mean(model.predict_many(X_test) == y_test)))
        mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
        print(f"  {budget:4d}  {min(seconds):6.3f}  {mean:14.2f} ({spread:.2f}), {min(accuracies):.2f}")
        result.append({"budget": budget, "seconds": seconds, "accuracy": accuracies})
    keep("budgeted-a9a", result)


if __name__ == "__main__":
    main()
