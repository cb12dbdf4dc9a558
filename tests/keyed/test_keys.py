"""However keys take turns, and engines save, forget and start again: each key has the model it would have alone."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.keyed import KeyedClassifier, KeyStateError, LiveKeys
from streamsvm.keyed.packing import seal, unseal
from tests.learners import snapshot

MODELS = [CPMClassifier(), BSGDClassifier(budget=3), StreamSVMClassifier(budget=2, effort="low")]

VALUES = st.one_of(st.floats(-3.0, 3.0), st.none(), st.sampled_from(["red", "blue"]), st.just(float("inf")))
EVENTS = st.fixed_dictionaries({}, optional={"a": VALUES, "b": VALUES, "label": st.sampled_from([0, 1, "2", None])})
KEYS = st.sampled_from("pqr")
DOINGS = st.one_of(
    st.tuples(st.just("step"), KEYS, st.lists(EVENTS, max_size=3)),
    st.tuples(st.sampled_from(["flush", "drop", "restart"]), KEYS, st.none()),
)


def by_hand(model, events) -> list[dict[str, Any]]:
    """What a model of one key alone answers."""
    answers = []
    for event in events:
        x = {name: value for name, value in event.items() if name != "label"}
        label, answer = event.get("label"), {"prediction": None, "score": None}
        try:
            shares = model.predict_proba_one(x)
            answer["prediction"] = model.predict_one(x)
            answer["score"] = shares.get(answer["prediction"])
            if label is not None:
                model.learn_one(x, label)
        except (TypeError, ValueError) as error:
            answer["reason"] = str(error)
        answers.append(answer)
    return answers


@settings(max_examples=60)
@given(model=st.sampled_from(MODELS), max_live=st.integers(1, 3), doings=st.lists(DOINGS, max_size=25))
def test_a_model_per_key_alone(model, max_live, doings):
    """Interleaved, flushed, evicted, dropped and restarted, keys answer as the same events of each alone.

    What was dropped, or not saved before a restart, comes again from the source, as an engine sees to.
    """
    keyed, store = KeyedClassifier(model), dict[str, bytes]()
    # Of each key the events that its state in the store has met, and those since.
    saved = dict.fromkeys("pqr", 0)
    events: dict[str, list[Any]] = {key: [] for key in "pqr"}
    plain: dict[str, bytes | None] = dict.fromkeys("pqr")

    def take(key, data):
        saved[key] = len(events[key])
        store[key] = data

    live = LiveKeys(keyed, store.get, take, max_live)
    for what, key, new in doings:
        if what == "step":
            answers, plain[key] = keyed.step(plain[key], new)
            events[key] += new
            assert live.step(key, new) == answers
        elif what == "flush":
            live.flush()
            assert all(store[k] == plain[k] for k in store)
        else:
            if what == "drop":
                live.drop(lambda k, key=key: k == key)
                lost = [key]
            else:
                keyed = KeyedClassifier(model)
                live, lost = LiveKeys(keyed, store.get, take, max_live), list("pqr")
            for k in lost:
                live.step(k, events[k][saved[k] :])
    live.flush()
    for key in "pqr":
        alone = by_hand(model.clone(), events[key])
        answers, state = KeyedClassifier(model).step(None, events[key])
        assert answers == alone
        if events[key]:
            assert store[key] == state == plain[key]


def test_an_event_of_no_use_costs_nothing_but_itself():
    keyed = KeyedClassifier(CPMClassifier())
    good = [{"a": float(i % 2), "label": i % 2} for i in range(20)]
    bad = [
        {"a": float("inf"), "label": 0},
        {"a": [1], "label": 0},
        {"a": 1.0, "label": []},
        5,
        {"a": 1.0, "label": frozenset()},
    ]
    answers, state = keyed.step(None, [*good[:10], *bad, *good[10:]])
    assert state == keyed.step(None, good)[1]
    said = ["'a' is infinite", "'a'", "unhashable", "not iterable", "frozenset() of type frozenset cannot be saved"]
    for answer, reason in zip(answers[10:15], said, strict=True):
        assert reason in answer["reason"]


def test_events_without_label_are_only_predicted():
    """None, NaN and an absent label are all none; the score is the probability of the label predicted."""
    keyed = KeyedClassifier(CPMClassifier())
    _, state = keyed.step(None, [{"a": float(i % 2), "label": i % 2} for i in range(20)])
    answers, after = keyed.step(state, [{"a": 1.0}, {"a": 1.0, "label": None}, {"a": 1.0, "label": float("nan")}])
    assert after == state
    assert answers == [answers[0]] * 3
    assert answers[0]["prediction"] == 1
    assert 0.5 < answers[0]["score"] <= 1.0


def test_fields_that_are_no_features_are_left_out():
    events = [{"a": float(i % 2), "y": i % 2, "customer": f"c{i}", "when": i} for i in range(20)]
    keyed = KeyedClassifier(CPMClassifier(), label="y", ignore=["customer", "when"])
    bare = [{"a": event["a"], "label": event["y"]} for event in events]
    assert keyed.step(None, events) == KeyedClassifier(CPMClassifier()).step(None, bare)
    with pytest.raises(TypeError, match="`ignore` must be a sequence of field names, got 'customer'"):
        KeyedClassifier(CPMClassifier(), ignore="customer")


def test_a_key_of_another_model_is_refused():
    _, state = KeyedClassifier(CPMClassifier()).step(None, [{"a": 1.0, "label": 0}])
    keyed = KeyedClassifier(CPMClassifier(n_faces=2))
    with pytest.raises(KeyStateError, match="another `n_faces`"):
        keyed.step(state, [])
    saved: dict[str, bytes] = {}
    live = LiveKeys(keyed, {"c": state}.get, saved.__setitem__)
    with pytest.raises(KeyStateError, match="another `n_faces`"):
        live.step("c", [])
    live.flush()
    assert len(live) == len(saved) == 0


def test_live_keys_are_bounded_and_saved_when_they_give_way():
    """The one used longest ago gives way; what has not changed since it was saved is not saved again."""
    store: dict[str, bytes] = {}
    said: list[str] = []

    def save(key, data):
        said.append(key)
        store[key] = data

    live = LiveKeys(KeyedClassifier(CPMClassifier()), store.get, save, max_live=2)
    for key in "abacb":
        live.step(key, [{"x": 1.0, "label": 0}])
        assert len(live) <= 2
    assert said == ["b", "a"]
    live.flush()
    live.flush()
    assert sorted(said) == ["a", "b", "b", "c"]
    with pytest.raises(ValueError, match="max_live"):
        LiveKeys(KeyedClassifier(CPMClassifier()), store.get, save, max_live=0)


def test_a_stateful_function_of_an_engine():
    class State(dict):
        get_bytes, set_bytes = dict.get, dict.__setitem__

    keyed, state = KeyedClassifier(CPMClassifier()), State()
    answers = [keyed({"a": float(i % 2), "label": i % 2}, state) for i in range(20)]
    assert (answers, *state.values()) == keyed.step(None, [{"a": float(i % 2), "label": i % 2} for i in range(20)])


# Parents ---------------------------------------------------------------------------------------------------------


def customers(n, seed=0, n_keys=10):
    """Half of the customers are as the others, the rest the other way round."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        who, a = int(rng.integers(n_keys)), float(rng.normal())
        yield who, {"a": a, "label": "high" if (a > 0) == (who % 3 > 0) else "low"}


