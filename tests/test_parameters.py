"""Checks of parameters: accepted values and error messages."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamsvm.parameters import ParameterError, check_between, check_choice, check_class_weight, check_number
from tests.errors import raises


@pytest.mark.parametrize("value", [1, 10, np.int64(3)])
def test_whole_numbers_of_any_kind_pass(value):
    check_number("n", value, 1, 10, whole=True)


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (11, ValueError), (2.0, TypeError), (True, TypeError), ("3", TypeError)]
)
def test_others_are_refused_by_name_value_and_range(value, error):
    with raises(error, parameter="n"):
        check_number("n", value, 1, 10, whole=True)


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_numbers_are_finite_and_in_range(value):
    check_number("l2", np.float32(0.0), 0.0)
    with raises(ParameterError, parameter="l2"):
        check_number("l2", value, 0.0)


@pytest.mark.parametrize("value", [0.0, 1.0, math.nan, "half", None])
def test_between_leaves_out_the_ends_and_a_wrong_type_is_a_wrong_value_too(value):
    check_between("tol", 0.5, 0.0, 1.0)
    with raises(ParameterError, parameter="tol"):
        check_between("tol", value, 0.0, 1.0)


@pytest.mark.parametrize("value", ["three", None, 1, ["one"]])
def test_a_choice_is_one_of_those_named(value):
    check_choice("kind", "one", ("one", "two"))
    with raises(ParameterError, parameter="kind"):
        check_choice("kind", value, ("one", "two"))


@pytest.mark.parametrize(("value", "parameter"), [("even", "class_weight"), ({"a": -1}, "class_weight['a']")])
def test_class_weights_are_those_of_scikit_learn(value, parameter):
    for good in (None, "balanced", {"a": 2.0}):
        check_class_weight(good, 1e100)
    with raises(ParameterError, parameter=parameter):
        check_class_weight(value, 1e100)
