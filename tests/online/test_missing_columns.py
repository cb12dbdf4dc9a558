"""Columns of missing values that predict the class."""

from __future__ import annotations

import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamsvm
from streamsvm import (
    BSGDClassifier,
    CPMClassifier,
    DelayedClassifier,
    KeyedClassifier,
    RefitClassifier,
    StreamSVMClassifier,
)
from streamsvm.keyed.packing import Packer
from streamsvm.refit import Every
from streamsvm.run import Run, RunConfig
from tests.learners import assert_same_knowledge, looped

N, D = 400, 3
NAMES = [f"c{j}" for j in range(D)]
C1 = ("c1", None)
SMALL = [
    CPMClassifier,
    partial(BSGDClassifier, budget=5),
    partial(BSGDClassifier, budget=5, scaling="rank", scaling_window=9),
    partial(StreamSVMClassifier, budget=5, effort="low"),
    partial(StreamSVMClassifier, budget=5),
]


def stream(how: str = "label", seed: int = 0) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Three columns with missing values in the second."""
    rng = np.random.default_rng(seed)
    X, codes = rng.normal(size=(N, D)) + 20.0, rng.integers(0, 3, N)
    if how == "outages":  # labels in runs, as of a machine with states
        codes = np.arange(N) // 50 % 3
    shares = {"label": np.where(codes == 1, 0.9, 0.02), "random": 0.4, "outages": codes == 1}
    X[rng.random(N) < shares[how], 1] = math.nan
    return X, np.array(["a", "b", "c"])[codes].tolist()


X, Y = stream()


def dicts(X: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    return [{name: None if x != x else x for name, x in zip(NAMES, row, strict=True)} for row in X.tolist()]


def fed(model: Any, X: Any, Y: Any, size: int) -> Any:
    for start in range(0, len(Y), size):
        model.test_then_train(X[start : start + size], Y[start : start + size])
    return model


@pytest.mark.parametrize("make", SMALL)
def test_missing_values_that_predict_the_class_get_a_column_in_every_form(make):
    single = make()
    predicted = looped(single, dicts(X), Y)
    assert single.columns == [*NAMES, C1]
    assert predicted == list(make().test_then_train(pd.DataFrame(X, columns=NAMES), Y))
    for form in (dicts(X), pd.DataFrame(X, columns=NAMES)):
        for size in (7, N):
            assert_same_knowledge(fed(make(), form, Y, size), single)
    numbered = make()
    looped(numbered, [dict(enumerate(row)) for row in X.tolist()], Y)
    numbered.n_features_in_ = D
    assert_same_knowledge(fed(make(), X, Y, N), numbered)


@pytest.mark.parametrize("how", ["random", "outages", "absent"])
def test_other_missing_values_get_none(how):
    X, Y = stream("label" if how == "absent" else how)
    model = CPMClassifier()
    rows = [{name: x for name, x in row.items() if x is not None or how != "absent"} for row in dicts(X)]
    model.learn_many(rows, Y)
    assert model.columns == NAMES
    unscaled = CPMClassifier(scaling="none")
    unscaled.learn_many(dicts(stream()[0] - 20.0), stream()[1])
    assert unscaled.columns == NAMES


@pytest.mark.parametrize("make", SMALL)
def test_columns_that_are_new_in_a_batch_follow(make):
    """New names and texts come before and after it, up to `max_features`."""
    events = dicts(X)
    for i, x in enumerate(events):
        x["site"] = f"s{i // 25}"
        x |= {f"d{i // 60}": float(i % 7)} if i % 3 else {}
    for most in (1_000, 17):
        single = make(max_features=most)
        looped(single, events, Y)
        assert 4 < single.columns.index(C1) < len(single.columns) - 1
        for size in (50, N):
            assert_same_knowledge(fed(make(max_features=most), events, Y, size), single)


@pytest.mark.parametrize("make", [CPMClassifier, partial(StreamSVMClassifier, budget=5, effort="low")])
@pytest.mark.parametrize("n", [60, 300])
def test_copies_continue(make, n, tmp_path):
    whole, model = make(), make()
    looped(whole, dicts(X), Y)
    looped(model, dicts(X)[:n], Y[:n])
    assert (C1 in model.columns) == (n == 300)
    model.save(tmp_path / "model")
    changed = pickle.loads(pickle.dumps(model))
    changed.change_setting("max_classes", 900)
    changed.change_setting("max_classes", 1000)
    for other in (streamsvm.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), changed):
        looped(other, dicts(X)[n:], Y[n:])
        assert_same_knowledge(other, whole)
    assert whole.clone().columns == []


@pytest.mark.parametrize("make", [CPMClassifier, partial(StreamSVMClassifier, budget=5, effort="low")])
def test_late_labels(make):
    own, late = make(), DelayedClassifier(make())
    looped(own, dicts(X), Y)
    for i, (x, label) in enumerate(zip(dicts(X), Y, strict=True)):
        late.predict_one(x, key=i)
        late.learn_one({}, label, key=i)
    assert late.model.columns == own.columns == [*NAMES, C1]
    if make is CPMClassifier:
        assert_same_knowledge(late.model, own)


@pytest.mark.parametrize("make", [CPMClassifier, partial(StreamSVMClassifier, budget=5, effort="low")])
def test_states_of_keys(make):
    keyed, state, own = KeyedClassifier(make(), label="y"), None, make()
    packer = Packer(make())
    packed = packer.pack(packer.begin())
    for x, label in zip(dicts(X), Y, strict=True):
        answers, state = keyed.step(state, [x | {"y": label}])
        model = packer.unpack(packed)
        predicted = own.predict_one(x)
        assert answers[0]["prediction"] == model.learner.predict_one(x) == predicted
        own.learn_one(x, label)
        packer.learn_one(model, x, label)
        packed = packer.pack(model)
        packer.release(model)
    assert_same_knowledge(packer.unpack(packed).learner, own)
    assert C1 in own.columns


def test_refits_and_their_windows():
    models = []
    for size in (1, 60, N):
        model = RefitClassifier(CPMClassifier(), "newton", trigger=Every(100), delay=64)
        if size == 1:
            looped(model, dicts(X), Y)
        else:
            fed(model, dicts(X), Y, size)
        assert C1 in model.model.columns
        models.append(model)
    proba = [list(model.predict_proba_many(dicts(X))) for model in models]
    np.testing.assert_array_equal(proba[0], proba[1])
    np.testing.assert_array_equal(proba[0], proba[2])


@pytest.mark.parametrize("make", [CPMClassifier, partial(BSGDClassifier, budget=20)])
def test_models_as_arrays(make):
    model = make()
    model.learn_many(dicts(X), Y)
    assert model.model.scaler.gaps == {3: 1}
    assert model.model.predict(X) == list(model.predict_many(dicts(X)))
    twin = make()
    twin.adopt(model.model)
    assert twin.columns == model.columns
    assert twin.model.predict(X) == list(twin.predict_many(dicts(X))) == model.model.predict(X)


def test_explanations_and_relevance():
    model = StreamSVMClassifier(budget=20)
    model.learn_many(dicts(X), Y)
    reasons = model.explain_one({"c0": 20.0, "c1": None, "c2": None}, label="b")
    assert [one.feature for one in reasons.contributions] == [C1, "c0"]
    assert reasons.contributions[0].adds > 0.5
    assert "c1 is missing adds +" in str(reasons)
    assert C1 in model.relevance


def test_runs_over_files(tmp_path):
    pd.DataFrame(X, columns=NAMES).assign(y=Y).to_csv(tmp_path / "a.csv", index=False)
    found = []
    for size in (1, 50, 1_000):
        source, out = f"{tmp_path / 'a.csv'}?batch_size={size}", tmp_path / f"{size}.csv"
        Run(RunConfig(source=source, label="y", out=str(out), model="cpm", quiet=True)).start()
        found.append(out.read_text())
    assert found[0] == found[1] == found[2]
    own = CPMClassifier()
    assert [line.split(",")[1] for line in found[0].splitlines()[2:]] == looped(own, dicts(X), Y)[1:]
