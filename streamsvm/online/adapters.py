"""Adapters of own and other River classifiers for runs and delayed labels."""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from river import base

from connectors.events import Batch, Origins, Rejected, rows_of, without_missing
from streamsvm.decide.decisions import Decided
from streamsvm.features.rows import BadRows, Floats, Ints
from streamsvm.features.values import unusable_rows
from streamsvm.labels import as_label, new_label_notice

logger = logging.getLogger("streamsvm.run")

Shares: TypeAlias = "dict[Any, float] | None"
"""Probabilities by label, or None if unknown."""


_NO_BATCH = Batch([], [], Origins({}, {}), {})


class TooManyClasses(ValueError):
    """A model of two classes met a third label."""


@dataclass(slots=True)
class ModelRows:
    """Rows to predict or learn, in order.

    Parameters
    ----------
    features
        The rows.
    labels
        Class to learn each row as, None for rows that are only predicted.
    predicted
        Whether each row is predicted.
    times
        Event times, in milliseconds.
    memories, memory_rows
        Arguments of `run_batch` of the learners.
    """

    features: Any
    labels: Sequence[Any]
    predicted: NDArray[np.bool_]
    times: Ints
    memories: Ints
    memory_rows: Ints


@dataclass(slots=True)
class Predictions:
    """Predictions of a model.

    Parameters
    ----------
    codes, scores
        Class numbers (-1 for none) and their probabilities.
    probas
        Probabilities of all classes if requested; NaN where unknown.
    slots
        Slots of pending events, -1 for events that are not stored; empty if unknown.
    decided
        Prediction sets, decisions and alarms, if requested.
    batch
        The events without rejected ones; empty if unknown.
    """

    codes: Ints
    scores: Floats
    probas: Floats | None = None
    slots: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    decided: Decided = field(default_factory=Decided)
    batch: Batch = field(default_factory=lambda: _NO_BATCH)

    def part(self, batch: Batch, which: list[int] | slice) -> Predictions:
        """Return the predictions for the events that are left in a batch."""
        return replace(
            self,
            codes=self.codes[which],
            scores=self.scores[which],
            probas=None if self.probas is None else self.probas[which],
            slots=self.slots[which] if len(self.slots) else self.slots,
            decided=self.decided.part(which),
            batch=batch,
        )


class BatchAdapter:
    """Adapter of a classifier of this package, which takes many rows in one call."""

    keeps_objects = False

    def __init__(self, model: Any, *, proba: bool = False) -> None:
        self.model = model
        self.stores_proba = proba
        """Whether probabilities of all classes are computed, and stored with events."""
        self.refused: list[str] = []
        """Why labels were refused since `take_refused` was called last."""

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
        refused, self.refused = self.refused, []
        return refused

    def unusable(self, batch: Batch) -> dict[int, str]:
        """Return the reasons why events cannot be predicted, by their numbers."""
        return unusable_rows(batch.features)

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """Return the batch and the indices of all events, adding refused labels.

        `unusable` has removed the other invalid events.
        """
        batch.rejected += [Rejected(reason, {}) for reason in self.take_refused()]
        return batch, slice(None)

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """Return probabilities of `classes` without changing the model, or None.

        None means that the model predicts no probabilities.
        """
        return np.asarray(self.model.peek_proba_many(rows)) if hasattr(self.model, "peek_proba_many") else None

    def step(self, batch: Batch, learn: bool) -> Predictions:
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
                codes, scores, *proba = self.model.run_batch(
                    features, batch.labels, learn=learn, proba=self.stores_proba, times=times
                )
            except BadRows as bad:
                batch = batch.without(bad.rows)
            else:
                return Predictions(codes, scores, proba[0] if self.stores_proba else None, batch=batch)

    def run(self, rows: ModelRows) -> Predictions:
        """Predict and learn rows in order."""
        if not rows.labels:
            return Predictions(np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)) if self.stores_proba else None)
        features, labels = rows.features or [{}] * len(rows.labels), rows.labels
        late = {"times": rows.times / 1000.0, "memories": rows.memories, "memory_rows": rows.memory_rows}
        try:
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.stores_proba, **late)
        except BadRows as bad:  # features were checked on arrival
            self.refused += bad.rows.values()
            labels = [None if i in bad.rows else label for i, label in enumerate(labels)]
            codes, scores, *proba = self.model.run_batch(features, labels, proba=self.stores_proba, **late)
        return Predictions(codes, scores, proba[0] if self.stores_proba else None)


