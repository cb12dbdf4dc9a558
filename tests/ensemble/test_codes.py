"""Columns of few distinct integers: categories of the linear member, too."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from tests.learners import looped


def linear():
    return StreamSVMClassifier(members=("linear",), label_autocorrelation=False)


def coded(n, n_codes, seed=0):
    """Return codes, and labels that depend on the code but not on its order."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n_codes)
    values = rng.integers(n_codes, size=n)
    return values.astype(float), labels[values]


def accuracy(model, columns, y):
    """Accuracy on rows that differ, so that no row repeats."""
    predicted = model.test_then_train(columns | {"row": np.random.default_rng(1).normal(size=len(y))}, y)
    return np.mean(predicted[2_000:] == y[2_000:])


@pytest.mark.parametrize("n_codes", [5, 40, 300])
def test_a_column_code_weights_is_learned_by_code(n_codes):
    x, y = coded(5_000, n_codes)
    assert accuracy(linear(), {"x": x}, y) > 0.9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: x + 0.5, "fractions"),
        (lambda x: x * 1e10, "large numbers"),
        (lambda x: x + 40 * np.arange(len(x)), "too many different numbers"),
    ],
)
def test_other_columns_are_numbers_only(change, why):
    x, y = coded(5_000, 40)
    assert accuracy(linear(), {"x": change(x)}, y) < 0.8


def test_single_events_and_rows_learn_equal_codes():
    x, y = coded(3_000, 30)
    rows, single = linear(), linear()
    by_rows = rows.test_then_train({"x": x}, y)
    assert by_rows.tolist() == looped(single, [{"x": value} for value in x.tolist()], y)


def test_codes_survive_saving(tmp_path):
    x, y = coded(4_000, 30)
    model = linear()
    model.learn_many({"x": x[:3_000]}, y[:3_000])
    model.save(tmp_path / "model")
    again = StreamSVMClassifier.load(tmp_path / "model")
    for each in (model, again):
        each.learn_many({"x": x[3_000:]}, y[3_000:])
    np.testing.assert_array_equal(model.predict_proba_many({"x": x}), again.predict_proba_many({"x": x}))
