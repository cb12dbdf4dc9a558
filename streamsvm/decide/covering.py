"""Sets of labels around any of River's classifiers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Self

from numpy.typing import NDArray
from river import base

from streamsvm.decide.conformal import AllSets, labels_in
from streamsvm.decide.learner import PredictsSets
from streamsvm.decide.wrapped import ProbabilityWrapper, Shares, model_from
from streamsvm.locks import Lock, locked
from streamsvm.models.archive import decode_labels
from streamsvm.models.saved import LOADABLE


class CoveringClassifier(ProbabilityWrapper, PredictsSets):
    """Any classifier that knows probabilities, with sets of labels that cover the true one as often as is wanted.

    The learners of this package have `predict_set_one` themselves, at less cost, and where labels come later
    `DelayedClassifier` has it for any classifier. Of this one the probabilities that an event was predicted with are
    taken where it is learned next, if that is the same dict (filled anew for another event, it has to be predicted
    anew); others are asked for again. It can be saved where the classifier is one of this package.

    Thread-safe around a classifier of this package: any number of threads may predict with one model while others
    learn; each call gives what it would give by itself.

    Parameters
    ----------
    model
        The classifier.

    Examples
    --------
    >>> from river import datasets, linear_model, preprocessing
    >>> from streamsvm import CoveringClassifier
    >>> model = CoveringClassifier(preprocessing.StandardScaler() | linear_model.LogisticRegression())
    >>> hits = 0
    >>> for x, y in datasets.Phishing():
    ...     hits += y in model.predict_set_one(x, coverage=0.95)
    ...     model.learn_one(x, y)
    >>> 0.94 < hits / 1_250 < 0.96
    True
    """

    def __init__(self, model: base.Classifier) -> None:
        super().__init__(model)
        self._sets = AllSets()
        self._asked: Any = None
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, naive_bayes

        yield {"model": linear_model.LogisticRegression()}
        yield {"model": naive_bayes.GaussianNB()}  # type: ignore[no-untyped-call]

    def predict_one(self, x: dict[Hashable, Any], **kwargs: Any) -> Any:
        """As the classifier has it.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Passed on to the classifier.
        """
        return self.model.predict_one(x, **kwargs)

    @locked
    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """As the classifier has it.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Passed on to the classifier.

        Raises
        ------
        NotImplementedError
            Where the classifier knows no probabilities.
        """
        proba = self.model.predict_proba_one(x, **kwargs)
        self._shares.put(proba)
        self._asked = x
        return proba

    def _begin(self) -> None:
        self._asked = None
        self._shares = Shares(self.classes_)

    def _before_learning(self, x: dict[Hashable, Any], code: int | None) -> None:
        if code is not None and self._sets and x is not self._asked:
            self.predict_proba_one(x)
        self._asked = None

    def _take_label(self, code: int) -> None:
        self._sets.learn_one(self._shares.proba[0], code)

    @locked
    def predict_set_one(
        self, x: dict[Hashable, Any], coverage: float = 0.9, by_class: bool = False, **kwargs: Any
    ) -> set[Any]:
        """Labels of which the true one is one, in a wanted share of events; see `ConformalSets`.

        Parameters
        ----------
        x
            Features by name.
        coverage
            That share, between 0 and 1. It follows the labels that are learned from the first call on.
        by_class
            Whether it is to hold for the events of each class by themselves.
        kwargs
            Passed on to the classifier.

        Returns
        -------
        set
            The most probable label, and all that are probable enough; empty as long as nothing has been learned.

        Raises
        ------
        NotImplementedError
            Where the classifier knows no probabilities.
        """
        sets = self.label_sets(coverage, by_class)
        self._shares.put(self.model.predict_proba_one(x, **kwargs))
        self._asked = x
        return set(labels_in(sets.run_one(self._shares.proba[0]), self._codes))

    def __getstate__(self) -> dict[str, Any]:
        return {"model": self.model, "_sets": self._sets, "_codes": self._codes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = Lock()
        self._begin()

    # Saving ------------------------------------------------------------------------------------------------------

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"sets": self._sets.header()}, self._sets.arrays()

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        self = cls(model_from(header["model"], arrays))
        self._sets = AllSets.from_state(header["sets"], arrays)
        self._codes = {label: code for code, label in enumerate(decode_labels(header["classes"]))}
        self._begin()
        return self


LOADABLE["CoveringClassifier"] = CoveringClassifier
