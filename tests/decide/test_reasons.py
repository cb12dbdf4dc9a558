"""Explanations: exact Shapley values, additivity, and an unchanged model."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.decide.reasons import MOST, OTHERS, explain, shapley, without_noise
from streamsvm.features.rows import BadRows
from streamsvm.refit import Every
from tests.choices import each_choice
from tests.learners import snapshot

pytestmark = pytest.mark.usefixtures("lasting_process")


def worth(masks: Any) -> Any:
    """A game with interactions between players."""
    m = np.asarray(masks, float)
    pairs = sum(m[:, i] * m[:, j] * (i + 2 * j) for i in range(m.shape[1]) for j in range(i))
    return 1.0 + m @ np.arange(1.0, m.shape[1] + 1.0) - 0.1 * pairs


def by_definition(n: int) -> list[float]:
    """Return the mean gain over all orders."""
    gains = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        mask = np.zeros((1, n), bool)
        for i in order:
            before = worth(mask)[0]
            mask[0, i] = True
            gains[i] += worth(mask)[0] - before
    return list(gains / len(orders))


def test_few_features_are_exact() -> None:
    values, errors, base = shapley(worth, 5)
    np.testing.assert_allclose(values, by_definition(5))
    assert (base, errors.tolist()) == (1.0, [0.0] * 5)


@pytest.mark.parametrize("evaluations", [1, 64, 1_000])
def test_many_are_near_within_their_error_and_add_up(evaluations: int) -> None:
    asked = []
    exact, _, _ = shapley(worth, 12, evaluations=2**12)
    values, errors, base = shapley(lambda masks: asked.append(len(masks)) or worth(masks), 12, evaluations)
    assert base + values.sum() == pytest.approx(worth(np.ones((1, 12)))[0])
    assert sum(asked) <= max(evaluations, 2 * 12)
    if evaluations == 1_000:
        assert (np.abs(values - exact) < 4 * errors + 1e-9).all()
        assert np.abs(values - exact).max() < 0.2


def plain(model: Any) -> Any:
    """Return a model without label autocorrelation, which explanations leave out."""
    return model.without_order() if isinstance(model, StreamSVMClassifier) else model


def stream(n: int, d: int) -> tuple[list[dict[str, Any]], list[str]]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    rows = [
        dict(zip([f"x{j}" for j in range(d)], row, strict=True)) | {"site": f"s{i % 3}"}
        for i, row in enumerate(X.tolist())
    ]
    y = np.select([X[:, 0] * X[:, 1] > 0.5, X[:, 0] > 0.0], ["both", "up"], "down")
    return rows, y.tolist()


@each_choice(
    (
        "model",
        [
            StreamSVMClassifier(budget=30),
            StreamSVMClassifier(members=("linear",), label_autocorrelation=False),
            BSGDClassifier(budget=30),
            CPMClassifier(),
            RefitClassifier(StreamSVMClassifier(effort="low", budget=20), "newton", trigger=Every(200), delay=64),
        ],
    ),
    ("d", [4, 14]),
)
def test_contributions_are_the_log_odds_and_asking_leaves_no_trace(model: Any, d: int) -> None:
    model = model.clone()
    rows, y = stream(300, d)
    model.run_batch(rows, y)
    before = snapshot(model)
    for x in (rows[7], rows[7] | {"x1": None, "x2": float("nan"), "new": 3.0}):
        reasons = model.explain_one(x, evaluations=128)
        proba = without_noise(plain(model).peek_proba_many([x]), model.noise)[0]
        a, b = np.argsort(-proba)[:2]
        assert (reasons.label, reasons.against) == (model.classes_[a], model.classes_[b])
        assert reasons.score == pytest.approx(np.log(proba[a] / proba[b]), abs=1e-6)
        assert reasons.base + sum(one.adds for one in reasons.contributions) == pytest.approx(reasons.score, abs=1e-9)
        assert {one.feature for one in reasons.contributions} >= {"x0", "site"}
        assert all(one.value == x[one.feature] for one in reasons.contributions)
        assert reasons.nearest == (model.nearest(x, 3) if hasattr(model, "nearest") else [])
    assert snapshot(model) == before


@pytest.mark.parametrize("members", [("polytope",), ("polytope", "standard", "linear")])
def test_sampled_reasons_of_a_blend_are_as_far_off_as_their_errors_say(members: tuple[str, ...]) -> None:
    """Members are combined through softmax functions, which allow only a bound."""
    rows, y = stream(600, 10)
    model = StreamSVMClassifier(members=members, budget=30)
    model.run_batch(rows, y)
    off, errors = [], []
    for x in rows[:6]:
        exact, sampled = (
            {one.feature: one for one in model.explain_one(x, evaluations=n, nearest=0).contributions}
            for n in (1 << 11, 512)
        )
        assert all(one.error == 0.0 for one in exact.values())
        off += [one.adds - exact[name].adds for name, one in sampled.items()]
        errors += [one.error for one in sampled.values()]
    off, errors = np.abs(off), np.array(errors)
    assert (off <= 5.0 * errors + 1e-6).all()
    assert np.mean(off <= 2.0 * errors + 1e-6) > 0.9
    assert np.sqrt(np.mean(off**2)) < 1.5 * np.sqrt(np.mean(errors**2)) + 1e-6


@pytest.mark.parametrize(
    "model",
    [
        BSGDClassifier(budget=30),
        StreamSVMClassifier(effort="low", budget=30),
        StreamSVMClassifier(members=("ranks", "polytope", "linear"), budget=20),
        CPMClassifier(),
    ],
    ids=["bsgd", "low", "ranks", "cpm"],
)
def test_variants_are_encoded_as_rows_without_their_features(model: Any) -> None:
    """Events have a text, a missing value and a new name.

    Label autocorrelation is used with the first labels.
    """
    rows, y = stream(300, 4)
    for labels in (y, [f"{label}{i % 30}" for i, label in enumerate(y)]):
        one = model.clone()
        one.run_batch(rows, labels)
        for x, label in ((rows[3], None), (rows[5] | {"x1": None, "new": 3.0}, None), (rows[3], one.classes_[1])):
            found = one.explain_one(x, nearest=0, label=label)
            asked = explain(
                lambda rows, own=one: without_noise(plain(own).peek_proba_many(rows), own.noise),
                x,
                one.classes_,
                label=label,
                evaluations=128,
            )
            assert (found.label, found.against) == (asked.label, asked.against)
            expected = {each.feature: pytest.approx(each.adds, abs=1e-9) for each in asked.contributions}
            assert {each.feature: each.adds for each in found.contributions} == expected


def test_many_features_are_distinguished_within_the_stated_error() -> None:
    asked = []

    def peek(rows: list[dict[Any, Any]]) -> Any:
        asked.append(len(rows))
        s = np.array([sum(row.values()) for row in rows])
        p = 1.0 / (1.0 + np.exp(-s))
        return np.column_stack([1.0 - p, p])

    x = {j: 0.001 * j for j in range(100)}
    reasons = explain(peek, x, ["no", "yes"], ordered=list(range(99, -1, -1)))
    assert reasons is not None
    assert len(reasons.contributions) == MOST + 1
    together = next(one for one in reasons.contributions if one.feature == OTHERS)
    assert together.adds == pytest.approx(sum(0.001 * j for j in range(36)))
    assert sum(asked) < 1_000


def test_there_are_no_reasons_before_two_labels() -> None:
    model = BSGDClassifier()
    assert model.explain_one({"a": 1.0}) is None
    model.learn_one({"a": 1.0}, "only")
    assert model.explain_one({"a": 1.0}) is None
    assert CPMClassifier().explain_one({"a": 1.0}) is None


def test_what_is_no_event_is_refused_as_by_predict_one() -> None:
    model = CPMClassifier()
    model.learn_many([{"a": 0.0}, {"a": 1.0}], [0, 1])
    for x in ([1.0], pd.DataFrame({"a": [1.0]}), {"a": np.ones(2)}):
        with pytest.raises((TypeError, BadRows)):
            model.explain_one(x)


@each_choice(
    ("model", [BSGDClassifier(budget=20), StreamSVMClassifier(budget=20), CPMClassifier()]),
    ("unknown", [{}, {"x0": None, "x1": float("nan"), "x2": pd.NA}, {"other": 3.0}]),
)
def test_an_unknown_event_has_only_the_base_value(model: Any, unknown: Any) -> None:
    model = model.clone()
    rows, y = stream(200, 2)
    model.run_batch(rows, y)
    for x in rows[:2]:
        model.explain_one(x)
        reasons = model.explain_one(unknown)
        assert reasons.base == reasons.score
        assert all(one.adds == 0.0 for one in reasons.contributions)
