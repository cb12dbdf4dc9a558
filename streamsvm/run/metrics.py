"""Prequential measures: each event is predicted before its label is learned.

All counts are integers and independent of batches, so a resumed run has exactly the counts of an uninterrupted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.label_order import LabelOrder
from streamsvm.labels import LabelCodes
from streamsvm.models.archive import decode_labels, encode_label
from streamsvm.models.codec import SavedState, Stateful
from streamsvm.run.accuracy_drops import AccuracyDrops
from streamsvm.run.counts import ALL, RECENT
from streamsvm.run.measures import CURVE_LINES, SHIFT, Measures


@dataclass(frozen=True, slots=True)
class ClassScore:
    """Scores of a class."""

    label: Any
    events: int
    predicted: int
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores from the confusion matrix, with the most frequent classes first.

    Classes of equal frequency are sorted by name.
    """

    balanced_accuracy: float
    kappa: float
    classes: list[ClassScore]


class Metrics(Stateful):
    """Accuracy and confusion matrix, beside two baselines.

    Events without a prediction, because nothing has been learned, are counted as unanswered and not judged, as in
    River. Baselines are judged on the events of the model. `no_change` predicts the previous label, `majority` the
    most frequent label so far, with ties for the earlier one.

    Parameters
    ----------
    window
        Number of judged events of the recent accuracy.

    Attributes
    ----------
    taken, events, rejected, unanswered
        Number of events passed to the learner, of predicted events, of events rejected by the source or the learner,
        and of labelled events without a prediction.
    seen
        Counts of `labels` as labels; the last ones may be predictions only.
    drops
        Drops of the accuracy.
    order
        Order of labels.
    measures
        Accuracy over time, and measures of probabilities and decisions.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.judge(["a", "b", None, "b"], np.array([-1, 0, 1, 1]), ["a", "b"])
    >>> metrics.judged, metrics.unanswered, metrics.accuracy
    (2, 1, 0.5)
    >>> again = Metrics()
    >>> again.restore(metrics.state())
    >>> again.accuracy
    0.5
    """

    saved = (
        *("taken", "events", "rejected", "unanswered", "last", "leader"),
        *("drops", "order", "measures", "seen", "_first"),
    )

    def __init__(self, window: int = 1000) -> None:
        self.taken = self.events = self.rejected = self.unanswered = 0
        self.drops = AccuracyDrops()
        self.measures = Measures(window)
        self._code = LabelCodes()
        self._pairs: Counter[int] = Counter()
        self.seen = np.zeros(0, np.int64)
        self._first = np.zeros(0, np.int64)  # number of labels before the first one of each
        self.last = self.leader = -1  # codes of the label before and of the most frequent one
        self.order = LabelOrder()
        self._of_model = np.full(1, -1)  # the code of each of the model's classes; the last means "none"

    @property
    def judged(self) -> int:
        """Events that had both a label and a prediction."""
        return self.measures.curve.events

    @property
    def accuracy(self) -> float:
        """Share of correct predictions, NaN before the first."""
        return self.baseline("model")

    @property
    def recent_accuracy(self) -> float:
        """Accuracy over the last `window` judged events."""
        return self.measures.recent_hits["model"]

    def baseline(self, name: str) -> float:
        """Return the accuracy of one of `CURVE_LINES`."""
        hits = int(self.measures.curve.totals()[CURVE_LINES.index(name)])
        return hits / self.judged if self.judged else float("nan")

    def judge(
        self, labels: Sequence[Any], codes: NDArray[np.integer[Any]], classes: Sequence[Any], **more: Any
    ) -> None:
        """Add labels (None if unknown), and predictions by class index or -1.

        `more` has scores, probabilities, sets, costs and alarms over `classes`, as for `Measures.add`.
        """
        if len(classes) >= len(self._of_model):
            self._of_model = np.array([*(self._code[c] for c in classes), -1])
        more = {name: values for name, values in more.items() if values is not None}
        if None in labels:
            known = [i for i, label in enumerate(labels) if label is not None]
            labels, codes = [labels[i] for i in known], codes[known]
            more = {name: values[known] for name, values in more.items()}
        if not len(labels):
            return
        truth = self._code.of(labels)
        self.order.add(truth)
        guess = self._of_model[codes]
        baselines = np.column_stack([self._no_change(truth), self._majority(truth)])
        answered = guess >= 0
        if not answered.all():
            self.unanswered += len(answered) - int(answered.sum())
            truth, guess, baselines = truth[answered], guess[answered], baselines[answered]
            more = {name: values[answered] for name, values in more.items()}
        pairs, counts = np.unique(truth << SHIFT | guess, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            self._pairs[pair] += count
        self.drops.add(truth == guess)
        if not len(truth):
            return
        more |= {name: self._by_label(more[name]) for name in ("proba", "members") if name in more}
        self.measures.add(truth, guess, baselines=baselines, **more)

    def _by_label(self, values: NDArray[Any]) -> NDArray[Any]:
        """Map columns of the model's classes to those of `labels`."""
        n = values.shape[1]
        if (self._of_model[:n] == np.arange(n)).all():
            return values
        found = np.zeros((len(values), len(self._code)), values.dtype)
        found[:, self._of_model[:n]] = values
        return found

    def _no_change(self, truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        before = np.concatenate([[self.last], truth[:-1]])
        self.last = int(truth[-1])
        hits: NDArray[np.bool_] = truth == before
        return hits

    def _majority(self, truth: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each label equals the most frequent label before it."""
        seen = np.zeros(len(self._code), np.int64)
        seen[: len(self.seen)] = self.seen
        ahead = seen[self.leader] if self.leader >= 0 else 0
        self.seen = seen + np.bincount(truth, minlength=len(seen))
        if len(new := np.flatnonzero((seen == 0) & (self.seen > 0))):
            self._first = np.concatenate([self._first, np.full(len(seen) - len(self._first), -1)])
            self._first[new] = [seen.sum() + np.argmax(truth == code) for code in new]
        if self.leader >= 0 and (self.seen > ahead).sum() <= (self.seen[self.leader] > ahead):  # none can overtake
            unchanged: NDArray[np.bool_] = truth == self.leader
            return unchanged
        counts, hits = seen.tolist(), []
        for code in truth.tolist():
            hits.append(code == self.leader)
            counts[code] += 1
            if counts[code] > ahead:
                self.leader, ahead = code, counts[code]
        return np.array(hits)

    @property
    def labels(self) -> list[Any]:
        """Labels and predictions so far, in order of appearance."""
        return list(self._code)

    @property
    def arrivals(self) -> list[tuple[Any, int]]:
        """Labels with the number of labels before their first one, in order of codes."""
        return [(label, n) for label, n in zip(self._code, self._first.tolist(), strict=False) if n >= 0]

    def scores(self) -> Scores:
        """Return scores from the confusion matrix; undefined ratios are 0, as in River.

        River's metrics import `scipy.stats`, which takes a second.
        """
        names = list(self._code)
        hits, events, predicted = (np.zeros(len(names), np.int64) for _ in range(3))
        for pair, n in self._pairs.items():
            truth, answer = pair >> SHIFT, pair & (1 << SHIFT) - 1
            events[truth] += n
            predicted[answer] += n
            hits[truth] += n if truth == answer else 0
        precision, recall = _ratio(hits, predicted), _ratio(hits, events)
        f1 = _ratio(2 * precision * recall, precision + recall)
        columns = zip(names, *(each.tolist() for each in (events, predicted, precision, recall, f1)), strict=True)
        rows = sorted(
            (ClassScore(*row) for row in columns if row[1] or row[2]),
            key=lambda row: (-row.events, -row.predicted, str(row.label)),
        )
        n = max(int(events.sum()), 1)
        accuracy, chance = float(hits.sum() / n), float(events / n @ (predicted / n))
        kappa = (accuracy - chance) / (1 - chance) if chance < 1 else 0.0
        return Scores(float(recall.sum() / max(int(np.count_nonzero(events)), 1)), kappa, rows)

    def ranked(self) -> list[tuple[Any, int]]:
        """Classes with ranking measures and their codes, the rarest class first.

        Of two classes, only the rarer one is included.
        """
        counts = {code: int(self.seen[code]) for code in range(min(len(self.seen), self.measures.ranking.n_classes))}
        names = list(self._code)
        rarest = sorted((code for code, n in counts.items() if n), key=lambda code: (counts[code], str(names[code])))
        return [(names[code], code) for code in (rarest[:1] if len(rarest) == 2 else rarest)]

    def figures(self, *, recent: bool = False) -> dict[str, Any]:
        """Return measures of probabilities and decisions by name, NaN if unknown.

        Parameters
        ----------
        recent
            Whether only recent events count.
        """
        measures, ranking = self.measures, self.measures.ranking
        codes = [code for _, code in self.ranked()]
        found: dict[str, Any] = dict(measures.recent if recent else measures.overall)
        found["calibration_error"] = (measures.recent_reliability if recent else measures.reliability).error
        return found | ranking.figures(codes, RECENT if recent else ALL)

    def state(self) -> SavedState:
        """Return the metrics as a JSON header and arrays."""
        header, arrays = super().state()
        header["labels"] = [encode_label(label) for label in self._code]
        return header, arrays | {"pairs": np.array(sorted(self._pairs.items()), np.int64).reshape(-1, 2)}

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state`.

        Parameters
        ----------
        state
            Result of `state`.
        """
        header, arrays = state
        self._code = LabelCodes.of_labels(decode_labels(header["labels"]))
        self._pairs = Counter(dict(arrays["pairs"].tolist()))
        super().restore(state)

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        n, pairs = len(self._code), self._pairs
        return (
            all(0 <= pair >> SHIFT < n and pair & (1 << SHIFT) - 1 < n for pair in pairs)
            and all(count >= 0 for count in pairs.values())
            and pairs.total() < 1 << 62
            and self.order.fits(n)
            and max(self.last + 1, self.leader + 1, len(self._first)) <= len(self.seen) <= n
        )


def _ratio(parts: NDArray[Any], wholes: NDArray[Any]) -> NDArray[np.float64]:
    """Divide arrays; 0 for a denominator of 0."""
    shares: NDArray[np.float64] = np.divide(parts, wholes, out=np.zeros(len(parts)), where=wholes > 0)
    return shares
