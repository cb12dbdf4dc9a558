"""Keys in any order, saved, dropped or restarted, have their models alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import linear_model

from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.keyed import KeyCache, KeyedClassifier, KeyStateError
from streamsvm.keyed.key_events import Key
from streamsvm.keyed.key_state import seal, unseal
from streamsvm.keyed.prior import PriorVote
from streamsvm.parameters import ParameterError
from tests.errors import raises
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
    """Return the predictions of a model of one key."""
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


@settings(max_examples=30)
@given(model=st.sampled_from(MODELS), max_keys=st.integers(1, 3), doings=st.lists(DOINGS, max_size=25))
def test_a_model_per_key_alone(model, max_keys, doings):
    """Interleaved, flushed, evicted and dropped keys equal separate models.

    Dropped or unsaved events come again from the source, as with an engine.
    """
    keyed, store = KeyedClassifier(model), dict[str, bytes]()
    # For each key, the events in its stored state, and later ones.
    saved = dict.fromkeys("pqr", 0)
    events: dict[str, list[Any]] = {key: [] for key in "pqr"}
    plain: dict[str, bytes | None] = dict.fromkeys("pqr")

    def take(key, data):
        saved[key] = len(events[key])
        store[key] = data

    cache = KeyCache(keyed, store.get, take, max_keys)
    for what, key, new in doings:
        if what == "step":
            answers, plain[key] = keyed.step(plain[key], new)
            events[key] += new
            assert cache.step(key, new) == answers
        elif what == "flush":
            cache.flush()
            assert all(store[k] == plain[k] for k in store)
        else:
            if what == "drop":
                cache.drop(lambda k, key=key: k == key)
                lost = [key]
            else:
                keyed = KeyedClassifier(model)
                cache, lost = KeyCache(keyed, store.get, take, max_keys), list("pqr")
            for k in lost:
                cache.step(k, events[k][saved[k] :])
    cache.flush()
    for key in "pqr":
        alone = by_hand(model.clone(), events[key])
        answers, state = KeyedClassifier(model).step(None, events[key])
        assert answers == alone
        if events[key]:
            assert store[key] == state == plain[key]


def test_an_invalid_event_does_not_affect_others():
    keyed = KeyedClassifier(CPMClassifier())
    good = [{"a": float(i % 2), "label": i % 2} for i in range(20)]
    bad = [{"a": float("inf"), "label": 0}, {"a": [1], "label": 0}, {"a": 1.0, "label": []}, 5]
    bad.append({"a": 1.0, "label": frozenset()})
    answers, state = keyed.step(None, [*good[:10], *bad, *good[10:]])
    assert state == keyed.step(None, good)[1]
    said = ["'a' is infinite", "'a'", "unhashable", "not iterable", "frozenset() of type frozenset cannot be saved"]
    for answer, reason in zip(answers[10:15], said, strict=True):
        assert reason in answer["reason"]


def test_events_without_label_are_only_predicted():
    """None, NaN and absent labels are missing; the score is a probability."""
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
    with raises(TypeError, parameter="ignore"):
        KeyedClassifier(CPMClassifier(), ignore="customer")


@pytest.mark.parametrize("model", MODELS)
def test_it_can_be_sent_to_workers(model):
    """Engines use pickle, also while keys are in memory."""
    events = [{"a": float(i % 2), "label": i % 2} for i in range(30)]
    keyed = KeyedClassifier(model, prior_model=trained())
    _, state = keyed.step(None, events)
    key = Key(keyed, state)
    sent = pickle.loads(pickle.dumps(keyed))
    assert sent.step(state, events) == keyed.step(state, events)
    assert key.pack() == state


def test_parents_of_other_kinds():
    """Any classifier with probabilities can be a parent, also one with refits."""
    for model in (linear_model.LogisticRegression(), RefitClassifier(CPMClassifier())):
        for i in range(200):
            model.learn_one({"a": float(i % 2)}, i % 2 == 1)
        keyed = KeyedClassifier(CPMClassifier(), prior_model=model)
        assert [answer["prediction"] for answer in keyed.step(None, [{"a": 1.0}, {"a": 0.0}])[0]] == [True, False]


def test_a_key_of_another_model_is_refused():
    _, state = KeyedClassifier(CPMClassifier()).step(None, [{"a": 1.0, "label": 0}])
    keyed = KeyedClassifier(CPMClassifier(n_faces=2))
    with raises(KeyStateError, reason="settings", named="`n_faces`"):
        keyed.step(state, [])
    saved: dict[str, bytes] = {}
    cache = KeyCache(keyed, {"c": state}.get, saved.__setitem__)
    with raises(KeyStateError, reason="settings", named="`n_faces`"):
        cache.step("c", [])
    cache.flush()
    assert len(cache) == len(saved) == 0


def test_cached_keys_are_bounded_and_saved_when_evicted():
    """The least recently used key is evicted. Unchanged keys are not saved again."""
    store: dict[str, bytes] = {}
    said: list[str] = []

    def save(key, data):
        said.append(key)
        store[key] = data

    cache = KeyCache(KeyedClassifier(CPMClassifier()), store.get, save, max_keys=2)
    for key in "abacb":
        cache.step(key, [{"x": 1.0, "label": 0}])
        assert len(cache) <= 2
    assert said == ["b", "a"]
    cache.flush()
    cache.flush()
    assert sorted(said) == ["a", "b", "b", "c"]
    with raises(ParameterError, parameter="max_keys"):
        KeyCache(KeyedClassifier(CPMClassifier()), store.get, save, max_keys=0)


def test_a_stateful_function_of_an_engine():
    class State(dict):
        get_bytes, set_bytes = dict.get, dict.__setitem__

    keyed, state = KeyedClassifier(CPMClassifier()), State()
    answers = [keyed({"a": float(i % 2), "label": i % 2}, state) for i in range(20)]
    assert (answers, *state.values()) == keyed.step(None, [{"a": float(i % 2), "label": i % 2} for i in range(20)])


# Parents ---------------------------------------------------------------------------------------------------------


def customers(n, seed=0, n_keys=10):
    """Half of the customers are like the others; the rest are the opposite."""
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
    answers, _ = KeyedClassifier(CPMClassifier(), prior_model=parent).step(None, [{"a": 2.0}, {"a": -2.0}])
    expected = [parent.predict_one({"a": a}) for a in (2.0, -2.0)]
    assert [answer["prediction"] for answer in answers] == expected == ["high", "low"]
    assert answers[0]["score"] == pytest.approx(parent.predict_proba_one({"a": 2.0})["high"], abs=0.01)


@pytest.mark.parametrize("learn", [True, False])
def test_a_key_learns_where_it_is_unlike_the_others(learn):
    """Keys like their parent stay as accurate; others become more accurate than it."""
    keyed = KeyedClassifier(CPMClassifier(), prior_model="learn" if learn else trained())
    states: dict[int, bytes | None] = dict.fromkeys(range(10))
    right: dict[bool, list[bool]] = {True: [], False: []}
    for who, event in customers(3_000):
        [answer], states[who] = keyed.step(states[who], [event])
        right[who % 3 > 0].append(answer["prediction"] == event["label"])
    assert np.mean(right[True][-500:]) > 0.95
    assert np.mean(right[False][-500:]) > 0.95


def test_a_key_unlike_the_others_follows_its_own_model_soon():
    """Moderate probabilities, as calibration for noisy labels gives them, suffice."""
    vote, predicted = PriorVote(), []
    for n in range(100):
        together = vote.combine({"high": 0.7, "low": 0.3}, ["high", "low"], [0.25, 0.75], n)
        predicted.append(max(together, key=together.__getitem__))
        vote.learn("low")
    assert predicted[0] == "high"
    assert predicted.index("low") < 50


def test_the_own_model_is_the_same_with_a_parent():
    """A key's own model does not depend on the parent, which may come or go."""
    parent, events = trained(), [event for _, event in customers(60)]
    alone, beside = KeyedClassifier(CPMClassifier()), KeyedClassifier(CPMClassifier(), prior_model=parent)
    _, state = beside.step(None, events)
    assert beside.step(None, events)[1] == state
    (answer,), _ = alone.step(state, [{"a": 0.1}])
    assert answer == alone.step(alone.step(None, events)[1], [{"a": 0.1}])[0][0]
    _, went_on = beside.step(alone.step(state, [])[1], [])
    assert went_on == state


