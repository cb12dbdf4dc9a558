"""Parameter checks with uniform messages: name, given value and accepted values."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


class ParameterError(ValueError):
    """Raised if the value of a parameter is wrong.

    Attributes
    ----------
    parameter
        Name of the parameter. The message starts with it.
    """

    def __init__(self, parameter: str, text: str) -> None:
        super().__init__(parameter, text)
        self.parameter = parameter

    def __str__(self) -> str:
        return "`{}` {}".format(*self.args)


class ParameterTypeError(ParameterError, TypeError):
    """Raised if a parameter has a wrong type; a ValueError for scikit-learn."""


def check_number(name: str, value: Any, low: float, high: float = math.inf, *, whole: bool = False) -> None:
    """Raise an error unless a parameter is a number within its range.

    Raises
    ------
    ParameterError
        The message contains the name, the value and the range.
    """
    kind = "an integer" if whole else "a number"
    upto = f" and at most {high:g}" if high < math.inf else ""
    expected = f"must be {kind} of at least {low:g}{upto}, got {value!r}"
    _check_type(name, value, Integral if whole else Real, expected)
    try:
        is_within = low <= value <= min(high, sys.float_info.max)
    except TypeError:  # a duration of numpy counts as an integer
        raise ParameterTypeError(name, expected) from None
    if not is_within:
        raise ParameterError(name, expected)


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Raise an error unless a parameter lies strictly between two numbers."""
    expected = f"must be a number above {low:g} and below {high:g}, got {value!r}"
    _check_type(name, value, Real, expected)
    if not low < value < high:
        raise ParameterError(name, expected)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise an error unless a parameter is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ParameterError(name, f"must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_class_weight(value: Any, largest: float) -> None:
    """Raise an error unless `class_weight` is a dict of weights, "balanced" or None.

    Weights must be at most `largest`.
    """
    if isinstance(value, dict):
        for label, weight in value.items():
            check_number(f"class_weight[{label!r}]", weight, 0.0, largest)
    elif value is not None and not (isinstance(value, str) and value == "balanced"):
        raise ParameterError("class_weight", f"must be a dict of weights, 'balanced' or None, got {value!r}")


def _check_type(name: str, value: Any, kind: type, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ParameterTypeError(name, expected)
