"""Confusion matrix and calibration of the recent predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.names import shown
from streamsvm.run.measures import Measures
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import known

_MOST_CLASSES = 12


def confusion(metrics: Metrics) -> dict[str, Any]:
    """Return the recent confusion matrix of the most frequent classes: a row per label, a column per prediction."""
    labels, guesses, counts = metrics.measures.recent_pairs()
    names = metrics.labels
    weights = np.bincount(np.concatenate([labels, guesses]), np.tile(counts, 2), len(names))
    chosen = [code for code in np.argsort(-weights, kind="stable")[:_MOST_CLASSES].tolist() if weights[code]]
    pairs = dict(zip(zip(labels.tolist(), guesses.tolist(), strict=True), counts.tolist(), strict=True))
    return {
        "classes": [shown(names[code]) for code in chosen],
        "counts": [[pairs.get((label, guess), 0) for guess in chosen] for label in chosen],
        "left_out": int((weights > 0).sum()) - len(chosen),
        "events": metrics.n_recent,
    }


def calibration(measures: Measures) -> dict[str, Any] | None:
    """Return log loss, expected calibration error and its bins; None without probabilities."""
    recent = measures.recent_reliability
    if not recent.counts[0].any():
        return None
    return {
        "events": int(recent.counts[0].sum()),
        "loss": known(measures.recent["log_loss"]),
        "error": recent.error,
        "bins": [{"said": p, "right": right, "events": n} for p, right, n in recent.points()],
    }