class EventAdapter:
    """Adapter of any other River classifier, one event at a time.

    The prediction is the result of `predict_one`. The score is its probability, NaN if unknown.

    Parameters
    ----------
    model
        A River classifier.
    with_proba
        Whether to predict probabilities of all classes.
    tolerant
        Whether to reject events that raise an error, and to use labels that models of two classes do not take: the
        first label is False and the second True, unless labels are Boolean already.

    Attributes
    ----------
    code, score
        The prediction of the last single event and its probability, in lists of one, as in a `SingleRow`.
    shares_by_label
        Probabilities of the last prediction that had any.
    """

    memory_size, stores_proba, keeps_objects, refused = 0, False, True, ()

    def __init__(self, model: Any, *, with_proba: bool = False, tolerant: bool = False) -> None:
        self.model, self.with_proba, self._tolerant = model, with_proba, tolerant
        self.classes: list[Any] = []
        self.code, self.score = [-1], [math.nan]
        self.shares_by_label: dict[Any, float] = {}
        self.codes: dict[Hashable, int] = {}
        self._takes_likeliest = takes_likeliest(model)
        self._binary = tolerant and not model._multiclass
        self._failed: dict[int, str] = {}  # reasons by position among the predicted events
        self._ahead: tuple[Any, tuple[int, float, Shares]] | None = None  # an event and its prediction

    def unusable(self, batch: Batch) -> dict[int, str]:
        """Return no events: errors are only known after the model runs."""
        return {}

    def settled(self, batch: Batch) -> tuple[Batch, list[int] | slice]:
        """Return the batch without failed events, and the indices of the others."""
        keep = [i for i in range(len(batch)) if i not in self._failed]
        return batch.without(self._failed), keep

    def step(self, batch: Batch, learn: bool) -> Predictions:
        """Test, then train on one event after another; reject those that raise errors."""
        n, none, labels = len(batch), np.zeros(0, np.int64), batch.labels
        if not learn:
            self._number(labels)
            labels = [None] * n
        predictions = self.run(ModelRows(batch.features, labels, np.ones(n, np.bool_), none, none, none))
        return predictions.part(*self.settled(batch))

    def take_refused(self) -> list[str]:
        """Return no labels: these models refuse none."""
        return []

    def run(self, rows: ModelRows) -> Predictions:
        """Predict and learn rows in order; `settled` removes those that raise an error."""
        if self._tolerant:
            self._number(rows.labels)
        n, n_predicted, self._failed = len(rows.labels), 0, {}
        codes, scores, shares = np.full(n, -1), np.full(n, np.nan), list[Shares]([None] * n)
        events = rows_of(rows.features, n)
        if self._tolerant:
            events = without_missing(events)
        for i, (x, label) in enumerate(zip(events, rows.labels, strict=True)):
            is_predicted = bool(rows.predicted[i])
            try:
                if is_predicted:
                    n_predicted += 1
                    codes[i], scores[i], shares[i] = self._predict(x)
                if label is not None:
                    self.learn(x, label)
            except Exception as error:  # foreign models may raise anything
                if not self._tolerant:
                    raise
                reason = f"{type(error).__name__}: {error}"
                if is_predicted:
                    self._failed[n_predicted - 1] = reason
                else:
                    logger.warning("an event could not be learned: %s", reason)
        return Predictions(codes, scores, self.table(shares) if self.with_proba else None)

    @property
    def label(self) -> Any:
        """The predicted class of the last single event, None for none."""
        return self.classes[self.code[0]] if self.code[0] >= 0 else None

    def predict(self, x: Any) -> bytes:
        """Predict a single event; return the words of its probabilities."""
        code, score, shares = self._predict(x)
        self.code, self.score = [code], [score]
        return self.table([shares]).tobytes() if self.with_proba else b""

    def learn_listed(self, x: Any, memory: bytes, label: Any) -> bool:
        """Learn a single event."""
        self.learn(x, label)
        return True

    def predict_ahead(self, x: Any) -> None:
        """Predict the event that `run` predicts next; it does not predict again."""
        self._ahead = x, self._predict(x)

    def _predict(self, x: dict[Any, Any]) -> tuple[int, float, Shares]:
        """Return class number, probability (NaN if unknown), and all if requested."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] is x:
            return ahead[1]
        shares: Shares = None
        try:
            prediction = None if self._takes_likeliest else self.model.predict_one(x)
            if self.with_proba or self._takes_likeliest:
                shares = self.shares_by_label = self.model.predict_proba_one(x)
        except (NotImplementedError, AttributeError):  # the last step of a pipeline has no probabilities
            if not (self._tolerant and self.with_proba):
                raise
            self.with_proba, prediction = False, self.model.predict_one(x)
        if self._takes_likeliest and shares:
            prediction = max(shares, key=shares.__getitem__)
        code = self._decode(prediction)
        if code < 0:
            return -1, math.nan, None
        return code, math.nan if shares is None else shares.get(prediction, math.nan), shares

    def learn(self, x: dict[Any, Any], label: Any) -> None:
        """Learn an event."""
        code = self._encode(label)
        self.model.learn_one(x, code == 1 if self._binary else label)

    def peek(self, rows: list[dict[Any, Any]]) -> NDArray[np.float64] | None:
        """Return probabilities of `classes` without changing the model, or None.

        None means that the model predicts no probabilities.
        """
        try:
            return self.table([self.model.predict_proba_one(row) for row in rows])
        except (NotImplementedError, AttributeError):
            return None

    def _number(self, labels: Sequence[Any]) -> None:
        """Number the labels before predictions; models may predict True for 1."""
        for label in labels:
            if label is None:
                continue
            if self._binary and not self.classes and label in (0, 1):
                self._encode(type(label)(0))
            self._encode(label)
        if self._binary and len(self.classes) > 2:
            name = type(self.model).__name__
            raise TooManyClasses(
                f"{name} supports only two classes, and a third label arrived: {self.classes[:3]}; use "
                f"river.multiclass.OneVsRestClassifier (--model river.multiclass.OneVsRestClassifier --param "
                f"classifier=PATH.TO.{name})"
            )

    def _encode(self, label: Any) -> int:
        """Return the number of a class, possibly new; warn of a doubtful spelling."""
        code = self.codes.get(label)
        if code is None:
            if self._tolerant and (notice := new_label_notice(label, self.codes)) is not None:
                logger.warning("%s", notice)
            code = self.codes[label] = len(self.classes)
            self.classes.append(as_label(label))
        return code

    def _decode(self, prediction: Any) -> int:
        """Return the number of a predicted class; -1 for none."""
        if prediction is None:
            return -1
        if self._binary:
            return int(prediction) if prediction < len(self.classes) else -1
        return self._encode(prediction)

    def table(self, shares: Sequence[Shares]) -> NDArray[np.float64]:
        """Return probabilities by label as an array over all classes, NaN where unknown."""
        coded = [None if row is None else {self._decode(label): p for label, p in row.items()} for row in shares]
        found = np.full((len(coded), len(self.classes)), np.nan)
        for row, by_code in zip(found, coded, strict=True):
            if by_code is not None:
                row[:] = [by_code.get(code, 0.0) for code in range(len(self.classes))]
        return found


def takes_likeliest(model: Any) -> bool:
    """Return whether a classifier has River's default: the most probable class."""
    from river import compose

    while isinstance(model, compose.Pipeline):
        model = list(model.steps.values())[-1]
    return type(model).predict_one is base.Classifier.predict_one


def is_own(model: Any) -> bool:
    """Return whether a classifier learns batches with stored prediction values."""
    return hasattr(model, "memory_size") and hasattr(model, "run_batch")
