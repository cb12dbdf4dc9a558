"""Checks of parameters, in one dialect: each names the parameter, what it was, and what it may be."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


class ParameterTypeError(TypeError, ValueError):
    """A parameter of the wrong type: a value that cannot be, too, as scikit-learn's protocol has it."""


def check_number(name: str, value: Any, low: float, high: float = math.inf, *, whole: bool = False) -> None:
    """Refuse a parameter out of its range.

    Raises
    ------
    TypeError, ValueError
        Naming the parameter, what it was, and what it may be.
    """
    kind = "an integer" if whole else "a number"
    upto = f" and at most {high:g}" if high < math.inf else ""
    expected = f"`{name}` must be {kind} of at least {low:g}{upto}, got {value!r}"
    _check_type(value, Integral if whole else Real, expected)
    if not low <= value <= min(high, sys.float_info.max):
        raise ValueError(expected)


def check_between(name: str, value: Any, low: float, high: float) -> None:
    """Refuse a parameter that is not inside its range, whose ends it may not be."""
    expected = f"`{name}` must be a number above {low:g} and below {high:g}, got {value!r}"
    _check_type(value, Real, expected)
    if not low < value < high:
        raise ValueError(expected)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a parameter that is none of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


def check_class_weight(value: Any, largest: float) -> None:
    """Refuse a `class_weight` that is neither a dict of weights up to `largest` nor "balanced" nor None."""
    if isinstance(value, dict):
        for label, weight in value.items():
            check_number(f"class_weight[{label!r}]", weight, 0.0, largest)
    elif value not in (None, "balanced"):
        raise ValueError(f"`class_weight` must be a dict of weights, 'balanced' or None, got {value!r}")


def _check_type(value: Any, kind: type, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ParameterTypeError(expected)
