"""However keys take turns, and engines save, forget and start again: each key has the model it would have alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm import BSGDClassifier, CPMClassifier, StreamSVMClassifier
from streamsvm.keyed import KeyedClassifier, KeyStateError, LiveKeys

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
