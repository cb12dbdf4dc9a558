"""What those around a classifier have in common: how they take its probabilities, and how they keep it.

Its header is in theirs, its arrays are under names that begin with `model.`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.arrays import Floats
from streamsvm.models.saved import LOADABLE, LOADABLE_LATER, public

_UNDER = "model."


def check_model(model: Any) -> None:
    """See that it is a classifier that knows probabilities, before any event comes.

    Raises
    ------
    TypeError
        Where it is not.
    """
    is_one = all(callable(getattr(model, name, None)) for name in ("predict_proba_one", "learn_one"))
    if isinstance(model, type) or not is_one:
        raise TypeError(f"`model` must be a classifier with `predict_proba_one` and `learn_one`, got {model!r}")


class Shares:
    """The probabilities of known labels, out of the dicts of a classifier.

    Parameters
    ----------
    labels
        Which.

    Attributes
    ----------
    proba : array, shape (1, n_labels)
        Those put there last.

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
        """Take those of an event, 0 for labels it says nothing about; whether it has these labels, and no other."""
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
    """The header of a classifier, and its arrays by their names in the archive of what is around it.

    Raises
    ------
    TypeError
        Where it does not give its state: nothing is pickled here.
    """
    if not hasattr(model, "state"):
        raise TypeError(
            f"a {type(model).__name__} cannot be saved, as it does not give its state as arrays: only classifiers of "
            "this package do"
        )
    header, arrays = model.state()
    return header, {f"{_UNDER}{name}": array for name, array in arrays.items()}


def model_from(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The classifier whose state stands among these arrays."""
    name = header["class"]
    kind = public(name) if name in LOADABLE_LATER else LOADABLE[name]
    own = {key.removeprefix(_UNDER): array for key, array in arrays.items() if key.startswith(_UNDER)}
    return kind.from_state(header, own)
