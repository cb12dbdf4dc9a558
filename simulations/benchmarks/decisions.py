"""Prediction sets and rare classes.

    python -m simulations.benchmarks.decisions coverage   prediction sets on all streams, and fixed conformal sets
    python -m simulations.benchmarks.decisions rare       eight drifting streams at 1:20, 1:100, 1:1000, and River
    python -m simulations.benchmarks.decisions show       tables of stored results

Every event is predicted, then learned. River has conformal intervals for regression, but no prediction sets for
classification. `rare` takes about 15 minutes on one core because of River's forests, `coverage` one or two minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data, generators
from simulations.keeping import keep, kept

COVERAGES = (0.8, 0.9, 0.95)
FIRST, WINDOW = 1_000, 500  # calibration events of fixed sets, and window of the minimum coverage
MOST = 20_000

DRIFTING = (
    *("Agrawal sudden", "Agrawal gradual", "RBF incremental", "RBF recurring"),
    *("hyperplane incremental", "SEA sudden", "sine recurring", "mixed gradual"),
)
# Number of events of the frequent class per rare event, and length of the stream.
RATIOS = {20: 5_000, 100: 8_000, 1_000: 20_000}
SKIPPED = 500  # events excluded from averages


# Coverage ---------------------------------------------------------------------------------------------------------


def streams() -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield all streams: real ones in their order, then generated ones."""
    for name in data.STREAMS:
        yield name, *data.load_stream(name, MOST)
    for name in generators.GENERATORS:
        yield name, *generators.load(name, 0, MOST)


def coverage() -> None:
    """Compare prediction sets with fixed ones, from the same probabilities."""
    from streamsvm import StreamSVMClassifier
    from streamsvm.decide.conformal import ConformalSets

    result = {}
    for name, X, y in streams():
        model = StreamSVMClassifier()
        _, proba = model.test_then_train(X, y, proba=True)
        codes = np.array([model.classes_.index(label) for label in y])
        cells = {}
        for wanted in COVERAGES:
            found = {
                "sets": ConformalSets(wanted).run(proba, codes),
                "by class": ConformalSets(wanted, by_class=True).run(proba, codes),
                "fixed": fixed(proba, codes, wanted),
            }
            cells[str(wanted)] = {kind: of_sets(members, codes, wanted) for kind, members in found.items()}
        result[name] = {"events": len(y), "accuracy": _rounded(float((proba.argmax(axis=1) == codes).mean())), **cells}
        print(name, cells["0.9"], flush=True)
        keep("decisions-coverage", result, lines=True)


