"""Any classifier with labels by key."""

from __future__ import annotations

import copy
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pytest
from river import compose, datasets, evaluate, linear_model, metrics, naive_bayes, tree

from streamsvm import CPMClassifier, DecidingClassifier, DelayedClassifier, StreamSVMClassifier
from streamsvm.features.rows import BadRows
from streamsvm.parameters import ParameterError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import check_with_river

MODELS = [
    *(DelayedClassifier(**params) for params in DelayedClassifier._unit_test_params()),
    DelayedClassifier(CPMClassifier(n_faces=2)),
]


def test_river() -> None:
    check_with_river(MODELS[-1])


@each_choice(
    ("delay", [1, 30]), ("model", [naive_bayes.GaussianNB(), tree.HoeffdingTreeClassifier(), CPMClassifier(n_faces=2)])
)
def test_a_delay_by_key_equals_a_delay_without_keys(model: Any, delay: int) -> None:
    stream = list(datasets.Phishing().take(100))
    keyed = ((x, y, {"key": i}) for i, (x, y) in enumerate(stream))
    found = evaluate.progressive_val_score(keyed, DelayedClassifier(model.clone()), metrics.Accuracy(), delay=delay)
    plain = evaluate.progressive_val_score(stream, model.clone(), metrics.Accuracy(), delay=delay)
    assert found.get() == plain.get()


def test_texts_that_are_no_unicode_wait_as_others_do() -> None:
    model = DelayedClassifier(CPMClassifier())
    for key, x in enumerate(({"a": "\ud800", "b": float("nan")}, {("c", "\ud801"): "\ud802"})):
        model.predict_one(x, key=key)
        model.learn_one(key, "\ud803")
        assert model.predict_one(x) == "\ud803"


@pytest.mark.parametrize("value", [float("inf"), [1]])
def test_an_event_that_is_refused_does_not_wait(value: Any) -> None:
    model = DelayedClassifier(CPMClassifier())
    model.predict_one({"a": 1.0}, key="good")
    with raises(BadRows, "'a'"):
        model.predict_one({"a": value}, key="bad")
    assert model.n_pending == 1
    model.learn_one("good", "yes")
    assert model.counts["answered"] == 1
    assert model.predict_one({"a": 1.0}) == "yes"


class Picky(naive_bayes.GaussianNB):  # type: ignore[misc]
    """A classifier of River that fails for some events."""

    def predict_proba_one(self, x: dict[str, float]) -> Any:
        if "unpredictable" in x:
            raise ArithmeticError
        return super().predict_proba_one(x)

    def learn_one(self, x: dict[str, float], y: Any) -> None:
        if "unlearnable" in x:
            raise ArithmeticError
        super().learn_one(x, y)


def test_an_event_for_which_a_model_of_river_fails_does_not_wait() -> None:
    model = DelayedClassifier(Picky())
    with pytest.raises(ArithmeticError):
        model.predict_one({"unpredictable": 1.0}, key=1)
    model.predict_one({"unlearnable": 1.0}, key=2)
    with pytest.raises(ArithmeticError):
        model.learn_one(2, "a")
    assert model.n_pending == 0
    model.predict_one({"a": 1.0}, key=3)
    model.learn_one(3, "a")
    assert model.predict_one({"a": 1.0}) == "a"


@pytest.mark.parametrize("model", [CPMClassifier, None, "cpm", linear_model.LinearRegression()])
def test_other_models_than_classifiers_are_refused_at_once(model: Any) -> None:
    with raises(TypeError, parameter="model"):
        DelayedClassifier(model)


@pytest.mark.parametrize("wait", [-1, math.nan, math.inf, "30d", timedelta(days=-1), np.timedelta64(5, "s")])
def test_an_impossible_wait_is_refused_at_once(wait: Any) -> None:
    with raises(ParameterError, parameter="timeout_label"):
        DelayedClassifier(CPMClassifier(), timeout_label="fine")
    with raises(ValueError, "NaN"):
        DelayedClassifier(CPMClassifier()).predict_one({"x": 1.0}, key=math.nan)
    with raises(ValueError, "NaN"):
        DelayedClassifier(CPMClassifier()).learn_one(math.nan, "a")
    with raises(ParameterError, parameter="label_timeout"):
        DelayedClassifier(CPMClassifier(), label_timeout=wait)