@pytest.mark.parametrize("model", [CPMClassifier(), StreamSVMClassifier(effort="low", budget=5)])
def test_a_parent_that_does_not_learn_is_unchanged(model):
    for _, event in customers(100, seed=1):
        model.learn_one({"a": event["a"]}, event["label"])
    before = snapshot(model)
    keyed = KeyedClassifier(CPMClassifier(), prior_model=model)
    events = [event for _, event in customers(30)]
    assert keyed.step(None, events) == keyed.step(None, events)
    assert snapshot(model) == before


def test_a_parent_does_not_go_by_the_labels_it_learned_last():
    """Label autocorrelation of the parent's training does not affect a key."""
    model = StreamSVMClassifier(effort="low", budget=5)
    for i in range(300):
        model.learn_one({"a": float(i % 2)}, i % 2)
    assert model.autocorrelation_weight > 0.0
    keyed = KeyedClassifier(CPMClassifier(), prior_model=model)
    answers, _ = keyed.step(None, [{"a": float(i)} for i in (0, 1, 1, 0)])
    assert [answer["prediction"] for answer in answers] == [0, 1, 1, 0]
    assert model.label_autocorrelation


def test_a_parent_from_a_file(tmp_path):
    trained().save(tmp_path / "all.svm")
    keyed = KeyedClassifier(CPMClassifier(), prior_model=tmp_path / "all.svm")
    assert keyed.step(None, [{"a": 2.0}])[0][0]["prediction"] == "high"
    assert keyed.prior_model.n_events_learned == 2_000


