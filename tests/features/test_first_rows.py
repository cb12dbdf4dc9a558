"""Warnings about features: sentinels, counters, and numbers as or among text."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from streamsvm import CPMClassifier, DecidingClassifier, DelayedClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.features import string_features
from streamsvm.features.space import FeatureSpace
from tests.choices import each_choice

pytestmark = pytest.mark.usefixtures("lasting_process")

N = 400
RNG = np.random.default_rng(5)
VALUES = RNG.normal(size=(N, 2))
LABELS = (VALUES[:, 0] > VALUES[:, 1]).tolist()
EVENTS = [{"id": i, "a": -9999.0 if i % 20 == 7 else float(a), "b": float(b)} for i, (a, b) in enumerate(VALUES)]


def learned_one_by_one(model, events=EVENTS):
    for x, y in zip(events, LABELS, strict=False):
        model.learn_one(x, y)
    return model


def learned_at_once(model):
    pd = pytest.importorskip("pandas")
    for start in range(0, N, 100):
        model.learn_many(pd.DataFrame(EVENTS[start : start + 100]), LABELS[start : start + 100])
    return model


def learned_as_array(model):
    model.learn_many(np.array([list(x.values()) for x in EVENTS]), LABELS)
    return model


MODELS = [CPMClassifier, lambda: StreamSVMClassifier(effort="low"), lambda: RefitClassifier(CPMClassifier())]


@each_choice(("make", MODELS), ("learn", [learned_one_by_one, learned_at_once, learned_as_array]))
def test_sentinels_and_counters_are_reported_once_per_feature(caplog, make, learn):
    model = learn(make())
    names = (0, 1) if learn is learned_as_array else ("id", "a")
    assert sorted(notice.split(" ")[1].rstrip(":") for notice in model.notices) == sorted(map(repr, names))
    assert any("-9999 in" in notice and "None" in notice for notice in model.notices)
    assert any("counts up" in notice for notice in model.notices)
    assert [record.getMessage() for record in caplog.records] == model.notices


@pytest.mark.parametrize("make", MODELS)
def test_notices_survive_saving_and_copying_and_are_not_repeated(caplog, make):
    model = learned_one_by_one(make())
    caplog.clear()
    copies = [type(model).from_state(*model.state()), copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    for other in copies:
        learned_one_by_one(other)
        assert other.notices == model.notices
    assert model.clone().notices == []
    late = "streamsvm.refit.jobs"  # reports that a busy machine is slow
    assert [record for record in caplog.records if record.name != late] == []


@pytest.mark.parametrize("wrap", [DecidingClassifier, DelayedClassifier])
def test_wrappers_have_the_notices_of_the_classifier(wrap):
    model = CPMClassifier()
    wrapped = wrap(model)
    assert wrapped.notices == []
    learned_one_by_one(model)
    assert wrapped.notices == model.notices != []


@pytest.mark.parametrize("learn", [learned_one_by_one, learned_at_once])
def test_counters_and_dates_as_numbers_are_reported_once(monkeypatch, learn):
    events = [{"left": 900 - i, "day": 20231101 + i * 7 % 28, "b": x["b"]} for i, x in enumerate(EVENTS)]
    monkeypatch.setattr(f"{__name__}.EVENTS", events)
    model = learned_one_by_one(CPMClassifier(), events) if learn is learned_one_by_one else learn(CPMClassifier())
    down, dates = sorted(model.notices, reverse=True)
    assert down.startswith("feature 'left' only counts down")
    assert dates.startswith("feature 'day' has dates written as numbers, such as 20231101 (%Y%m%d): drop it, or")


def test_cycles_do_not_count():
    events = [{"wear": i % 78, "day": 1 + i // 24 % 31, "batch": i // 8} for i in range(1_100)]
    model = learned_one_by_one(CPMClassifier(), events[:N])
    assert model.notices == []
    model.learn_many(events[N:], [True] * 700)
    assert [notice.split("'")[1] for notice in model.notices] == ["batch"]


@pytest.mark.parametrize("learn", [learned_one_by_one, learned_at_once])
def test_categories_with_numbers_are_reported_once(caplog, learn):
    model = learn(CPMClassifier(categories=("b", "unused")))
    assert sum("'b'" in notice and "str(x)" in notice for notice in model.notices) == 1
    assert sum("'b'" in record.getMessage() for record in caplog.records) == 1


def test_features_of_a_datetime_do_not_count():
    moments = np.datetime64("2026-01-01") + np.arange(300) * np.timedelta64(1, "m")
    model = CPMClassifier()
    model.learn_many({"a": VALUES[:300, 0], "when": moments}, LABELS[:300])
    assert [notice[:28] for notice in model.notices] == ["feature 'when' is a datetime"]


def texts(n: int, **columns):
    space = FeatureSpace(max_features=10_000)
    for i in range(n):
        space.encode_event({name: of(i) for name, of in columns.items()}, learn=True)
    return space


def test_texts_that_are_numbers_are_reported_once(caplog):
    space = texts(400, a=lambda i: f"{i % 170 / 10}", c=lambda i: f"{i % 50},5", z=lambda i: f"v{i % 50}")
    assert [notice.split("'")[1] for notice in space.notices()] == ["a", "c"]
    assert len(caplog.records) == 2
    assert "float(x) (which needs a decimal point" in caplog.text


def test_declared_categories_with_very_many_texts_are_reported_once(caplog, monkeypatch):
    monkeypatch.setattr(string_features, "MANY", 50)
    space = FeatureSpace(max_features=200, categories=("user id",))
    for i in range(100):
        space.encode_event({"user id": f"u{i}", "city": f"c{i % 60}"}, learn=True)
        assert len(caplog.records) == (i >= 49)
    (notice,) = space.notices()
    assert "'user id'" in notice
    assert "--types 'user id':ignore" in notice


@pytest.mark.parametrize("form", ["{},35", "{},234.5", "{}.234,5", "{}\u202f234", "${}.25", "-{}.5 %", "{},105"])
def test_numbers_in_texts_are_reported_in_any_format(form):
    (notice,) = texts(100, a=lambda i: form.format(i % 70 + 1)).notices()
    assert "--types a:number" in notice


def test_many_features_of_one_kind_share_a_line(caplog):
    names = [f"f{k}" for k in range(40)]
    model = CPMClassifier()
    for i in range(256):
        model.learn_one(
            {name: f"{(i + k) % 50 / 4}" for k, name in enumerate(names)} | {"id": i, "n": i + 0.5}, LABELS[i]
        )
    assert len(model.notices) == len(caplog.records) == 3
    assert sum("(likewise 'f1', 'f10', 'f11', ...: 40 in all)" in notice for notice in model.notices) == 1
    assert CPMClassifier.from_state(*model.state()).notices == model.notices


def test_successive_features_of_one_kind_do_not_fill_the_log(caplog):
    space = FeatureSpace(max_features=10_000)
    for k in range(300):
        for value in (1.5, "unknown"):
            space.encode_event({f"f{k}": value}, learn=True)
    assert len(space.notices()) == 1
    assert "300 in all" in space.notices()[0]
    assert 5 < len(caplog.records) < 15


def test_texts_that_are_missing_do_not_hide_that_the_others_are_numbers():
    missing = ["", " ", "NA", "nan", "N/A"]
    assert len(texts(100, a=lambda i: missing[i % 5] if i % 4 == 0 else str(i % 30)).notices()) == 1
    assert texts(100, a=lambda i: missing[i % 5]).notices() == []


def test_few_whole_numbers_addresses_and_declared_categories_may_be_codes():
    space = FeatureSpace(100, categories=("a",))
    for i in range(60):
        space.encode_event({"a": str(i % 30)}, learn=True)
    assert space.notices() == []
    assert texts(100, a=lambda i: str(i % 5), b=lambda i: f"10.0.0.{i % 30}").notices() == []


def test_numbers_and_texts_of_one_name_are_reported_once(caplog):
    space = texts(200, a=lambda i: "unknown" if i % 5 == 1 else i / 2, b=lambda i: ["x", "y", 3][i % 3])
    assert sorted(notice.split("'")[1] for notice in space.notices()) == ["a", "b"]
    assert "'unknown'" in caplog.text
    assert len(caplog.records) == 2
