"""Learner protocol: what refits use of an online learner beside its public methods.

Encoded rows can be predicted, learned and stored. A dict with a number for each known name can be loaded as the current
row, which is a faster path for single events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.core.state import State
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.space import FeatureSpace

if TYPE_CHECKING:
    from streamsvm.locks import LearnerLock


class LearnerProtocol:
    """Methods of an online learner for other modules of the package; users do not need them."""

    _lock: LearnerLock
    _space: FeatureSpace
    # Of `OnlineClassifier`.
    _row: Any
    _state: State
    _fast: Any
    _first: Any
    _look_at_event: Any
    _proba: Any
    _prepare: Any
    _run: Any
    _make_room: Any
    _follow_space: Any
    _pack: Any
    _predict_packed: Any
    _learn_packed: Any
    _relevances: Any

    @property
    def lock(self) -> LearnerLock:
        """Lock of the learner, to be held during calls of these methods."""
        return self._lock

    @property
    def n_classes(self) -> int:
        """Number of classes learned."""
        return int(self._state.n_classes)

    def encode(self, X: Any) -> EncodedRows:
        """Encode rows to predict.

        Parameters
        ----------
        X
            Rows, as for `learn_many`.
        """
        return self._space.encode(X)

    def encode_event(self, x: dict[Any, Any]) -> EncodedRows:
        """Encode a single event to predict.

        Parameters
        ----------
        x
            Features by name.
        """
        columns, values = self._space.encode_event(x, learn=False)
        return EncodedRows(values, columns, np.array([0, len(columns)]), False)

    def encode_labelled(
        self, X: Any, y: Any, w: Any = None, *, unlabelled: bool = False, complete: bool = True, whole: bool = True
    ) -> tuple[EncodedRows, Ints, Floats]:
        """Encode rows to learn, with their classes by number, -1 where they are not learned, and their weights.

        Parameters
        ----------
        X, y, w
            Rows, labels and weights, as for `learn_many`.
        unlabelled
            Whether None and NaN are missing labels.
        complete
            See `FeatureSpace.encode`.
        whole
            Whether these may be all rows that will come.
        """
        found: tuple[EncodedRows, Ints, Floats] = self._prepare(X, y, w, unlabelled, complete=complete, whole=whole)
        return found

    def run_rows(
        self,
        rows: EncodedRows,
        codes: Ints | None = None,
        weights: Floats | None = None,
        *,
        predict: bool = True,
        n_proba: int = 0,
        late: tuple[Ints, Ints] | None = None,
    ) -> tuple[Ints, Floats, Floats]:
        """Predict rows and learn those with a class; return classes, their probabilities and all probabilities.

        Parameters
        ----------
        rows
            Encoded rows.
        codes, weights
            The class of each row by number, -1 where it is not learned, and its weight.
        predict
            Whether label autocorrelation takes note of the predictions.
        n_proba
            The number of classes to return probabilities of.
        late
            The arguments `memories` and `apart` of `run_batch`.
        """
        asked = {"predict": predict, "score": True, "n_proba": n_proba, "late": late}
        found: tuple[Ints, Floats, Floats] = self._run(rows, codes, weights, **asked)
        return found

    def column_relevance(self) -> Floats | None:
        """Relevance of each column in the learned metric, None without one."""
        found, space = self._relevances(), self._space
        if found is None:
            return None
        relevance = np.zeros(len(space.names))
        relevance[: len(found)] = found
        relevance[[j for j in range(len(found)) if space.is_dead(j)]] = 0.0
        return relevance

    def load_event(self, x: Any) -> Floats | None:
        """Make an event with a number for each known name the current row and return it; None for other events.

        Parameters
        ----------
        x
            Features by name.
        """
        self._make_room(1)
        n = self._space.columns.plain_length
        if self._fast[0] != n:
            self._follow_space()
        return self._row[:n] if self._pack(x) else None

    def predict_loaded(self) -> Floats | None:
        """Probabilities of the current row until the next call; None if a value is out of range."""
        return self._proba[: self.n_classes] if self._predict_packed() else None

    def learn_loaded(self, code: int) -> Floats | None:
        """Predict and learn the current row; return the probabilities, None if a value is out of range.

        Parameters
        ----------
        code
            The number of its class.
        """
        if self._first is not None:
            n = self._space.columns.plain_length
            self._look_at_event(np.arange(n), self._row[:n].copy())
        proba: Floats | None = self._learn_packed(code)
        return proba

    def look_for_fast_path(self, x: dict[Any, Any]) -> None:
        """Enable the fast path for events with the names of this one, if possible.

        Parameters
        ----------
        x
            Features by name.
        """
        self._space.columns.look_for_fast_path(x)
