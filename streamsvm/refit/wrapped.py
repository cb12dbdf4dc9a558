"""Public methods that a wrapper delegates to its learner."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from streamsvm.decide.changes import Spread
from streamsvm.locks import LearnerLock, locked
from streamsvm.online.base import OnlineClassifier


class LearnerWrapper:
    """Delegates methods about features, classes and state to a learner."""

    _model: OnlineClassifier

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
        """Number of columns of the learned arrays, None without arrays; arrays of other widths are refused."""
        return self._model.n_features_in_

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._model.n_features_in_ = width

    @property
    def memory_size(self) -> int:
        """Number of values that the learner stores with a prediction, to learn its label late."""
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
        """Return the support vectors of the learner nearest to an event; empty if it has none.

        Parameters
        ----------
        x
            Features by name.
        n
            Greatest number of support vectors.
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
