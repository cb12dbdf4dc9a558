"""Public methods of a learner that a classifier around it passes on."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any

from streamsvm.decide.changes import Spread
from streamsvm.locks import LearnerLock, locked
from streamsvm.online.base import OnlineClassifier


class LearnerWrapper:
    """Passes on what a learner knows about features, classes and itself."""

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
        """The learner that runs."""
        return self._model

    @property
    def classes_(self) -> list[Any]:
        """Labels learned, in order of first arrival."""
        return self._model.classes_

    @property
    def n_events_learned(self) -> int:
        """Number of events learned."""
        return self._model.n_events_learned

    @property
    def n_features_in_(self) -> int | None:
        """Number of columns of the arrays learned, None if none were; arrays of other widths are refused."""
        return self._model.n_features_in_

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._model.n_features_in_ = width

    @property
    def memory_size(self) -> int:
        """Numbers that the learner stores of a prediction to learn its label late."""
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
            If none is known.
        """
        self._model.check_names(X)

    @locked
    def keep_categories(self, names: Sequence[Any]) -> None:
        """Treat the strings under these names as categories from now on.

        Parameters
        ----------
        names
            Names of features.
        """
        self._model.keep_categories(names)

    def autocorrelation_effect(self) -> dict[str, float] | None:
        """Effect of label autocorrelation; None if the learner has none."""
        effect = getattr(self._model, "autocorrelation_effect", None)
        return None if effect is None else effect()

    @locked
    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Support vectors of the learner nearest to an event; empty if it has none.

        Parameters
        ----------
        x
            Features by name.
        n
            The most support vectors.
        """
        found = getattr(self._model, "nearest", None)
        return [] if found is None else found(x, n)

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """Statistics of the values of columns.

        Parameters
        ----------
        names
            The columns; None for all.
        most
            The most columns, in order of arrival; None for all.
        """
        return self._model.spreads(names, most)
