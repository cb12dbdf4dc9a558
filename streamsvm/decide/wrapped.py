"""Checks and state of a wrapped classifier."""

from __future__ import annotations

from typing import Any

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
