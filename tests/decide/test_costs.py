"""Decisions by cost and alarms, against brute force and loops, and resumed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import linear_model

from streamsvm import CPMClassifier, DecidingClassifier, KeyedClassifier, StreamSVMClassifier, load
from streamsvm.decide.alarms import Alarms
from streamsvm.decide.costs import Costs
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import check_with_river, dicts, looped, ring

matrices = st.lists(st.lists(st.floats(0.0, 9.0), min_size=3, max_size=3), min_size=3, max_size=3)


@settings(max_examples=40)
@given(
    matrices, st.one_of(st.none(), st.floats(0.0, 3.0)), st.one_of(st.none(), st.floats(0.1, 5.0)), st.integers(0, 99)
)
def test_decisions_are_those_of_brute_force(cost: Any, abstain: Any, weight: Any, seed: int) -> None:
    proba = np.random.default_rng(seed).dirichlet([0.5] * 3, 20)
    truth = np.random.default_rng(seed).integers(-1, 3, 20)
    weights = None if weight is None else {1: weight}
    decisions, costs = Costs(cost, weights, abstain).run(proba, truth, [0, 1, 2])
    w = [1.0, 1.0 if weight is None else weight, 1.0]
    for p, y, decision, paid in zip(proba, truth, decisions, costs, strict=True):
        options = {d: sum(p[c] * w[c] * cost[c][d] for c in range(3)) for d in range(3)}
        if abstain is not None:
            options[-1] = abstain
        assert options[int(decision)] == pytest.approx(min(options.values()))
        expected = np.nan if y < 0 else abstain if decision < 0 else w[y] * cost[y][decision]
        assert paid == pytest.approx(expected, nan_ok=True)


def test_a_table_says_only_what_differs_and_balanced_weights_follow_the_stream() -> None:
    table = Costs({"fraud": {"fine": 10.0}})
    assert table.matrix(["fine", "fraud", "odd"]).tolist() == [[0, 1, 1], [10, 0, 1], [1, 1, 0]]
    balanced = Costs(class_weight="balanced")
    codes = np.array([0] * 95 + [1] * 5)
    decisions, _ = balanced.run(np.full((100, 2), [0.9, 0.1]), codes, ["fine", "fraud"])
    assert decisions[-1] == 1  # 0.9 / 95 < 0.1 / 4
    assert decisions[50] == 0
    assert balanced.counts.tolist() == [95, 5]


@each_choice(
    ("n_classes", [2, 3, 11]),
    ("options", [{}, {"abstain": 0.3}, {"class_weight": "balanced", "abstain": 1.0}, {"class_weight": {1: 5.0}}]),
)
def test_one_decision_is_that_of_many(n_classes: int, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(n_classes)
    classes = list(range(n_classes))
    costs, proba = Costs(rng.integers(0, 4, (n_classes, n_classes)), **options), np.zeros((1, n_classes))
    costs.matrix(classes)
    for code in rng.integers(n_classes, size=100).tolist():
        proba[:] = rng.dirichlet(np.full(n_classes, 0.3)) * (rng.random(n_classes) > 0.2)
        [many], _ = costs.run(proba, np.full(1, -1), classes, learn=False)
        assert costs.decide_one(proba[0]) == many
        costs.count_labels(code)


@pytest.mark.parametrize(
    "settings_",
    [
        {"cost": {True: {False: np.float32(20.0)}}},
        {"cost": pd.DataFrame({False: [0.0, 20.0], True: [1.0, 0.0]}, index=[False, True])},
        {"class_weight": {True: np.int64(20)}},
        {"abstain": Fraction(1, 20)},
    ],
    ids=["number of numpy", "frame", "weight", "fraction"],
)
def test_costs_are_any_numbers_and_are_saved(settings_: Any, tmp_path: Any) -> None:
    X, y = ring(200)
    y ^= np.random.default_rng(0).random(200) < 0.3
    model = StreamSVMClassifier(effort="low", budget=10, **settings_)
    model.learn_many(X, y)
    model.save(tmp_path / "model")
    decided = load(tmp_path / "model").predict_many(X).tolist()
    assert decided == model.predict_many(X).tolist()
    proba = model.predict_proba_many(X)
    assert decided != np.array(model.classes_)[proba.argmax(axis=1)].tolist()


def test_costs_of_labels_that_never_occur_are_reported_once(caplog: Any) -> None:
    costs = Costs([[0.0, 1.0], [5.0, 0.0]])
    for _ in range(2):
        costs.run(np.full((2, 2), 0.5), np.array([0, 1]), ["fine", "fraud"])
    costs.run(np.full((2, 3), 0.3), np.array([0, 1]), ["fine", "fraud", "other"])
    assert len(caplog.records) == 1
    assert "none of the labels so far ('fine', 'fraud') has a cost" in caplog.text
    Costs({"fraud": {"fine": 5.0}}).run(np.full((2, 2), 0.5), np.array([0, 1]), ["fine", "late"])
    assert len(caplog.records) == 1


def test_nothing_is_decided_for_a_class_that_is_not_known() -> None:
    free = Costs([[0, 0, 0]] * 3)
    decisions, _ = free.run(np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([-1, -1]), [0, 1, 2])
    assert decisions.tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [
        (([[0, 1, 2], [1, 0, 2]],), "cost"),
        (({"a": 1.0},), "cost"),
        (({"a": {"b": -1.0}},), "cost['a']['b']"),
        ((None, "even"), "class_weight"),
        ((None, None, -1.0), "abstain"),
    ],
)
def test_invalid_costs_are_refused(arguments: Any, parameter: str) -> None:
    with raises(ParameterError, parameter=parameter):
        Costs(*arguments)


@pytest.mark.parametrize(
    ("model", "settings_"),
    [
        (CPMClassifier(), {"class_weight": "balanced", "abstain": 0.8}),
        (StreamSVMClassifier(effort="low", budget=10), {"cost": {True: {False: 5.0}}}),
    ],
    ids=["balanced", "table"],
)
def test_a_classifier_that_decides_is_the_same_in_batches_a_loop_saved_and_resumed(model, settings_, tmp_path) -> None:
    X, y = ring(300)
    y &= np.arange(300) % 3 == 0
    w = np.where(X[:, 0] > 0.0, 1.0, 0.5)
    w[:4] = w[100:110] = 0.0  # these events are only predicted
    single, batched = (DecidingClassifier(model.clone(), **settings_) for _ in range(2))
    expected, found = looped(single, X, y, w=w.tolist()), []
    for a, b in ((0, 1), (1, 120), (120, 300)):
        found += batched.test_then_train(X[a:b], y[a:b], w=w[a:b]).tolist()
        batched.save(tmp_path / "model")
        batched = load(tmp_path / "model")
    assert found == expected
    assert batched.clone().costs.counts.size == 0
    assert found != model.clone().test_then_train(X, y).tolist()


@pytest.mark.parametrize("both", [False, True], ids=["probabilities", "both"])
def test_probabilities_before_the_first_label_count_in_loops_as_in_batches(both: bool) -> None:
    X = ring(60)[0]
    labels = [None if i < 5 else i % 3 for i in range(60)]
    single, batched = (DecidingClassifier(StreamSVMClassifier("low", budget=10), abstain=0.5) for _ in range(2))
    found = []
    for x, label in zip(dicts(X), labels, strict=True):
        found.append([single.predict_proba_one(x), single.predict_one(x) if both else None])
        if label is not None:
            single.learn_one(x, label)
    decided, proba = batched.test_then_train(X, labels, proba=True)
    assert [[shares.get(k, 0.0) for k in single.classes_] for shares, _ in found] == proba.tolist()
    assert not both or [label for _, label in found] == decided.tolist()


def test_the_wrapper_passes_rivers_checks() -> None:
    check_with_river(DecidingClassifier(CPMClassifier(), class_weight="balanced"))
    model = DecidingClassifier(linear_model.LogisticRegression(), class_weight="balanced")
    check_with_river(model)


def test_classes_of_weight_0_count_in_batches_as_in_loops() -> None:
    X, y = ring(120)
    labels = ["never learned" if i % 10 == 5 else str(label) for i, label in enumerate(y)]
    w = [float(label != "never learned") for label in labels]
    single, batched = (DecidingClassifier(CPMClassifier(), class_weight="balanced") for _ in range(2))
    expected = looped(single, X, labels, w=w)
    found = [
        label
        for a in range(0, 120, 12)
        for label in batched.test_then_train(X[a : a + 12], labels[a : a + 12], w=w[a : a + 12])
    ]
    assert found == expected
    assert batched.classes_ == single.classes_


def test_rows_are_learned_and_decided_on_as_one_by_one() -> None:
    X, y = ring(300)
    y &= np.arange(300) % 3 == 0
    single, batched = (DecidingClassifier(CPMClassifier(), class_weight="balanced", abstain=0.45) for _ in range(2))
    assert batched.predict_many(X[:2]).tolist() == [None, None]
    looped(single, X[:200], y[:200])
    for a, b in ((0, 1), (1, 90), (90, 200)):
        batched.learn_many(X[a:b], y[a:b])
    expected = [single.predict_one(x) for x in dicts(X[200:])]
    assert set(expected) == {True, False, None}
    assert batched.predict_many(X[200:]).tolist() == expected
    frame = pd.DataFrame(X[200:], index=range(7, 107))
    assert batched.predict_many(frame).to_dict() == dict(zip(range(7, 107), expected, strict=True))
    np.testing.assert_array_equal(batched.predict_proba_many(X[200:]), single.model.predict_proba_many(X[200:]))
    np.testing.assert_array_equal(batched.test_then_train(X, y), single.test_then_train(X, y))


def test_rows_of_no_weight_may_bring_a_label_that_the_classifier_leaves_out() -> None:
    model = DecidingClassifier(CPMClassifier(), class_weight="balanced")
    model.learn_many([{"a": 0.0}, {"a": 1.0}], ["first", "second"], w=[0.0, 1.0])
    assert model.model.classes_ == ["second"]
    assert model.predict_many([{"a": 1.0}]).tolist() == [model.predict_one({"a": 1.0})] == ["second"]


def test_rows_go_to_classifiers_of_river_that_take_them() -> None:
    X, y = ring(200)
    frame, labels = pd.DataFrame(X, columns=["a", "b"], index=range(5, 205)), pd.Series(y, index=range(5, 205))
    model = DecidingClassifier(linear_model.LogisticRegression(), cost={True: {False: 50.0}})
    model.learn_many(frame, labels)
    decided = model.predict_many(frame)
    assert decided.index.equals(frame.index)
    assert decided.tolist() == [model.predict_one(x) for x in frame.to_dict("records")]
    assert decided.all()


def test_a_classifier_that_numbers_labels_otherwise_is_decided_about_all_the_same() -> None:
    X, y = ring(120)
    model = DecidingClassifier(CPMClassifier(), {True: {False: 3.0}}, abstain=0.6)
    model.learn_one({"never": 0.0}, "first", w=0.0)  # the classifier ignores it
    for x, label in zip(dicts(X), y.tolist(), strict=True):
        classes, shares = model.classes_, model.predict_proba_one(x)
        counts = model.costs.counts.copy()
        [expected], _ = model.costs.run(
            np.array([[shares.get(label, 0.0) for label in classes]]), np.array([-1]), classes, learn=False
        )
        assert model.costs.counts.tolist() == counts.tolist()
        assert model.predict_one(x) == (None if expected < 0 else classes[expected])
        model.learn_one(x, label)


# Alarms -----------------------------------------------------------------------------------------------------------


def rare(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Calibrated probabilities of a rare class, ten times as frequent after half."""
    rng = np.random.default_rng(seed)
    level = np.where(np.arange(n) < n // 2, -6.0, -3.7)
    p = 1.0 / (1.0 + np.exp(-(level + 2.0 * rng.normal(size=n))))
    return p, (rng.random(n) < p).astype(np.int64)


def test_a_share_of_alarms_is_kept_through_drift() -> None:
    p, _ = rare(40_000)
    raised = Alarms("share", 0.01).run(p, np.full(len(p), -1))
    for start in range(2_000, 40_000, 2_000):
        assert 0.003 < raised[start : start + 2_000].mean() < 0.02
    assert p[raised].mean() > 5 * p.mean()


@pytest.mark.parametrize("kind", ["share", "recall", "precision"])
def test_an_invalid_probability_raises_no_more_alarms_than_0(kind: str) -> None:
    rng = np.random.default_rng(0)
    p, own = rng.random(2_000), rng.integers(0, 2, 2_000)
    p[500:700] = 0.0
    expected = Alarms(kind, 0.2).run(p, own)
    p[500:700] = np.nan
    np.testing.assert_array_equal(Alarms(kind, 0.2).run(p, own), expected)


def test_a_recall_is_reached_and_a_precision_too() -> None:
    p, y = rare(60_000)
    raised = Alarms("recall", 0.8).run(p, y)
    assert abs(raised[y == 1].mean() - 0.8) < 0.03
    assert raised.mean() < 0.5
    raised = Alarms("precision", 0.4).run(p, y)
    assert abs(y[raised].mean() - 0.4) < 0.05
    assert not Alarms("precision", 0.9).run(np.full(500, 0.1), np.zeros(500, np.int64)).any()


@pytest.mark.parametrize("kind", ["share", "recall", "precision"])
def test_alarms_do_not_depend_on_batches_and_resuming(kind: str) -> None:
    p, y = rare(3_000)
    y[::7] = -1
    whole = Alarms(kind, 0.3).run(p, y)
    alarms, found = Alarms(kind, 0.3), []
    for part in np.split(np.arange(3_000), (1, 63, 64, 700, 2_000)):
        found.append(alarms.run(p[part], y[part]))
        state, alarms = alarms.state(), Alarms(kind, 0.3)
        alarms.restore(state)
    np.testing.assert_array_equal(np.concatenate(found), whole)
    assert 0 < whole.sum() < 3_000


def test_models_without_probabilities_are_refused_before_any_event() -> None:
    for model in (KeyedClassifier(CPMClassifier()), linear_model.LinearRegression(), CPMClassifier):
        with raises(TypeError, parameter="model"):
            DecidingClassifier(model)
