"""Labels that learners accept, reject or report."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from enum import Enum, IntEnum
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import naive_bayes

from streamsvm import CPMClassifier, DecidingClassifier, DelayedClassifier
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import MAKERS, Color

pytestmark = pytest.mark.usefixtures("lasting_process")

AROUND = [
    lambda: DecidingClassifier(naive_bayes.GaussianNB(), abstain=0.5),
    lambda: DelayedClassifier(CPMClassifier()),
    lambda: DelayedClassifier(naive_bayes.GaussianNB()),
]
X = np.random.default_rng(0).normal(size=(6, 2))
LABELS = ["a", "b"] * 3


@each_choice(("make", [*MAKERS.values(), *AROUND]), ("label", [None, math.nan, pd.NA, pd.NaT]))
def test_an_event_without_a_label_is_not_learned(make, label):
    model = make()
    with raises(ValueError, named="label"):
        model.learn_one({"x": 1.0}, label)
    assert model.classes_ == []


@pytest.mark.parametrize("model", [CPMClassifier(), naive_bayes.GaussianNB()])
def test_an_event_that_waits_is_not_answered_by_no_label(model):
    delayed = DelayedClassifier(model)
    delayed.predict_one({"x": 1.0}, key=1)
    with raises(ValueError, named="label"):
        delayed.learn_one(1, None)
    assert delayed.n_pending == 1


@each_choice(
    ("make", MAKERS.values()),
    (
        "labels",
        [
            pd.DataFrame({"y": LABELS}),
            pl.DataFrame({"y": LABELS}),
            pl.LazyFrame({"y": LABELS}),
            pa.table({"y": LABELS}),
            pa.table({"y": LABELS}).to_reader(),
            pa.chunked_array([LABELS]),
            np.array(LABELS)[:, None],
            np.array([(label,) for label in LABELS], [("y", "U1")]),
            pd.Series(LABELS, dtype="category"),
            tuple(LABELS),
        ],
    ),
)
def test_one_column_of_labels_is_accepted(make, labels):
    model = make()
    model.learn_many(X, labels)
    assert model.classes_ == ["a", "b"]


@each_choice(
    ("make", MAKERS.values()),
    ("way", ["learn_many", "test_then_train"]),
    (
        "labels",
        [
            pd.DataFrame({"y": LABELS, "z": LABELS}),
            pl.LazyFrame({"y": LABELS, "z": LABELS}),
            np.array([LABELS, LABELS]).T,
            dict.fromkeys("abcdef", 1),
            set("abcdef"),
            "ababab",
            b"ababab",
            3,
        ],
    ),
)
def test_containers_without_a_label_per_row_are_refused(make, way, labels):
    model = make()
    with raises((TypeError, ValueError), named="labels"):
        getattr(model, way)(X, labels)
    with raises(ValueError, named="is None"):
        model.learn_many(X, ["a", None, "b", "a", "b", "a"])
    assert model.classes_ == []


@pytest.mark.parametrize(
    "labels",
    [(" up", "up", "down", " up"), ("up", "Up", "down"), (7, "7", 8, 7.0), (True, "true", "no"), ("-1", "-1.", "1")],
)
def test_labels_that_differ_in_writing_alone_are_reported_once(caplog, labels):
    model = CPMClassifier()
    with caplog.at_level(logging.WARNING):
        for label in labels:
            model.learn_one({"x": 1.0}, label)
    assert [record.getMessage() for record in caplog.records] == model.notices
    (said,) = model.notices
    assert repr(labels[0]) in said
    assert repr(labels[1]) in said
    assert CPMClassifier.from_state(*model.state()).notices == model.notices


def test_letters_and_codes_may_be_classes_of_their_own(caplog):
    model = CPMClassifier()
    model.learn_many([{"x": 1.0}] * 8, ["a", "A", "07", 7, 7.5, "1.5", "x y", "xy"])
    assert (model.notices, caplog.text) == ([], "")


@each_choice(
    ("make", [*MAKERS.values(), lambda: DecidingClassifier(CPMClassifier())]),
    ("way", ["learn_many", "test_then_train"]),
)
def test_labels_in_another_order_than_their_rows_are_refused(make, way):
    X, y = pd.DataFrame({"x": [1.0, 2.0, 3.0]}), pd.Series(["a", "b", "a"])
    for accepted in (y, y.rename({0: 7}), list(y), y.to_frame()):
        getattr(make(), way)(X, accepted)
    with raises(ValueError, named="X.index"):
        getattr(make(), way)(X, y[::-1])


@pytest.mark.parametrize("make", [*MAKERS.values()][:4])
def test_one_weight_is_that_of_all_rows(make):
    one, each, single = make(), make(), make()
    one.learn_many(X, LABELS, w=2)
    each.learn_many(X, LABELS, w=[2.0] * 6)
    for model in (one, each):
        assert model.predict_proba_many(X).tolist() == each.predict_proba_many(X).tolist()
    with raises(ValueError, named="weight"):
        single.learn_many(X, LABELS, w=-1)


@each_choice(("make", [*MAKERS.values(), *AROUND]), ("label", [["a"], np.array(["a"]), {"a": 1}]))
def test_a_label_of_several_values_is_refused(make, label):
    model = make()
    with raises(TypeError, named=type(label).__name__):
        model.learn_one({"x": 1.0}, label)
    if hasattr(model, "learn_many"):
        with raises(TypeError, named=f"row 0 is of type {type(label).__name__}"):
            model.learn_many(X, [label] * 6)
    assert model.classes_ == []


@each_choice(("make", [*MAKERS.values(), *AROUND]), ("first", [[Color.RED, Color.BLUE], [Color.RED, "b"]]))
def test_a_member_of_an_enum_of_strings_is_its_value(make, first):
    model = make()
    delayed = isinstance(model, DelayedClassifier)
    for i, label in enumerate([*first, "r", "b", *first]):
        if delayed:
            model.predict_one({"x": float(i)}, key=i)
        model.learn_one({"x": float(i)}, label, **({"key": i} if delayed else {}))
    assert model.classes_ == ["r", "b"]
    assert set(map(type, [*model.classes_, *model.predict_proba_one({"x": 1.0})])) == {str}


@each_choice(
    ("make", MAKERS.values()),
    ("series", [list, partial(np.array, dtype=object), pd.Series, pl.Series, lambda y: pd.DataFrame({"y": y})]),
)
def test_members_of_an_enum_are_their_values_in_rows(make, series):
    model = make()
    model.learn_many(X, series([Color.RED, Color.BLUE] * 3))
    assert model.classes_ == ["r", "b"]
    assert set(map(type, [*model.classes_, *model.predict_many(X).tolist()])) <= {str, type(None)}


@pytest.mark.parametrize("make", MAKERS.values())
def test_numpy_scalars_are_plain_values_as_in_arrays(make):
    for label in (np.int64(5), np.str_("x"), np.bool_(True), np.float32(0.1)):
        one, many = make(), make()
        one.learn_one({0: 1.0}, label)
        many.learn_many(np.ones((1, 1)), np.array([label]))
        assert one.classes_ == many.classes_ == [label]
        assert {type(one.classes_[0])} == {type(many.classes_[0])} == {type(label.item())}


NANOSECONDS = np.array([1, 2] * 3)


@pytest.mark.parametrize(
    "labels",
    [
        *(NANOSECONDS.astype(kind) for kind in ("m8[ns]", "M8[ns]", "m8[Y]", "m8")),
        [np.timedelta64(1, "ns")] * 6,
        [np.timedelta64(1, "ns"), Decimal(1), 10**30] * 2,
        np.array([np.datetime64("2024-01-01")] * 6, object),
        *(pl.Series(NANOSECONDS.astype(kind)) for kind in ("m8[ns]", "M8[ns]")),
        pl.DataFrame({"y": pl.Series(NANOSECONDS).cast(pl.Time)}),
        pa.array(NANOSECONDS, pa.time64("ns")),
    ],
)
def test_times_that_would_come_back_as_other_values_are_refused(labels):
    model = CPMClassifier()
    with raises(TypeError, named="label"):
        model.learn_many(X, labels)
    if isinstance(labels, list):
        with raises(TypeError, named="timedelta64"):
            model.learn_one({"x": 1.0}, labels[0])
    assert model.classes_ == []


@pytest.mark.parametrize(
    "labels",
    [
        pd.Series(pd.to_timedelta(NANOSECONDS, unit="ns")),
        pl.Series(NANOSECONDS.astype("m8[us]")),
        pl.Series([1_000, None, 2_000] * 2).cast(pl.Time),
        pd.Series(pd.PeriodIndex(["2024-01", "2024-02"] * 3, freq="M")),
        pa.array([True, None, False] * 2),
        pd.Series([10**30, "a"] * 3),
        pa.array(["1.10", "2"] * 3).cast(pa.decimal128(5, 2)),
    ],
)
def test_labels_of_other_types_come_back_as_they_are(labels):
    model = CPMClassifier()
    model.test_then_train(X, labels)
    values = labels.to_pylist() if isinstance(labels, pa.Array) else labels.to_list()
    assert model.classes_ == [*dict.fromkeys(value for value in values if value is not None)]
    assert {*model.predict_many(X)} <= {*values}


SEVERAL = [pd.DataFrame({"a": [1.0, 2.0]}), {"a": np.ones(2)}, {"a": pl.Series([1.0, 2.0])}]


@pytest.mark.parametrize(
    ("row", "learn", "predict"),
    [(None, "NoneType", "NoneType"), *((row, "learn_many", "predict_many") for row in SEVERAL)],
)
@pytest.mark.parametrize("make", MAKERS.values())
def test_several_rows_or_none_are_no_event(make, row, learn, predict):
    with raises((TypeError, ValueError), named=learn):
        make().learn_one(row, "a")
    with raises((TypeError, ValueError), named=predict):
        make().predict_one(row)


def test_members_of_other_enums():
    numbers, plain = CPMClassifier(), CPMClassifier()
    grade, side = IntEnum("grade", "low high"), Enum("side", "left right")
    numbers.learn_many(X, [*grade] * 3)
    assert list(map(repr, numbers.classes_)) == ["1", "2"]
    plain.learn_many(X, [*side] * 3)  # neither text nor number: a separate label
    assert plain.classes_ == [*side]
