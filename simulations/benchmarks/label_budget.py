"""Accuracy with costly labels: requested by `LabelBudget`, at random, and all.

    python -m simulations.benchmarks.label_budget                    all streams
    python -m simulations.benchmarks.label_budget electricity        some streams

The default classifier runs on the first 20,000 events. An event is predicted, and learned at once if its label is
requested; all predictions count. Random requests have the same number of labels. Results are means over three seeds.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.data import STREAMS, load_stream, rows_of
from simulations.keeping import keep, kept
from streamsvm import LabelBudget, StreamSVMClassifier

RESULT, EVENTS, SEEDS = "label-budget", 20_000, 3
SHARES = (0.01, 0.05, 0.1, 0.3)


def asking(rows: list[dict[Any, Any]], labels: list[Any], budget: LabelBudget) -> tuple[float, int]:
    """Measure the accuracy and the number of requested labels."""
    model, right = StreamSVMClassifier(), 0
    for x, y in zip(rows, labels, strict=True):
        shares = model.predict_proba_one(x)
        best = max(shares, key=shares.__getitem__, default=None)
        right += best is not None and best == y
        if budget.wants(shares.get(best, 0.0)):
            model.learn_one(x, y)
    return right / len(labels), budget.n_asked


def given(table: Any, labels: list[Any], which: NDArray[np.bool_]) -> float:
    """Measure the accuracy with the labels of some events."""
    known = [label if is_known else None for label, is_known in zip(labels, which.tolist(), strict=True)]
    predicted = StreamSVMClassifier().test_then_train(table, known)
    return float(np.mean([one is not None and one == label for one, label in zip(predicted, labels, strict=True)]))


def cell(stream: str, share: float) -> dict[str, float]:
    """Measure accuracies and the share of requested labels, in percent."""
    table, labels = load_stream(stream, EVENTS)
    rows, n, found = rows_of(table), len(labels), []
    for seed in range(SEEDS):
        accuracy, asked = asking(rows, labels, LabelBudget(share, seed))
        at_random = np.isin(np.arange(n), np.random.default_rng(seed).choice(n, asked, replace=False))
        found.append((accuracy, given(table, labels, at_random), asked / n))
    accuracy, at_random, asked = (round(100.0 * float(mean), 2) for mean in np.mean(found, axis=0))
    return {"asked": asked, "budget": accuracy, "random": at_random}


def markdown(result: dict[str, dict[str, Any]]) -> str:
    """Format a table of requested / random labels for each share, and of all labels."""
    head = [f"{100.0 * share:g} %" for share in SHARES]
    lines = [f"| | {' | '.join(head)} | all |", "|---" * (len(head) + 2) + "|"]
    means = np.zeros((len(SHARES), 2))
    for stream, found in result.items():
        pairs = [(found[f"{share:g}"]["budget"], found[f"{share:g}"]["random"]) for share in SHARES]
        means += np.array(pairs) / len(result)
        lines.append(f"| {stream} | {_cells(pairs)} | {found['all']:.1f} |")
    whole = np.mean([found["all"] for found in result.values()])
    return "\n".join([*lines, f"| mean | {_cells(means.tolist())} | {whole:.1f} |"])


def _cells(pairs: Any) -> str:
    return " | ".join(
        f"**{one:.1f}** / {other:.1f}" if one >= other else f"{one:.1f} / **{other:.1f}**" for one, other in pairs
    )


def table() -> str:
    """Return the table of the stored results."""
    return markdown(kept(RESULT))


def main() -> None:
    """Measure, and store each stream at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    streams = [stream for stream in STREAMS if stream != "airlines"]  # without airlines, which has no order
    parser.add_argument("streams", nargs="*", default=streams, help=", ".join(streams))
    for stream in parser.parse_args().streams:
        rows, labels = load_stream(stream, EVENTS)
        found: dict[str, Any] = {f"{share:g}": cell(stream, share) for share in SHARES}
        found["all"] = round(100.0 * given(rows, labels, np.ones(len(labels), bool)), 2)
        keep(RESULT, kept(RESULT) | {stream: found}, lines=True)
        print(stream, found, flush=True)


if __name__ == "__main__":
    main()
