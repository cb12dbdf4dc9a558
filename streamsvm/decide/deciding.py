"""Wrapper for cost-sensitive decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from streamsvm.decide.costs import ABSTAINS, Costs, without_frame
from streamsvm.decide.prediction_sets import with_results
from streamsvm.features.tables import series_like
from streamsvm.frames import refuse_other_order
from streamsvm.labels import as_label, check_label, coded_labels, is_nan, labels_of, unhashable
from streamsvm.locks import Lock, locked
from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_label, encode_label
from streamsvm.models.codec import nested, part_of
from streamsvm.models.saved import LOADABLE, Archived, from_state, state_of
from streamsvm.mutation import MutableWrapper
from streamsvm.parameters import ParameterTypeError


class DecidingClassifier(MutableWrapper, Archived, base.Classifier):
    """Wrapper that predicts the label of minimum expected cost.

    The wrapped classifier must predict probabilities.

    Costs affect neither learning nor probabilities. `StreamSVMClassifier(cost=...)` creates this wrapper. Use its
    `model` for prediction sets, explanations and other methods of the classifier.

    Thread-safe if the classifier is from this package: any number of threads may predict with one model while others
    learn.

    Parameters
    ----------
    model
        The classifier to wrap.
    cost, class_weight, abstain
        Costs of the decisions, see `Costs`.

    Examples
    --------
    >>> from streamsvm import DecidingClassifier, StreamSVMClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4_000, 3))
    >>> y = np.where(X[:, 0] + rng.normal(size=len(X)) > 2.0, "fraud", "fine")
    >>> model = DecidingClassifier(StreamSVMClassifier(effort="low"), cost={"fraud": {"fine": 10.0}})
    >>> decided = model.test_then_train(X, y)
    >>> bool((decided[y == "fraud"] == "fraud").mean() > 0.5)
    True
    """

    def __init__(
        self,
        model: base.Classifier,
        cost: Any = None,
        class_weight: dict[Any, float] | str | None = None,
        abstain: float | None = None,
    ) -> None:
        check_model(model)
        self.model, self._lock = model, Lock()
        self._codes: dict[Hashable, int] = {}
        self.cost, self.class_weight, self.abstain = cost, class_weight, abstain
        self.costs = Costs(cost, class_weight, abstain)
        self._labels: list[Any] = []  # with known costs

    @property
    def classes_(self) -> list[Any]:
        """The known labels, in order of first arrival."""
        return list(self._codes)

    @property
    def notices(self) -> list[str]:
        """The warnings of the classifier."""
        return list(getattr(self.model, "notices", []))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, naive_bayes

        yield {"model": linear_model.LogisticRegression(), "class_weight": "balanced"}
        yield {"model": naive_bayes.GaussianNB(), "cost": [[0, 1], [5, 0]]}  # type: ignore[no-untyped-call]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
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
        return self.model.predict_proba_one(x, **kwargs)

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Predict the label of minimum expected cost.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Passed on to the classifier.

        Returns
        -------
        object or None
            The label; None if abstaining costs less, or if nothing has been learned.

        Raises
        ------
        NotImplementedError
            If the classifier does not predict probabilities.
        """
        with self._lock:
            decision = self._decide_one(x, **kwargs)
            return None if decision == ABSTAINS else self._labels[decision]

    def _decide_one(self, x: dict[Any, Any], **kwargs: Any) -> int:
        """Return the number of the label of minimum expected cost, or ABSTAINS."""
        if not self._codes and not len(getattr(self.model, "classes_", "unknown")):
            self.model.predict_one(x, **kwargs)  # label autocorrelation counts predictions before the first label
            return ABSTAINS
        shares = self.model.predict_proba_one(x, **kwargs)
        if not shares.keys() <= self._codes.keys():
            self.add_labels(shares)
        if len(self._labels) < len(self._codes):
            self._labels = self.classes_
            self.costs.matrix(self._labels)
        return self.costs.decide_one([shares.get(label, 0.0) for label in self._labels])

    @locked
    def learn_one(self, x: dict[Any, Any], y: Any, **kwargs: Any) -> None:
        """Learn one event.

        Parameters
        ----------
        x
            Features by name.
        y
            The label.
        kwargs
            Passed on to the classifier.

        Raises
        ------
        ValueError
            For a label that is None or NaN.
        """
        try:
            code = self._codes.get(y)
        except TypeError:
            raise unhashable(y) from None
        y = as_label(y) if code is None else y
        self.model.learn_one(x, y, **kwargs)
        if code is None:
            code = self._codes[y] = len(self._codes)
        self.costs.count_labels(code)

    @locked
    def learn_many(self, X: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        """Learn rows in order.

        The classifier must be from this package or one of River's mini-batch classifiers.

        Parameters
        ----------
        X
            n rows, in a format that the classifier accepts.
        y
            n labels.
        args, kwargs
            Passed on to the classifier's `learn_many`.

        Raises
        ------
        BadRows
            If rows cannot be learned; no row has been learned then.
        """
        model: Any = self.model
        y = labels_of(y) if isinstance(y, Iterator) else y  # such as an Arrow reader
        counts = Counter(coded_labels(y))
        for label in counts:
            check_label(label)
        model.learn_many(X, y, *args, **kwargs)
        self.add_labels(getattr(model, "classes_", ()))
        self.add_labels(counts)  # classifiers ignore the labels of events of weight 0
        for label, n in counts.items():
            self.costs.count_labels(self._codes[label], n)

    def predict_proba_many(self, X: Any, **kwargs: Any) -> Any:
        """Predict the probabilities of rows with the wrapped classifier.

        Parameters
        ----------
        X
            n rows, in a format that the classifier accepts.
        kwargs
            Passed on to the classifier.
        """
        model: Any = self.model
        return model.predict_proba_many(X, **kwargs)

    @locked
    def predict_many(self, X: Any, **kwargs: Any) -> Any:
        """Predict the labels of minimum expected cost of rows.

        The classifier must have `predict_proba_many`.

        Parameters
        ----------
        X
            n rows, in a format that the classifier accepts.
        kwargs
            Passed on to the classifier.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            The labels, as a series of the frame's kind if X is a frame. None if abstaining costs less, or if nothing
            has been learned.

        Raises
        ------
        BadRows
            If rows cannot be used.
        """
        model: Any = self.model
        if hasattr(model, "proba_array"):
            proba = model.proba_array(X, **kwargs)
            proba = self._over_known(proba, model.classes_[: proba.shape[1]])
        else:
            shares = model.predict_proba_many(X, **kwargs)  # a pandas data frame from River's classifiers
            proba = self._over_known(shares.to_numpy(), list(shares.columns))
        decisions, _ = self.costs.run(proba, np.full(len(proba), -1), self.classes_, learn=False)
        return series_like(X, self._answers(decisions))

    @locked
    def test_then_train(
        self, X: Any, y: Any, *, times: Any = None, w: Any = None, proba: bool = False, **kwargs: Any
    ) -> Any:
        """Decide on each row, then learn it, with a classifier of this package.

        The result equals a loop of `predict_one` and `learn_one`.

        Parameters
        ----------
        X
            n rows, in a format that the classifier accepts.
        y
            n labels; a row with None or NaN is only decided on.
        times, w
            Event times and weights, see `test_then_train` of the classifier.
        proba
            Whether to return the probabilities too.
        kwargs
            `coverage` and `by_class`, see `test_then_train` of the classifier.

        Returns
        -------
        ndarray of objects, shape (n,), or a tuple with the further results
            The labels of minimum expected cost; None if abstaining costs less, or if nothing has been learned.

        Raises
        ------
        BadRows
            If rows cannot be used; nothing has been learned then.
        """
        model: Any = self.model
        refuse_other_order(X, y)
        y = labels_of(y)
        self.add_labels(model.classes_)
        _, shares, *members = model.test_then_train(X, y, times=times, w=w, proba=True, **kwargs)
        # Classifiers ignore the labels of events of weight 0, which count nevertheless, as in `learn_one`.
        self.add_labels(label for label in dict.fromkeys(y) if label is not None and not is_nan(label))
        shares = self._over_known(shares, model.classes_)
        codes = self._codes_of(y)
        decided = self._answers(self.costs.decide_rows(shares, codes, self.classes_, codes >= 0)[0])
        return with_results(decided, shares if proba else None, members[0] if members else None)

    def _codes_of(self, labels: Sequence[Any]) -> NDArray[np.int64]:
        """Return the numbers of labels, -1 for unknown ones."""
        return np.fromiter(map(self._codes.get, labels, repeat(-1)), np.int64, len(labels))

    @locked
    def decide_batch(
        self, features: Any, labels: Sequence[Any], learn: bool = True, proba: bool = False, **kwargs: Any
    ) -> Any:
        """Run `run_batch` of the classifier, and return decisions.

        Decisions replace the most probable labels. The classifier must be from this package.

        Parameters
        ----------
        features, labels, learn, proba, kwargs
            See `run_batch` of the classifier.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            The index in `classes_` of the label of minimum expected cost, -1 for none, and its probability.
        """
        model: Any = self.model
        _, _, shares = model.run_batch(features, labels, learn, True, **kwargs)
        shares = self._over_known(shares, model.classes_[: shares.shape[1]])
        codes = self._codes_of(labels) if learn else np.full(len(shares), -1)
        decisions = self.costs.run(shares, codes, self.classes_, learn=learn)[0]
        scores = np.full(len(shares), np.nan)
        found = np.flatnonzero(decisions >= 0)
        scores[found] = shares[found, decisions[found]]
        return (decisions, scores, shares) if proba else (decisions, scores)

    def _over_known(self, proba: NDArray[np.float64], classes: list[Any]) -> NDArray[np.float64]:
        """Convert probabilities over the classifier's labels to this wrapper's labels."""
        self.add_labels(classes)
        if classes == self.classes_:
            return proba
        wide = np.zeros((len(proba), len(self._codes)))
        wide[:, [self._codes[label] for label in classes]] = proba
        return wide

    def _answers(self, decisions: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels of decisions, None for -1."""
        return np.fromiter((*self._codes, None), object, len(self._codes) + 1)[decisions]

    def add_labels(self, labels: Iterable[Any]) -> None:
        """Number new labels.

        Parameters
        ----------
        labels
            The labels, in order of arrival.
        """
        for label in labels:
            if label not in self._codes:
                self._codes[as_label(label)] = len(self._codes)

    # Saving ------------------------------------------------------------------------------------------------------

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the full state as header and arrays, for `from_state`.

        The classifier must be from this package.
        """
        params = {name: _encoded(getattr(self, name)) for name in ("cost", "class_weight", "abstain")}
        own = {"class": type(self).__name__, "classes": list(map(encode_label, self._codes))}
        header, arrays = nested({"model": state_of(self.model)}, own | params)
        return header, arrays | {"counts": self.costs.counts}

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        model = from_state(*part_of((header, arrays), "model"))
        self = cls(model, _decoded(header["cost"]), _decoded(header["class_weight"]), header["abstain"])
        self.add_labels(map(decode_label, header["classes"]))
        counts = arrays["counts"]
        if counts.size > len(self._codes):
            raise ArchiveError("counts of labels that are not known")
        self.costs.counts = counts
        return self


LOADABLE["DecidingClassifier"] = DecidingClassifier


def check_model(model: Any) -> None:
    """Check that a model is a classifier with probabilities.

    Raises
    ------
    TypeError
        If it is not.
    """
    is_one = all(callable(getattr(model, name, None)) for name in ("predict_proba_one", "learn_one"))
    if isinstance(model, type) or not is_one:
        raise ParameterTypeError(
            "model", f"must be a classifier with `predict_proba_one` and `learn_one`, got {model!r}"
        )


def decider_of(model: Any) -> DecidingClassifier | None:
    """Return the cost-sensitive wrapper: the model itself, its `decider`, or None."""
    found = model if isinstance(model, DecidingClassifier) else getattr(model, "decider", None)
    return found if isinstance(found, DecidingClassifier) else None


def _encoded(value: Any) -> Any:
    """Encode tables by label for JSON such that labels keep their types."""
    value = without_frame(value)
    if isinstance(value, Mapping):
        return {"table": [[encode_label(key), _encoded(held)] for key, held in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        return [list(map(float, row)) for row in value]
    return float(value) if isinstance(value, Real) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {decode_label(key): _decoded(held) for key, held in value["table"]}
    return value
