"""How steps are compiled: as few times as can be, and large parts apart."""

from __future__ import annotations

import numpy as np

from streamsvm.kernels import apart, call, kernel
from streamsvm.kernels.rows import borrow_at


@kernel
def plus(x, i):
    return x + i


@kernel
def plus_constants(x):
    return plus(x, 1) + plus(x, 2)


def fill(address, size, value):
    array = borrow_at(address, size, np.float64)
    for i in range(size):
        array[i] = value


@kernel
def fill_apart(address, array, value):
    call(address, (array.ctypes.data, array.size, value))


def test_a_function_is_compiled_once_whatever_constants_it_is_called_with():
    assert plus_constants(10) == 23
    assert len(plus.signatures) <= 1  # none where the caller's code is on disk


def test_what_is_apart_is_called_by_its_address():
    array = np.zeros(5)
    fill_apart(apart(fill, 3).address, array, 7)
    np.testing.assert_array_equal(array, 7.0)


def test_what_is_apart_is_compiled_once():
    assert apart(fill, 3) is apart(fill, 3)
