"""Outliers of a window."""

from __future__ import annotations

import math

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.jit import FLAG, INTEGERS, NUMBERS, StateType, kernel
from streamsvm.features.scaler import FAR, LEAST_UNTIED, SCALER
from streamsvm.features.statistics import observe_rows


@kernel
def count_outliers(statistics, values, columns, indptr, shared):
    """Add all rows to the statistics, and count the values that are outliers.

    In columns with many equal values, the distance of the others is reduced, as for scaled values.
    """
    observe_rows(statistics, values, columns, indptr, shared)
    n = 0
    for i in range(indptr.size - 1):
        skip = indptr[i] if shared else 0
        for k in range(indptr[i], indptr[i + 1]):
            j = columns[k - skip]
            z = (values[k] - statistics.shift[j]) * statistics.scale[j]
            n += abs(z) * math.sqrt(max(1.0 - statistics.ties[j], LEAST_UNTIED)) > FAR
    return n


ENTRY_POINTS = {
    "count_outliers": EntryPoint(
        count_outliers,
        (StateType(SCALER.name), NUMBERS, INTEGERS, INTEGERS, FLAG),
    ),
}
