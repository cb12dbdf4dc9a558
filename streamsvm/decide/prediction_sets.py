"""Base of classifiers that predict sets of labels."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from streamsvm.decide.conformal import AllSets, ConformalSets, Key, Members, labels_in
from streamsvm.features.rows import Floats
from streamsvm.locks import locked


class PredictsSets:
    """Base of classifiers that predict sets of labels from their probabilities.

    Sets of a coverage are computed from their first call on, and learn from later labels.
    """

    _sets: AllSets
    _lock: Any  # a Lock

    @property
    @abstractmethod
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""

    @abstractmethod
    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each label."""

    @locked
    def label_sets(self, coverage: float = 0.9, by_class: bool = False) -> ConformalSets:
        """Return the sets of a coverage, which callers of `run_batch` must update.

        Parameters
        ----------
        coverage, by_class
            As for `predict_set_one`.

        Returns
        -------
        ConformalSets
            The sets, which are shared by all calls with this coverage.
        """
        found = self._sets.get((coverage, by_class))
        if found is None:
            found = self._sets.of(coverage, by_class, self.classes_)
            self._on_new_sets()
        return found

    def _key_of_sets(self, coverage: float | None, by_class: bool) -> Key | None:
        """Return the key of the sets of a coverage; None without a coverage."""
        return None if coverage is None else self.label_sets(coverage, by_class).key

    def _on_new_sets(self) -> None:
        """Handle the first use of a coverage."""

    def predict_set_one(
        self, x: dict[Any, Any], coverage: float = 0.9, by_class: bool = False, **kwargs: Any
    ) -> set[Any]:
        """Predict a set of labels that contains the true one in a given share of events.

        Parameters
        ----------
        x
            Features by name.
        coverage
            This share, between 0 and 1. Labels learned after the first call control it; see `ConformalSets` for the
            guarantee.
        by_class
            Whether the share applies to the events of each class separately.
        kwargs
            Passed on to `predict_proba_one`.

        Returns
        -------
        set
            The most probable label, and all other labels above the threshold; empty while nothing has been learned.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None, and for an invalid coverage.
        NotImplementedError
            If the classifier does not predict probabilities.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> model = CPMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, "odd" if i % 2 else "even")
        >>> model.predict_set_one({"a": 1.0}, coverage=0.9)
        {'odd'}
        """
        with self._lock:
            sets = self._sets.get((coverage, by_class)) or self.label_sets(coverage, by_class)
            return self._predict_set(sets, x, kwargs)

    def _predict_set(self, sets: ConformalSets, x: dict[Any, Any], kwargs: dict[str, Any]) -> set[Any]:
        """Predict the set of one event."""
        proba = self.predict_proba_one(x, **kwargs)
        return set(labels_in(sets.run_one([*proba.values()]), proba)) if proba else set()


def with_results(predicted: Any, proba: Floats | None, members: Members | None) -> Any:
    """Return the predictions alone, or with the results that are not None."""
    more = [found for found in (proba, members) if found is not None]
    return (predicted, *more) if more else predicted
