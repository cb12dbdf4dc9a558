"""One way to ask any River classifier: predict each event of a batch, then learn it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from connectors.events import Batch, rows_of
from streamsvm.delayed.join import Answer, Asked
from streamsvm.delayed.models import OwnModel
from streamsvm.labels import new_label_notice
from streamsvm.run.abilities import Batched, Peeked
from streamsvm.run.errors import RunError

logger = logging.getLogger("streamsvm.run")


@dataclass(frozen=True, slots=True)
class Answers:
    """What a model predicts for a batch.

    Parameters
    ----------
    batch
        The batch without the events that had to be set aside.
    codes
        The predictions as indices into the learner's `classes`, -1 for none.
    scores
        Their probabilities, NaN where unknown.
    proba
        Where they are known, those of all classes, shape (n, n_classes), 0 for classes that were not known yet, NaN for
        events with none.
    members
        Where sets of labels are wanted, whether each class is in the set, of the same shape.
    decisions
        Where there are costs, the decisions as indices, -1 for none.
    alarms
        Where alarms are wanted, for which events there is one.
    reasons
        Where they are wanted, what most speaks for each prediction.
    """

    batch: Batch
    codes: NDArray[Any]
    scores: NDArray[np.float64]
    proba: NDArray[np.float64] | None = None
    members: NDArray[np.bool_] | None = None
    decisions: NDArray[np.int64] | None = None
    alarms: NDArray[np.bool_] | None = None
    reasons: Sequence[list[dict[str, Any]] | None] | None = None


def with_gaps(values: NDArray[np.float64]) -> Any:
    """Numbers for a field of results: None where they are not known."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    return [None if gap else value for value, gap in zip(values.tolist(), unknown.tolist(), strict=True)]


