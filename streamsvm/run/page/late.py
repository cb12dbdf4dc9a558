"""How good predictions are of late: what is mistaken for what, and whether probabilities are what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.names import shown
from streamsvm.run.learners import Answers
from streamsvm.run.metrics import Metrics

_SPAN = 1_000  # judged events of late, at least
_MOST_CLASSES = 12
_WINDOW, _BINS = 2_000, 10
_MOST_LOOKED_AT = 256  # events of a batch
_LEAST_PROBABILITY = 1e-6


class Confusion:
    """The pairs of label and prediction since one of two moments that follow the run."""

    def __init__(self) -> None:
        self._older = self._newer = (0, dict[int, int]())

    def of(self, metrics: Metrics) -> dict[str, Any]:
        """Of the classes that came most, a matrix with a row for each label and a column for each prediction."""
        if metrics.judged - self._newer[0] >= _SPAN:
            self._older, self._newer = self._newer, (metrics.judged, metrics.pairs())
        judged, pairs = self._older
        late = metrics.pairs_since(pairs)
        names = metrics.labels
        weights = np.zeros(len(names), np.int64)
        for (label, prediction), n in late.items():
            weights[label] += n
            weights[prediction] += n
        chosen = [code for code in np.argsort(-weights, kind="stable")[:_MOST_CLASSES].tolist() if weights[code]]
        counts = [[late.get((label, prediction), 0) for prediction in chosen] for label in chosen]
        return {
            "classes": [shown(names[code]) for code in chosen],
            "counts": counts,
            "left_out": int((weights > 0).sum()) - len(chosen),
            "events": metrics.judged - judged,
        }


class Calibration:
    """The probabilities of predictions beside how often these were right, over events that were looked at.

    Attributes
    ----------
    loss, scored
        The summed loss of all that were looked at, and how many these are.
    kind
        What the loss is: the log loss of the labels where their probabilities are at hand, which with two classes they
        always are; else that of being right or wrong, where the probability of the predicted label is all there is.
    """

    def __init__(self) -> None:
        self.loss, self.scored, self.kind = 0.0, 0, "log loss"
        self._scores, self._hits, self._losses = np.zeros(_WINDOW), np.zeros(_WINDOW), np.zeros(_WINDOW)

    def take(self, answers: Answers, classes: Any) -> None:
        """Look at the end of a batch."""
        labels, codes = answers.batch.labels[-_MOST_LOOKED_AT:], answers.codes[-_MOST_LOOKED_AT:].tolist()
        scores = answers.scores[-_MOST_LOOKED_AT:]
        known = [i for i, label in enumerate(labels) if label is not None and codes[i] >= 0 and scores[i] == scores[i]]
        if not known:
            return
        hits = np.array([classes[codes[i]] == labels[i] for i in known], float)
        chosen = scores[known]
        self._add(chosen, hits, self._loss(answers, classes, known, chosen, hits))

    def _loss(
        self, answers: Answers, classes: Any, known: list[int], scores: NDArray[Any], hits: NDArray[Any]
    ) -> NDArray[np.float64]:
        of_label = np.where(hits, scores, 1.0 - scores)
        if answers.proba is not None:
            self.kind, code = "log loss", {label: i for i, label in enumerate(classes)}
            rows, labels = answers.proba[-_MOST_LOOKED_AT:], answers.batch.labels[-_MOST_LOOKED_AT:]
            at = [code.get(labels[i], len(code)) for i in known]
            of_label = np.array([rows[i, c] if c < rows.shape[1] else 0.0 for i, c in zip(known, at, strict=True)])
        elif len(classes) > 2:
            self.kind = "log loss of right or wrong"
        return np.asarray(-np.log(np.clip(of_label, _LEAST_PROBABILITY, 1.0)))

    def _add(self, scores: NDArray[Any], hits: NDArray[Any], losses: NDArray[Any]) -> None:
        at = (self.scored + np.arange(len(scores))) % _WINDOW
        self._scores[at], self._hits[at], self._losses[at] = scores, hits, losses
        self.loss += float(losses.sum())
        self.scored += len(scores)

    def figures(self) -> dict[str, Any] | None:
        """Of the last 2,000: the loss, the expected calibration error, and its bins; None where nothing is scored."""
        n = min(self.scored, _WINDOW)
        if not n:
            return None
        scores, hits = self._scores[:n], self._hits[:n]
        bins = np.minimum((scores * _BINS).astype(int), _BINS - 1)
        counts = np.bincount(bins, minlength=_BINS)
        each = np.maximum(counts, 1)
        said, right = (np.bincount(bins, values, minlength=_BINS) / each for values in (scores, hits))
        return {
            "kind": self.kind,
            "events": n,
            "loss": float(self._losses[:n].mean()),
            "error": float((counts * np.abs(said - right)).sum() / n),
            "bins": [
                {"said": s, "right": r, "events": c}
                for s, r, c in zip(said.tolist(), right.tolist(), counts.tolist(), strict=True)
                if c
            ],
        }
