"""Rows: encoding, and prediction and training by one compiled call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import numbers_of
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide.reasons import Groups, Masks
from streamsvm.features.rows import BadRows, EncodedRows, Floats, Ints
from streamsvm.features.tables import weights_of
from streamsvm.frames import refuse_other_order
from streamsvm.labels import coded_labels
from streamsvm.online import driver
from streamsvm.online.batch import BATCH
from streamsvm.online.classes import are_labels
from streamsvm.online.events import EventLearner
from streamsvm.online.row_methods import Encoded, Late

_NONE, _NO_MEMORY = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)


class RowLearner(EventLearner):
    """Encoding, prediction and training of rows."""

    def encode(self, X: Any) -> Encoded:
        return Encoded(self._space.encode(X))

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
        refuse_other_order(X, y)
        labels = coded_labels(y)
        weights = np.ones(len(labels)) if w is None else weights_of(w, len(labels))
        learn = (weights > 0.0) & are_labels(labels, unlabelled)
        is_known = all(map(self.labels.codes.__contains__, labels.values))
        if not is_known:
            refused = self.labels.without_room(labels, learn, self.max_classes)
            if refused:
                self._space.encode(X)  # invalid features are refused first, so that they add no class
                raise BadRows(refused)
        rows = self._own_space().encode(X, learn, complete=complete)
        if not is_known:
            n_classes, learned = len(self.labels.codes), labels.take(learn)
            for label in learned.different():
                self._code(label)
            self.labels.check_count(n_classes, learned, self.n_events_learned)
        codes = numbers_of(labels, self.labels.codes)
        np.putmask(codes, ~learn, -1)
        if whole and len(codes) > 1 and self._rows.seen == 0:
            self.labels.check_order(codes[learn])
        if whole:
            self._inspect_first_rows(rows)
        self._grow()
        self._make_room(len(rows))
        return Encoded(rows, codes, weights)

    def decode(self, codes: Ints) -> NDArray[Any]:
        return self.labels.decode(codes)

    def run_rows(
        self, events: Encoded, *, predict: bool = True, score: bool = False, n_proba: int = 0, late: Late | None = None
    ) -> tuple[Ints, Floats, Floats]:
        return self._run(events, predict, score, n_proba, late, predict and events.codes is None)

    def _run(
        self, events: Encoded, predict: bool, score: bool, n_proba: int, late: Late | None, unordered: bool
    ) -> tuple[Ints, Floats, Floats]:
        """Implement `run_rows`.

        Unordered rows are predicted without label autocorrelation.
        """
        rows, codes, weights, _ = events
        n = len(rows)
        self._make_room(n)
        memories, memory_rows = (_NO_MEMORY, _NONE) if late is None else late
        predicted, proba = np.full(n, -1), np.zeros((n, n_proba))
        scores = np.full(n if score or n_proba else 0, math.nan)
        batch = State(BATCH)
        batch.shared, batch.notes, batch.unordered = rows.shared, predict, unordered
        batch.predicts = predict or score or n_proba > 0
        batch.bind(
            values=np.ascontiguousarray(rows.values, np.float64),
            columns=np.ascontiguousarray(rows.columns, np.int64),
            indptr=np.ascontiguousarray(rows.indptr, np.int64),
            labels=np.full(n, -1) if codes is None else np.ascontiguousarray(codes, np.int64),
            weights=np.ones(n) if weights is None else weights,
            codes=predicted,
            scores=scores,
            proba=proba,
            memory_rows=memory_rows,
            memories=memories,
        )
        batch.first = self._run_batch(batch)
        while self._rows.opening:
            self.add_gaps(batch.columns)
            batch.first = self._run_batch(batch)
        return predicted, scores, proba

    def _run_batch(self, batch: State) -> int:
        """Run a bound batch, and return the number of processed rows."""
        prepare([driver.ENTRY_POINTS["run_rows"]])
        return int(driver.ENTRY_POINTS["run_rows"](self._rows, batch))

    def _peek_variants(self, x: Mapping[Any, Any], groups: Groups, masks: Masks) -> Floats:
        space = self._space
        columns, values = space.encode_event(x, learn=False)
        group_of = {name: g for g, group in enumerate(groups) for name in group}
        names = (space.names[j][0] if space.is_indicator[j] else space.names[j] for j in columns.tolist())
        group = [group_of.get(name, -1) for name in names]
        # A feature that is left out is absent. Missing values may be informative, and are in all variants.
        kept = np.column_stack([masks, np.ones(len(masks), bool)])[:, group]
        at = kept.nonzero()[1]
        rows = EncodedRows(values[at], columns[at], np.append(0, kept.sum(axis=1).cumsum()), False)
        return self._run(Encoded(rows), False, False, self.n_classes, None, True)[2]
