"""One way to ask any River classifier: predict each event of a batch, then learn it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from connectors.events import Batch
from streamsvm.run.errors import RunError


class Learner(Protocol):
    """What the loop needs of a model."""

    @property
    def classes(self) -> Sequence[Any]:
        """All classes so far; `step` answers with indices into it."""

    def step(self, batch: Batch, learn: bool) -> tuple[Batch, NDArray[Any], NDArray[np.float64]]:
        """Test, then train: the batch without the events that had to be set aside, the predicted codes, the scores."""


class BatchLearner:
    """A classifier of this package: one call for a batch."""

    def __init__(self, model: Any) -> None:
        from streamsvm.features import BadRows

        self._model = model
        self._bad_rows = BadRows
        # Compiles the kernel, or loads it, before the stream is read; a copy learns what is no event of the stream.
        model.clone().run_batch([{"warm": 1.0}], [0])

    @property
    def classes(self) -> Sequence[Any]:
        classes: Sequence[Any] = self._model.classes_
        return classes

    def step(self, batch: Batch, learn: bool) -> tuple[Batch, NDArray[Any], NDArray[np.float64]]:
        while True:
            features = batch.features or batch.rows()  # a table without columns does not tell how many rows it has
            try:
                codes, scores = self._model.run_batch(features, batch.labels, learn=learn)
            except self._bad_rows as bad:
                batch = batch.without(bad.rows)
            else:
                return batch, codes, scores


class RowLearner:
    """Any other River classifier, an event at a time.

    The prediction is that of `predict_one`, the score the probability that `predict_proba_one` gives to it, NaN where
    the model knows no probabilities. An event on which the model raises is set aside. To models that tell only two
    classes apart, the first label that comes is False and the second True, unless they are such already.

    Parameters
    ----------
    model
        A River classifier.
    scored
        Whether scores are wanted; where they are not, models that decide by themselves are not asked for them.
    """

    def __init__(self, model: Any, *, scored: bool) -> None:
        self._model = model
        self._binary = not model._multiclass
        self._code: dict[Any, int] = {}
        self.classes: list[Any] = []
        self._predict = self._predictor(scored)

    def step(self, batch: Batch, learn: bool) -> tuple[Batch, NDArray[Any], NDArray[np.float64]]:
        self._name(batch.labels)
        codes, scores, bad = [], [], {}
        for i, (row, label) in enumerate(zip(batch.rows(), batch.labels, strict=True)):
            try:
                prediction, score = self._predict(row)
                if learn and label is not None:
                    self._model.learn_one(row, self._code[label] == 1 if self._binary else label)
                code = self._decode(prediction)
            except Exception as error:  # nobody knows what a foreign model raises on a strange event
                bad[i] = f"{type(error).__name__}: {error}"
            else:
                codes.append(code)
                scores.append(score if code >= 0 else float("nan"))
        if bad:
            batch = batch.without(bad)
        return batch, np.array(codes, np.int64), np.array(scores, np.float64)

    def _name(self, labels: Sequence[Any]) -> None:
        """Number the labels before any prediction, which may say True where the labels say 1."""
        for label in labels:
            if label is None:
                continue
            if self._binary and not self.classes and label in (0, 1):
                self._encode(type(label)(0))
            self._encode(label)
        if self._binary and len(self.classes) > 2:
            name = type(self._model).__name__
            raise RunError(
                f"{name} tells only two classes apart, and a third label came: {self.classes[:3]}; "
                f"use --model river.multiclass.OneVsRestClassifier --param classifier=PATH.TO.{name}"
            )

    def _encode(self, label: Any) -> int:
        code = self._code.get(label)
        if code is None:
            code = self._code[label] = len(self.classes)
            self.classes.append(label)
        return code

    def _decode(self, prediction: Any) -> int:
        if prediction is None:
            return -1
        if self._binary:
            return int(prediction) if prediction < len(self.classes) else -1
        return self._encode(prediction)

    def _predictor(self, scored: bool) -> Callable[[dict[Any, Any]], tuple[Any, float]]:
        from river.base import Classifier

        model = self._model
        if _overrides(model, Classifier, "predict_one"):
            if scored and _overrides(model, Classifier, "predict_proba_one"):
                return self._predict_twice
            return lambda row: (model.predict_one(row), float("nan"))
        return self._predict_once

    def _predict_once(self, row: dict[Any, Any]) -> tuple[Any, float]:
        """What River's own `predict_one` does, with the probability."""
        shares = self._model.predict_proba_one(row)
        if not shares:
            return None, float("nan")
        prediction = max(shares, key=shares.get)
        return prediction, shares[prediction]

    def _predict_twice(self, row: dict[Any, Any]) -> tuple[Any, float]:
        prediction = self._model.predict_one(row)
        try:
            score = self._model.predict_proba_one(row).get(prediction, float("nan"))
        except (NotImplementedError, AttributeError):  # a pipeline whose last step knows no probabilities
            self._predict = lambda row: (self._model.predict_one(row), float("nan"))
            score = float("nan")
        return prediction, score


def as_learner(model: Any, *, scored: bool) -> Learner:
    """The fastest way to drive a model; `scored` says whether the scores will be used."""
    return BatchLearner(model) if hasattr(model, "run_batch") else RowLearner(model, scored=scored)


def _overrides(model: Any, base: type, method: str) -> bool:
    return getattr(type(model), method, None) is not getattr(base, method)
