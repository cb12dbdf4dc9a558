"""One way for the join to ask a classifier, whoever's it is."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from river import base

from streamsvm.delayed.join import Answer, Asked
from streamsvm.features.rows import BadRows
from streamsvm.labels import as_label


class OwnModel:
    """A classifier of this package: one call for many rows."""

    def __init__(self, model: Any, *, proba: bool = False) -> None:
        self.model, self.proba = model, proba
        self._refused: list[str] = []

    @property
    def tells_all(self) -> bool:
        """Whether probabilities of all classes are kept with events."""
        return self.proba

    @property
    def memory_size(self) -> int:
        """How many numbers it remembers of the moment of a prediction."""
        return int(self.model.memory_size)

    @property
    def classes(self) -> list[Any]:
        """All classes so far."""
        found: list[Any] = self.model.classes_
        return found

    def take_refused(self) -> list[str]:
        """Why labels were not learned, of those since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def run(self, asked: Asked) -> Answer:
        """Predict and learn rows in turn."""
        if not asked.labels:
            return Answer(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)) if self.proba else None)
        features, labels = asked.features or [{}] * len(asked.labels), asked.labels
        late = {"times": asked.times / 1000.0, "memories": asked.memories, "apart": asked.apart}
        try:
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.proba, **late)
        except BadRows as bad:  # features were looked at when they came
            self._refused += bad.rows.values()
            labels = [None if i in bad.rows else label for i, label in enumerate(labels)]
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.proba, **late)
        return Answer(codes, scores, proba[0] if self.proba else None)


class OtherModel:
    """Any other River classifier, an event at a time."""

    memory_size, tells_all = 0, False

    def __init__(self, model: Any) -> None:
        self.model = model
        self.classes: list[Any] = []
        self._codes: dict[Hashable, int] = {}
        self._takes_likeliest = takes_likeliest(model)
        self.with_proba = False
        """Whether the next prediction is asked for all probabilities."""
        self.last: dict[Any, float] = {}
        """All probabilities of the prediction that was asked for them last."""

    def code(self, label: Any) -> int:
        """The number of a class; -1 for none."""
        if label is None:
            return -1
        if label not in self._codes:
            self._codes[label] = len(self.classes)
            self.classes.append(as_label(label))
        return self._codes[label]

    def run(self, asked: Asked) -> Answer:
        """Predict and learn rows in turn."""
        codes, scores = np.full(len(asked.labels), -1), np.full(len(asked.labels), np.nan)
        shares: list[dict[Any, float]] = [{}] * len(codes)
        for i, (x, label) in enumerate(zip(asked.features, asked.labels, strict=True)):
            if asked.predicted[i]:
                codes[i], scores[i] = self._predict(x)
                shares[i] = self.last
            if label is not None:
                self.code(label)
                self.model.learn_one(x, label)
        if not self.with_proba:
            return Answer(codes, scores)
        table = [[row.get(label, 0.0) for label in self.classes] for row in shares]
        return Answer(codes, scores, np.array(table).reshape(len(codes), len(self.classes)))

    def _predict(self, x: dict[Any, Any]) -> tuple[int, float]:
        if not self.with_proba:
            return self.code(self.model.predict_one(x)), np.nan
        self.last = self.model.predict_proba_one(x)
        found = max(self.last, key=self.last.__getitem__, default=None)
        if not self._takes_likeliest:
            found = self.model.predict_one(x)
        return self.code(found), self.last.get(found, np.nan)


def takes_likeliest(model: Any) -> bool:
    """Whether a classifier predicts the most probable class, as River's do that do not say otherwise."""
    from river import compose

    while isinstance(model, compose.Pipeline):
        model = list(model.steps.values())[-1]
    return type(model).predict_one is base.Classifier.predict_one


def is_own(model: Any) -> bool:
    """Whether a classifier takes many rows at once, with what it remembers of each."""
    return hasattr(model, "memory_size") and hasattr(model, "run_batch")
