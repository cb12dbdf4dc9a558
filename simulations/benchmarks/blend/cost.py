"""Cost per event, compared with a forest in the same run, and its growth."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data
from simulations.benchmarks.blend import LEARNERS, head, warm
from simulations.benchmarks.peers import PEERS, Stream
from simulations.keeping import keep, rounded
from streamsvm import StreamSVMClassifier

EVENTS, CHUNK = 4_000, 200
BLENDS = ("blend low", "blend", "blend high")
# Goals, as shares of the forest's time.
GOALS = {"blend": 1 / 20, "blend low": 1 / 150}


def run(streams: list[Stream], keeping: bool) -> None:
    """Run every learner on the first events of each stream, in turns."""
    warm(BLENDS)
    ways = [(name, way) for name in BLENDS for way in ("events", "rows")]
    print(f"{'us per event':26s}{'ARF':>8s}" + "".join(f"{f'{name}, {way}':>19s}" for name, way in ways))
    result: dict[str, Any] = {}
    for stream in streams:
        result[stream.key] = times = rounded(side_by_side(stream))
        cells = "".join(f"{times[f'{n}, {w}']:8.1f} (1/{times['ARF'] / times[f'{n}, {w}']:5.0f})" for n, w in ways)
        print(f"{stream.key:26s}{times['ARF']:8.0f} {cells}", flush=True)
        if keeping:
            keep("blend-cost", result, lines=True)
    for name, way in ways:
        shares = [times[f"{name}, {way}"] / times["ARF"] for times in result.values()]
        goal = f", goal 1/{1 / GOALS[name]:.0f}" if name in GOALS else ""
        print(
            f"{name}, {way}: 1/{1 / statistics.median(shares):.0f} of the forest's time"
            f" (median of {len(shares)} streams{goal}), 1/{1 / max(shares):.0f} to 1/{1 / min(shares):.0f}"
        )


def side_by_side(stream: Stream) -> dict[str, float]:
    """Measure microseconds per event of the forest and of the blends.

    Blends run event by event on dicts, and on rows at once, including scaling.
    """
    X, y = stream.load()
    X, y = head(X, EVENTS), y[:EVENTS]
    rows = data.rows_of(X)

    def by_event(model: Any) -> Callable[[int, int], None]:
        predict, learn = model.predict_one, model.learn_one

        def step(start: int, end: int) -> None:
            for x, label in zip(rows[start:end], y[start:end], strict=True):
                predict(x)
                learn(x, label)

        return step

    def by_rows(model: Any) -> Callable[[int, int], None]:
        return lambda start, end: model.test_then_train(between(X, start, end), y[start:end])

    steps = {"ARF": by_event(PEERS["ARF"](len(set(y)), 0))}
    for name in BLENDS:
        make, settings = LEARNERS[name]
        steps[f"{name}, events"], steps[f"{name}, rows"] = by_event(make(**settings)), by_rows(make(**settings))
    seconds = dict.fromkeys(steps, 0.0)
    # As in timeit: garbage collection in one learner's turn would scan the objects of another.
    gc.collect()
    gc.disable()
    try:
        for start in range(0, len(y), CHUNK):
            for name, step in steps.items():
                begin = time.process_time()
                step(start, min(start + CHUNK, len(y)))
                seconds[name] += time.process_time() - begin
    finally:
        gc.enable()
    return {name: 1e6 * spent / len(y) for name, spent in seconds.items()}


def between(table: Any, start: int, end: int) -> Any:
    """Return some rows of a table or sparse matrix."""
    return {name: column[start:end] for name, column in table.items()} if isinstance(table, dict) else table[start:end]


# Growth -----------------------------------------------------------------------------------------------------------

GROWING: dict[str, tuple[int, ...]] = {
    "features": (10, 20, 50, 100, 200, 400),
    "classes": (2, 5, 10, 20, 40, 80),
    "budget": (50, 100, 200, 400, 800),
}


def growth(before: int = 4_000, timed: int = 3_000) -> None:
    """Measure microseconds per event on clusters with full budgets, and fit a line."""
    warm(("blend",))
    result: dict[str, Any] = {}
    for name, sizes in GROWING.items():
        times = []
        for size in sizes:
            settings = {"features": 20, "classes": 4, "budget": 200} | {name: size}
            X, y = clusters(before + timed, settings["features"], settings["classes"])
            model = StreamSVMClassifier(budget=settings["budget"])
            model.test_then_train(X[:before], y[:before].tolist())
            start = time.process_time()
            model.test_then_train(X[before:], y[before:].tolist())
            times.append(1e6 * (time.process_time() - start) / timed)
        slope, constant = np.polyfit(sizes, times, 1)
        fit = float(np.corrcoef(sizes, times)[0, 1] ** 2)
        result[name] = {"sizes": sizes, "us": [round(t, 2) for t in times], "slope": float(slope), "r2": fit}
        shown = "  ".join(f"{size}: {t:.1f}" for size, t in zip(sizes, times, strict=True))
        print(f"{name:9s} {shown}   us = {constant:.1f} + {slope:.3f} {name}, R2 {fit:.3f}", flush=True)
    keep("blend-growth", result, lines=True)


def clusters(n: int, n_features: int, n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Generate three clusters per class; 10 % of the labels are random."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3 * n_classes, n_features))
    which = rng.integers(len(centres), size=n)
    y = np.where(rng.random(n) < 0.1, rng.integers(n_classes, size=n), which % n_classes)
    return centres[which] + rng.normal(size=(n, n_features)), y
