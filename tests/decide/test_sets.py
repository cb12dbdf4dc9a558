"""Prediction sets: coverage for any probabilities, and equality of all paths."""

from __future__ import annotations

import copy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import linear_model

import streamsvm
from streamsvm import CPMClassifier, DecidingClassifier
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.conformal_kernels import SLACK
from streamsvm.models import ArchiveError
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import MAKERS, dicts, ring

pytestmark = pytest.mark.usefixtures("lasting_process")


def stream(n: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities. Each class has occurred once."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(n_classes, 0.4), n)
    codes = (proba.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return proba, codes


def covered(sets: ConformalSets, proba: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return sets.run(proba, codes)[np.arange(len(codes)), codes]


def check_equal_sets(one: Any, other: Any) -> None:
    """Check that two learners know the same of their sets."""
    arrays = [{k: a for k, a in model.state()[1].items() if k.startswith("sets.")} for model in (one, other)]
    assert arrays[0]
    np.testing.assert_equal(*arrays)


@settings(max_examples=25)
@given(st.data(), st.sampled_from([0.5, 0.8, 0.9, 0.99]), st.booleans())
def test_misses_are_bounded_for_any_stream(data, coverage, by_class):
    """An adversary who knows the probabilities makes any number of errors.

    In some parts of the stream, probabilities are 0 or NaN.
    """
    kinds = st.sampled_from([1.0, 1.0, 0.0, np.nan])
    parts = data.draw(
        st.lists(st.tuples(st.integers(1, 400), st.integers(0, 2), st.integers(0, 99), kinds), min_size=1)
    )
    draws = [kind * np.random.default_rng(seed).dirichlet([0.3, 0.3, 0.3], n) for n, _, seed, kind in parts]
    proba = np.concatenate(draws)
    rank = np.concatenate([np.full(n, rank) for n, rank, _, _ in parts])
    codes = np.argsort(-proba, axis=1)[np.arange(len(rank)), rank]
    missed = ~covered(ConformalSets(coverage, by_class, n_known=3), proba, codes)
    for group in range(3) if by_class else (None,):
        debt = np.concatenate([[0.0], np.cumsum((missed - (1.0 - coverage))[(codes == group) | (not by_class)])])
        assert debt.max() <= SLACK + 1
        rise = (debt - np.minimum.accumulate(debt)).max()
        assert by_class or rise <= 2 * (SLACK + 1)


@pytest.mark.parametrize("coverage", [0.9999, 0.99999, 1.0 - 1e-12])
def test_sets_that_hardly_ever_miss_are_kept_before_and_after_their_first_label(coverage):
    sets = ConformalSets(coverage, by_class=True, n_known=3)
    for proba, codes in (stream(0, 3), stream(300, 2)):
        sets.run(np.column_stack([proba, np.zeros(len(proba))])[:, :3], codes)
        again = copy.deepcopy(sets)
        np.testing.assert_array_equal(again.of(proba), sets.of(proba))


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_coverage_is_kept_through_sudden_drift_where_a_fixed_threshold_loses_it(coverage):
    proba, codes = stream(9_000, 4)
    codes[3_000:6_000] = (codes[3_000:6_000] + 1) % 4  # the probable label is now wrong
    sets = ConformalSets(coverage)
    found = covered(sets, proba, codes)
    least = np.quantile(proba[np.arange(1_000), codes[:1_000]], 1.0 - coverage)
    fixed = proba[np.arange(9_000), codes] >= least
    for start in range(500, 9_000, 500):
        assert abs(found[start : start + 500].mean() - coverage) < 0.05
    assert fixed[3_000:6_000].mean() < coverage - 0.3


def test_rare_classes_are_covered_where_sets_are_by_class():
    rng = np.random.default_rng(0)
    codes = (rng.random(40_000) < 0.02).astype(np.int64)
    p = 1.0 / (1.0 + np.exp(4.0 - 2.0 * codes - rng.normal(size=len(codes))))
    proba = np.column_stack([1.0 - p, p])
    rare = codes == 1
    assert covered(ConformalSets(0.9, n_known=2), proba, codes)[rare].mean() < 0.3
    assert abs(covered(ConformalSets(0.9, True, n_known=2), proba, codes)[rare].mean() - 0.9) < 0.03


def test_a_set_has_the_most_probable_label_and_is_empty_before_there_is_one():
    sets = ConformalSets(0.5, n_known=2)
    found = sets.of(np.array([[0.6, 0.4], [0.4, 0.6], [0.0, 0.0]]))
    assert found.tolist() == [[True, False], [False, True], [False, False]]
    assert sets.of(np.zeros((1, 0))).shape == (1, 0)


@each_choice(("make", [*MAKERS.values()][:4]), ("by_class", [False, True]))
def test_sets_are_equal_for_batches_a_loop_and_a_resumed_learner(make, by_class):
    X, y = ring(330, seed=1)
    X[::50, 0] = np.nan
    labels = np.where(np.arange(330) > 150, y.astype(int), 2 * y).tolist()  # a class that appears late
    labels[30] = None
    looped, batched, saved = make(), make(), make()
    expected = []
    for x, label in zip(dicts(X), labels, strict=True):
        expected.append(looped.predict_set_one(x, 0.8, by_class))
        if label is not None:
            looped.learn_one(x, label)
    asked = {"coverage": 0.8, "by_class": by_class}
    for a, b in ((0, 7), (7, 150), (150, 230), (230, 330)):
        _, proba, members = batched.test_then_train(X[a:b], labels[a:b], proba=True, **asked)
        assert members.shape == proba.shape
        assert [{batched.classes_[c] for c in np.flatnonzero(row)} for row in members] == expected[a:b]
        saved.test_then_train(X[a:b], labels[a:b], **asked)
        saved = copy.deepcopy(type(saved).from_state(*saved.state()))
    last = [model.predict_set_many(X[:40], 0.8, by_class) for model in (batched, saved, looped)]
    np.testing.assert_array_equal(last[0], last[1])
    np.testing.assert_array_equal(last[0], last[2])
    check_equal_sets(batched, looped)


def test_several_sets_follow_a_learner_side_by_side():
    X, y = ring(300)
    looped, batched, asked = CPMClassifier(), CPMClassifier(), [(0.8, False), (0.95, True), (0.9, False)]
    for key in asked:
        looped.label_sets(*key)
        batched.label_sets(*key)
    found = []
    for x, label in zip(dicts(X), y.tolist(), strict=True):
        sets = [looped.predict_set_one(x, *key) for key in asked]
        found.append(sets[1])
        looped.learn_one(x, label)
    for part in (slice(0, 100), slice(100, 300)):
        _, members = batched.test_then_train(X[part], y[part], coverage=0.95, by_class=True)
        assert [{batched.classes_[c] for c in np.flatnonzero(row)} for row in members] == found[part]
    check_equal_sets(batched, looped)


def test_sets_that_grow_by_themselves_still_follow_their_learner():
    model = CPMClassifier()
    model.test_then_train(np.eye(4), [0, 1, 0, 1])
    sets = model.label_sets(0.9, by_class=True)
    sets.run(np.full((1, 40), 1.0 / 40.0), np.array([-1]))
    model.learn_one({0: 1.0}, 1)
    model.test_then_train(np.eye(4), [0, 1, 0, 1], coverage=0.9, by_class=True)
    assert sets.state()[1]["groups.seen"].sum() == 5.0


def test_a_learner_without_requested_sets_stores_none():
    model = CPMClassifier()
    model.learn_one({"a": 1.0}, "x")
    assert not any(name.startswith("sets") for name in model.state()[1])


@pytest.mark.parametrize(("coverage", "by_class"), [(0.0, False), (1.0, False), ("0.9", False), (0.9, 1)])
def test_an_invalid_coverage_is_refused_by_name(coverage, by_class):
    with raises(ParameterError, parameter="by_class" if by_class else "coverage"):
        CPMClassifier().predict_set_one({"a": 1.0}, coverage, by_class)


def test_sets_of_a_damaged_archive_are_refused():
    model = CPMClassifier()
    model.test_then_train(np.eye(2), [0, 1], coverage=0.9)
    header, arrays = model.state()
    for name, value in (("sets.0.groups.debt", [1e9]), ("sets.0.n_groups", 3), ("sets.0.weights", [[2.0] * 5])):
        with pytest.raises(ArchiveError):
            CPMClassifier.from_state(header, arrays | {name: np.array(value, arrays[name].dtype)})


@pytest.mark.parametrize("coverage", [np.float32(0.9), Fraction(9, 10)])
def test_a_coverage_may_be_any_number(coverage, tmp_path):
    X, y = ring(100)
    model = CPMClassifier()
    model.test_then_train(X, y, coverage=coverage)
    model.save(tmp_path / "model")
    x = dicts(X)[0]
    assert streamsvm.load(tmp_path / "model").predict_set_one(x, coverage) == model.predict_set_one(x, coverage)
    assert len(model.state()[0]["sets"]) == 1
    assert model.label_sets(coverage) is model.label_sets(float(coverage))


def test_a_model_without_a_state_is_not_saved_and_reported(tmp_path: Any) -> None:
    with raises(TypeError, named="LogisticRegression"):
        DecidingClassifier(linear_model.LogisticRegression()).save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
