"""River's `clone` and `mutate`, for models with more state than their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Self

from river import base

from streamsvm.parameters import ParameterError

# River's methods, by scikit-learn's names.
_INSTEAD = {
    "fit": ("learn_many", "learn_one"),
    "partial_fit": ("learn_many", "learn_one"),
    "predict": ("predict_many", "predict_one"),
    "predict_proba": ("predict_proba_many", "predict_proba_one"),
    "score": ("test_then_train", "predict_one"),
}


class Mutable:
    """Mixin for `clone(include_attributes=True)`, and `mutate` of running models."""

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an unknown attribute, with the remedy for `fit` etc."""
            kind, text = type(self), f"{type(self).__name__!r} object has no attribute {name!r}"
            if other := next((other for other in _INSTEAD.get(name, ()) if hasattr(kind, other)), ""):
                text += f": use `{other}`, or streamsvm.sklearn.StreamClassifier for methods of scikit-learn"
            raise AttributeError(text, name=name, obj=self)

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
    """Descriptor of a parameter whose assignment changes the running model."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, model: Any, owner: type[Any] | None = None) -> Any:
        return self if model is None else model.__dict__[self._name]

    def __set__(self, model: Any, value: Any) -> None:
        if "_lock" in model.__dict__:
            model.change_setting(self._name, value)
        else:
            model.__dict__[self._name] = value


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
            f"of a {kind} cannot change after it has learned ({', '.join(sorted(changing)) or 'nothing'} can): "
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
