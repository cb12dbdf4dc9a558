"""What learners have in common that are asked for sets of labels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any

from streamsvm.decide.arrays import Floats, Members
from streamsvm.decide.conformal import AllSets, ConformalSets, Key, labels_in
from streamsvm.features.frames import frame_like
from streamsvm.locks import locked


class PredictsSets:
    """A classifier whose probabilities become sets of labels.

    Sets follow the labels that are learned after they were first asked for; until then nothing is done for them.
    """

    _sets: AllSets
    _lock: Any  # a Lock

    @property
    @abstractmethod
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""

    @abstractmethod
    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each label."""

    @locked
    def label_sets(self, coverage: float = 0.9, by_class: bool = False) -> ConformalSets:
        """The sets of a coverage, for those who run a learner by `run_batch`, which leaves them alone.

        Parameters
        ----------
        coverage
            The share of labels that are to be in their sets.
        by_class
            Whether it is to hold for each class by itself.
        """
        found = self._sets.get(coverage, by_class)
        if found is None:
            found = self._sets.of(coverage, by_class, self.classes_)
            self._sets_began()
        return found

    def _sets_asked(self, coverage: float | None, by_class: bool) -> Key | None:
        """Which sets are meant, which begin unless they have; None for none."""
        return None if coverage is None else self.label_sets(coverage, by_class).key

    def _sets_began(self) -> None:
        """Be ready for sets."""

    @locked
    def predict_set_one(
        self, x: dict[Hashable, Any], coverage: float = 0.9, by_class: bool = False, **kwargs: Any
    ) -> set[Any]:
        """Labels of which the true one is one, in a wanted share of events.

        Parameters
        ----------
        x
            Features by name.
        coverage
            That share, between 0 and 1. It follows the labels that are learned from the first call on; see
            `streamsvm.decide.conformal.ConformalSets` for how close to it the sets come, whatever the stream does.
        by_class
            Whether it is to hold for the events of each class by themselves.
        kwargs
            Passed on to `predict_proba_one`.

        Returns
        -------
        set
            The most probable label, and all that are probable enough; empty as long as nothing has been learned.
        """
        sets = self._sets.get(coverage, by_class) or self.label_sets(coverage, by_class)
        proba = self.predict_proba_one(x, **kwargs)
        return set(labels_in(sets.run_one([*proba.values()]), proba)) if proba else set()


class PredictsManySets(PredictsSets):
    """One that takes rows, too."""

    @abstractmethod
    def proba_array(self, X: Any) -> Floats:
        """The probabilities of rows over `classes_`, as an array."""

    @locked
    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities of rows: a frame of X's kind with a column for each label, or an array.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        frame or ndarray of float64, shape (n, n_classes)
            Its columns are `classes_`. There are none as long as nothing has been learned.

        Raises
        ------
        BadRows
            Where rows cannot be used.
        """
        proba = self.proba_array(X)
        return frame_like(X, proba, self.classes_[: proba.shape[1]])

    @locked
    def predict_set_many(self, X: Any, coverage: float = 0.9, by_class: bool = False) -> Any:
        """The sets `predict_set_one` gives, as a table of which labels are in them.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        coverage
            The share of labels that are to be in their sets, between 0 and 1, as for `predict_set_one`.
        by_class
            Whether it is to hold for the events of each class by themselves.

        Returns
        -------
        array of bool or frame
            Of shape (n, n_classes), over `classes_`; a frame of X's kind with a column for each label.

        Raises
        ------
        BadRows
            Where rows cannot be used.
        """
        sets = self.label_sets(coverage, by_class)
        proba = self.proba_array(X)
        return frame_like(X, sets.of(proba), self.classes_[: proba.shape[1]])


def answers(predicted: Any, proba: Floats | None, members: Members | None) -> Any:
    """What was asked for: predictions alone, or with what else there is."""
    more = [found for found in (proba, members) if found is not None]
    return (predicted, *more) if more else predicted