class BatchLearner(OwnModel):
    """A classifier of this package: one call for a batch."""

    keeps_objects = False

    def __init__(self, model: Batched, *, proba: bool = False) -> None:
        from streamsvm.features.rows import BadRows

        super().__init__(model, proba=proba)
        self._bad_rows = BadRows
        # Compiles the kernel, or loads it, before the stream is read; a copy learns what is no event of the stream.
        model.clone().run_batch([{"warm": 1.0}], [0])

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """The probabilities of `classes` for rows, of which the model takes no note; None where it knows none."""
        return np.asarray(self.model.peek_proba_many(rows)) if isinstance(self.model, Peeked) else None

    def unusable(self, batch: Batch) -> dict[int, str]:
        """The events that cannot be predicted, and why, by their numbers."""
        from streamsvm.features.values import unusable_rows

        return unusable_rows(batch.features)

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """The batch and all of them: `unusable` has left out the others before."""
        return batch, slice(None)

    def step(self, batch: Batch, learn: bool) -> Answers:
        """Test, then train, all events in one call; those that cannot be used are set aside.

        Parameters
        ----------
        batch
            The events.
        learn
            Whether to learn them.
        """
        while True:
            features = batch.features or batch.rows()  # a table without columns does not tell how many rows it has
            times = None if batch.times is None else np.asarray(batch.times, np.float64) / 1000.0
            try:
                codes, scores, *all_ = self.model.run_batch(
                    features, batch.labels, learn=learn, proba=self.proba, times=times
                )
            except self._bad_rows as bad:
                batch = batch.without(bad.rows)
            else:
                return Answers(batch, codes, scores, all_[0] if self.proba else None)


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
        Whether probabilities are wanted; where they are not, models that decide by themselves are not asked for them.
    """

    def __init__(self, model: Any, *, scored: bool) -> None:
        self.model = model
        self._binary = not model._multiclass
        self._code: dict[Any, int] = {}
        self.classes: list[Any] = []
        self._predict = self._predictor(scored)
        self._failed: dict[int, str] = {}  # of the events of a batch, those that the model raised on
        self._n_asked = 0

    keeps_objects, memory_size, tells_all = True, 0, False

    def unusable(self, batch: Batch) -> dict[int, str]:
        """None is known beforehand: what the model raises on is found as it runs."""
        self._failed, self._n_asked = {}, 0
        return {}

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """The batch without the events that the model raised on, and the numbers of the others."""
        keep = [i for i in range(len(batch)) if i not in self._failed]
        return batch.without(self._failed), keep

    def run(self, asked: Asked) -> Answer:
        """Predict and learn rows in turn; events that the model raises on are left out by `settled`."""
        n = len(asked.labels)
        codes, scores, shares = np.full(n, -1), np.full(n, np.nan), list[Shares]([None] * n)
        self._name(asked.labels)
        for i, (row, label) in enumerate(zip(rows_of(asked.features, n), asked.labels, strict=True)):
            try:
                if asked.predicted[i]:
                    prediction, found = self._predict(row)
                    if (code := self._decode(prediction)) >= 0:
                        codes[i], shares[i] = code, found
                        scores[i] = np.nan if found is None else found.get(prediction, np.nan)
                if label is not None:
                    self.model.learn_one(row, self._code[label] == 1 if self._binary else label)
            except Exception as error:  # nobody knows what a foreign model raises on a strange event
                if asked.predicted[i]:
                    self._failed[self._n_asked] = f"{type(error).__name__}: {error}"
                else:
                    logger.warning("an event could not be learned: %s: %s", type(error).__name__, error)
            self._n_asked += int(asked.predicted[i])
        return Answer(codes, scores, self._table(shares))

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """The probabilities of `classes` for rows, of which the model takes no note; None where it knows none."""
        try:
            found = self._table([self.model.predict_proba_one(row) for row in rows])
        except (NotImplementedError, AttributeError):
            return None
        return found

    def step(self, batch: Batch, learn: bool) -> Answers:
        """Test, then train, one event after the other; those that the model raises on are rejected."""
        self._name(batch.labels)
        self.unusable(batch)
        n, none = len(batch), np.zeros(0, np.int64)
        labels = batch.labels if learn else [None] * n
        answer = self.run(Asked(batch.features, labels, np.ones(n, np.bool_), none, none, none))
        batch, keep = self.settled(batch)
        proba = None if answer.probas is None else answer.probas[keep]
        return Answers(batch, answer.codes[keep], answer.scores[keep], proba)

    def _table(self, shares: Sequence[Shares]) -> NDArray[np.float64]:
        """Probabilities by label as rows over all classes."""
        coded = [None if row is None else {self._decode(label): p for label, p in row.items()} for row in shares]
        found = np.full((len(coded), len(self.classes)), np.nan)
        for row, by_code in zip(found, coded, strict=True):
            if by_code is not None:
                row[:] = [by_code.get(code, 0.0) for code in range(len(self.classes))]
        return found

    def _name(self, labels: Sequence[Any]) -> None:
        """Number the labels before any prediction, which may say True where the labels say 1."""
        for label in labels:
            if label is None:
                continue
            if self._binary and not self.classes and label in (0, 1):
                self._encode(type(label)(0))
            self._encode(label)
        if self._binary and len(self.classes) > 2:
            name = type(self.model).__name__
            raise RunError(
                f"{name} tells only two classes apart, and a third label came: {self.classes[:3]}; "
                f"use --model river.multiclass.OneVsRestClassifier --param classifier=PATH.TO.{name}"
            )

    def _encode(self, label: Any) -> int:
        code = self._code.get(label)
        if code is None:
            if (notice := new_label_notice(label, self._code)) is not None:
                logger.warning("%s", notice)
            code = self._code[label] = len(self.classes)
            self.classes.append(label)
        return code

    def _decode(self, prediction: Any) -> int:
        if prediction is None:
            return -1
        if self._binary:
            return int(prediction) if prediction < len(self.classes) else -1
        return self._encode(prediction)

    def _predictor(self, scored: bool) -> Callable[[dict[Any, Any]], tuple[Any, Shares]]:
        from river.base import Classifier

        model = self.model
        if _overrides(model, Classifier, "predict_one"):
            if scored and _overrides(model, Classifier, "predict_proba_one"):
                return self._predict_twice
            return lambda row: (model.predict_one(row), None)
        return self._predict_once

    def _predict_once(self, row: dict[Any, Any]) -> tuple[Any, Shares]:
        """What River's own `predict_one` does, with the probabilities."""
        shares = self.model.predict_proba_one(row)
        return (max(shares, key=shares.get), shares) if shares else (None, None)

    def _predict_twice(self, row: dict[Any, Any]) -> tuple[Any, Shares]:
        prediction = self.model.predict_one(row)
        try:
            return prediction, self.model.predict_proba_one(row)
        except (NotImplementedError, AttributeError):  # a pipeline whose last step knows no probabilities
            self._predict = lambda row: (self.model.predict_one(row), None)
            return prediction, None


Shares = dict[Any, float] | None
"""Probabilities by label, where they are known."""


Learner: TypeAlias = BatchLearner | RowLearner
"""What the loop drives a model by."""


def as_learner(model: Any, *, scored: bool, proba: bool = True) -> Learner:
    """The fastest way to drive a model; `scored` and `proba` say what of its answers will be used."""
    if isinstance(model, Batched):
        return BatchLearner(model, proba=proba)
    return RowLearner(model, scored=scored)


def _overrides(model: Any, base: type, method: str) -> bool:
    return getattr(type(model), method, None) is not getattr(base, method)
