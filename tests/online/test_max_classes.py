"""`max_classes`: the number of classes of a learner, and labels beyond it."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest

from streamsvm import CPMClassifier, DelayedClassifier
from streamsvm.features.rows import BadRows
from streamsvm.parameters import ParameterError
from tests.errors import raises
from tests.learners import MAKERS, knowledge

pytestmark = pytest.mark.usefixtures("lasting_process")

X = np.random.default_rng(0).normal(size=(40, 3))
ROWS = [dict(enumerate(row)) for row in X.tolist()]


@pytest.mark.parametrize("name", MAKERS)
def test_a_class_too_many_is_refused_with_its_label_and_the_option(name):
    model = MAKERS[name](max_classes=3)
    labels = ["a", "b", "c"]
    for x, label in zip(ROWS, labels * 10, strict=False):
        model.learn_one(x, label)
    with raises(ValueError, named="`max_classes` allows 3: 'd'"):
        model.learn_one({9: 1.0} | ROWS[0], "d")
    with pytest.raises(BadRows) as bad:
        model.learn_many(X[:4], ["a", "d", "c", "e"])
    assert sorted(bad.value.rows) == [1, 3]
    assert model.classes_ == labels


@pytest.mark.parametrize("name", ["cpm", "blend"])
def test_refused_labels_change_nothing_and_the_first_classes_remain(name):
    labels = [f"{i % 7}" for i in range(40)]
    single, rows = MAKERS[name](max_classes=5), MAKERS[name](max_classes=5)
    for x, label in zip(ROWS, labels, strict=True):
        if int(label) < 5:
            single.learn_one(x, label)
        else:
            with raises(ParameterError, parameter="max_classes"):
                single.learn_one({"new": 1.0} | x, label)
    with pytest.raises(BadRows) as bad:
        rows.learn_many([{"new": 1.0} | x if int(y) >= 5 else x for x, y in zip(ROWS, labels, strict=True)], labels)
    keep = [i for i in range(40) if i not in bad.value.rows]
    rows.learn_many(X[keep], [labels[i] for i in keep])
    assert rows.classes_ == list("01234")
    assert knowledge(rows) == knowledge(single)


def test_rows_with_bad_features_begin_no_class():
    model = CPMClassifier(max_classes=2)
    rows = [{"a": 1.0}, {"a": [1]}, {"a": 2.0}, {"a": 3.0}]
    with pytest.raises(BadRows) as bad:
        model.learn_many(rows, ["a", "b", "c", "d"])
    assert list(bad.value.rows) == [1]
    with pytest.raises(BadRows) as bad:
        model.learn_many([rows[0], *rows[2:]], ["a", "c", "d"])
    assert list(bad.value.rows) == [2]


def test_the_bound_can_be_raised_and_is_saved(tmp_path):
    model = CPMClassifier(max_classes=2)
    model.learn_many(X[:2], ["a", "b"])
    model.mutate({"max_classes": 3})
    model.learn_one(ROWS[2], "c")
    model.save(tmp_path / "model")
    with raises(ParameterError, parameter="max_classes"):
        CPMClassifier.load(tmp_path / "model").learn_one(ROWS[3], "d")


def test_adopted_models_are_bound_too():
    model = CPMClassifier()
    model.learn_many(X, np.arange(40) % 3)
    with raises(ParameterError, parameter="max_classes"):
        CPMClassifier(max_classes=2).adopt(model.model)


def test_labels_that_come_later(caplog):
    model = DelayedClassifier(CPMClassifier(max_classes=2))
    for key, label in enumerate("abab"):
        model.predict_one(ROWS[key], key=key)
        model.learn_one(key, label)
    model.predict_one(ROWS[5], key=5)
    with raises(ValueError, named="`max_classes` allows 2: 'c'"):
        model.learn_one(5, "c")
    model.learn_one(6, "d")  # before its event
    with caplog.at_level(logging.WARNING):
        assert model.predict_one(ROWS[6], key=6) in ("a", "b")
    assert "'d'" in caplog.text
    model.predict_one(ROWS[7], key=7)
    model.learn_one(7, "a")
    assert model.classes_ == ["a", "b"]
    assert model.model.n_events_learned == 5


@pytest.mark.parametrize("name", ["cpm", "bsgd", "blend"])
def test_a_thousand_classes_need_no_option(name):
    model = MAKERS[name]()
    model.learn_many(np.arange(1_000.0)[:, None], list(range(1_000)))
    with raises(ParameterError, parameter="max_classes"):
        model.learn_one({0: 1.0}, 1_000)
    assert len(json.dumps(model.state()[0])) < 100_000