def test_times_may_be_datetimes_and_other_units_are_refused() -> None:
    for start in (datetime(2026, 1, 25, 23), datetime(2026, 1, 25, 23, tzinfo=UTC), np.datetime64("2026-01-25T23:00")):
        model = DelayedClassifier(CPMClassifier(), label_timeout=10.0)
        for i in range(2):
            model.predict_one({"x": 1.0}, key=i, time=start)
        model.learn_one(0, "a", time=start + timedelta(seconds=9))
        model.learn_one(1, "a", time=start + timedelta(seconds=11))
        assert model.counts["answered"] == 1
        assert model.counts["late"] == 1
    with raises(ValueError, named=1_700_000_000_000):
        model.predict_one({"x": 1.0}, key=2, time=1_700_000_000_000)
    with pytest.raises(TypeError):
        model.predict_one({"x": 1.0}, key=2, time=[1.0])


def test_an_event_with_a_datetime_may_arrive_at_a_timeout_of_others() -> None:
    model = DelayedClassifier(CPMClassifier(), label_timeout=5.0, timeout_label="fine")
    model.predict_one({"at": datetime(2026, 1, 1)}, key=1, time=0.0)
    assert model.predict_one({"at": datetime(2026, 1, 2)}, key=2, time=9.0) == "fine"
    for value in ([1], math.inf, 10**400):  # no event expires because of one that is refused
        with raises(BadRows, "'at'"):
            model.predict_one({"at": value}, key=3, time=20.0)
    assert (model.n_pending, model.counts["expired"]) == (1, 1)
    assert ["'at'" in notice for notice in model.notices] == [True]


class Recorder(naive_bayes.GaussianNB):
    """Classifier that records what it predicts and learns."""

    calls: ClassVar[list[tuple[float, Any]]] = []

    def predict_proba_one(self, x: Any) -> Any:
        self.calls.append((x["a"], None))
        return super().predict_proba_one(x)

    def learn_one(self, x: Any, y: Any) -> None:
        self.calls.append((x["a"], y))
        super().learn_one(x, y)


def test_an_event_is_predicted_once_after_all_that_expire_before_it() -> None:
    model = DelayedClassifier(Recorder(), label_timeout=1, timeout_label="no")
    Recorder.calls.clear()
    for t in (0.0, 2.0):
        model.predict_set_one({"a": t}, key=t, time=t)
    model.learn_one(4, "yes", time=3)
    model.predict_set_one({"a": 4.0}, key=4, time=4)
    assert Recorder.calls == [(0, None), (0, "no"), (2, None), (2, "no"), (4, None), (4, "yes")]


@pytest.mark.parametrize("with_sets", [False, True])
def test_an_event_that_a_river_model_cannot_predict_is_not_stored(with_sets: bool) -> None:
    model = DelayedClassifier(compose.Select("a", "b") | naive_bayes.GaussianNB())
    if with_sets:
        model.predict_set_one({"a": 1.0, "b": 1.0}, key="first")
    n_pending = model.n_pending
    model.learn_one("early", "p")
    for key in ("new", "early"):
        with pytest.raises(KeyError):
            model.predict_one({"a": 1.0}, key=key)
    assert (model.n_pending, model.counts["early"]) == (n_pending, 1)


COST = {"p": {"q": 20.0}}


