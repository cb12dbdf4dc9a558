"""Uniform interface to River classifiers: predict each event of a batch, then learn it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from connectors.events import Batch
from streamsvm.decide.decisions import Decided
from streamsvm.delayed.models import OwnModel, RowModel, Shares
from streamsvm.delayed.protocol import Answer, ModelRows
from streamsvm.labels import new_label_notice
from streamsvm.run.errors import RunError, SetupError

logger = logging.getLogger("streamsvm.run")


@dataclass(frozen=True, slots=True)
class Answers:
    """Predictions for a batch.

    Parameters
    ----------
    batch
        The batch without rejected events.
    codes
        Predictions as indices into the learner's `classes`, -1 for none.
    scores
        Their probabilities, NaN if unknown.
    proba
        Probabilities of all classes if known, shape (n, n_classes); 0 for new classes, NaN for events without
        probabilities.
    decided
        Prediction sets, decisions and alarms, if requested.
    reasons
        If reasons are requested, the features that contribute most to each prediction.
    """

    batch: Batch
    codes: NDArray[Any]
    scores: NDArray[np.float64]
    proba: NDArray[np.float64] | None = None
    decided: Decided = field(default_factory=Decided)
    reasons: Sequence[list[dict[str, Any]] | None] | None = None


def with_gaps(values: NDArray[np.float64]) -> Any:
    """Return numbers for a result field, None if unknown."""
    unknown = np.isnan(values)
    if not unknown.any():
        return values
    return [None if gap else value for value, gap in zip(values.tolist(), unknown.tolist(), strict=True)]


class BatchLearner(OwnModel):
    """A classifier of this package, which takes a batch in one call."""

    def __init__(self, model: Any, *, proba: bool = False) -> None:
        from streamsvm.features.rows import BadRows

        super().__init__(model, proba=proba)
        self._bad_rows = BadRows
        # Compile or load the kernel before the stream is read; a copy of the model learns this event.
        model.clone().run_batch([{"warm": 1.0}], [0])

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """Return probabilities of `classes` for rows without changing the model; None if it predicts none."""
        return np.asarray(self.model.peek_proba_many(rows)) if hasattr(self.model, "peek_proba_many") else None

    def unusable(self, batch: Batch) -> dict[int, str]:
        """Return the reasons why events cannot be predicted, by their numbers."""
        from streamsvm.features.values import unusable_rows

        return unusable_rows(batch.features)

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """Return the batch and all its events; `unusable` has removed the others."""
        return batch, slice(None)

    def step(self, batch: Batch, learn: bool) -> Answers:
        """Test, then train on all events in one call; unusable events are rejected.

        Parameters
        ----------
        batch
            The events.
        learn
            Whether to learn them.
        """
        while True:
            features = batch.features or batch.rows()  # a table without columns has no length
            times = None if batch.times is None else np.asarray(batch.times, np.float64) / 1000.0
            try:
                codes, scores, *all_ = self.model.run_batch(
                    features, batch.labels, learn=learn, proba=self.proba, times=times
                )
            except self._bad_rows as bad:
                batch = batch.without(bad.rows)
            else:
                return Answers(batch, codes, scores, all_[0] if self.proba else None)


class RowLearner(RowModel):
    """Any other River classifier, one event at a time.

    Events that raise an error are rejected. For models of two classes, the first label is False and the second True,
    unless labels are Boolean already.

    Parameters
    ----------
    model
        A River classifier.
    scored
        Whether to predict probabilities. If not, only models that predict by probabilities compute them.
    """

    def __init__(self, model: Any, *, scored: bool) -> None:
        super().__init__(model, with_proba=scored)
        self._binary = not model._multiclass
        self._failed: dict[int, str] = {}  # reasons by position in the batch
        self._n_asked = 0

    def unusable(self, batch: Batch) -> dict[int, str]:
        """Return no events: errors are only known after the model runs."""
        self._failed, self._n_asked = {}, 0
        return {}

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """Return the batch without events that raised an error, and the numbers of the others."""
        keep = [i for i in range(len(batch)) if i not in self._failed]
        return batch.without(self._failed), keep

    def run(self, rows: ModelRows) -> Answer:
        """Predict and learn rows in order; `settled` removes those that raise an error."""
        self._number(rows.labels)
        return super().run(rows)

    def predict(self, x: dict[Any, Any]) -> tuple[Any, Shares]:
        """Return the predicted label, and the probabilities by label if the model has any."""
        self._n_asked += 1
        try:
            return super().predict(x)
        except (NotImplementedError, AttributeError):  # the last step of a pipeline has no probabilities
            if not self.with_proba:
                raise
            prediction = self.model.predict_one(x)
            self.with_proba = False
            return prediction, None

    def learn(self, x: dict[Any, Any], label: Any) -> None:
        """Learn an event."""
        self.model.learn_one(x, self.codes[label] == 1 if self._binary else label)

    def fail(self, error: Exception, is_predicted: bool) -> None:
        """Record an event that raises an error; foreign models may raise anything."""
        if is_predicted:
            self._failed[self._n_asked - 1] = f"{type(error).__name__}: {error}"
        else:
            logger.warning("an event could not be learned: %s: %s", type(error).__name__, error)

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """Return probabilities of `classes` for rows without changing the model; None if it predicts none."""
        try:
            return self.table([self.model.predict_proba_one(row) for row in rows])
        except (NotImplementedError, AttributeError):
            return None

    def step(self, batch: Batch, learn: bool) -> Answers:
        """Test, then train on one event after another; events that raise an error are rejected."""
        self.unusable(batch)
        n, none = len(batch), np.zeros(0, np.int64)
        self._number(batch.labels)
        labels = batch.labels if learn else [None] * n
        answer = self.run(ModelRows(batch.features, labels, np.ones(n, np.bool_), none, none, none))
        batch, keep = self.settled(batch)
        proba = None if answer.probas is None else answer.probas[keep]
        return Answers(batch, answer.codes[keep], answer.scores[keep], proba)

    def _number(self, labels: Sequence[Any]) -> None:
        """Number the labels before any prediction, because models may predict True for labels of 1."""
        for label in labels:
            if label is None:
                continue
            if self._binary and not self.classes and label in (0, 1):
                self.encode(type(label)(0))
            self.encode(label)
        if self._binary and len(self.classes) > 2:
            name = type(self.model).__name__
            what = f"{name} tells only two classes apart, and a third label came: {self.classes[:3]}"
            hint = f"use --model river.multiclass.OneVsRestClassifier --param classifier=PATH.TO.{name}"
            raise RunError(f"{what}; {hint}", "two classes")

    def encode(self, label: Any) -> int:
        """Return the number of a class; warn if a new one looks like a regression target."""
        if label not in self.codes and (notice := new_label_notice(label, self.codes)) is not None:
            logger.warning("%s", notice)
        return super().encode(label)

    def decode(self, prediction: Any) -> int:
        """Return the number of a predicted class; -1 for none."""
        if self._binary and prediction is not None:
            return int(prediction) if prediction < len(self.classes) else -1
        return super().decode(prediction)


Learner: TypeAlias = BatchLearner | RowLearner
"""Interface of the run loop to a model."""


def as_learner(model: Any, *, scored: bool, proba: bool = True) -> Learner:
    """Return the fastest learner for a model; `scored` and `proba` say which of its answers are used."""
    return BatchLearner(model, proba=proba) if takes_batches(model) else RowLearner(model, scored=scored)


def takes_batches(model: Any) -> bool:
    """Return whether a model takes many events in one call."""
    return hasattr(model, "run_batch")


def check_persistence(model: Any, *, checkpoint: bool, save: bool) -> None:
    """Refuse to save a model without a state of plain arrays, because nothing is pickled."""
    asked = " and ".join(name for name, wanted in (("--checkpoint", checkpoint), ("--save", save)) if wanted)
    if asked and not hasattr(model, "from_state"):
        what = f"{class_path(model)} cannot be kept on disk without pickle"
        raise SetupError(f"{what}; leave out {asked}, or use a model of this package", "not kept")
    if asked:
        try:
            model.state()
        except TypeError as error:
            raise SetupError(f"{asked}: {error}", "not kept") from error


def check_names(model: Any, batch: Batch) -> None:
    """Refuse events without any feature that the model has learned; warn if few are known.

    Raises
    ------
    RunError
        If no feature is known.
    """
    from streamsvm.features.names import FeatureMismatchError
    from streamsvm.models.saved import innermost

    try:
        if hasattr(own := innermost(model), "check_names"):
            own.check_names(batch.features or batch.rows())
    except FeatureMismatchError as error:
        raise RunError(str(error)) from error


def class_path(model: Any) -> str:
    """Return the dotted path of a model's class."""
    return f"{type(model).__module__}.{type(model).__qualname__}"