def test_labels_that_only_one_of_both_knows():
    keyed = KeyedClassifier(CPMClassifier(), prior_model=trained())
    events = [{"a": float(i % 2), "label": "new"} for i in range(100)]
    answers, _ = keyed.step(None, events)
    assert answers[-1]["prediction"] == "new"


def test_parents_that_are_none_are_refused(tmp_path):
    with raises(ParameterError, parameter="prior_model"):
        KeyedClassifier(CPMClassifier(), prior_model=CPMClassifier())
    with raises(TypeError, parameter="prior_model"):
        KeyedClassifier(CPMClassifier(), prior_model=3)
    with pytest.raises(FileNotFoundError):
        KeyedClassifier(CPMClassifier(), prior_model=tmp_path / "none.svm")


@pytest.mark.parametrize("section", [b"", b"[1]", b"[[1.0,-1.0],null]", b'[[1.0,1.0,"1"],null]', b'[[1.0,1.0],"x"]'])
def test_votes_that_are_none_are_refused(section):
    _, state = KeyedClassifier(CPMClassifier(), prior_model=trained()).step(None, [])
    *others, _ = unseal(state)
    with raises(KeyStateError, reason="content"):
        KeyedClassifier(CPMClassifier()).step(seal([*others, section]), [])


# Late labels and idle keys ----------------------------------------------------------------------------------------


def late_doings():
    """Orders and labels in any order; some have no label, two, or no event."""
    orders = st.integers(0, 5)
    order = st.fixed_dictionaries({"order": orders, "a": st.floats(-3.0, 3.0), "at": st.integers(0, 8)})
    label = st.fixed_dictionaries({"order": orders, "label": st.sampled_from("xy"), "at": st.integers(0, 8)})
    return st.lists(st.tuples(KEYS, st.one_of(order, label)), max_size=40)


class Slow:
    """Plain implementation of late labels."""

    def __init__(self, wait, most):
        self.model, self.wait, self.most, self.newest = CPMClassifier(), wait, most, -1
        self.waits: list[tuple[int, int, Any, Any]] = []

    def take(self, record):
        self.newest = max(self.newest, record["at"])
        while self.waits and self.newest - self.waits[0][0] > self.wait:
            self.waits.pop(0)
        order, label, x = record["order"], record.get("label"), {"a": record.get("a")}
        found = next((entry for entry in self.waits if entry[1] == order), None)
        predicted = self.model.predict_one(x) if label is None else None
        if found is None:
            self.waits.append((self.newest, order, x if label is None else None, label or predicted))
            self.waits = self.waits[-self.most :]
            return predicted
        if (found[2] is None) == (label is None):
            self.waits.remove(found)
            self.model.learn_one(*((found[2], label) if label else (x, found[3])))
            return found[3] if label else predicted
        return predicted


@settings(max_examples=30)
@given(doings=late_doings(), most=st.integers(1, 4))
def test_late_labels_are_learned_with_the_predicted_features(doings, most):
    """Compare any order of records, with packed states and cached keys."""
    keyed = KeyedClassifier(
        CPMClassifier(), time="at", time_unit="ms", join="order", label_timeout=0.003, max_pending=most
    )
    states: dict[str, bytes | None] = dict.fromkeys("pqr")
    store: dict[str, bytes] = {}
    cache = KeyCache(keyed, store.get, store.__setitem__, max_keys=2)
    slow = {key: Slow(3, most) for key in "pqr"}
    for key, record in doings:
        (answer,), states[key] = keyed.step(states[key], [record])
        assert cache.step(key, [record]) == [answer]
        assert answer["prediction"] == slow[key].take(record)
        assert ("label" in answer) == ("label" in record)
    cache.flush()
    for key, data in store.items():
        assert data == states[key]
        fresh = KeyedClassifier(CPMClassifier(), time="at", time_unit="ms", join="order", label_timeout=0.003)
        learner = Key(fresh, data).model.learner
        assert snapshot(learner) == snapshot(slow[key].model)


