"""Methods of a classifier with refits, on rows and by its learner.

Models may enter the vote between the rows of a call.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.times import LATEST_S
from streamsvm.decide.changes import Spread
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.values import seconds_of
from streamsvm.locks import LearnerLock, locked
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.row_methods import Encoded, Late, RowMethods
from streamsvm.refit.schedule import Refits


class RefitRows(RowMethods):
    """Predicts and learns rows with a learner and the vote of refitted models.

    Methods about features, classes and state are those of the learner.
    """

    _model: OnlineClassifier
    _refits: Refits

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"model"}

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def _lock(self) -> LearnerLock:
        return self._model.lock

    @property
    def model(self) -> OnlineClassifier:
        """The running learner."""
        return self._model

    @property
    def classes_(self) -> list[Any]:
        """Learned labels, in order of first arrival."""
        return self._model.classes_

    @property
    def n_events_learned(self) -> int:
        """Number of learned events."""
        return self._model.n_events_learned

    @property
    def n_features_in_(self) -> int | None:
        """Number of columns of learned arrays, or None.

        Arrays with another number of columns are refused. It is None if no arrays were learned.
        """
        return self._model.n_features_in_

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._model.n_features_in_ = width

    @property
    def columns(self) -> list[Any]:
        """The learner's features by column, see `EventLearner.columns`."""
        return self._model.columns

    @property
    def memory_size(self) -> int:
        """Number of integers stored per event at prediction to learn its label late."""
        return self._model.memory_size

    @property
    def relevance(self) -> dict[Any, float]:
        """Relevance of the features; empty if the learner has none."""
        found: dict[Any, float] = getattr(self._model, "relevance", {})
        return found

    def check_names(self, X: Any) -> None:
        """Compare the features of the first rows of a stream with those learned.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            If no feature is known.
        """
        self._model.check_names(X)

    @locked
    def keep_categories(self, names: Sequence[Any]) -> None:
        """Treat strings of these features as categories from now on.

        Parameters
        ----------
        names
            Names of features.
        """
        self._model.keep_categories(names)

    def autocorrelation_effect(self) -> dict[str, float] | None:
        """Return the effect of label autocorrelation; None if the learner has none."""
        effect = getattr(self._model, "autocorrelation_effect", None)
        return None if effect is None else effect()

    @locked
    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Return the learner's support vectors most similar to an event.

        Parameters
        ----------
        x
            Features by name.
        n
            Maximum number of support vectors.

        Returns
        -------
        list of dict
            See `StreamSVMClassifier.nearest`; empty if the learner has no support vectors.
        """
        found = getattr(self._model, "nearest", None)
        return [] if found is None else found(x, n)

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """Return statistics of the values of columns.

        Parameters
        ----------
        names
            The columns; None for all.
        most
            Greatest number of columns, in order of arrival; None for all.
        """
        return self._model.spreads(names, most)

    @property
    def n_classes(self) -> int:
        return self._model.n_classes

    def encode(self, X: Any) -> Encoded:
        return self._model.encode(X)

    def encode_labelled(self, X: Any, y: Any, w: Any = None, times: Any = None, **options: bool) -> Encoded:
        """Encode labelled events with their times.

        Parameters
        ----------
        X, y, w, times
            Features, labels, weights and event times.
        options
            Options of the learner's `encode_labelled`.
        """
        moments = event_times(times, y)
        rows, codes, weights, _ = self._model.encode_labelled(X, y, w, **options)
        return Encoded(rows, codes, weights, moments)

    def decode(self, codes: Ints) -> NDArray[Any]:
        return self._model.decode(codes)

    def run_rows(
        self, events: Encoded, *, predict: bool = True, score: bool = False, n_proba: int = 0, late: Late | None = None
    ) -> tuple[Ints, Floats, Floats]:
        if events.codes is None:
            return self._run_part(events, predict, n_proba)[:3]
        self._refits.take_singles()
        n, codes = len(events.rows), events.learned
        moments = np.full(n, math.nan) if events.times is None else events.times
        weights = np.ones(n) if events.weights is None else events.weights
        found, scores, proba = np.full(n, -1), np.full(n, math.nan), np.zeros((n, n_proba))
        learned, at, n_done = np.flatnonzero(codes >= 0), 0, 0
        while at < n:
            last = n_done + self._refits.n_next
            end = n if last > len(learned) else int(learned[last - 1]) + 1
            part, own = slice(at, end), events.rows.part(at, end)
            own_late = None if late is None else (late[0], late[1][part])
            found[part], scores[part], proba[part], errors = self._run_part(
                Encoded(own, codes[part], weights[part]), predict, n_proba, own_late
            )
            n_done += self._refits.add_events(own, codes[part], weights[part], moments[part], errors)
            at = end
        return found, scores, proba

    def _run_part(
        self, events: Encoded, predict: bool, n_proba: int, late: Late | None = None
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """Predict and learn rows; return classes, scores, probabilities and errors.

        Scores are the probabilities of the predicted classes.
        """
        vote, labels = self._refits.vote, events.learned
        n_classes = n_proba if vote.is_empty else max(len(self.classes_), n_proba)
        found, scores, proba = self._model.run_rows(events, predict=predict, score=True, n_proba=n_classes, late=late)
        if vote.is_empty:
            return found, scores, proba, (found != labels).astype(float)
        found, scores, proba, errors = vote.vote(events.rows, labels, proba)
        return found, scores, proba[:, :n_proba], errors


def event_times(times: Any, labels: Any) -> Floats | None:
    """Return event times in seconds, NaN if missing, or None without times."""
    if times is None:
        return None
    if isinstance(times, np.ndarray) and times.dtype == np.float64 and not (np.abs(times) >= LATEST_S).any():
        found = times
    else:
        found = np.array([seconds_or_nan(time) for time in times], float)
    if len(found) != len(labels):
        raise ValueError(f"{len(labels)} rows need {len(labels)} event times, got {len(found)}")
    return found


def seconds_or_nan(time: Any) -> float:
    """Return event time in seconds, NaN if missing."""
    return math.nan if time is None else seconds_of(time)
