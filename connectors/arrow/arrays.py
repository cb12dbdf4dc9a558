"""Arrays of pyarrow as columns, mostly without copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn, StringColumn


def floats_of(array: Any) -> NDArray[np.float64]:
    """Convert a pyarrow array to numpy, with NaN for null.

    pyarrow's own `to_numpy` imports pandas if it is installed.
    """
    validity, data = array.buffers()
    values = np.frombuffer(data, np.float64, len(array), 8 * array.offset)
    if array.null_count:
        there = np.unpackbits(np.frombuffer(validity, np.uint8), count=array.offset + len(array), bitorder="little")
        values = np.where(there[array.offset :], values, np.nan)
    return values


def codes_of(array: Any) -> CategoricalColumn:
    """Convert a dictionary array; only its distinct texts become Python strings."""
    indices = np.frombuffer(array.indices.buffers()[1], np.int32, len(array), 4 * array.offset)
    return CategoricalColumn(indices.astype(np.int64), array.dictionary.to_pylist())


def texts_of(array: Any) -> StringColumn:
    """Convert a string array without creating Python strings."""
    _, bounds, data = array.buffers()
    starts = np.frombuffer(bounds, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return StringColumn(np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8), starts)
