"""Base of the wrappers around any classifier with probabilities.

In an archive, the wrapper's header contains the classifier's header, and the names of its arrays start with `model.`.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import base

from streamsvm.adjusting import Adjustable
from streamsvm.decide.arrays import Floats
from streamsvm.labels import as_label, unhashable
from streamsvm.locks import Lock, locked
from streamsvm.models.archive import encode_label
from streamsvm.models.saved import LOADABLE, LOADABLE_LATER, Archived, public
from streamsvm.parameters import ParameterTypeError

_UNDER = "model."


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


class ProbabilityWrapper(Adjustable, Archived, base.Wrapper, base.Classifier):  # type: ignore[type-arg]
    """Base of the wrappers around a classifier with probabilities: labels, learning and saving."""

    def __init__(self, model: base.Classifier) -> None:
        check_model(model)
        self.model, self._lock = model, Lock()
        self._codes: dict[Hashable, int] = {}

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.model

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"model"}

    @property
    def _multiclass(self) -> bool:
        return bool(self.model._multiclass)

    @property
    def classes_(self) -> list[Any]:
        """The known labels, in order of first arrival."""
        return list(self._codes)

    @property
    def notices(self) -> list[str]:
        """The warnings of the classifier."""
        return list(getattr(self.model, "notices", []))

    @abstractmethod
    def _begin(self) -> None:
        """Update what depends on the known labels, after a new one."""

    @abstractmethod
    def _take_label(self, code: int) -> None:
        """Update with the label of an event, after the classifier has learned it."""

    def _before_learning(self, x: dict[Hashable, Any], code: int | None) -> None:
        """Prepare for learning an event; `code` is the number of its label, None for a new label."""

    @locked
    def learn_one(self, x: dict[Hashable, Any], y: Any, **kwargs: Any) -> None:
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
        self._before_learning(x, code)
        self.model.learn_one(x, y, **kwargs)
        if code is None:
            code = self._codes[y] = len(self._codes)
            self._begin()
        self._take_label(code)

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the full state, if the classifier is from this package; `from_state` restores it bit for bit."""
        header, arrays = state_of(self.model)
        own, more = self._own_state()
        labels = [encode_label(label) for label in self._codes]
        return {"class": type(self).__name__, "model": header, "classes": labels} | own, arrays | more

    @abstractmethod
    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return header and arrays of the wrapper, without those of the classifier and the labels."""


class Shares:
    """Probabilities of known labels as an array, filled from the dicts of a classifier.

    Parameters
    ----------
    labels
        The labels, in the order of the array.

    Attributes
    ----------
    proba : ndarray of float64, shape (1, n_labels)
        The probabilities of the last `put`.

    Examples
    --------
    >>> shares = Shares(["a", "b"])
    >>> shares.put({"b": 0.75, "a": 0.25}), shares.put({"b": 1.0, "c": 0.0}), shares.proba.tolist()
    (True, False, [[0.0, 1.0]])
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        self._labels = labels
        self.proba: Floats = np.zeros((1, len(labels)))
        self._pack, self._row = struct.Struct(f"{len(labels)}d").pack_into, self.proba.data
        self._get = itemgetter(*labels) if len(labels) > 1 else None

    def put(self, shares: Mapping[Any, float]) -> bool:
        """Store the probabilities of an event, 0 for missing labels.

        Returns
        -------
        bool
            Whether the event has exactly these labels; always False for fewer than two labels.
        """
        if self._get is not None:
            try:
                self._pack(self._row, 0, *self._get(shares))
            except KeyError:
                pass
            else:
                return len(shares) == len(self._labels)
        find = shares.get
        self._pack(self._row, 0, *[find(label, 0.0) for label in self._labels])
        return False


def state_of(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header of a classifier, and its arrays by their names in the archive of the wrapper.

    Raises
    ------
    TypeError
        If the classifier has no `state` method. Pickle is not used as a fallback.
    """
    if not hasattr(model, "state"):
        raise TypeError(
            f"a {type(model).__name__} cannot be saved, as it does not give its state as arrays: only classifiers of "
            "this package do"
        )
    header, arrays = model.state()
    return header, {f"{_UNDER}{name}": array for name, array in arrays.items()}


def model_from(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Restore the classifier whose arrays are among these."""
    name = header["class"]
    kind = public(name) if name in LOADABLE_LATER else LOADABLE[name]
    own = {key.removeprefix(_UNDER): array for key, array in arrays.items() if key.startswith(_UNDER)}
    return kind.from_state(header, own)
