"""Checks of parameters: accepted and refused values."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from streamsvm.parameters import ParameterError, check_between, check_choice, check_class_weight, check_number
from tests.errors import raises


@pytest.mark.parametrize(
    ("check", "limits", "good", "bad"),
    [
        (partial(check_number, whole=True), (1, 10), [1, 10, np.int64(3)], [0, 11, 2.0, True, "3"]),
        (check_number, (0.0,), [0, 0.5, np.float32(0.0)], [-0.1, math.nan, math.inf, None]),
        (check_between, (0.0, 1.0), [0.5], [0.0, 1.0, math.nan, "half", None]),
        (check_choice, (("one", "two"),), ["one"], ["three", None, 1, ["one"]]),
    ],
)
def test_a_value_is_accepted_or_refused_by_name(check, limits, good, bad):
    for value in good:
        check("name", value, *limits)
    for value in bad:
        with raises(ParameterError, parameter="name"):
            check("name", value, *limits)


@pytest.mark.parametrize("value", [2.0, True, "3"])
def test_a_whole_number_of_another_type_is_a_type_error(value):
    with raises(TypeError, parameter="n"):
        check_number("n", value, 1, 10, whole=True)


def test_class_weights_are_those_of_scikit_learn():
    for good in (None, "balanced", {"a": 2.0}):
        check_class_weight(good, 1e100)
    for value, parameter in (("even", "class_weight"), ({"a": -1}, "class_weight['a']")):
        with raises(ParameterError, parameter=parameter):
            check_class_weight(value, 1e100)
