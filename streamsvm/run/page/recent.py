"""Confusion matrix and calibration of the recent predictions."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamsvm.names import shown
from streamsvm.run.measures import Measures
from streamsvm.run.metrics import Metrics
from streamsvm.run.names import known

_SPAN = 1_000  # least number of judged events
_MOST_CLASSES = 12


class Confusion:
    """Counts of pairs of label and prediction over the last 1,000 to 2,000 judged events."""

    def __init__(self) -> None:
        self._older = self._newer = (0, dict[int, int]())

    def of(self, metrics: Metrics) -> dict[str, Any]:
        """Return the confusion matrix of the most frequent classes: a row per label, a column per prediction."""
        if metrics.judged - self._newer[0] >= _SPAN:
            self._older, self._newer = self._newer, (metrics.judged, metrics.pairs())
        judged, pairs = self._older
        recent = metrics.pairs_since(pairs)
        names = metrics.labels
        weights = np.zeros(len(names), np.int64)
        for (label, prediction), n in recent.items():
            weights[label] += n
            weights[prediction] += n
        chosen = [code for code in np.argsort(-weights, kind="stable")[:_MOST_CLASSES].tolist() if weights[code]]
        counts = [[recent.get((label, prediction), 0) for prediction in chosen] for label in chosen]
        return {
            "classes": [shown(names[code]) for code in chosen],
            "counts": counts,
            "left_out": int((weights > 0).sum()) - len(chosen),
            "events": metrics.judged - judged,
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
