"""Reasons: contributions against exact Shapley values, that they add up, and that asking leaves no trace."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.decide.reasons import MOST, OTHERS, explain, shapley, without_noise
from streamsvm.refit import Every
from tests.core.programs import printed, printed_uncompiled
from tests.learners import snapshot


def worth(masks: Any) -> Any:
    """A game in which players count together."""
    m = np.asarray(masks, float)
    pairs = sum(m[:, i] * m[:, j] * (i + 2 * j) for i in range(m.shape[1]) for j in range(i))
    return 1.0 + m @ np.arange(1.0, m.shape[1] + 1.0) - 0.1 * pairs


def by_definition(n: int) -> list[float]:
    """The mean gain over all orders."""
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


def test_what_adds_up_by_itself_takes_one_permutation() -> None:
    values, _, _ = shapley(lambda masks: masks @ np.arange(20.0), 20, evaluations=1)
    np.testing.assert_allclose(values, np.arange(20.0), atol=1e-12)


def stream(n: int, d: int) -> tuple[list[dict[str, Any]], list[str]]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, d))
    rows = [
        dict(zip([f"x{j}" for j in range(d)], row, strict=True)) | {"site": f"s{i % 3}"}
        for i, row in enumerate(X.tolist())
    ]
    y = np.select([X[:, 0] * X[:, 1] > 0.5, X[:, 0] > 0.0], ["both", "up"], "down")
    return rows, y.tolist()


@pytest.mark.parametrize(
    "model",
    [
        StreamSVMClassifier(budget=30),
        StreamSVMClassifier(members=("linear",), label_autocorrelation=False),
        BSGDClassifier(budget=30),
        CPMClassifier(),
        RefitClassifier(StreamSVMClassifier(effort="low", budget=20), "newton", trigger=Every(200), delay=64),
    ],
    ids=["blend", "linear", "bsgd", "cpm", "refits"],
)
@pytest.mark.parametrize("d", [4, 14])
def test_contributions_are_the_log_odds_and_asking_leaves_no_trace(model: Any, d: int) -> None:
    model = model.clone()
    rows, y = stream(400, d)
    model.run_batch(rows, y)
    before = snapshot(model)
    for x in (rows[7], rows[7] | {"x1": None, "x2": float("nan"), "new": 3.0}):
        reasons = model.explain_one(x, evaluations=128)
        proba = without_noise(model.peek_proba_many([x]), model.noise)[0]
        a, b = np.argsort(-proba)[:2]
        assert (reasons.label, reasons.against) == (model.classes_[a], model.classes_[b])
        assert reasons.score == pytest.approx(np.log(proba[a] / proba[b]), abs=1e-6)
        assert reasons.base + sum(one.adds for one in reasons.contributions) == pytest.approx(reasons.score, abs=1e-9)
        assert {one.feature for one in reasons.contributions} >= {"x0", "site"}
        assert all(one.value == x[one.feature] for one in reasons.contributions)
        assert reasons.nearest == (model.nearest(x, 3) if hasattr(model, "nearest") else [])
    assert snapshot(model) == before


EXPLAIN = """
import json
import numpy as np
from streamsvm import StreamSVMClassifier

X = np.random.default_rng(0).normal(size=(40, 3))
y = (X[:, 0] > 0.0).tolist()
model = StreamSVMClassifier(budget=4)
for start in (0, 20):
    told = model.run_batch(X[start : start + 20], y[start : start + 20], reasons=2)[-1]
    reasons = model.explain_one({0: 1.0, 1: 0.5, 2: -0.5})
    print(json.dumps([told.columns.tolist(), sorted(map(str, (one.feature for one in reasons.contributions)))]))
