"""`StreamSVMClassifier` with refits and costs predicts like its parts."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import streamsvm
from streamsvm import DecidingClassifier, KeyedClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.models import ArchiveError
from streamsvm.parameters import ParameterError
from streamsvm.refit import Every, Latest, OnDemand
from streamsvm.run.history import RefitSummary
from tests.errors import raises
from tests.learners import dicts, ring

pytestmark = pytest.mark.usefixtures("lasting_process")

REFIT = {"solver": "newton", "trigger": Every(150), "delay": 64, "window": Latest(100)}
COSTS = {"cost": {True: {False: 9.0}}, "class_weight": "balanced", "abstain": 0.8}
SETTINGS = {"refits": {"refit": REFIT}, "costs": COSTS, "both": {"refit": REFIT} | COSTS}
X, Y = ring(280)  # no refit is under way at the end, so that the process of the solver is not killed
ROWS = dicts(X)


def blend(**settings):
    return StreamSVMClassifier("low", budget=10, **settings)


def by_hand(**settings):
    """Combine the parts without the class."""
    model = blend()
    if "refit" in settings:
        model = RefitClassifier(model, **settings["refit"])
    costs = {name: value for name, value in settings.items() if name != "refit"}
    return DecidingClassifier(model, **costs) if costs else model


@pytest.fixture(params=SETTINGS)
def settings(request):
    return SETTINGS[request.param]


@pytest.fixture
def learned(settings):
    model = blend(**settings)
    model.learn_many(X, Y)
    return model


def test_it_answers_as_its_parts(settings):
    model, parts = blend(**settings), by_hand(**settings)
    undecided = parts.model if "cost" in settings else parts
    for x, y in zip(ROWS[:180], Y[:180].tolist(), strict=True):
        assert model.predict_one(x) == parts.predict_one(x)
        assert model.predict_proba_one(x) == parts.predict_proba_one(x)
        assert model.predict_set_one(x, 0.8) == undecided.predict_set_one(x, 0.8)
        model.learn_one(x, y)
        parts.learn_one(x, y)
    for one in (model, parts):
        one.learn_many(X[180:200], Y[180:200], np.full(20, 2.0))
    assert model.predict_many(X).tolist() == parts.predict_many(X).tolist()
    assert model.predict_proba_many(X).tolist() == parts.predict_proba_many(X).tolist()
    assert model.test_then_train(X[200:], Y[200:]).tolist() == parts.test_then_train(X[200:], Y[200:]).tolist()
    assert model.n_events_learned == len(X)


def test_batches_answer_as_rows(settings):
    batched, rowwise = blend(**settings), blend(**settings)
    codes, scores, proba = batched.run_batch(X, Y.tolist(), proba=True)
    predicted, expected = rowwise.test_then_train(X, Y, proba=True)
    answers = np.array([*batched.classes_, None], object)
    assert answers[codes].tolist() == predicted.tolist()
    assert proba.tolist() == expected.tolist()
    known = codes >= 0
    assert scores[known].tolist() == proba[known, codes[known]].tolist()
    assert np.isnan(scores[~known]).all()


def test_the_class_has_all_methods_with_and_without_options(learned):
    assert type(learned) is StreamSVMClassifier
    assert learned.classes_ == [*dict.fromkeys(Y.tolist())]
    x = ROWS[0]
    assert learned.explain_one(x).label == max(learned.predict_proba_one(x).items(), key=lambda item: item[1])[0]
    assert learned.relevance.keys() == {0, 1}
    assert learned.predict_set_one(x, coverage=0.9) <= {True, False}
    predicted, shares, members = learned.test_then_train(X, Y, proba=True, coverage=0.9)
    assert len(predicted) == len(shares) == len(members) == len(X)
    before = learned.summary()
    learned.learn_many(X + 9.0, Y)
    assert learned.changes(before)
    assert learned.nearest(x, n=2)
    assert learned.memory_bytes() > 30_000


def test_a_copy_without_order_predicts_without_label_autocorrelation(learned):
    twin = learned.without_order()
    assert twin.autocorrelation_effect() is None
    assert learned.autocorrelation_effect() is not None
    proba = np.array([list(twin.predict_proba_one(x).values()) for x in ROWS[:9]])
    assert proba.tolist() == learned.predict_proba_many(X[:9]).tolist()


def test_an_explanation_names_informative_missing_values():
    rng = np.random.default_rng(0)
    model = blend(refit=REFIT)
    for number, is_missing in zip(rng.normal(size=420).tolist(), rng.random(420) < 0.3, strict=True):
        model.learn_one({"a": None if is_missing else number, "b": number}, "gone" if is_missing else number > 0.0)
    first = model.explain_one({"a": None, "b": 0.5}, nearest=0).contributions[0]
    assert first.feature == ("a", None)
    assert first.adds > 1.0


def parameters(model):
    return {name: getattr(model, name) for name in inspect.signature(type(model)).parameters}


@pytest.mark.parametrize("settings", [SETTINGS["both"]], ids=["both"])
def read_only(model):
    """Return a copy from a pickle whose arrays are read-only, as joblib maps."""
    buffers = []
    content = pickle.dumps(model, 5, buffer_callback=buffers.append)
    return pickle.loads(content, buffers=[bytes(buffer) for buffer in buffers])


@pytest.mark.parametrize(
    "again",
    [
        copy.deepcopy,
        copy.copy,
        lambda model: pickle.loads(pickle.dumps(model)),
        read_only,
        lambda model: model.clone(include_attributes=True),
        lambda model: StreamSVMClassifier.from_state(*model.state()),
    ],
    ids=["deepcopy", "copy", "pickle", "read-only pickle", "clone", "state"],
)
def test_copies_continue_equally_and_share_nothing(again, settings, learned):
    learned.learn_many(X[:20], Y[:20])  # a refit begins
    twin = again(learned)
    assert type(twin) is StreamSVMClassifier
    assert parameters(twin) == parameters(learned)
    before = learned.predict_proba_many(X).tolist()
    found = twin.test_then_train(X[:100], ~Y[:100]).tolist()
    assert learned.predict_proba_many(X).tolist() == before
    assert found == learned.test_then_train(X[:100], ~Y[:100]).tolist()


def test_a_saved_one_is_loaded(settings, learned, tmp_path):
    learned.save(tmp_path / "model")
    for found in (streamsvm.load(tmp_path / "model"), StreamSVMClassifier.load(tmp_path / "model")):
        assert parameters(found) == parameters(learned)
        assert found.predict_many(X).tolist() == learned.predict_many(X).tolist()


def test_settings_change_while_it_runs(learned):
    learned.mutate({"budget": 3})
    assert learned.budget == learned.clone().budget == 3
    assert len(learned.nearest(ROWS[0], n=100)) <= 3
    with raises(ParameterError, parameter="cost"):
        learned.mutate({"cost": None})


def test_refits_are_requested_and_listed():
    model = blend(refit=REFIT | {"trigger": OnDemand()})
    model.learn_many(X[:150], Y[:150])
    model.refit_now()
    model.learn_many(X[150:], Y[150:])
    assert [refit["event"] for refit in model.refits] == [151]
    assert model.refit_totals()["outcomes"] == {"votes": 1}
    plain = blend()
    assert (plain.refits, plain.refit_totals(), RefitSummary.of(plain)) == ([], None, None)
    with raises(ParameterError, parameter="refit"):
        plain.refit_now()


def test_refits_are_not_made_twice():
    with raises(TypeError, parameter="learner"):
        RefitClassifier(blend(refit="newton"))
    with raises(TypeError, parameter="model"):
        KeyedClassifier(blend(**COSTS))


def test_an_archive_of_parts_around_something_else_is_refused():
    header, arrays = DecidingClassifier(streamsvm.CPMClassifier()).state()
    arrays = {f"model.{name}": array for name, array in arrays.items()}
    with raises(ArchiveError, named="CPMClassifier"):
        StreamSVMClassifier.from_state({"class": "StreamSVMClassifier", "parts": header}, arrays)
