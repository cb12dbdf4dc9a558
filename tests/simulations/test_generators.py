"""Generated streams: reproducible, with the given length and drift."""

from __future__ import annotations

import numpy as np
import pytest

from simulations import generators
from simulations.generators import LENGTH

# Thresholds of the concepts in the papers of the generators.
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)


@pytest.mark.parametrize("name", ["RBF incremental", "Agrawal gradual", "mixed gradual"])
def test_a_seed_names_a_stream(name):
    table, labels = generators.load(name, 1, 300)
    again, same = generators.load(name, 1, 300)
    other, _ = generators.load(name, 2, 300)
    assert labels == same
    assert all(np.array_equal(table[key], again[key]) for key in table)
    assert any(not np.array_equal(table[key], other[key]) for key in table)
    assert {len(column) for column in table.values()} == {len(labels)} == {300}


def test_a_sudden_drift_is_where_the_concept_ends():
    table, labels = generators.load("SEA sudden")
    total, right = table["0"] + table["1"], np.empty(LENGTH)
    for k, threshold in enumerate(SEA_THRESHOLDS):
        stretch = slice(k * LENGTH // 4, (k + 1) * LENGTH // 4)
        right[stretch] = (total[stretch] > threshold) == np.array(labels[stretch])
        # One label in ten is noise; another threshold has more errors.
        assert 0.88 < right[stretch].mean() < 0.92
    assert right[LENGTH // 4 - 500 : LENGTH // 4].mean() > 0.86
    assert right[LENGTH // 4 : LENGTH // 4 + 500].mean() > 0.86