"""


@pytest.mark.slow
def test_single_events_are_explained_between_rows_within_their_own_memory() -> None:
    """Without the compiler an index beyond an array is an error."""
    assert printed_uncompiled(EXPLAIN) == printed(EXPLAIN)


def test_linear_members_are_exact_and_planes_are_what_they_are() -> None:
    rows, y = stream(600, 14)
    X = np.array([[row[f"x{j}"] for j in range(14)] for row in rows])
    model = CPMClassifier(n_faces=1)
    model.test_then_train(X, y)
    x = dict(enumerate(X[3].tolist()))
    own = model.explain_one(x)
    sampled = explain(
        lambda rows: without_noise(model.peek_proba_many(rows), model.noise), x, model.classes_, evaluations=64
    )
    assert sampled is not None
    expected = {one.feature: one.adds for one in own.contributions}
    assert expected == {one.feature: pytest.approx(one.adds, abs=1e-6) for one in sampled.contributions}


@pytest.mark.parametrize("members", [("polytope",), ("polytope", "standard", "linear")])
def test_sampled_reasons_of_a_blend_are_as_far_off_as_their_errors_say(members: tuple[str, ...]) -> None:
    """Planes of members that vote are joined by a softmax each: there is no closed form, but a bound."""
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
        BSGDClassifier(budget=20, heads=(("hinge", 0.3), ("log", 0.1)), average=50, bias=True, scaling="rank"),
        StreamSVMClassifier(effort="low", budget=30),
        StreamSVMClassifier(members=("ranks", "polytope", "linear"), budget=20),
    ],
    ids=["bsgd", "heads", "low", "ranks"],
)
def test_a_walk_finds_what_asking_for_predictions_does(model: Any) -> None:
    """With a text, a value that is missing, one that no column has, and, the first time, labels that follow another."""
    rows, y = stream(300, 4)
    for labels in (y, [f"{label}{i % 30}" for i, label in enumerate(y)]):
        one = model.clone()
        one.run_batch(rows, labels)
        for x, label in ((rows[3], None), (rows[5] | {"x1": None, "new": 3.0}, None), (rows[3], one.classes_[1])):
            walked = one.explain_one(x, nearest=0, label=label)
            asked = explain(
                lambda rows, own=one: without_noise(own.peek_proba_many(rows), own.noise),
                x,
                one.classes_,
                label=label,
                evaluations=128,
            )
            assert (walked.label, walked.against) == (asked.label, asked.against)
            expected = {each.feature: pytest.approx(each.adds, abs=1e-5) for each in asked.contributions}
            assert {each.feature: each.adds for each in walked.contributions} == expected


def test_the_least_relevant_of_many_features_are_walked_together() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, MOST + 6))
    model = StreamSVMClassifier(effort="low", budget=20)
    model.test_then_train(X, (X[:, 0] > 0.0).tolist())
    reasons = model.explain_one(dict(enumerate(X[0].tolist())), evaluations=1, nearest=0)
    assert len(reasons.contributions) == MOST + 1
    assert OTHERS in {one.feature for one in reasons.contributions}
    assert reasons.base + sum(one.adds for one in reasons.contributions) == pytest.approx(reasons.score, abs=1e-9)


def test_very_many_features_are_told_apart_as_far_as_is_said() -> None:
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


def test_there_is_no_reason_before_there_are_two_labels() -> None:
    model = BSGDClassifier()
    assert model.explain_one({"a": 1.0}) is None
    model.learn_one({"a": 1.0}, "only")
    assert model.explain_one({"a": 1.0}) is None
    assert CPMClassifier().explain_one({"a": 1.0}) is None


@pytest.mark.parametrize("model", [BSGDClassifier(budget=20), StreamSVMClassifier(budget=20), CPMClassifier()])
@pytest.mark.parametrize("unknown", [{}, {"x0": None, "x1": float("nan")}, {"other": 3.0}])
def test_an_event_of_which_nothing_is_known_has_its_base_whatever_was_asked_before(model: Any, unknown: Any) -> None:
    model = model.clone()
    rows, y = stream(200, 2)
    model.run_batch(rows, y)
    for x in rows[:2]:
        model.explain_one(x)
        reasons = model.explain_one(unknown)
        assert reasons.base == reasons.score
        assert all(one.adds == 0.0 for one in reasons.contributions)


def by_ends(model: Any, x: dict[str, Any]) -> dict[str, float]:
    """What each feature adds alone, and to all others: the mean, with what is lacking shared out."""
    names = [name for name, value in x.items() if value is not None]
    masks = np.concatenate([np.zeros((1, len(names))), np.ones((1, len(names))), np.eye(len(names))])
    masks = np.concatenate([masks, 1.0 - masks[2:]])
    rows = [{name: x[name] for name, is_in in zip(names, mask, strict=True) if is_in} for mask in masks]
    proba = without_noise(model.peek_proba_many(rows), model.noise)
    a, b = np.argsort(-proba[1])[:2]
    nobody, everybody, *others = np.log(np.maximum(proba[:, a], 1e-9)) - np.log(np.maximum(proba[:, b], 1e-9))
    alone, without = np.array(others[: len(names)]), np.array(others[len(names) :])
    values = (alone - nobody + everybody - without) / 2.0
    lacking = everybody - nobody - values.sum()
    shares = np.full(len(names), 1.0 / len(names)) if len(names) <= 3 else np.abs(values) / np.abs(values).sum()
    return dict(zip(names, values + lacking * shares, strict=True))


@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize(
    "model",
    [
        BSGDClassifier(budget=20, heads=(("hinge", 0.3), ("log", 0.1)), average=50, bias=True),
        StreamSVMClassifier(members=("standard", "ranks", "polytope", "linear"), budget=20),
    ],
    ids=["bsgd", "blend"],
)
def test_reasons_of_rows_are_those_by_the_ends_and_change_nothing(model: Any, d: int) -> None:
    """Exact among three features; of ten, off by less than a third of their size in the mean."""
    rows, y = stream(300, d)
    rows[250] |= {"x1": None}
    told, plain, looped = (model.clone() for _ in range(3))
    codes, scores, found = told.run_batch(rows, y, reasons=d + 1)
    np.testing.assert_array_equal(plain.run_batch(rows, y), [codes, scores])
    assert snapshot(told) == snapshot(plain)
    off, size = [], []
    for i, (x, label) in enumerate(zip(rows, y, strict=True)):
        if i % 50 == 0 and i:
            names = [told.names_by_column[j] for j in found.columns[i].tolist() if j >= 0]
            adds = dict(zip(names, found.adds[i].tolist(), strict=False))
            assert adds == pytest.approx(by_ends(looped, x), abs=1e-4)
            assert np.abs(found.adds[i]).tolist() == sorted(np.abs(found.adds[i]), reverse=True)
            exact = {one.feature: one.adds for one in looped.explain_one(x, 1 << d + 1, nearest=0).contributions}
            off += [adds[name] - exact[name] for name in adds]
            size += exact.values()
        looped.predict_one(x)
        looped.learn_one(x, label)
    assert found.against[0] == -1
    assert np.linalg.norm(off) < (1e-3 if d == 2 else 1.0 / 3.0) * np.linalg.norm(size)


def test_reasons_of_rows_by_planes_are_those_of_one_event() -> None:
    rows, y = stream(200, 5)
    model, looped = CPMClassifier(average=100), CPMClassifier(average=100)
    _, _, found = model.run_batch(rows, y, reasons=2)
    for x, label, columns, adds in zip(rows, y, found.columns.tolist(), found.adds.tolist(), strict=True):
        reasons = looped.explain_one(x)
        if reasons is not None:
            expected = [(one.feature, one.adds) for one in reasons.contributions[:2]]
            assert [(model.names_by_column[j], add) for j, add in zip(columns, adds, strict=True)] == expected
        looped.learn_one(x, label)


@pytest.mark.parametrize("model", [CPMClassifier(), BSGDClassifier(budget=20)], ids=["cpm", "bsgd"])
def test_what_is_missing_is_no_reason_however_rows_come(model: Any) -> None:
    rows, y = stream(200, 3)
    columns = {f"x{j}": np.array([x[f"x{j}"] for x in rows]) for j in range(3)}
    columns["x1"][100:] = np.nan
    rows = [{name: x[name] for name in columns if name != "x1" or i < 100} for i, x in enumerate(rows)]
    by_rows, by_columns = (model.clone().run_batch(X, y, reasons=3)[2] for X in (rows, columns))
    np.testing.assert_array_equal(by_rows.columns, by_columns.columns)
    np.testing.assert_array_equal(by_rows.adds[by_rows.columns >= 0], by_columns.adds[by_columns.columns >= 0])
    assert (by_columns.columns[100:] >= 0).sum(axis=1).tolist() == [2] * 100