def trained():
    parent = CPMClassifier()
    for _, event in customers(2_000, seed=1):
        parent.learn_one({"a": event["a"]}, event["label"])
    return parent


def test_a_new_key_answers_as_its_parent():
    parent = trained()
    answers, _ = KeyedClassifier(CPMClassifier(), parent=parent).step(None, [{"a": 2.0}, {"a": -2.0}])
    expected = [parent.predict_one({"a": a}) for a in (2.0, -2.0)]
    assert [answer["prediction"] for answer in answers] == expected == ["high", "low"]
    assert answers[0]["score"] == pytest.approx(parent.predict_proba_one({"a": 2.0})["high"], abs=0.01)


@pytest.mark.parametrize("learn", [True, False])
def test_a_key_learns_where_it_is_unlike_the_others(learn):
    """Keys that are as their parent stay as good, those that are not become better than it."""
    keyed = KeyedClassifier(CPMClassifier(), parent="learn" if learn else trained())
    states: dict[int, bytes | None] = dict.fromkeys(range(10))
    right: dict[bool, list[bool]] = {True: [], False: []}
    for who, event in customers(3_000):
        [answer], states[who] = keyed.step(states[who], [event])
        right[who % 3 > 0].append(answer["prediction"] == event["label"])
    assert np.mean(right[True][-500:]) > 0.95
    assert np.mean(right[False][-500:]) > 0.95


