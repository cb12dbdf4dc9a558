"""Base class of the online learners.

It handles labels, encoding, rows and saving around one compiled step per learner.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import numbers_of
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide.changes import ModelSummary, Spread
from streamsvm.decide.reasons import Groups, Masks
from streamsvm.features.rows import BadRows, EncodedRows, Floats, Ints
from streamsvm.features.scaler import NONE
from streamsvm.features.tables import weights_of
from streamsvm.frames import refuse_other_order
from streamsvm.labels import coded_labels
from streamsvm.locks import LearnerLock, locked
from streamsvm.models.saved import LOADABLE
from streamsvm.mutation import FixedParameter
from streamsvm.online import driver
from streamsvm.online.batch import BATCH
from streamsvm.online.calibration import noise_of
from streamsvm.online.classes import are_labels
from streamsvm.online.row_methods import Encoded, Late
from streamsvm.online.saving import SavedLearner
from streamsvm.parameters import ParameterTypeError

_NONE, _NO_MEMORY = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)


class OnlineClassifier(SavedLearner):
    """Base of the online learners.

    Labels have any hashable type; a class is added with its first learned event. Features are encoded by
    `FeatureSpace`.

    Thread-safe: threads may predict with one model while others train it. A single event is one compiled call that
    holds the GIL. All other calls take the lock of the learner. A call keeps the memory it works on alive, even if the
    learner grows meanwhile.

    A subclass defines `_new_state` and sets `_kernels` to its kernel module. `CODE` of that module names the entry
    points.
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_kernels" in cls.__dict__:
            LOADABLE[cls.__name__] = cls
            for name in set(signature(cls).parameters) - {name for kind in cls.__mro__ for name in vars(kind)}:
                setattr(cls, name, FixedParameter(name))

    # Rows ---------------------------------------------------------------------------------------------------------

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

    # What was learned ---------------------------------------------------------------------------------------------

    @property
    def memory_size(self) -> int:
        """Number of integers stored per event at prediction to learn its label late."""
        return 0

    @property
    def noise(self) -> float:
        """Estimated share of random labels, which caps probabilities.

        It is 0 while the estimate does not reduce the log loss.
        """
        return noise_of(self._state.calibration)

    @property
    def n_features_in_(self) -> int | None:
        """Number of columns of learned arrays, or None.

        Arrays with another number of columns are refused. It is None if no arrays were learned.
        """
        return self._space.mismatches.width

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._space.mismatches.width = width

    def check_names(self, X: Any) -> None:
        """Warn if few features of the first rows of a stream are known.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            If no feature is known.
        """
        self._space.mismatches.check_names(X)

    def summary(self) -> ModelSummary:
        """Return a summary of features and classes, for `changes` to compare later."""
        leaders = self.leaders() if hasattr(self, "leaders") else []
        return ModelSummary(
            self.n_events_learned,
            self.spreads(),
            dict(getattr(self, "relevance", {})),
            self._shares_of_classes(),
            leaders[0]["member"] if leaders and self.n_events_learned else "",
            float(getattr(self, "autocorrelation_weight", 0.0)),
        )

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """Return running statistics of columns.

        Parameters
        ----------
        names
            Names of columns; None for all.
        most
            Maximum number of columns, in order of appearance; None for all.

        Returns
        -------
        dict of Spread
            Statistics by column name; empty without scaling.
        """
        rows, space = self._rows, self._space
        found: dict[Hashable, Spread] = {}
        wanted = None if names is None else set(names)
        for j, name in enumerate(space.names if rows.scaling != NONE else ()):
            if len(found) == most:
                break
            n = 0.0 if wanted is not None and name not in wanted else float(rows.present[j])
            if n == 0.0 or space.is_dead(j):
                continue
            if space.is_indicator[j]:
                found[name] = Spread(n, math.nan, math.nan)
                continue
            less = float(rows.total[j] / rows.count[j])
            variance = max(float(rows.squares[j] / rows.count[j]) - less * less, 0.0)
            found[name] = Spread(n, float(rows.shift[j]) + less, math.sqrt(variance), bool(rows.decay < 1.0))
        return found

    def _shares_of_classes(self) -> dict[Any, float]:
        """Return the share of each class."""
        counts = self._state.classes.learned[: len(self.labels.codes)].tolist()
        return dict(zip(self.classes_, counts, strict=True))

    @property
    def notices(self) -> list[str]:
        """Warnings given so far: features left out, and labels that look like mistakes."""
        return self._space.notices() + self.labels.notices

    @locked
    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Treat the strings of these features as categories from now on.

        Parameters
        ----------
        names
            Names of features, which are added to `categories`. By default, features with mostly new strings are left
            out.
        """
        self.__dict__["categories"] = tuple(dict.fromkeys((*(self.categories or ()), *names))) or None
        self._own_space().texts.keep(names)

    @property
    def lock(self) -> LearnerLock:
        """Lock of the learner, held from loading an event to learning it."""
        return self._lock

    def column_relevance(self) -> Floats | None:
        """Relevance of each column in the learned metric, None without one."""
        found, space = self._relevances(), self._space
        if found is None:
            return None
        relevance = np.zeros(len(space.names))
        relevance[: len(found)] = found
        relevance[[j for j in range(len(found)) if space.is_dead(j)]] = 0.0
        return relevance

    def _by_relevance(self, values: Floats) -> dict[Any, float]:
        """Return the relevance of the first columns by name, the largest first."""
        space = self._space
        order = np.argsort(-values, kind="stable").tolist()
        return {space.names[j]: float(values[j]) for j in order if not space.is_dead(j)}

    def _relevances(self) -> Floats | None:
        """Return the relevance of the first columns in the learned metric, or None."""
        return None


def check_categories(categories: Any) -> tuple[Hashable, ...] | None:
    """Return names as a tuple, or None without names.

    River cannot clone an empty tuple.
    """
    if categories is None:
        return None
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise ParameterTypeError("categories", f"must be a tuple of feature names, got {categories!r}")
    return tuple(categories) or None
