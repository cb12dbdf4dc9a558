"""Accuracy of a model that no longer learns, with and without autocorrelation.

    python -m simulations.benchmarks.frozen                      all streams
    python -m simulations.benchmarks.frozen --only ijcnn1        one stream; results are not stored

Each model learns the first 70 % of a stream and predicts the rest, as a batch and event by event, in the stream's order
and in random orders. It is compared with itself without label autocorrelation in predictions, and with a model trained
without it. No accuracy may be more than 0.2 percentage points lower.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import numpy as np
import scipy.sparse

from simulations import data
from simulations.keeping import keep, rounded
from streamsvm import StreamSVMClassifier

MOST = 50_000
SEEDS = (1, 2, 3)
EFFORTS = ("low", "normal")
TOLERANCE = 0.2
# Batch data sets with rows ordered by time or place.
ORDERED = {"ijcnn1": ("ijcnn1.train.libsvm.gz", {}), "covertype": ("covtype.csv.gz", {"label": "label"})}


def load(name: str, most: int) -> tuple[Any, list[Any]]:
    """Load rows and labels of a stream."""
    if name in ORDERED:
        file, options = ORDERED[name]
        return data.load_rows(file, most, **options)
    return data.load_stream(name, most)


def part(X: Any, rows: Any) -> Any:
    """Select rows of a table or sparse matrix."""
    return X[rows] if scipy.sparse.issparse(X) else {name: column[rows] for name, column in X.items()}


def percent(predicted: Any, y: list[Any]) -> float:
    """Compute the accuracy in percent."""
    return 100.0 * sum(p == label for p, label in zip(predicted, y, strict=True)) / len(y)


def one_by_one(model: StreamSVMClassifier, rows: list[dict[Any, Any]], y: list[Any], order: Iterable[int]) -> float:
    """Measure the accuracy of a copy that predicts single rows in a given order."""
    model, order = deepcopy(model), list(order)
    return percent([model.predict_one(rows[i]) for i in order], [y[i] for i in order])


def measure(X: Any, y: list[Any], effort: str) -> dict[str, float]:
    """Measure accuracies on the last 30 % of a stream, in percent.

    For random orders the lowest is returned.
    """
    n = int(0.7 * len(y))
    rest, held = y[n:], part(X, slice(n, None))
    with_it, without = (StreamSVMClassifier(effort=effort, label_autocorrelation=used) for used in (True, False))
    for model in (with_it, without):
        model.learn_many(part(X, slice(n)), y[:n])
    unused = with_it.without_order()
    rows = data.rows_of(held)
    found = {
        "trust": with_it.autocorrelation_weight,
        "batch": percent(with_it.predict_many(held).tolist(), rest),
        "unused": percent(unused.predict_many(held).tolist(), rest),
        "without": percent(without.predict_many(held).tolist(), rest),
    }
    orders = [np.random.default_rng(seed).permutation(len(rest)).tolist() for seed in SEEDS]
    found["one by one, in order"] = one_by_one(with_it, rows, rest, range(len(rest)))
    found["batch, shuffled"] = min(
        percent(with_it.predict_many(part(held, order)).tolist(), [rest[i] for i in order]) for order in orders
    )
    found["one by one, shuffled"] = min(one_by_one(with_it, rows, rest, order) for order in orders)
    return found


ASKED = ("batch", "batch, shuffled", "one by one, in order", "one by one, shuffled")


def worst(found: dict[str, float], beside: str) -> float:
    """Return the difference of the lowest accuracy to another model's, in points."""
    return min(found[asked] for asked in ASKED) - found[beside]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*data.STREAMS, *ORDERED))
    parser.add_argument("--most", type=int, default=MOST, help="maximum rows of a stream")
    args = parser.parse_args()
    result, n_worse = {}, 0
    print(f"{'':24s}{'trust':>7s}" + "".join(f"{name:>22s}" for name in (*ASKED, "unused", "without")))
    for name in [args.only] if args.only else [*data.STREAMS, *ORDERED]:
        X, y = load(name, args.most)
        for effort in EFFORTS:
            found = result[f"{name}, {effort}"] = rounded(measure(X, y, effort))
            is_worse = min(worst(found, "unused"), worst(found, "without")) < -TOLERANCE
            n_worse += is_worse
            cells = "".join(f"{found[name]:22.2f}" for name in (*ASKED, "unused", "without"))
            print(f"{name:15s}{effort:9s}{found['trust']:7.2f}{cells}{'  worse' if is_worse else ''}", flush=True)
    print(f"{n_worse} of {len(result)} are more than {TOLERANCE} points lower")
    if not args.only and args.most == MOST:
        keep("frozen", result, lines=True)


if __name__ == "__main__":
    main()