def test_the_own_model_is_the_same_with_a_parent():
    """What a key learns by itself is as without a parent, which can come and go."""
    parent, events = trained(), [event for _, event in customers(60)]
    alone, beside = KeyedClassifier(CPMClassifier()), KeyedClassifier(CPMClassifier(), parent=parent)
    _, state = beside.step(None, events)
    assert beside.step(None, events)[1] == state
    (answer,), _ = alone.step(state, [{"a": 0.1}])
    assert answer == alone.step(alone.step(None, events)[1], [{"a": 0.1}])[0][0]
    _, went_on = beside.step(alone.step(state, [])[1], [])
    assert went_on == state


@pytest.mark.parametrize("model", [CPMClassifier(), StreamSVMClassifier(effort="low", budget=5)])
def test_a_parent_that_does_not_learn_stays_as_it_is(model):
    for _, event in customers(100, seed=1):
        model.learn_one({"a": event["a"]}, event["label"])
    before = snapshot(model)
    keyed = KeyedClassifier(CPMClassifier(), parent=model)
    events = [event for _, event in customers(30)]
    assert keyed.step(None, events) == keyed.step(None, events)
    assert snapshot(model) == before


def test_a_parent_from_a_file(tmp_path):
    trained().save(tmp_path / "all.svm")
    keyed = KeyedClassifier(CPMClassifier(), parent=tmp_path / "all.svm")
    assert keyed.step(None, [{"a": 2.0}])[0][0]["prediction"] == "high"
    assert keyed.parent.n_events_learned == 2_000


def test_labels_that_only_one_of_both_knows():
    keyed = KeyedClassifier(CPMClassifier(), parent=trained())
    events = [{"a": float(i % 2), "label": "new"} for i in range(100)]
    answers, _ = keyed.step(None, events)
    assert answers[-1]["prediction"] == "new"


def test_parents_that_are_none_are_refused(tmp_path):
    with pytest.raises(ValueError, match="the parent has learned nothing"):
        KeyedClassifier(CPMClassifier(), parent=CPMClassifier())
    with pytest.raises(TypeError, match='`parent` must be "learn", a file that `save` wrote, or a classifier, got int'):
        KeyedClassifier(CPMClassifier(), parent=3)
    with pytest.raises(FileNotFoundError):
        KeyedClassifier(CPMClassifier(), parent=tmp_path / "none.svm")


@pytest.mark.parametrize("section", [b"\0", struct.pack("<2d", 1.0, -1.0), struct.pack("<2d", float("nan"), 1.0)])
def test_votes_that_are_none_are_refused(section):
    _, state = KeyedClassifier(CPMClassifier(), parent=trained()).step(None, [])
    *others, _ = unseal(state, 5)
    with pytest.raises(KeyStateError, match="the vote of parent and key"):
        KeyedClassifier(CPMClassifier()).step(seal([*others, section]), [])
