"""Methods of a classifier with refits for many events."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from connectors.times import LATEST_S, seconds_of
from streamsvm.decide.arrays import Members
from streamsvm.decide.conformal import Key
from streamsvm.decide.learner import PredictsManySets, answers
from streamsvm.features.frames import like
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.locks import locked
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.rows import Late
from streamsvm.refit.schedule import Refits


class RowMethods(PredictsManySets):
    """Predicts and learns rows, in parts between which models may enter the vote."""

    _model: OnlineClassifier
    _refits: Refits

    @locked
    def learn_many(self, X: Any, y: Any, w: Any = None, times: Any = None) -> None:
        """Learn rows one after another, exactly as a loop of `learn_one` does.

        Parameters
        ----------
        X
            n rows: a data frame, an array of shape (n, d), a scipy sparse matrix, a list of dicts.
        y
            n labels.
        w
            n weights, one for all rows, or None for 1.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.

        Raises
        ------
        BadRows
            If rows cannot be learned; no row has been then.
        """
        moments = event_times(times, y)
        self._learn_rows(*self._model.encode_labelled(X, y, w), moments, predict=False)

    def _learn_rows(
        self,
        rows: EncodedRows,
        codes: Ints,
        weights: Floats,
        times: Floats | None,
        predict: bool = True,
        proba: bool = False,
        sets: Key | None = None,
    ) -> tuple[Ints, Floats, Members | None]:
        """Predict and learn rows; return classes, all probabilities, and the sets that are wanted."""
        n_proba = len(self._model.labels.codes) if proba or self._sets else 0
        found, _, shares = self._run(rows, codes, weights, times, predict, n_proba)
        return found, shares, self._sets.run(shares, np.where(weights > 0.0, codes, -1), sets)

    @locked
    def predict_many(self, X: Any) -> Any:
        """The labels `predict_one` gives for rows.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            A series of the frame's kind if X is a frame; None where nothing has been learned.

        Raises
        ------
        BadRows
            If rows cannot be used.
        """
        codes, _, _ = self._run(self._model.encode(X))
        return like(X, self._model.labels.decode(codes))

    @locked
    def proba_array(self, X: Any) -> Floats:
        """The probabilities of `predict_proba_many` as an array, whatever the type of X.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        """
        return self._run(self._model.encode(X), n_proba=self._model.n_classes)[2]

    @locked
    def peek_proba_many(self, X: Any) -> Floats:
        """The probabilities of `predict_proba_many`, without counting as predictions.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Over `classes_`.
        """
        return self._run(self._model.encode(X), predict=False, n_proba=self._model.n_classes)[2]

    @locked
    def test_then_train(
        self,
        X: Any,
        y: Any,
        *,
        times: Any = None,
        w: Any = None,
        proba: bool = False,
        coverage: float | None = None,
        by_class: bool = False,
    ) -> Any:
        """Predict each row, then learn it, exactly as a loop of `predict_one` and `learn_one` does.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        y
            n labels; a row with None or NaN is only predicted.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.
        w
            n weights, one for all rows, or None for 1.
        proba
            Whether to return the probabilities too.
        coverage, by_class
            With a coverage, also return sets of labels, as `predict_set_one`.

        Returns
        -------
        labels or (labels, probabilities) or (labels, sets) or (labels, probabilities, sets)
            Predicted labels, shape (n,), None where nothing had been learned; probabilities over `classes_` as it is
            afterwards, shape (n, n_classes), 0 for classes not known yet; whether each class is in the set, of that
            shape.

        Raises
        ------
        BadRows
            If rows cannot be used; nothing has been learned then.
        """
        moments, key = event_times(times, y), self._sets_asked(coverage, by_class)
        rows, codes, weights = self._model.encode_labelled(X, y, w, unlabelled=True)
        found, shares, members = self._learn_rows(rows, codes, weights, moments, proba=proba, sets=key)
        predicted = like(X, self._model.labels.decode(found))
        return answers(predicted, shares if proba else None, members)

    @locked
    def run_batch(
        self,
        features: Any,
        labels: Sequence[Any],
        learn: bool = True,
        proba: bool = False,
        times: Any = None,
        memories: Ints | None = None,
        apart: Ints | None = None,
    ) -> Any:
        """Predict each event of a batch, then (if `learn`) learn it if its label is not None.

        Parameters
        ----------
        features
            n rows, as for `learn_many`.
        labels
            n labels, None where unknown.
        learn
            Whether to learn, or only to predict.
        proba
            Whether to return the probabilities too.
        times
            n event times in seconds or as datetimes, for windows and triggers of time.
        memories, apart
            For late labels, as for `StreamSVMClassifier.run_batch`.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            As `StreamSVMClassifier.run_batch`.
        """
        learner = self._model
        if learn:
            late = None if memories is None or apart is None else (memories, apart)
            moments = event_times(times, labels)
            rows, codes, weights = learner.encode_labelled(
                features, labels, unlabelled=True, complete=memories is None, whole=False
            )
            n_proba = len(learner.labels.codes) if proba else 0
            found = self._run(rows, codes, weights, moments, n_proba=n_proba, late=late)
        else:
            found = self._run(learner.encode(features), n_proba=learner.n_classes if proba else 0)
        return found if proba else found[:2]

    def _run(
        self,
        rows: EncodedRows,
        codes: Ints | None = None,
        weights: Floats | None = None,
        times: Floats | None = None,
        predict: bool = True,
        n_proba: int = 0,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats]:
        """Predict rows and learn those with a class, in parts between which models may enter."""
        if codes is None or weights is None:
            return self._run_part(rows, None, None, predict, n_proba)[:3]
        n = len(rows)
        codes = np.where(weights > 0.0, codes, -1)
        moments = np.full(n, math.nan) if times is None else times
        found, scores, proba = np.full(n, -1), np.full(n, math.nan), np.zeros((n, n_proba))
        learned, at, n_done = np.flatnonzero(codes >= 0), 0, 0
        while at < n:
            last = n_done + self._refits.n_next
            end = n if last > len(learned) else int(learned[last - 1]) + 1
            part, own = slice(at, end), rows.part(at, end)
            own_late = None if late is None else (late[0], late[1][part])
            found[part], scores[part], proba[part], errors = self._run_part(
                own, codes[part], weights[part], predict, n_proba, own_late
            )
            n_done += self._refits.take(own, codes[part], weights[part], moments[part], errors)
            at = end
        return found, scores, proba

    def _run_part(
        self,
        rows: EncodedRows,
        codes: Ints | None,
        weights: Floats | None,
        predict: bool,
        n_proba: int,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """Predict rows and learn them; return classes, their probabilities, all probabilities, and errors."""
        vote = self._refits.vote
        n_classes = n_proba if vote.is_empty else max(len(self._model.labels.codes), n_proba)
        labels = np.full(len(rows), -1) if codes is None else codes
        found, scores, proba = self._model.run_rows(rows, codes, weights, predict=predict, n_proba=n_classes, late=late)
        if vote.is_empty:
            return found, scores, proba, (found != labels).astype(float)
        found, scores, proba, errors = vote.vote(rows, labels, proba)
        return found, scores, proba[:, :n_proba], errors


def event_times(times: Any, labels: Any) -> Floats | None:
    """Event times in seconds, one for each label, NaN where there is none; None for none at all."""
    if times is None:
        return None
    if isinstance(times, np.ndarray) and times.dtype == np.float64 and not (np.abs(times) >= LATEST_S).any():
        found = times
    else:
        found = np.array([seconds(time) for time in times], float)
    if len(found) != len(labels):
        raise ValueError(f"{len(labels)} rows need {len(labels)} event times, got {len(found)}")
    return found


def seconds(time: Any) -> float:
    """Event time in seconds, NaN where there is none."""
    return math.nan if time is None else seconds_of(time)
