"""A NaN for absent names, which differs from missing values in its bits."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

_BITS = 0x7FF80000_0AB5E47A

ABSENT: float = struct.unpack("d", struct.pack("q", _BITS))[0]
"""Value of a table of numbers in a row that lacks the name of the column.

Copies of arrays keep its bits. Calculations do not, so it is only stored.
"""


def are_absent(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which elements of a contiguous float64 array are `ABSENT`.

    Examples
    --------
    >>> are_absent(np.array([1.0, np.nan, ABSENT])).tolist()
    [False, False, True]
    """
    found: NDArray[np.bool_] = values.view(np.int64) == _BITS
    return found


def is_absent(value: Any) -> bool:
    """Return whether a value is `ABSENT`.

    Examples
    --------
    >>> is_absent(ABSENT), is_absent(float("nan")), is_absent(None), is_absent("a")
    (True, False, False, False)
    """
    return value is ABSENT or (type(value) is float and value != value and struct.pack("d", value) == _BYTES)


_BYTES = struct.pack("d", ABSENT)
