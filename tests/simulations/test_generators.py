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


def test_values_are_as_river_gives_them():
    assert [c.dtype.kind for c in generators.load("mixed gradual", 0, 50)[0].values()] == ["b", "b", "f", "f"]
    assert {c.dtype.kind for c in generators.load("STAGGER recurring", 0, 50)[0].values()} == {"i"}
    assert {c.dtype.kind for c in generators.load("Agrawal sudden", 0, 50)[0].values()} == {"i", "f"}


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


def test_a_concept_recurs():
    table, labels = generators.load("sine recurring")
    below = np.array(labels) == (table["0"] >= np.sin(table["1"]))
    quarters = below.reshape(4, -1).mean(axis=1)
    assert np.all((quarters < 0.01) | (quarters > 0.99))
    assert quarters[0] == quarters[2] != quarters[1] == quarters[3]


def test_an_incremental_drift_never_stands_still():
    """A linear rule fitted to the first part of a hyperplane fits that part better than the last."""
    n = LENGTH * 7 // 10
    table, labels = generators.load("hyperplane incremental", 0, n)
    X = np.column_stack([*table.values(), np.ones(n)])
    y = np.where(np.array(labels) == 1, 1.0, -1.0)
    weights = np.linalg.lstsq(X[:2_000], y[:2_000], rcond=None)[0]
    right = np.sign(X @ weights) == y
    assert right[:2_000].mean() > right[-2_000:].mean() + 0.1