def fixed(proba: NDArray[Any], codes: NDArray[Any], wanted: float) -> NDArray[np.bool_]:
    """Compute split conformal sets with the threshold of the first events.

    The most probable class is always in the set.
    """
    own = proba[np.arange(len(codes)), codes][: min(FIRST, len(codes) // 4)]
    least = np.quantile(own, 1.0 - min(wanted * (1.0 + 1.0 / len(own)), 1.0), method="lower")
    members = (proba >= least) & (proba > 0.0)
    members[np.arange(len(codes)), proba.argmax(axis=1)] = True
    return members


def of_sets(members: NDArray[np.bool_], codes: NDArray[Any], wanted: float) -> dict[str, float]:
    """Compute coverage, mean size, minimum coverage of a window, and that of a class.

    The first events are excluded. A class counts if it has at least 100 events.
    """
    start = min(FIRST, len(codes) // 4)
    hits = members[np.arange(len(codes)), codes][start:].astype(float)
    windows = np.convolve(hits, np.ones(WINDOW) / WINDOW, "valid") if len(hits) >= WINDOW else np.array([hits.mean()])
    own = codes[start:]
    of_class = [hits[own == c].mean() for c in np.unique(own) if (own == c).sum() >= 100]
    return {
        "coverage": _rounded(hits.mean()),
        "size": _rounded(members[start:].sum(axis=1).mean()),
        "least": _rounded(windows.min()),
        "least of a class": _rounded(min(of_class, default=float("nan"))),
    }


# Rare classes -----------------------------------------------------------------------------------------------------


def thinned(name: str, ratio: int) -> tuple[list[dict[Any, Any]], list[int]]:
    """Return a stream whose rarer class is reduced to one event per `ratio` others."""
    from connectors import open_source

    n = RATIOS[ratio]
    rng, rows, labels = np.random.default_rng(ratio), [], []
    slug = name.lower().replace(" ", "-")
    rare: Any = None
    for batch in open_source(f"synthetic:{slug}?n={3 * n}&seed=1"):
        if rare is None:
            names, counts = np.unique(np.array(batch.labels), return_counts=True)
            rare, share = names[counts.argmin()], float(counts.min() / counts.sum())
        for x, y in zip(batch.rows(), batch.labels, strict=True):
            if y != rare or rng.random() < (1.0 - share) / share / ratio:
                rows.append(x)
                labels.append(int(y == rare))
    return rows[:n], labels[:n]


def peers() -> dict[str, Callable[[], Any]]:
    """Return factories of the compared classifiers."""
    from river import forest, imblearn, linear_model, preprocessing

    from streamsvm import CPMClassifier, StreamSVMClassifier

    even = {0: 0.5, 1: 0.5}

    def arf() -> Any:
        return forest.ARFClassifier(n_models=10, seed=1)

    return {
        "StreamSVM": StreamSVMClassifier,
        "CPM": CPMClassifier,
        "LogisticRegression": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "ARF": arf,
        "ARF undersampled": lambda: imblearn.RandomUnderSampler(arf(), desired_dist=even, seed=1),
        "ARF oversampled": lambda: imblearn.RandomOverSampler(arf(), desired_dist=even, seed=1),
    }


def probabilities(model: Any, rows: list[dict[Any, Any]], y: list[int]) -> NDArray[np.float64]:
    """Return the prequential probabilities of the rare class."""
    if hasattr(model, "test_then_train"):
        _, proba = model.test_then_train(rows, y, proba=True)
        return proba[:, model.classes_.index(1)]
    found = np.zeros(len(y))
    for i, (x, label) in enumerate(zip(rows, y, strict=True)):
        found[i] = model.predict_proba_one(x).get(1, 0.0)
        model.learn_one(x, label)
    return found


def rare(only: list[str] | None = None) -> None:
    """Compute average precision, log loss, and the cost of optimal decisions.

    The cost of a miss is the ratio of the classes.
    """
    from sklearn import metrics

    from streamsvm.decide.costs import Costs

    result = kept("decisions-rare")
    for ratio in RATIOS:
        for name in only or DRIFTING:
            key = f"{name} 1:{ratio}"
            cells = dict(result.get(key, {}))
            missing = {peer: make for peer, make in peers().items() if peer not in cells}
            if not missing:
                continue
            rows, y = thinned(name, ratio)
            truth = np.array(y)
            for peer, make in missing.items():
                start = time.perf_counter()
                p = probabilities(make(), rows, y)
                us = 1e6 * (time.perf_counter() - start) / len(y)
                proba = np.column_stack([1.0 - p, p])
                costs = Costs([[0.0, 1.0], [float(ratio), 0.0]]).run(proba, truth, [0, 1])[1][SKIPPED:]
                own, said = truth[SKIPPED:], p[SKIPPED:]
                cells[peer] = {
                    "average precision": _rounded(metrics.average_precision_score(own, said)),
                    "log loss": _rounded(metrics.log_loss(own, np.clip(said, 1e-6, 1.0 - 1e-6))),
                    # Relative to always predicting one class, whichever is cheaper.
                    "cost": _rounded(costs.sum() / min(ratio * own.sum(), (1 - own).sum())),
                    "us": _rounded(us),
                }
            ordered = {peer: cells[peer] for peer in peers()}
            result[key] = {"events": len(y), "rare": int(truth.sum()), **ordered}
            print(key, {peer: (cell["average precision"], cell["cost"]) for peer, cell in ordered.items()}, flush=True)
            keep("decisions-rare", result, ("river", "numpy", "numba", "scikit-learn"), lines=True)


# Tables -----------------------------------------------------------------------------------------------------------


def coverage_table() -> str:
    """Return the table of coverage and size at each level, over all streams."""
    found = kept("decisions-coverage")
    lines = [
        "| target | sets | coverage | minimum of a window of 500 | mean size | minimum of a class |",
        "|---|---|---|---|---|---|",
    ]
    for wanted in COVERAGES:
        for kind in ("sets", "by class", "fixed"):
            cells = [stream[str(wanted)][kind] for stream in found.values()]
            coverages = [cell["coverage"] for cell in cells]
            lines.append(
                f"| {wanted:g} | {kind} | {np.mean(coverages):.3f} ({min(coverages):.3f} to {max(coverages):.3f}) "
                f"| {min(cell['least'] for cell in cells):.3f} | {np.mean([cell['size'] for cell in cells]):.2f} "
                f"| {np.nanmin([cell['least of a class'] for cell in cells]):.3f} |"
            )
    return "\n".join(lines)


def rare_table() -> str:
    """Return the table of means over the streams of each ratio."""
    found = kept("decisions-rare")
    names = [name for name in next(iter(found.values())) if name not in ("events", "rare")]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for ratio in RATIOS:
        cells = [cell for key, cell in found.items() if key.endswith(f":{ratio}")]
        for measure, places in (("average precision", 3), ("cost", 3), ("log loss", 4)):
            means = [float(np.mean([cell[name][measure] for cell in cells])) for name in names]
            best = (max if measure == "average precision" else min)(means)
            shown = [f"**{mean:.{places}f}**" if mean == best else f"{mean:.{places}f}" for mean in means]
            lines.append(f"| 1:{ratio}, {measure} | {' | '.join(shown)} |")
    return "\n".join(lines)


def show() -> None:
    """Print all tables."""
    print(coverage_table(), rare_table(), sep="\n\n")


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def main() -> None:
    """Run the selected part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = {"coverage": coverage, "rare": rare, "show": show}
    parser.add_argument("what", choices=programs)
    programs[parser.parse_args().what]()


if __name__ == "__main__":
    main()
