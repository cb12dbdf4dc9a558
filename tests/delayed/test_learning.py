"""Label join with classifiers of this package, trained on stored features."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors.events import LateLabels
from streamsvm import BSGDClassifier, CPMClassifier, DelayedClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.costs import Costs
from streamsvm.decide.decisions import Decisions
from streamsvm.delayed import segments, slots
from streamsvm.delayed import store as stores
from streamsvm.delayed.join import Join
from streamsvm.delayed.protocol import Arrivals
from streamsvm.delayed.store import Store
from streamsvm.online.adapters import BatchAdapter, Predictions
from streamsvm.refit import Growing
from tests.learners import assert_same_knowledge

pytestmark = pytest.mark.usefixtures("lasting_process")

N, DELAY = 700, 60
NONE, AT_ONCE = np.zeros(0, np.int64), np.zeros(1, np.int64)


def stream(n: int = N) -> tuple[np.ndarray, list[str]]:
    """Values increase a thousandfold halfway, so scaling with later ones would show."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other").tolist()
    X[n // 2 :] *= 1_000.0
    return X, y


def joined(model: Any, X: np.ndarray, y: list[str], cut: int) -> tuple[np.ndarray, np.ndarray]:
    """Return predictions and scores with labels `DELAY` late, in batches of `cut`."""
    n, join = len(X), Join(Store(), BatchAdapter(model))
    answers: list[Predictions] = []
    for start in range(0, n + DELAY, cut):
        now = np.arange(start, min(start + cut, n))
        then = np.arange(max(start - DELAY, 0), max(min(start + cut - DELAY, n), 0))
        times, before = (2 * (then + DELAY) + 1).tolist(), np.minimum(then + DELAY + 1 - start, len(now))
        late = LateLabels([y[i] for i in then.tolist()], [], times, before)
        part = {name: X[now, j] for j, name in enumerate("abc")}
        events = Arrivals(part, [str(i) for i in now.tolist()], 2 * now, np.zeros((len(now), 2), np.int64))
        answers.append(join.step(events, late, [str(i) for i in then.tolist()])[0])
    return np.concatenate([a.codes for a in answers]), np.concatenate([a.scores for a in answers])


def refitted() -> RefitClassifier:
    return RefitClassifier(BSGDClassifier(budget=20), "newton", trigger=Growing(200, 1.5), delay=70)


MODELS: list[Callable[[], Any]] = [
    lambda: StreamSVMClassifier(budget=20),
    lambda: CPMClassifier(n_faces=3),
    lambda: BSGDClassifier(budget=20, scaling="rank"),
    refitted,
]


@pytest.mark.parametrize("make", MODELS)
def test_later_events_do_not_affect_earlier_results(make: Callable[[], Any]) -> None:
    """Two streams with different ends have bit-identical results before them."""
    X, y = stream()
    end = slice(N // 2 + 100, None)
    other, other_y = X.copy(), [*y[: end.start], *("same" for _ in y[end])]
    other[end] = -1e6 * X[end] + 5.0
    codes, scores = joined(make(), X, y, cut=2_000)
    other_codes, other_scores = joined(make(), other, other_y, cut=2_000)
    np.testing.assert_array_equal(codes[: end.start], other_codes[: end.start])
    np.testing.assert_array_equal(scores[: end.start], other_scores[: end.start])
    assert not np.array_equal(scores[end], other_scores[end])


@pytest.mark.parametrize("make", MODELS)
def test_columns_of_missing_values_do_not_depend_on_batches(make: Callable[[], Any]) -> None:
    X, y = stream()
    X[np.array(y) == "same", 1] = math.nan
    whole, cut = make(), make()
    codes, scores = joined(whole, X, y, cut=2_000)
    cut_codes, cut_scores = joined(cut, X, y, cut=37)
    np.testing.assert_array_equal(codes, cut_codes)
    np.testing.assert_array_equal(scores, cut_scores)
    learner = whole.model if isinstance(whole, RefitClassifier) else whole
    assert ("b", None) in learner.columns


def test_refits_with_late_labels_do_not_depend_on_batches() -> None:
    X, y = stream()
    whole, cut = refitted(), refitted()
    codes, scores = joined(whole, X, y, cut=2_000)
    cut_codes, cut_scores = joined(cut, X, y, cut=37)
    np.testing.assert_array_equal(codes, cut_codes)
    np.testing.assert_array_equal(scores, cut_scores)
    assert len(whole.refits) >= 2
    assert [refit["event"] for refit in whole.refits] == [refit["event"] for refit in cut.refits]
    # The inner learner equals one without refits, which only vote.
    alone = BSGDClassifier(budget=20)
    joined(alone, X, y, cut=512)
    assert_same_knowledge(whole.model, alone)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (MODELS[0], {}),
        (MODELS[0], {"wait_ms": 40, "relearns": True}),
        (MODELS[0], {"most_bytes": 6_000}),
        (MODELS[1], {"wait_ms": 40, "on_timeout": "same"}),
        (MODELS[1], {"most": 7}),
        (MODELS[2], {"wait_ms": 40, "folder": True}),
        (MODELS[0], {"wait_ms": 40, "decides": "sets"}),
        (MODELS[2], {"relearns": True, "decides": True}),
    ],
)
def test_single_events_and_labels_equal_steps(
    make: Callable[[], Any], options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels come early, twice, late or never; new names and classes appear."""
    monkeypatch.setattr(stores, "SPARE", 4)
    monkeypatch.setattr(slots, "FIRST_SLOTS", 1)
    rng, options, n_alone = random.Random(3), options.copy(), 0
    on_timeout = options.pop("on_timeout", None)
    if "folder" in options:
        options["folder"] = tmp_path
        monkeypatch.setattr(segments, "SEGMENT", 16)  # single events close one sooner than steps
    made = [Decisions()] * 2
    if decides := options.pop("decides", ""):
        costs = None if decides == "sets" else Costs(class_weight="balanced", abstain=0.4)
        made = [Decisions(sets=ConformalSets(0.8, costs is None), costs=copy.deepcopy(costs)) for _ in range(2)]
    models = [BatchAdapter(make(), proba=True) for _ in range(2)]

    def begin() -> list[Join]:
        pairs = zip(models, made, strict=True)
        return [Join(Store(**options), model, on_timeout=on_timeout, decisions=decided) for model, decided in pairs]

    joins = begin()
    for i in range(120):
        time, key = i - rng.randrange(3), str(rng.randrange(max(i - 50, 0), i + 3))
        if rng.random() < 0.55:
            x: dict[str, Any] = {"a": rng.gauss(0, 1), "b": rng.randrange(9)}
            if i % 25 == 24:
                x = {"a": 1, "b": math.nan}
            if i % 7 == 3:
                x["b"] = None
            if i % 35 == 34:
                del x["a"]
            if i > 90 and i % 10 == 9:
                x["text"] = "t"
            events = Arrivals([x], [key], np.array([time]), np.zeros((1, 2), np.int64))
            none = LateLabels([], [], [], NONE)
            if joins[0].predict_one(x, key, time):
                single = joins[0].single
                assert single is not None
                one, n_alone = Predictions(np.array(single.code), np.array(single.score), single.proba), n_alone + 1
                one.decided = joins[0].decided
            else:
                one, _ = joins[0].step(events, none, [])
            other, _ = joins[1].step(events, none, [])
            for name in ("codes", "scores", "probas"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            for name in ("members", "decisions"):
                np.testing.assert_array_equal(getattr(one.decided, name), getattr(other.decided, name))
        else:
            label = rng.choice(["same", "other"] if i < 80 else ["same", "other", "third"])
            given = Arrivals([], [], NONE, np.zeros((0, 2), np.int64)), LateLabels([label], [], [time], AT_ONCE), [key]
            if joins[0].label_one(label, key, time):
                n_alone += 1
            else:
                joins[0].step(*given)
            joins[1].step(*given)
        assert joins[0].store.counts == joins[1].store.counts
        if i % 40 == 30:
            before, joins = joins, begin()
            for join, old in zip(joins, before, strict=True):
                join.store.restore(*old.store.state(tmp_path), tmp_path)
    assert n_alone > 50
    states = [] if "folder" in options else [join.store.state(tmp_path) for join in joins]
    for header, arrays in states:
        del header["secret_of_digests"]
        arrays["open.records"] = arrays["open.records"][:, 2:]  # without digests
        assert header == states[0][0]
    for name, array in states[0][1].items() if states else ():
        np.testing.assert_array_equal(array, states[1][1][name], err_msg=name)
    assert_same_knowledge(joins[0].model.model, joins[1].model.model)
    for name, array in made[0].sets.state()[1].items() if made[0].sets else ():
        np.testing.assert_array_equal(array, made[1].sets.state()[1][name], err_msg=name)


def test_the_order_of_features_has_no_effect() -> None:
    X, y = stream(300)
    models = [DelayedClassifier(BSGDClassifier(budget=20)) for _ in range(2)]
    for i, row in enumerate(X.tolist()):
        x = dict(zip("abc", row, strict=True))
        assert models[0].predict_proba_one(x, key=i) == models[1].predict_proba_one({k: x[k] for k in "cab"}, key=i)
        if i >= DELAY:
            for model in models:
                model.learn_one(i - DELAY, y[i - DELAY])
    assert_same_knowledge(models[0].model, models[1].model)
