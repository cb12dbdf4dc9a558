"""River's `clone` and `mutate`, for models with more state than their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

from river import base

from streamsvm.parameters import ParameterError


class _Missing:
    """Method of scikit-learn that a River model lacks; the error names those to use.

    A `__getattr__` of the class would make CPython read all attributes of single events several times slower.
    """

    def __init__(self, *instead: str) -> None:
        self._instead = instead

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type[Any]) -> Any:
        text = f"{owner.__name__!r} object has no attribute {self._name!r}"
        if other := next((other for other in self._instead if hasattr(owner, other)), ""):
            text += f": use `{other}`, or streamsvm.sklearn.StreamClassifier for methods of scikit-learn"
        raise AttributeError(text, name=self._name, obj=model)


class Mutable:
    """Mixin for `clone(include_attributes=True)`, and `mutate` of running models."""

    if not TYPE_CHECKING:  # type checkers would accept the names
        fit = _Missing("learn_many", "learn_one")
        partial_fit = _Missing("learn_many", "learn_one")
        predict = _Missing("predict_many", "predict_one")
        predict_proba = _Missing("predict_proba_many", "predict_proba_one")
        score = _Missing("test_then_train", "predict_one")

    @property
    def _mutable_attributes(self) -> set[str]:
        """Parameters that can change while the model runs."""
        kinds = type(self).__mro__
        return {name for kind in kinds for name, held in vars(kind).items() if isinstance(held, MutableParameter)}

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """Return a model with the same parameters.

        Parameters
        ----------
        new_params
            Changed parameters by name. With `include_attributes`, only parameters that `mutate` accepts.
        include_attributes
            Whether to copy what the model has learned. By default the clone is untrained.

        Returns
        -------
        Self
            The new model.

        Raises
        ------
        ValueError
            If a parameter cannot change once the model has learned.
        """
        if not include_attributes:
            found: Self = super().clone(new_params)  # type: ignore[misc]
            return found
        twin = deepcopy(self)
        twin.mutate(new_params or {})
        return twin

    def mutate(self, new_attrs: dict[str, Any]) -> None:
        """Change parameters and keep what is learned.

        Parameters
        ----------
        new_attrs
            New values by name; for a nested classifier, a dict of its parameters.

        Raises
        ------
        TypeError, ValueError
            If a parameter cannot change while the model runs, or its value is invalid.
        """
        for name, value in new_attrs.items():
            check_mutable(self, name)
            if hasattr(getattr(self, name), "mutate") and not isinstance(value, Mapping):
                raise ParameterError(name, "cannot be replaced: pass a dict of the parameters to change")
        for name, value in new_attrs.items():
            held = getattr(self, name)
            if hasattr(held, "mutate"):
                held.mutate(value)
            else:
                setattr(self, name, value)


class MutableParameter:
    """Descriptor of a parameter whose assignment changes the running model.

    The value that it has changes nothing, because subclasses assign their parameters after their base class.
    """

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type[Any] | None = None) -> Any:
        return self if model is None else model.__dict__[self._name]

    def __set__(self, model: Any, value: Any) -> None:
        if not is_running(model):
            model.__dict__[self._name] = value
        elif value is not model.__dict__[self._name]:
            model.change_setting(self._name, value)


class FixedParameter:
    """Descriptor of a parameter that refuses other values once the model exists.

    It has no `__get__`, so that reading stays a look-up in the model's `__dict__`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __set__(self, model: Any, value: Any) -> None:
        if is_running(model) and value is not model.__dict__[self._name]:
            check_mutable(model, self._name)
        model.__dict__[self._name] = value


def is_running(model: Any) -> bool:
    """Return whether the model has been created."""
    return "_lock" in model.__dict__


def check_mutable(model: Any, name: str) -> None:
    """Raise an error for a parameter that is fixed once a model runs.

    Raises
    ------
    ParameterError
        If the parameter is fixed, or the name is not a parameter.
    """
    changing: set[str] = model._mutable_attributes
    if name not in changing:
        kind = type(model).__name__
        raise ParameterError(
            name,
            f"of a {kind} cannot change ({', '.join(sorted(changing)) or 'nothing'} can): "
            "use `clone` with the new value for a new model",
        )


class MutableWrapper(Mutable, base.Wrapper):  # type: ignore[type-arg]
    """Mixin for a classifier that wraps another one, its parameter `model`."""

    model: base.Classifier

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.model

    @property
    def _mutable_attributes(self) -> set[str]:
        return {"model"}

    @property
    def _multiclass(self) -> bool:
        return bool(self.model._multiclass)
