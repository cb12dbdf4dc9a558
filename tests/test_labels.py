"""What learners take as labels, and what they refuse or report."""

from __future__ import annotations

import logging
import math
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import naive_bayes

from streamsvm import (
    BSGDClassifier,
    CoveringClassifier,
    CPMClassifier,
    DecidingClassifier,
    DelayedClassifier,
    RefitClassifier,
    StreamSVMClassifier,
)

OWN = [
    CPMClassifier,
    BSGDClassifier,
    partial(StreamSVMClassifier, budget=5),
    lambda: RefitClassifier(CPMClassifier(), "newton"),
    lambda: DecidingClassifier(CPMClassifier(), cost={"a": {"b": 2.0}}),
]
AROUND = [
    lambda: DecidingClassifier(naive_bayes.GaussianNB(), abstain=0.5),
    lambda: CoveringClassifier(naive_bayes.GaussianNB()),
    lambda: DelayedClassifier(CPMClassifier()),
    lambda: DelayedClassifier(naive_bayes.GaussianNB()),
]
X = np.random.default_rng(0).normal(size=(6, 2))
LABELS = ["a", "b"] * 3


@pytest.mark.parametrize("make", OWN + AROUND)
@pytest.mark.parametrize("label", [None, math.nan, pd.NA, pd.NaT], ids=repr)
def test_an_event_without_a_label_is_not_learned(make, label):
    model = make()
    with pytest.raises(ValueError, match="label"):
        model.learn_one({"x": 1.0}, label)
    assert model.classes_ == []


@pytest.mark.parametrize("model", [CPMClassifier(), naive_bayes.GaussianNB()])
def test_an_event_that_waits_is_not_answered_by_no_label(model):
    delayed = DelayedClassifier(model)
    delayed.predict_one({"x": 1.0}, key=1)
    with pytest.raises(ValueError, match="label"):
        delayed.learn_one(1, None)
    assert delayed.n_pending == 1


@pytest.mark.parametrize("make", OWN)
@pytest.mark.parametrize(
    "labels",
    [
        pd.DataFrame({"y": LABELS}),
        pl.DataFrame({"y": LABELS}),
        pa.table({"y": LABELS}),
        np.array(LABELS)[:, None],
        np.array([(label,) for label in LABELS], [("y", "U1")]),
        pd.Series(LABELS, dtype="category"),
        tuple(LABELS),
    ],
    ids=["pandas", "polars", "arrow", "column", "record", "categorical", "tuple"],
)
def test_one_column_of_labels_is_taken_as_such(make, labels):
    model = make()
    model.learn_many(X, labels)
    assert model.classes_ == ["a", "b"]


@pytest.mark.parametrize("make", OWN)
@pytest.mark.parametrize("way", ["learn_many", "test_then_train"])
@pytest.mark.parametrize(
    "labels",
    [
        pd.DataFrame({"y": LABELS, "z": LABELS}),
        pl.LazyFrame({"y": LABELS}),
        np.array([LABELS, LABELS]).T,
        dict.fromkeys("abcdef", 1),
        set("abcdef"),
        "ababab",
        b"ababab",
        3,
    ],
    ids=["wide frame", "lazy frame", "wide array", "dict", "set", "string", "bytes", "number"],
)
def test_what_holds_no_label_for_each_row_is_refused(make, way, labels):
    model = make()
    with pytest.raises((TypeError, ValueError), match="labels"):
        getattr(model, way)(X, labels)
    assert model.classes_ == []


@pytest.mark.parametrize("make", OWN)
def test_no_row_is_learned_where_one_has_no_label(make):
    model = make()
    with pytest.raises(ValueError, match="is None"):
        model.learn_many(X, ["a", None, "b", "a", "b", "a"])
    assert model.classes_ == []


def test_labels_that_differ_in_blanks_alone_are_reported_once(caplog):
    model = CPMClassifier()
    with caplog.at_level(logging.WARNING):
        for label in (" up", "up", 7, "7", "up", "down", "7 ", "up"):
            model.learn_one({"x": 1.0}, label)
    assert [record.getMessage() for record in caplog.records] == model.notices
    assert len(model.notices) == 2  # of "up" and of 7: 7 and "7" differ in more than blanks
    assert CPMClassifier.from_state(*model.state()).notices == model.notices
