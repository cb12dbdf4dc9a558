"""Accuracy and cost of the convex polytope machine, compared with others.

    python -m simulations.benchmarks.polytope event     single events through River's interface, and batches of rows
    python -m simulations.benchmarks.polytope a9a       time of the paper's training steps, and its errors on a9a
    python -m simulations.benchmarks.polytope mnist     errors on MNIST, digit 2 against the rest

Results are stored in `simulations/results`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

import numpy as np

from simulations import data
from simulations.keeping import keep
from streamsvm import CPMClassifier
from streamsvm.features.transform import ScaledRows, load_all
from streamsvm.polytope import kernels

# One event --------------------------------------------------------------------------------------------------------


def event(repeats: int = 9) -> None:
    """Time predict and learn on dicts of 20 features, two classes, ten faces.

    The same events are also timed as an array.
    """
    from river import linear_model

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    y = (X @ rng.normal(size=20) + 0.3 * rng.normal(size=len(X)) > 0).tolist()
    names = [f"f{j}" for j in range(20)]
    rows = [dict(zip(names, row, strict=True)) for row in X.tolist()]

    def by_event(model: Any) -> float:
        predict, learn = model.predict_one, model.learn_one
        start = time.perf_counter()
        for x, label in zip(rows, y, strict=True):
            predict(x)
            learn(x, label)
        return (time.perf_counter() - start) / len(rows) * 1e6

    def at_once(model: Any) -> float:
        start = time.perf_counter()
        model.test_then_train(X, y)
        return (time.perf_counter() - start) / len(rows) * 1e6

    at_once(CPMClassifier(n_faces=10))
    # Interleaved, so that changes of the machine's speed affect all three.
    times = [
        (
            by_event(linear_model.LogisticRegression()),
            by_event(CPMClassifier(n_faces=10)),
            at_once(CPMClassifier(n_faces=10)),
        )
        for _ in range(repeats)
    ]
    river, ours, batch = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(b / a for a, b, _ in times)
    gain = statistics.median(b / c for _, b, c in times)
    print(f"River's LogisticRegression, predict + learn   {river:6.2f} us per event")
    print(f"CPMClassifier(n_faces=10), predict + learn    {ours:6.2f} us per event, {ratio:.2f} of River's")
    print(f"test_then_train on an array                   {batch:6.2f} us per event, {gain:.1f} times the rate")
    keep("polytope-event", {"river": river, "event": ours, "rows": batch, "event / river": ratio, "event / rows": gain})


# The paper's training ---------------------------------------------------------------------------------------------


def time_steps(X: Any, positive: Any, n_faces: int, n_steps: int, entropy: float, l2: float) -> float:
    """Time training of one polytope, in microseconds per step."""
    model = CPMClassifier(n_faces=n_faces, l2=l2, horizon=10**12, entropy=entropy, scaling="none")
    rows = model._space.encode(X, np.ones(X.shape[0], bool))
    model._code(True)
    model._grow()
    kernels.open_classes(model._state, 1)
    n = X.shape[0]
    scaled = ScaledRows.empty(len(rows.values), n)
    load_all(model._rows, rows.values, rows.columns, rows.indptr, rows.shared, scaled)
    labels, counted, rng = np.where(positive, 0, -1), np.full(n, -1), np.zeros(1, np.uint64)
    start = time.perf_counter()
    kernels.fit_rows(model._state, scaled, labels, np.ones(n), counted, rng, n_steps)
    return (time.perf_counter() - start) / n_steps * 1e6


def tune(
    name: str, train: Any, test: Any, n_faces: int, n_steps: int, n_valid: int, tries: int = 1, average: int = 0
) -> dict[str, Any]:
    """Follow the paper's protocol (section 5.1); returns both errors over five seeds.

    l2 is selected on a validation set with h = 0, then h.
    """
    X, y = train
    order = np.random.default_rng(0).permutation(len(y))
    held, used = order[:n_valid], order[n_valid:]

    def error(l2: float, entropy: float, seed: int, fit: Any, on: Any) -> float:
        model = CPMClassifier(n_faces=n_faces, l2=l2, horizon=10**12, entropy=entropy, scaling="none", average=average)
        model.fit(*fit, n_steps=n_steps, seed=seed)
        return 100.0 * float(np.mean(model.predict_many(on[0]) != on[1]))

    def validate(l2: float, entropy: float) -> float:
        return statistics.mean(
            error(l2, entropy, seed, (X[used], y[used]), (X[held], y[held])) for seed in range(tries)
        )

    l2s = [10.0**i / n_steps for i in range(4)]
    l2 = min(l2s, key=lambda value: validate(value, 0.0))
    shares = [0.0] + [math.log(n_faces * i / 10) / math.log(n_faces) for i in (1, 2, 5, 8) if n_faces * i > 10]
    entropy = min(shares, key=lambda share: validate(l2, share))
    best = [error(l2, entropy, seed, train, test) for seed in range(5)]
    plain = [error(l2, 0.0, seed, train, test) for seed in range(5)]
    result = {
        "n_faces": n_faces,
        "steps": n_steps,
        "average": average,
        "l2 * steps": l2 * n_steps,
        "entropy": entropy,
        "error": [statistics.mean(best), statistics.stdev(best)],
        "error without entropy": [statistics.mean(plain), statistics.stdev(plain)],
    }
    print(name, json.dumps(result))
    return result


def a9a(n_steps: int = 5_000_000) -> None:
    train, test = data.load_libsvm("a9a.train.libsvm.gz", 123), data.load_libsvm("a9a.test.libsvm.gz", 123)
    X, y = train
    time_steps(X, y > 0, 10, 1000, 0.0, 1e-5)
    steps = {
        f"entropy {h}": statistics.median(
            time_steps(X, y > 0, 10, n_steps, h, 1.0 / (0.01 * n_steps)) for _ in range(5)
        )
        for h in (0.0, 0.5)
    }
    print("one polytope, ten faces: microseconds per step", steps)
    keep("polytope-a9a", {"us a step": steps, "double-sided": tune("a9a", train, test, 10, n_steps, 6_000, tries=3)})


def mnist(n_steps: int = 20_000_000) -> None:
    def two_or_not(name: str) -> Any:
        X, y = data.one_against_rest(name, 2)
        return X, y > 0

    keep(
        "polytope-mnist",
        tune(
            "mnist 2 vs rest",
            two_or_not("mnist.train"),
            two_or_not("mnist.test"),
            100,
            n_steps,
            10_000,
            average=n_steps // 20,
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"event": event, "a9a": a9a, "mnist": mnist}
    parser.add_argument("part", choices=parts)
    parts[parser.parse_args().part]()


if __name__ == "__main__":
    main()
