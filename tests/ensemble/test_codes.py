"""Columns of few different whole numbers, which the linear member also sees as categories."""

from __future__ import annotations

import numpy as np
import pytest

from streamsvm import StreamSVMClassifier
from streamsvm.ensemble import codes


def linear():
    return StreamSVMClassifier(members=("linear",), label_autocorrelation=False)


def coded(n, n_codes, seed=0):
    """Return codes, and labels that depend on the code but not on its order."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(2, size=n_codes)
    values = rng.integers(n_codes, size=n)
    return values.astype(float), labels[values]


def accuracy(model, columns, y):
    predicted = model.test_then_train(columns, y)
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


def test_single_events_and_rows_learn_codes_alike():
    x, y = coded(3_000, 30)
    rows, single = linear(), linear()
    by_rows = rows.test_then_train({"x": x}, y)
    by_event = []
    for value, label in zip(x.tolist(), y.tolist(), strict=True):
        by_event.append(single.predict_one({"x": value}))
        single.learn_one({"x": value}, label)
    assert by_rows.tolist() == by_event


def test_codes_survive_saving(tmp_path):
    x, y = coded(4_000, 30)
    model = linear()
    model.learn_many({"x": x[:3_000]}, y[:3_000])
    model.save(tmp_path / "model")
    again = StreamSVMClassifier.load(tmp_path / "model")
    for each in (model, again):
        each.learn_many({"x": x[3_000:]}, y[3_000:])
    np.testing.assert_array_equal(model.predict_proba_many({"x": x}), again.predict_proba_many({"x": x}))


def test_many_classes_have_no_weights_code_weights():
    x = np.random.default_rng(0).integers(40, size=4_000)
    model = linear()
    model.learn_many({"x": x.astype(float)}, x % (codes.MOST_CLASSES + 1))
    assert "1.code_weights" not in model.state()[1] or model.state()[1]["1.code_weights"].size == 0
