"""Accuracy and cost of the blend; `python -m simulations.benchmarks.blend`."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from simulations.benchmarks.peers import GENERATED, REAL, Stream, measures
from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.online.base import OnlineClassifier

# Heads, steps and gamma were selected on the first six real streams, and validated on the others. The members of the
# presets were selected on all real streams except spam, so the real streams do not validate them. Of the generators,
# half are for selection; the others, and all seeds but 0, are for validation. The constants of the stacked vote and of
# label autocorrelation were selected on seed 0 of all generators and on the real streams (for the stacked vote without
# power supply and spam). Only the other seeds validate them.
CHOOSING = (
    *("electricity", "insects abrupt", "luxembourg", "usenet1", "posture", "airlines"),
    *("RBF incremental", "SEA sudden", "Agrawal gradual", "STAGGER recurring", "mixed gradual"),
)

LEARNERS: dict[str, tuple[type[OnlineClassifier], dict[str, Any]]] = {
    "cpm": (CPMClassifier, {}),
    "bsgd": (BSGDClassifier, {}),
    "blend low": (StreamSVMClassifier, {"effort": "low"}),
    "blend": (StreamSVMClassifier, {}),
    "blend high": (StreamSVMClassifier, {"effort": "high"}),
    # For comparison with the peers, which do not use previous labels.
    "no autocorrelation": (StreamSVMClassifier, {"label_autocorrelation": False}),
}

GROUPS = ("real", "generators", "choosing", "confirming")


def chosen(only: Sequence[str] | None, seeds: Sequence[int] | None = None) -> list[Stream]:
    """Return the streams of groups or names; None for all.

    With `seeds`, generated streams are restricted to these.
    """
    streams = [s for s in REAL + GENERATED if seeds is None or s.seed is None or s.seed in seeds]
    if only is None:
        return streams
    names = {name for s in REAL + GENERATED for name in (s.name, s.key)}
    unknown = set(only) - names - set(GROUPS)
    if unknown:
        raise SystemExit(
            f"unknown streams: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}, {', '.join(names)}"
        )
    return [s for s in streams if not {s.name, s.key, *groups(s)}.isdisjoint(only)]


def groups(stream: Stream) -> set[str]:
    """Return the groups of a stream."""
    choosing = stream.name in CHOOSING and not stream.seed
    return {"generators" if stream.generated else "real", "choosing" if choosing else "confirming"}


def warm(names: Sequence[str] = tuple(LEARNERS)) -> None:
    """Compile before the measurement."""
    for name in names:
        make, settings = LEARNERS[name]
        make(**settings).test_then_train(np.eye(3), [0, 1, 0], proba=True)
        model = make(**settings)
        for i in range(3):
            model.predict_proba_one({"a": 1.0, "b": float(i)})
            model.learn_one({"a": 1.0, "b": float(i)}, i % 2)
    # Objects left by compilation must not slow down garbage collection during the measurement.
    gc.collect()
    gc.freeze()


def prequential(model: OnlineClassifier, X: Any, y: list[Any]) -> dict[str, float]:
    """Return the measures and microseconds per event on encoded rows.

    Each row is predicted before it is learned.
    """
    rows = model._space.encode(X, np.ones(len(y), bool))
    start = time.process_time()
    predicted, proba = model.test_then_train(rows, y, proba=True)
    seconds = time.process_time() - start
    right = np.array([p == label for p, label in zip(predicted.tolist(), y, strict=True)])
    codes = {label: c for c, label in enumerate(model.classes_)}
    of_label = proba[np.arange(len(y)), [codes[label] for label in y]]
    return measures(right, of_label, proba.max(axis=1)) | {"us": 1e6 * seconds / len(y)}


def head(table: Any, n: int) -> Any:
    """Return the first n rows of a table or sparse matrix."""
    return {name: column[:n] for name, column in table.items()} if isinstance(table, dict) else table[:n]
