"""Many events at once, with the results of one after another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from connectors.held import numbers_of
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide.arrays import Members
from streamsvm.decide.conformal import Key
from streamsvm.decide.learner import answers
from streamsvm.decide.reasons import Groups, Masks
from streamsvm.features.frames import like, weights_of
from streamsvm.features.rows import BadRows, EncodedRows, Floats, Ints
from streamsvm.labels import (
    coded_labels,
)
from streamsvm.locks import locked
from streamsvm.online import driver
from streamsvm.online.batch import BATCH
from streamsvm.online.classes import are_labels
from streamsvm.online.events import EventLearner

_NONE, _NO_MEMORY = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)

Late = tuple[Ints, Ints]
"""The arguments `memories` and `apart` of `run_batch`."""


class RowLearner(EventLearner):
    """Predicts and learns rows, exactly as a loop over single events does."""

    @locked
    def learn_many(self, X: Any, y: Any, w: Any = None, times: Any = None) -> None:
        """Learn rows one after another, exactly as a loop of `learn_one` does.

        Parameters
        ----------
        X
            Rows as `FeatureSpace.encode` takes them: a data frame, an array of shape (n, d), a scipy sparse matrix, a
            list of dicts.
        y
            n labels.
        w
            n weights, one for all rows, or None for 1.
        times
            n event times, for learners that use them.

        Raises
        ------
        BadRows
            Where rows cannot be learned from; no row has been then.
        """
        self._run_with_sets(*self._prepare(X, y, w, False), predict=False)

    @locked
    def predict_many(self, X: Any) -> Any:
        """The labels `predict_one` gives for rows, which need be in no order: without label autocorrelation.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            A series of the frame's kind where X is a frame; None where nothing has been learned.

        Raises
        ------
        BadRows
            Where rows cannot be used.
        """
        codes, _, _ = self._run(self._space.encode(X))
        return like(X, self.labels.decode(codes))

    @locked
    def proba_array(self, X: Any) -> Floats:
        """The probabilities of rows as `predict_proba_many` has them, as an array whatever the rows come in.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        """
        _, _, proba = self._run(self._space.encode(X), n_proba=int(self._state.n_classes))
        return proba

    @locked
    def peek_proba_many(self, X: Any) -> Floats:
        """What `predict_proba_one` gives for each row by itself, as one who looks on sees it: no trace is left.

        A prediction may leave one, as label autocorrelation takes note of which events wait for their labels.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Over `classes_`.
        """
        _, _, proba = self._run(self._space.encode(X), predict=False, n_proba=int(self._state.n_classes))
        return proba

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
            Rows, as for `learn_many`.
        y
            n labels; where None or NaN the row is only predicted.
        times
            n event times, for learners that use them.
        w
            n weights, one for all rows, or None for 1.
        proba
            Whether to return the probabilities too.
        coverage, by_class
            Where a coverage is given, also return sets of labels, as `predict_set_one` has them.

        Returns
        -------
        labels or (labels, probabilities) or (labels, sets) or (labels, probabilities, sets)
            Predicted labels, shape (n,), None where nothing had been learned; probabilities over `classes_` as it is
            afterwards, shape (n, n_classes), 0 for classes not known yet; whether each class is in the set, of that
            shape.

        Raises
        ------
        BadRows
            Where rows cannot be used; nothing has been learned then.
        """
        key = self._sets_asked(coverage, by_class)
        codes, probabilities, members = self._run_with_sets(*self._prepare(X, y, w, True), proba=proba, sets=key)
        predicted = like(X, self.labels.decode(codes))
        return answers(predicted, probabilities if proba else None, members)

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
        """Predict each event of a batch, then (if `learn`) learn it where its label is not None.

        Sets of labels are left to whoever calls it, by `label_sets`: only there is known what was predicted of an event
        whose label comes late.

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
            n event times, for learners that use them.
        memories, apart
            Where labels come late, an event is one row where it is predicted and another where it is learned. Both
            have a row of `memory_size` numbers of `memories`, left there by the prediction and wanted back for
            learning: `apart` has 1 + its number, and 0 for other rows.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            For each event the index of the predicted label in `classes_`, -1 where nothing had been learned, and its
            probability, NaN there. If `proba` the probabilities over `classes_`, too, shape (n, n_classes), 0 for
            classes not known yet.

        Raises
        ------
        BadRows
            Where rows cannot be used; nothing has been learned then.
        """
        codes = weights = late = None
        if learn:
            late = None if memories is None or apart is None else (memories, apart)
            rows, codes, weights = self._prepare(features, labels, None, True, complete=memories is None, whole=False)
        else:
            rows = self._space.encode(features)
        n_classes = len(self.labels.codes) if learn else int(self._state.n_classes)

        found = self._run(rows, codes, weights, score=True, n_proba=n_classes if proba else 0, late=late)
        return found if proba else found[:2]

    def _run_with_sets(
        self,
        rows: EncodedRows,
        numbers: Ints,
        weights: Floats,
        predict: bool = True,
        proba: bool = False,
        sets: Key | None = None,
    ) -> tuple[Ints, Floats, Members | None]:
        """Predict and learn rows as `_prepare` has them: classes, all probabilities, and the sets that are wanted."""
        n_proba = len(self.labels.codes) if proba or self._sets else 0
        codes, _, shares = self._run(rows, numbers, weights, predict=predict, n_proba=n_proba)
        return codes, shares, self._sets.run(shares, np.where(weights > 0.0, numbers, -1), sets)

    def _prepare(
        self, X: Any, y: Any, w: Any, unlabelled: bool, *, complete: bool = True, whole: bool = True
    ) -> tuple[EncodedRows, Ints, Floats]:
        """Rows, their classes by number, -1 where they are not to be learned, and their weights.

        Where `unlabelled`, None and NaN are no labels. Of `complete` see `FeatureSpace.encode`. `whole` rows may be all
        that will come.
        """
        labels = coded_labels(y)
        weights = np.ones(len(labels)) if w is None else weights_of(w, len(labels))
        learn = (weights > 0.0) & are_labels(labels, unlabelled)
        is_known = all(map(self.labels.codes.__contains__, labels.values))
        if not is_known:
            refused = self.labels.without_room(labels, learn, self.max_classes)
            if refused:
                self._space.encode(X)  # rows with bad features are refused first: they begin no class
                raise BadRows(refused)
        rows = self._own_space().encode(X, learn, complete=complete)
        if not is_known:
            n_classes, learned = len(self.labels.codes), labels.take(learn)
            for label in learned.different():
                self._code(label)
            self.labels.doubt_number(n_classes, learned, self.n_events_learned)
        numbers = numbers_of(labels, self.labels.codes)
        np.putmask(numbers, ~learn, -1)
        if whole and len(numbers) > 1 and self._rows.seen == 0:
            self.labels.doubt_order(numbers[learn])
        if whole:
            self._look_at_first(rows)
        self._grow()
        self._make_room(len(rows))
        return rows, numbers, weights

    def _run(
        self,
        rows: EncodedRows,
        codes: Ints | None = None,
        weights: Floats | None = None,
        predict: bool = True,
        score: bool = False,
        n_proba: int = 0,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats]:
        n = len(rows)
        self._make_room(n)
        memories, apart = (_NO_MEMORY, _NONE) if late is None else late
        predicted, proba = np.full(n, -1), np.zeros((n, n_proba))
        scores = np.full(n if score or n_proba else 0, math.nan)
        batch = State(BATCH)
        batch.shared, batch.predicting, batch.unordered = rows.shared, predict, predict and codes is None
        batch.answering = predict or score or n_proba > 0
        batch.bind(
            values=np.ascontiguousarray(rows.values, np.float64),
            columns=np.ascontiguousarray(rows.columns, np.int64),
            indptr=np.ascontiguousarray(rows.indptr, np.int64),
            labels=np.full(n, -1) if codes is None else np.ascontiguousarray(codes, np.int64),
            weights=np.ones(n) if weights is None else weights,
            codes=predicted,
            scores=scores,
            proba=proba,
            apart=apart,
            memories=memories,
        )
        self._run_rows(batch)
        return predicted, scores, proba

    def _run_rows(self, batch: State) -> None:
        prepare([driver.ENTRY_POINTS["run_rows"]])
        driver.run_rows(self._rows, batch)

    def _peek_variants(self, x: Mapping[Any, Any], groups: Groups, masks: Masks) -> Floats:
        space = self._space
        columns, values = space.encode_event(x, learn=False)
        group_of = {name: g for g, group in enumerate(groups) for name in group}
        names = (space.names[j][0] if space.is_indicator[j] else space.names[j] for j in columns.tolist())
        group = [group_of.get(name, -1) for name in names]
        n, d = len(masks), len(columns)
        kept = np.where(masks[:, group], values, math.nan) if d else np.zeros((n, 0))
        rows = EncodedRows(kept.ravel(), columns, d * np.arange(n + 1), True)
        return self._run(rows, predict=False, n_proba=int(self._state.n_classes))[2]
