"""Adapters that let runs and delayed labels call classifiers of this package and other River classifiers."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from river import base

from connectors.events import rows_of
from streamsvm.delayed.protocol import Answer, ModelRows
from streamsvm.delayed.single import SingleRow
from streamsvm.features.rows import BadRows
from streamsvm.labels import as_label

Shares: TypeAlias = "dict[Any, float] | None"
"""Probabilities by label, or None if unknown."""


class OwnModel:
    """Adapter of a classifier of this package, which takes many rows in one call."""

    keeps_objects = False

    def __init__(self, model: Any, *, proba: bool = False) -> None:
        self.model, self.proba = model, proba
        self.single = SingleRow(model) if hasattr(model, "load_event") and not model.is_composed else None
        self._refused: list[str] = []

    @property
    def stores_proba(self) -> bool:
        """Whether probabilities of all classes are stored with events."""
        return self.proba

    @property
    def memory_size(self) -> int:
        """Number of values stored with an event for learning it later."""
        return int(self.model.memory_size)

    @property
    def classes(self) -> list[Any]:
        """All classes so far."""
        found: list[Any] = self.model.classes_
        return found

    def take_refused(self) -> list[str]:
        """Return why labels were refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def run(self, rows: ModelRows) -> Answer:
        """Predict and learn rows in order."""
        if not rows.labels:
            return Answer(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)) if self.proba else None)
        features, labels = rows.features or [{}] * len(rows.labels), rows.labels
        late = {"times": rows.times / 1000.0, "memories": rows.memories, "apart": rows.apart}
        try:
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.proba, **late)
        except BadRows as bad:  # features were checked on arrival
            self._refused += bad.rows.values()
            labels = [None if i in bad.rows else label for i, label in enumerate(labels)]
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.proba, **late)
        return Answer(codes, scores, proba[0] if self.proba else None)


class RowModel:
    """Adapter of any other River classifier, one event at a time.

    The prediction is that of `predict_one`. The score is its probability, NaN if unknown.

    Parameters
    ----------
    model
        A River classifier.
    with_proba
        Whether to predict probabilities of all classes.
    """

    memory_size, stores_proba, keeps_objects, single = 0, False, True, None

    def __init__(self, model: Any, *, with_proba: bool = False) -> None:
        self.model, self.with_proba = model, with_proba
        self.classes: list[Any] = []
        self.last: dict[Any, float] = {}
        """Probabilities of the last prediction that had any."""
        self.codes: dict[Hashable, int] = {}
        self._takes_likeliest = takes_likeliest(model)

    def run(self, rows: ModelRows) -> Answer:
        """Predict and learn rows in order."""
        n = len(rows.labels)
        codes, scores, shares = np.full(n, -1), np.full(n, np.nan), list[Shares]([None] * n)
        for i, (x, label) in enumerate(zip(rows_of(rows.features, n), rows.labels, strict=True)):
            is_predicted = bool(rows.predicted[i])
            try:
                if is_predicted:
                    prediction, found = self.predict(x)
                    if (code := self.decode(prediction)) >= 0:
                        codes[i], shares[i] = code, found
                        scores[i] = np.nan if found is None else found.get(prediction, np.nan)
                if label is not None:
                    self.learn(x, label)
            except Exception as error:
                self.fail(error, is_predicted)
        return Answer(codes, scores, self.table(shares) if self.with_proba else None)

    def predict(self, x: dict[Any, Any]) -> tuple[Any, Shares]:
        """Return the predicted label, and probabilities by label if requested."""
        if not (self.with_proba or self._takes_likeliest):
            return self.model.predict_one(x), None
        prediction = None if self._takes_likeliest else self.model.predict_one(x)
        self.last = self.model.predict_proba_one(x)
        if self._takes_likeliest and self.last:
            prediction = max(self.last, key=self.last.__getitem__)
        return prediction, self.last

    def learn(self, x: dict[Any, Any], label: Any) -> None:
        """Learn one event."""
        self.encode(label)
        self.model.learn_one(x, label)

    def fail(self, error: Exception, is_predicted: bool) -> None:
        """Handle an exception of the model, raised by an event that is predicted or only learned."""
        raise error

    def encode(self, label: Any) -> int:
        """Return the number of a class, adding a new one."""
        code = self.codes.get(label)
        if code is None:
            code = self.codes[label] = len(self.classes)
            self.classes.append(as_label(label))
        return code

    def decode(self, prediction: Any) -> int:
        """Return the number of a predicted class; -1 for none."""
        return -1 if prediction is None else self.encode(prediction)

    def table(self, shares: Sequence[Shares]) -> NDArray[np.float64]:
        """Return probabilities by label as an array over all classes, NaN where unknown."""
        coded = [None if row is None else {self.decode(label): p for label, p in row.items()} for row in shares]
        found = np.full((len(coded), len(self.classes)), np.nan)
        for row, by_code in zip(found, coded, strict=True):
            if by_code is not None:
                row[:] = [by_code.get(code, 0.0) for code in range(len(self.classes))]
        return found


def takes_likeliest(model: Any) -> bool:
    """Return whether a classifier predicts the most probable class, the default of River."""
    from river import compose

    while isinstance(model, compose.Pipeline):
        model = list(model.steps.values())[-1]
    return type(model).predict_one is base.Classifier.predict_one


def is_own(model: Any) -> bool:
    """Return whether a classifier learns batches with values stored at prediction time."""
    return hasattr(model, "memory_size") and hasattr(model, "run_batch")