def turning(n: int) -> list[tuple[dict[str, float], str]]:
    dice = random.Random(2)
    X = [{"a": dice.gauss(0, 1), "b": dice.gauss(0, 1)} for _ in range(n)]
    return [(x, "p" if x["a"] * (1 if i < n // 2 else -1) + dice.gauss(0, 1) > 0 else "q") for i, x in enumerate(X)]


def shares_and_decisions(model: Any, delay: int, sets_at: int = -1) -> list[Any]:
    events, found = turning(50), []
    for i, (x, _) in enumerate(events):
        if i == sets_at:
            model.predict_set_one(x, key=i)
            found.append(None)
        else:
            found.append((model.predict_proba_one(x, key=f"-{i}"), model.predict_one(x, key=i)))
        if i >= delay:
            model.learn_one(i - delay, events[i - delay][1])
    return found


@pytest.mark.parametrize("delay", [0, 10])
def test_costs_do_not_change_learning(delay: int) -> None:
    plain, deciding = (StreamSVMClassifier(effort="low", cost=cost) for cost in (None, COST))
    found = [shares_and_decisions(DelayedClassifier(model), delay) for model in (plain, deciding)]
    assert [shares for shares, _ in found[0]] == [shares for shares, _ in found[1]]
    for (shares, likeliest), (_, decision) in zip(*found, strict=True):
        if len(shares) == 2:
            assert likeliest == max(shares, key=shares.__getitem__)
            assert decision == ("p" if 20.0 * shares["p"] > shares["q"] else "q")


@pytest.mark.parametrize("inner", [CPMClassifier(), naive_bayes.GaussianNB()], ids=["own", "river"])
def test_sets_do_not_change_decisions(inner: Any) -> None:
    models = [DelayedClassifier(DecidingClassifier(copy.deepcopy(inner), cost=COST)) for _ in range(2)]
    plain, asked = shares_and_decisions(models[0], 5), shares_and_decisions(models[1], 5, sets_at=30)
    assert asked[:30] == plain[:30]
    assert asked[31:] == plain[31:]
    assert {decision for _, decision in plain} > {"p", "q"}


def test_sets_of_a_river_classifier_have_the_coverage() -> None:
    model, rng, hits = DelayedClassifier(naive_bayes.GaussianNB()), random.Random(1), 0
    for i in range(400):
        label = rng.choice("ab")
        found = model.predict_set_one({"a": rng.gauss(label == "b", 1.5)}, coverage=0.9, key=i)
        hits += i >= 100 and label in found
        model.learn_one(i, label)
    assert 0.86 < hits / 300 < 0.94


@pytest.mark.parametrize(
    "wrong", [{"pending_dir": "/none"}, {"timeout_label": math.nan}, {"max_pending_bytes": 10**20}]
)
def test_parameters_that_cannot_work_are_refused_at_once(wrong: Any) -> None:
    with raises(ValueError, *wrong):
        DelayedClassifier(CPMClassifier(), **wrong)


def test_a_call_with_a_key_takes_no_arguments_of_the_classifier() -> None:
    model = DelayedClassifier(CPMClassifier())
    for call in (model.predict_one, model.predict_proba_one, model.predict_set_one):
        with pytest.raises(TypeError):
            call({"a": 1.0}, key=1, tiem=5.0)
    with pytest.raises(TypeError):
        model.learn_one(1, "yes", w=2.0)
    assert model.n_pending == 0
    for time in (math.nan, math.inf):
        with raises(ValueError, named=time):
            model.predict_one({"a": 1.0}, key=1, time=time)


def test_labels_with_and_without_keys_are_counted_in_the_same_way() -> None:
    model = DelayedClassifier(DecidingClassifier(CPMClassifier(), class_weight="balanced"))
    for i, (x, y) in enumerate(turning(90)):
        if i % 3:
            model.predict_one(x, key=i)
            model.learn_one(i, y)
        else:
            model.learn_one(x, y)
    y = [y for _, y in turning(90)]
    counts = {label: model.model.costs.counts[code] for code, label in enumerate(model.model.classes_)}
    assert counts == {label: y.count(label) for label in "pq"}


def test_where_events_wait_as_dicts_a_folder_is_refused_at_once(tmp_path: Any) -> None:
    DelayedClassifier(StreamSVMClassifier(cost=COST), pending_dir=str(tmp_path))
    with raises(ValueError, named="GaussianNB"):
        DelayedClassifier(naive_bayes.GaussianNB(), pending_dir=str(tmp_path))


@pytest.fixture
def few_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 50 labels be enough for a warning about keys and times."""
    monkeypatch.setattr("streamsvm.delayed.classifier.MANY_LABELS", 50)


@pytest.mark.usefixtures("few_labels")
def test_keys_that_never_match_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    model = DelayedClassifier(CPMClassifier())
    for i in range(60):
        model.predict_one({"a": i % 7}, key=i)
        model.learn_one(f"{i:06d}", i % 2)
    [notice] = model.notices
    assert "'0'" in notice
    assert "'000000'" in notice
    assert caplog.text.count(notice) == 1


@pytest.mark.usefixtures("few_labels")
def test_labels_after_the_timeout_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    model = DelayedClassifier(CPMClassifier(), label_timeout=3600)
    for i in range(180):
        model.predict_one({"a": i % 7}, key=i, time=60 * i)
        if i >= 120:
            model.learn_one(i - 120, i % 2, time=60 * i)
    for i in range(60, 180):
        model.learn_one(i, i % 2, time=60 * (i + 120))
    [notice] = model.notices
    assert notice.startswith("0 of 50 labels arrived in time: they are 2:00:00 after their events")
    assert caplog.text.count(notice) == 1


@pytest.mark.usefixtures("few_labels")
def test_keys_that_match_partly_are_not_reported() -> None:
    model = DelayedClassifier(CPMClassifier())
    for i in range(60):
        model.predict_one({"a": i % 7}, key=i)
        model.learn_one(str(i) if i % 3 else f"{i:06d}", i % 2)
    assert model.notices == []
