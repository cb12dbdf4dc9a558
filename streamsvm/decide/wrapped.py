"""Probabilities and state of a wrapped classifier."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from streamsvm.decide.arrays import Floats
from streamsvm.models.codec import State
from streamsvm.parameters import ParameterTypeError


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


def state_of(model: Any) -> State:
    """Return the state of a classifier.

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
    state: State = model.state()
    return state