def test_a_label_within_its_event_is_learned_at_once():
    keyed = KeyedClassifier(CPMClassifier(), join="order")
    events = [{"order": i, "a": float(i % 2), "label": i % 2} for i in range(20)]
    bare = [{"a": event["a"], "label": event["label"]} for event in events]
    assert keyed.step(None, events) == KeyedClassifier(CPMClassifier()).step(None, bare)


def test_late_labels_with_a_parent_and_a_blend():
    """The vote learns late labels; the ensemble stores requested predictions."""
    keyed = KeyedClassifier(StreamSVMClassifier(effort="low", budget=5), prior_model=trained(), join="order")
    alone, state = StreamSVMClassifier(effort="low", budget=5), None
    records = [event for _, event in customers(100)]
    for i, event in enumerate(records):
        _, state = keyed.step(state, [{"order": i, "a": event["a"]}, {"order": i, "label": event["label"]}])
        alone.predict_one({"a": event["a"]})
        alone.learn_one({"a": event["a"]}, event["label"])
    key = Key(keyed, state)
    assert snapshot(key.model.learner) == snapshot(alone)
    assert key.vote.own > 0.0
    assert keyed.counts == {"events": 100, "labels": 100, "learned": 100, "expired": 0, "dropped": 0}


def test_pending_entries_are_bounded_and_counted():
    keyed = KeyedClassifier(CPMClassifier(), time="at", time_unit="ms", join="order", label_timeout=10, max_pending=3)
    events = [{"order": i % 6, "a": 1.0, "at": i} for i in range(7)]
    _, state = keyed.step(
        None, [*events, {"order": 5, "a": 1.0, "at": 7}, {"order": 9, "a": 1.0, "at": "1970-01-01T01"}]
    )
    counts = {"dropped": 4, "duplicates": 1, "expired": 3}
    assert counts.items() <= keyed.counts.items()
    assert keyed.newest(state) == 3_600_000


def test_idle_keys_are_reset():
    keyed = KeyedClassifier(CPMClassifier(), time="at", time_unit="ms", key_ttl=10.0)
    events = [{"a": float(i % 2), "label": i % 2, "at": 1_000 * i} for i in range(20)]
    _, state = keyed.step(None, events)
    late = {"a": 1.0, "at": 19_000 + 10_000}
    assert keyed.step(state, [late])[0][0]["prediction"] == 1
    late["at"] += 1
    answers, anew = keyed.step(state, [late])
    assert answers == [{"prediction": None, "score": None}]
    assert anew == keyed.step(None, [late])[1]
    assert keyed.counts["forgotten"] == 1
    assert keyed.newest(keyed.step(state, [{"a": 1.0, "at": 3}, {"a": 1.0}])[1]) == 19_000
    assert "is not a time" in keyed.step(state, [{"a": 1.0, "at": "soon"}])[0][0]["reason"]
    assert KeyedClassifier(CPMClassifier()).newest(KeyedClassifier(CPMClassifier()).step(None, [])[1]) is None


def test_the_times_of_keys_tell_their_unit():
    keyed = KeyedClassifier(CPMClassifier(), time="at", key_ttl=10.0)
    _, state = keyed.step(None, [{"a": 1.0, "label": 1, "at": 1_700_000_000}])
    assert keyed.newest(state) == 1_700_000_000_000
    assert keyed.step(state, [{"a": 1.0, "at": 1_700_000_009.5}])[0][0]["prediction"] == 1
    assert keyed.step(state, [{"a": 1.0, "at": "1700000011"}])[0][0]["prediction"] is None
    assert "time_unit" in keyed.step(state, [{"a": 1.0, "at": 1_500}])[0][0]["reason"]
    with raises(ValueError, named="time_unit"):
        KeyedClassifier(CPMClassifier(), time="at", time_unit="m")


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"key_ttl": 5}, "key_ttl"),
        ({"label_timeout": 5, "join": "order"}, "label_timeout"),
        ({"label_timeout": 5, "time": "at"}, "label_timeout"),
        ({"time": "label"}, "label"),
        ({"time": "at", "key_ttl": 0}, "key_ttl"),
        ({"max_pending": 0}, "max_pending"),
    ],
)
def test_settings_that_do_not_fit(given, parameter):
    with raises(ParameterError, parameter=parameter):
        KeyedClassifier(CPMClassifier(), **given)


@pytest.mark.parametrize("line", [b"", b"'a'\tnow\t[]", b"'a'\t5", b"'a'\t5\t[]\t"])
def test_damaged_pending_entries_are_refused(line):
    *others, rest = unseal(KeyedClassifier(CPMClassifier()).step(None, [])[1])
    with raises(KeyStateError, reason="content"):
        KeyedClassifier(CPMClassifier()).step(seal([*others, rest + b"\n" + line]), [])
