"""River's `clone` and `mutate` with trained models."""

from __future__ import annotations

import copy
import inspect
import pickle

import pandas as pd
import pytest
from river import compose, preprocessing

from streamsvm import BSGDClassifier, CPMClassifier, DelayedClassifier, StreamSVMClassifier
from streamsvm.parameters import ParameterError
from tests.errors import raises
from tests.learners import MAKERS, knowledge, looped, ring

pytestmark = pytest.mark.usefixtures("lasting_process")

X, Y = ring(200)
ROWS = pd.DataFrame(X, columns=["a", "b"])
MODELS = {
    **MAKERS,
    "bsgd": lambda: BSGDClassifier(budget=30),
    "blend": lambda: StreamSVMClassifier(effort="low", budget=30, label_autocorrelation=False),
    "blend with costs": lambda: StreamSVMClassifier(effort="low", budget=30, abstain=0.4, label_autocorrelation=False),
    "blend with refits": lambda: StreamSVMClassifier("low", budget=30, label_autocorrelation=False, refit="newton"),
    "delayed": lambda: DelayedClassifier(CPMClassifier()),
}


EVENTS = ROWS.to_dict("records")


def learned(make):
    model = make()
    looped(model, EVENTS, Y)
    return model


def probabilities(model):
    return [model.predict_proba_one(x) for x in EVENTS[:20]]


@pytest.mark.parametrize("name", MODELS)
def test_a_clone_with_attributes_knows_the_same_and_shares_nothing(name):
    model = learned(MODELS[name])
    before = probabilities(model)
    twin = model.clone(include_attributes=True)
    assert probabilities(twin) == before
    for x in EVENTS:
        twin.learn_one(x, "new")
    assert probabilities(model) == before
    assert "new" not in model.classes_
    assert model.clone().classes_ == []


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (MODELS["cpm"], {"l2": 0.1, "horizon": 300}),
        (MODELS["bsgd"], {"learning_rate": 0.01, "l2": 1e-3}),
        (MODELS["blend"], {"vote_window": 50.0}),
    ],
)
def test_changed_settings_are_those_of_a_model_that_is_made_with_them(make, changes):
    model, same = learned(make), learned(make)
    before = probabilities(model)
    model.mutate(changes)
    assert probabilities(model) == before
    assert {name: getattr(model, name) for name in changes} == changes
    back, by_attribute = model.clone(include_attributes=True), learned(make)
    back.mutate({name: getattr(same, name) for name in changes})
    for name, value in changes.items():
        setattr(by_attribute, name, value)
    for one in (model, same, back, by_attribute):
        one.learn_many(ROWS, Y)
    assert knowledge(by_attribute) == knowledge(model)
    assert knowledge(back) == knowledge(same)  # a change and its reversal have no effect
    assert knowledge(model)[1] != knowledge(same)[1]


@pytest.mark.parametrize("name", ["bsgd", "blend"])
def test_a_budget_grows_and_shrinks(name):
    model = learned(MODELS[name])
    found = []
    for budget in (8, 60):
        model.mutate({"budget": budget})
        assert len(model.nearest({"a": 0.0, "b": 0.0}, n=100)) <= 8
        model.learn_many(ROWS, Y)
        found.append(len(model.nearest({"a": 0.0, "b": 0.0}, n=100)))
        assert (model.predict_many(ROWS) == Y).mean() > 0.8
    assert found[0] == 8 < found[1] <= 60


def test_a_model_with_few_events_takes_another_budget():
    model = BSGDClassifier(budget=500, learning_rate=1.0)
    model.learn_many(X[:40], Y[:40])
    model.mutate({"budget": 5})
    assert model.n_support_vectors == 5


def test_a_classifier_inside_another_is_changed_in_its_place():
    for make in (MODELS["refit"], MODELS["deciding"], MODELS["delayed"]):
        model, unchanged = learned(make), learned(make)
        model.mutate({"model": {"l2": 1.0}})
        assert model.model.l2 == 1.0
        for each in (model, unchanged):
            each.model.learn_many(ROWS, Y)
        assert model.model.predict_proba_one(EVENTS[0]) != unchanged.model.predict_proba_one(EVENTS[0])
        with raises(ParameterError, parameter="model"):
            model.mutate({"model": CPMClassifier()})
    pipeline = compose.Pipeline(preprocessing.StandardScaler(), BSGDClassifier())
    pipeline.mutate({"BSGDClassifier": {"budget": 7}})
    for i in range(40):
        pipeline.learn_one({"a": float(i * 7 % 40)}, i % 2)
    assert pipeline["BSGDClassifier"].n_support_vectors == 7


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (CPMClassifier, {"n_faces": 2}),
        (StreamSVMClassifier, {"effort": "low"}),
        (StreamSVMClassifier, {"effrot": "low"}),
        (MODELS["refit"], {"delay": 100}),
    ],
)
def test_fixed_parameters_are_refused_by_name(make, change):
    model = make()
    with raises(ParameterError, parameter=next(iter(change))):
        model.mutate(change)


@pytest.mark.parametrize(
    ("name", "mutable"),
    [
        ("cpm", {"l2", "horizon", "max_classes"}),
        ("bsgd", {"budget", "learning_rate", "l2", "max_classes"}),
        ("blend", {"budget", "vote_window", "max_classes"}),
        ("blend with costs", {"budget", "vote_window", "max_classes"}),
    ],
)
def test_assigning_a_fixed_parameter_is_refused(name, mutable):
    model = learned(MODELS[name])
    for copied in (model, model.clone(), model.clone(include_attributes=True)):
        before = repr(copied)
        for fixed in inspect.signature(type(copied)).parameters.keys() - mutable:
            with raises(ParameterError, parameter=fixed, named="clone"):
                setattr(copied, fixed, object())
        assert repr(copied) == before


@pytest.mark.parametrize("name", MODELS)
def test_copies_keep_attributes_of_users(name):
    model = MODELS[name]()
    model.note = ["own"]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), model.clone(include_attributes=True)):
        assert twin.note == ["own"]


class _Wide(BSGDClassifier):
    """Classifier that stores its parameters after its base class has done so."""

    def __init__(self, budget=30, scaling="rank", note=None):
        super().__init__(budget, scaling=scaling)
        self.budget, self.scaling, self.note = budget, scaling, note


def test_a_subclass_may_assign_its_parameters_after_its_base_class():
    model = learned(lambda: _Wide(20, note="own"))
    for twin in (model, model.clone(), model.clone(include_attributes=True), pickle.loads(pickle.dumps(model))):
        assert (twin.budget, twin.scaling, twin.note) == (20, "rank", "own")
        twin.mutate({"budget": 10})
        twin.note = "another"
        assert (twin.budget, twin.note) == (10, "another")


def test_a_value_that_is_refused_changes_nothing():
    model = learned(MODELS["bsgd"])
    before = knowledge(model)
    with raises(ParameterError, parameter="budget"):
        model.mutate({"budget": 0})
    assert knowledge(model) == before
