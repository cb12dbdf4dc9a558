"""Robustness of the blend and of a forest to disturbed labels and features.

Disturbances are label noise, delayed labels, irrelevant and transformed features, and corrupt values. Both learn event
by event through River's interface. Accuracy is measured on labels without noise. Results of the forest are stored and
reused for the same rows.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulations.benchmarks.blend import head, warm
from simulations.benchmarks.peers import PEERS, Stream, digest
from simulations.keeping import PICTURES, keep, kept
from streamsvm import StreamSVMClassifier

RESULT = "blend-robustness"
STREAMS = (Stream("electricity"), Stream("insects abrupt"), Stream("RBF incremental", 0))
EVENTS = 10_000
PEER = "ARF"

LEVELS: dict[str, tuple[Any, ...]] = {
    "label noise": (0.0, 0.1, 0.2, 0.3, 0.4),
    "labels late by": (0, 10, 100, 1_000),
    "irrelevant features": (0, 10, 50, 100, 200),
    "features bent": ("as they are", "cubed", "exponential", "logarithmic"),
    "values broken": (0.0, 0.001, 0.01, 0.05),
}


class Case(NamedTuple):
    """A disturbed stream: features, labels, true labels, and the delay of labels."""

    X: NDArray[np.float64]
    y: list[Any]
    truth: list[Any]
    delay: int


def disturb(X: NDArray[np.float64], y: list[Any], kind: str, level: Any) -> Case:
    """Disturb a stream in one way."""
    rng = np.random.default_rng(0)
    if kind == "label noise":
        return Case(X, noisy(y, level, rng), y, 0)
    if kind == "labels late by":
        return Case(X, y, y, level)
    if kind == "irrelevant features":
        return Case(np.hstack([X, rng.normal(size=(len(X), level))]), y, y, 0)
    if kind == "features bent":
        return Case(bent(X, level), y, y, 0)
    return Case(np.where(rng.random(X.shape) < level, X * 1e6 * rng.normal(size=X.shape), X), y, y, 0)


def noisy(y: list[Any], share: float, rng: np.random.Generator) -> list[Any]:
    """Replace a share of the labels by other ones."""
    classes = sorted(set(y), key=str)
    wrong, shifts = rng.random(len(y)) < share, rng.integers(1, len(classes), size=len(y))
    codes = {label: c for c, label in enumerate(classes)}
    return [
        classes[(codes[label] + int(shift)) % len(classes)] if flip else label
        for label, flip, shift in zip(y, wrong, shifts, strict=True)
    ]


def bent(X: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Apply an increasing function to the standardised values of each feature."""
    z = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    functions = {
        "as they are": lambda: X,
        "cubed": lambda: z**3,
        "exponential": lambda: np.exp(np.clip(2.0 * z, -60.0, 60.0)),
        "logarithmic": lambda: np.log(z - z.min(axis=0) + 1e-3),
    }
    return functions[how]()


def accuracy(model: Any, case: Case) -> float:
    """Measure the accuracy in percent, with labels `delay` events later."""
    names = [f"x{j}" for j in range(case.X.shape[1])]
    waiting: deque[tuple[dict[str, float], Any]] = deque()
    right = 0
    for values, label, truth in zip(case.X.tolist(), case.y, case.truth, strict=True):
        x = dict(zip(names, values, strict=True))
        right += model.predict_one(x) == truth
        waiting.append((x, label))
        if len(waiting) > case.delay:
            model.learn_one(*waiting.popleft())
    return 100.0 * right / len(case.truth)


def run() -> None:
    """Measure every disturbance of every stream."""
    warm(("blend",))
    result, known = {}, kept(RESULT)
    for stream in STREAMS:
        table, y = stream.load()
        table, y = head(table, EVENTS), y[:EVENTS]
        X, same = np.column_stack([column.astype(float) for column in table.values()]), digest(table, y)
        for kind, levels in LEVELS.items():
            for level in levels:
                key, case = f"{stream.key}, {kind} {level}", disturb(X, y, kind, level)
                before = known.get(key, {})
                if before.get("digest") != same:
                    before = {PEER: round(accuracy(PEERS[PEER](len(set(y)), 0), case), 2), "digest": same}
                result[key] = before | {"blend": round(accuracy(StreamSVMClassifier(), case), 2)}
                # Keep the other stored results until the end.
                keep(RESULT, known | result, lines=True)
                print(f"{key:55s} blend {result[key]['blend']:6.2f}   {PEER} {result[key][PEER]:6.2f}", flush=True)
    keep(RESULT, result, lines=True)
    draw(result)


def draw(result: dict[str, Any], path: Path = PICTURES / "blend-robustness.png") -> None:
    """Plot accuracies over the levels of each disturbance.

    Streams without complete results are omitted.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    streams = [
        stream
        for stream in STREAMS
        if all(f"{stream.key}, {kind} {level}" in result for kind, levels in LEVELS.items() for level in levels)
    ]
    if not streams:
        return
    figure, axes = pyplot.subplots(
        len(streams), len(LEVELS), figsize=(15, 2.5 * len(streams)), sharey="row", squeeze=False
    )
    for stream, row in zip(streams, axes, strict=True):
        for (kind, levels), axis in zip(LEVELS.items(), row, strict=True):
            cells = [result[f"{stream.key}, {kind} {level}"] for level in levels]
            for name, color, marker in (("blend", "tab:blue", "o"), (PEER, "tab:gray", "s")):
                title = "StreamSVM" if name == "blend" else "ARF, 10 trees"
                axis.plot(
                    range(len(levels)), [c[name] for c in cells], color=color, marker=marker, markersize=4, label=title
                )
            share = kind in ("label noise", "values broken")
            shown = [f"{100 * level:g} %" if share else f"{level}" for level in levels]
            axis.set_xticks(range(len(levels)), shown, fontsize=8, rotation=15 if kind == "features bent" else 0)
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
            if stream == streams[-1]:
                axis.set_xlabel(kind + (" (events)" if kind == "labels late by" else ""))
        row[0].set_ylabel(f"{stream.name}\naccuracy (%)")
    axes[0, 0].legend(fontsize=9, frameon=False)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
