"""Conformal prediction sets for any River classifier."""

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
    """Wrapper that adds conformal prediction sets to any classifier with probabilities.

    The learners of this package have a faster `predict_set_one` of their own. For delayed labels, `DelayedClassifier`
    adds it to any classifier.

    `learn_one` reuses the probabilities of the last prediction if it gets the same dict object, and predicts other
    events again. If you refill one dict for every event, predict it before you learn it. The wrapper can be saved if
    the classifier is from this package.

    Thread-safe if the classifier is from this package: any number of threads may predict with one model while others
    learn.

    Parameters
    ----------
    model
        The classifier to wrap.

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
        """Predict the label of an event with the wrapped classifier.

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
        """Predict the probabilities of an event with the wrapped classifier.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Passed on to the classifier.

        Raises
        ------
        NotImplementedError
            If the classifier does not predict probabilities.
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
        """Predict a set of labels that contains the true one in a given share of events.

        See `ConformalSets` for the guarantee.

        Parameters
        ----------
        x
            Features by name.
        coverage
            This share, between 0 and 1. It is controlled by the labels learned after the first call.
        by_class
            Whether the share holds for the events of each class separately.
        kwargs
            Passed on to the classifier.

        Returns
        -------
        set
            The most probable label, and all other labels above the threshold; empty while nothing has been learned.

        Raises
        ------
        NotImplementedError
            If the classifier does not predict probabilities.
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
