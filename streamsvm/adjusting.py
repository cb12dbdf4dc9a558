"""River's `clone` and `mutate`, for models that hold more than their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Self


class Adjustable:
    """Has copies made by `clone(include_attributes=True)`, and changes by `mutate` what can change while it runs."""

    @property
    def _mutable_attributes(self) -> set[str]:
        """The parameters that can change while the model runs."""
        kinds = type(self).__mro__
        return {name for kind in kinds for name, held in vars(kind).items() if isinstance(held, Setting)}

    def clone(self, new_params: dict[str, Any] | None = None, include_attributes: bool = False) -> Self:
        """Make another model with the same parameters.

        Parameters
        ----------
        new_params
            Parameters that differ, by name. With `include_attributes` those that `mutate` takes.
        include_attributes
            Whether the other model knows what this one has learned; otherwise it starts with nothing learned.

        Raises
        ------
        ValueError
            For a parameter that cannot change once the model has learned.
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
            New values by name; for a classifier inside another a dict of its own parameters.

        Raises
        ------
        TypeError, ValueError
            For a parameter that cannot change while the model runs, and a value that the parameter does not take.
        """
        for name, value in new_attrs.items():
            check_mutable(self, name)
            if hasattr(getattr(self, name), "mutate") and not isinstance(value, Mapping):
                raise ValueError(f"{name!r} cannot be replaced while it runs: give a dict of the parameters to change")
        for name, value in new_attrs.items():
            held = getattr(self, name)
            if hasattr(held, "mutate"):
                held.mutate(value)
            else:
                setattr(self, name, value)


class Setting:
    """A parameter that can change while the model runs: setting the attribute changes the running model."""

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
    """Refuse to change a parameter that is fixed once a model runs.

    Raises
    ------
    ValueError
        For such a parameter, and for what is no parameter.
    """
    changing: set[str] = model._mutable_attributes
    if name not in changing:
        kind = type(model).__name__
        raise ValueError(
            f"{name!r} of a {kind} cannot change while it runs ({', '.join(sorted(changing)) or 'nothing'} can): "
            "make a new model by `clone` with the other value"
        )
