"""Methods for many events.

They use the learner protocol: `encode`, `encode_labelled`, `run_rows` and `decode`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from river import base

from streamsvm.decide.changes import Changes
from streamsvm.decide.conformal import Key, Members
from streamsvm.decide.prediction_sets import PredictsSets, with_results
from streamsvm.decide.reasons import Explains
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.tables import frame_like, series_like
from streamsvm.locks import locked
from streamsvm.models.saved import Archived
from streamsvm.mutation import Mutable

Late = tuple[Ints, Ints]
"""The arguments `memories` and `memory_rows` of `run_batch`."""


class Encoded(NamedTuple):
    """Encoded events.

    Parameters
    ----------
    rows
        Their features.
    codes
        Class number of each event, -1 if it is not learned; None if all events are only predicted.
    weights, times
        Their weights, None for 1, and their event times in seconds, None if unknown.
    """

    rows: EncodedRows
    codes: Ints | None = None
    weights: Floats | None = None
    times: Floats | None = None

    @property
    def learned(self) -> Ints:
        """Class number of each event with a positive weight, -1 for others."""
        codes = np.full(len(self.rows), -1) if self.codes is None else self.codes
        return codes if self.weights is None else np.where(self.weights > 0.0, codes, -1)


class RowMethods(PredictsSets, Mutable, Explains, Changes, Archived, base.MiniBatchClassifier):
    """Prediction and training of rows, equal to a loop over single events.

    Its base classes have the other methods that all of these classifiers share.
    """

    @property
    @abstractmethod
    def n_classes(self) -> int:
        """Number of classes learned."""

    @abstractmethod
    def encode(self, X: Any) -> Encoded:
        """Encode rows to predict.

        Parameters
        ----------
        X
            Rows, as for `learn_many`.
        """

    @abstractmethod
    def encode_labelled(
        self,
        X: Any,
        y: Any,
        w: Any = None,
        times: Any = None,
        *,
        unlabelled: bool = False,
        complete: bool = True,
        whole: bool = True,
    ) -> Encoded:
        """Encode rows to learn; new columns and classes are added.

        Parameters
        ----------
        X, y, w, times
            Rows, labels, weights and event times, as for `learn_many`.
        unlabelled
            Whether None and NaN are missing labels.
        complete
            See `FeatureSpace.encode`.
        whole
            Whether these may be all rows of the stream.

        Returns
        -------
        Encoded
            The encoded rows with class numbers, weights and event times.
        """

    @abstractmethod
    def run_rows(
        self, events: Encoded, *, predict: bool = True, score: bool = False, n_proba: int = 0, late: Late | None = None
    ) -> tuple[Ints, Floats, Floats]:
        """Predict events and learn those with a class.

        Parameters
        ----------
        events
            Encoded events.
        predict
            Whether label autocorrelation records the predictions.
        score
            Whether to return the probabilities of the classes.
        n_proba
            The number of classes to return probabilities of.
        late
            The arguments `memories` and `memory_rows` of `run_batch`.

        Returns
        -------
        (codes, scores, probabilities)
            Predicted class numbers, their probabilities, and the probabilities of the first `n_proba` classes.
        """

    @abstractmethod
    def decode(self, codes: Ints) -> NDArray[Any]:
        """Return the labels of classes by number, None for -1.

        Parameters
        ----------
        codes
            The numbers.
        """

    @locked
    def learn_many(self, X: Any, y: Any, w: Any = None, times: Any = None) -> None:
        """Learn rows in order, equal to a loop of `learn_one`.

        Parameters
        ----------
        X
            n rows: data frame or lazy frame, Arrow data (see `streamsvm.frames.eager`), array of shape (n, d), SciPy
            sparse matrix, or list of dicts.
        y
            n labels.
        w
            n weights, one for all rows, or None for 1.
        times
            n event times in seconds or as datetimes, for refits by time; learners without refits ignore them.

        Raises
        ------
        BadRows
            If rows cannot be learned; nothing is learned then.
        """
        self._learn_rows(self.encode_labelled(X, y, w, times), predict=False)

    def _learn_rows(
        self, events: Encoded, predict: bool = True, proba: bool = False, sets: Key | None = None
    ) -> tuple[Ints, Floats, Members | None]:
        """Predict and learn events; return classes, probabilities and sets.

        Probabilities have no columns unless `proba` is true. `sets` is the key of the prediction sets.
        """
        n_proba = len(self.classes_) if proba or self._sets else 0
        codes, _, shares = self.run_rows(events, predict=predict, n_proba=n_proba)
        return codes, shares, self._sets.run(shares, events.learned, sets)

    @locked
    def predict_many(self, X: Any) -> Any:
        """Predict the labels of unordered rows.

        Predictions equal those of `predict_one` without label autocorrelation.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            A series of the frame's kind if X is a frame; None before anything has been learned.

        Raises
        ------
        BadRows
            If rows cannot be used.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> X, model = np.array([[0.0, 1.0], [1.0, 0.0]] * 50), CPMClassifier()
        >>> model.learn_many(X, ["left", "right"] * 50)
        >>> model.predict_many(X[:2]).tolist()
        ['left', 'right']
        """
        codes, _, _ = self.run_rows(self.encode(X))
        return series_like(X, self.decode(codes))

    @locked
    def proba_array(self, X: Any) -> Floats:
        """Return the probabilities of `predict_proba_many` as an array for any type of X.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Probabilities over `classes_`.
        """
        return self.run_rows(self.encode(X), n_proba=self.n_classes)[2]

    @locked
    def predict_proba_many(self, X: Any) -> Any:
        """Predict the probabilities of unordered rows.

        Probabilities equal those of `predict_proba_one` without label autocorrelation.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        frame or ndarray of float64, shape (n, n_classes)
            Probabilities over `classes_`, without columns before anything has been learned. If X is a frame, a frame of
            its kind with a column for each label.

        Raises
        ------
        BadRows
            If rows cannot be used.
        """
        proba = self.proba_array(X)
        return frame_like(X, proba, self.classes_[: proba.shape[1]])

    @locked
    def predict_set_many(self, X: Any, coverage: float = 0.9, by_class: bool = False) -> Any:
        """Predict the sets of `predict_set_one` for rows.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        coverage, by_class
            As for `predict_set_one`.

        Returns
        -------
        frame or ndarray of bool, shape (n, n_classes)
            Whether each set contains each label of `classes_`. If X is a frame, a frame of its kind with a column for
            each label.

        Raises
        ------
        BadRows
            If rows cannot be used.
        """
        sets = self.label_sets(coverage, by_class)
        proba = self.proba_array(X)
        return frame_like(X, sets.of(proba), self.classes_[: proba.shape[1]])

    @locked
    def peek_proba_many(self, X: Any) -> Floats:
        """Return the probabilities of `predict_proba_one` for rows.

        Label autocorrelation does not record them as predictions.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Over `classes_`.
        """
        return self.run_rows(self.encode(X), predict=False, n_proba=self.n_classes)[2]

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
        """Predict each row, then learn it.

        The result equals a loop of `predict_one` and `learn_one`.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        y
            n labels; a row with None or NaN is only predicted.
        times
            n event times, as for `learn_many`.
        w
            n weights, one for all rows, or None for 1.
        proba
            Whether to return the probabilities too.
        coverage, by_class
            With a coverage, also return sets of labels, as `predict_set_one`.

        Returns
        -------
        labels or (labels, probabilities) or (labels, sets) or (labels, probabilities, sets)
            Predicted labels have shape (n,), with None before anything has been learned. Probabilities over the final
            `classes_` have shape (n, n_classes), with 0 for classes that were not known yet. Sets have the same shape,
            and are true for each class in the set.

        Raises
        ------
        BadRows
            If rows cannot be used; nothing is learned then.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> X, model = np.array([[0.0, 1.0], [1.0, 0.0]] * 50), CPMClassifier()
        >>> labels, proba = model.test_then_train(X, ["left", "right"] * 50, proba=True)
        >>> labels[-2:].tolist(), proba.shape
        (['left', 'right'], (100, 2))
        """
        key = self._key_of_sets(coverage, by_class)
        events = self.encode_labelled(X, y, w, times, unlabelled=True)
        codes, shares, members = self._learn_rows(events, proba=proba, sets=key)
        predicted = series_like(X, self.decode(codes))
        return with_results(predicted, shares if proba else None, members)

    @locked
    def run_batch(
        self,
        features: Any,
        labels: Sequence[Any],
        learn: bool = True,
        proba: bool = False,
        times: Any = None,
        memories: Ints | None = None,
        memory_rows: Ints | None = None,
    ) -> Any:
        """Predict each event of a batch, then learn it if it has a label.

        The caller updates sets of labels through `label_sets`, because only the caller has the stored predictions of
        events with late labels.

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
            n event times, as for `learn_many`.
        memories, memory_rows
            With late labels, an event is one row when it is predicted and another when it is learned. Both refer to a
            row of `memories`, which has `memory_size` numbers. The prediction writes them and learning reads them.
            `memory_rows` has 1 + the index of this row for each event, and 0 for other rows.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            Index of each predicted label in `classes_`, and its probability. These are -1 and NaN before anything has
            been learned. If `proba`, also the probabilities over `classes_`, shape (n, n_classes), with 0 for classes
            not known yet.

        Raises
        ------
        BadRows
            If rows cannot be used; nothing is learned then.
        """
        if learn:
            late = None if memories is None or memory_rows is None else (memories, memory_rows)
            events = self.encode_labelled(
                features, labels, None, times, unlabelled=True, complete=memories is None, whole=False
            )
            n_classes = len(self.classes_)
        else:
            events, late, n_classes = self.encode(features), None, self.n_classes
        found = self.run_rows(events, score=True, n_proba=n_classes if proba else 0, late=late)
        return found if proba else found[:2]
